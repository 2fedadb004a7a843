"""
The process beside training: decides, stores, finalises, forwards and serves; and the command line.

Read ``app.py`` first. Nothing here is imported by the profiled program.
"""
