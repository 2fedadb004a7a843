"""
The comparison of ways to profile, in parts: the loop with its markers, verl's logic rebuilt, what is found, the table.
"""
