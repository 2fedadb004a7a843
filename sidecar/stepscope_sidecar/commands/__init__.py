"""
The commands of ``stepscope``: one module per kind, functions that ``cli`` registers.
"""
