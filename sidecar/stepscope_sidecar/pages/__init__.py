"""
The plain HTML page of a run. No script, nothing loaded from anywhere: it works on a machine without internet.
"""

from stepscope_sidecar.pages.run import run_page as run_page
