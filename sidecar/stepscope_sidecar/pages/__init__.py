"""
The pages: of all runs, of a run with all its nodes, of a step, of a window, of a trace's recordings, and of an artifact
that is a folder.

What they need is in ``static`` and comes from this server: they work on a machine without internet, and to read them
no script has to run. One keeps a page of a live run up to date.
"""

from stepscope_sidecar.pages.folder import folder_page as folder_page
from stepscope_sidecar.pages.folder import listed_page as listed_page
from stepscope_sidecar.pages.html import Live as Live
from stepscope_sidecar.pages.nodes import Others as Others
from stepscope_sidecar.pages.recordings import trace_page as trace_page
from stepscope_sidecar.pages.recordings import window_page as window_page
from stepscope_sidecar.pages.refused import refused_page as refused_page
from stepscope_sidecar.pages.run import run_page as run_page
from stepscope_sidecar.pages.runs import AttemptShown as AttemptShown
from stepscope_sidecar.pages.runs import runs_page as runs_page
from stepscope_sidecar.pages.step import StepShown as StepShown
from stepscope_sidecar.pages.step import step_page as step_page
from stepscope_sidecar.pages.timeline import Shown as Shown
