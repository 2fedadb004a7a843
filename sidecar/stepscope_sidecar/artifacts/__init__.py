"""
What profilers leave behind: one module per format that checks a raw recording and makes the final file of it.
"""
