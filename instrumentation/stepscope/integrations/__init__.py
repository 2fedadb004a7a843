"""
What other people's programs need beyond the boundary calls, one module for each of them; none is imported by itself.
"""
