"""
Tests of one part, in one process each.
"""
