"""
One step of a run as one timeline: spans and recordings of all its processes, on one clock, in a file for viewers.

``merging`` is where to begin: it reads what there is and says what is missing. ``groups`` finds the recordings,
``drawing`` writes Chrome's format, ``spans`` and ``recording`` draw on it.
"""

from stepscope_sidecar.timeline.merging import Merged, Missing, merge

__all__ = ["Merged", "Missing", "merge"]
