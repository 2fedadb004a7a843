"""
What each reason means, in a sentence: for the reference page and for the page of a window.

Pure. Code in a text stands between backticks. The names themselves are ``stepscope.names``'.
"""

from collections.abc import Mapping

from stepscope.names import Incomplete, Reason

REASONS: Mapping[Reason, str] = {
    Reason.BOUNDARY: "the step ended, as it should",
    Reason.RANK_NOT_SELECTED: "STEPSCOPE_RANKS does not hold this rank",
    Reason.STEP_NOT_SELECTED: "by the sidecar's selection the step is not, or no longer, selected",
    Reason.DUPLICATE: "this role and rank has a window for this step and profiler already",
    Reason.BUSY_PROCESS: "another window is open in this process",
    Reason.BUSY_DEVICE: "another process of this node is recording the same device",
    Reason.FOREIGN_PROFILER: "somebody else's profiler runs in this process; it is left alone",
    Reason.TOOL_UNAVAILABLE: "the profiler cannot run here; `detail` in `stepscope windows --json` says why",
    Reason.BUDGET_OVERHEAD: "the run's measured overhead exceeds STEPSCOPE_MAX_OVERHEAD",
    Reason.BUDGET_DISK: (
        "the node's artifacts of this run, with what open windows were granted, have reached STEPSCOPE_DISK_BUDGET;"
        " or the disk had no space left to finalise the recording"
    ),
    Reason.MEMORY_GUARD: "resident memory grew by more than STEPSCOPE_CAP_MEMORY",
    Reason.CAP_SECONDS: "the window reached STEPSCOPE_CAP_SECONDS",
    Reason.CAP_BYTES: "the recording was reckoned to have reached STEPSCOPE_CAP_BYTES",
    Reason.START_ERROR: "the profiler's start raised an error",
    Reason.STOP_ERROR: "the profiler's stop, or writing its recording, raised an error",
    Reason.STOP_TIMEOUT: "the profiler did not stop in time",
    Reason.PROCESS_LOST: "the process died without closing the window",
    Reason.SIDECAR_LOST: "there was no sidecar to ask, or it went away and no record of the window was found",
    Reason.FORKED_CHILD: "the process is a forked child, in which stepscope does nothing",
    Reason.WRONG_THREAD: "the thread that opened the window, and alone may stop its profiler, was gone",
    Reason.STOPPED_BY_USER: "`stepscope stop`, a file STOP, or the user's own stop",
    Reason.NO_ARTIFACT: "the window closed, and no recording was found",
    Reason.ARTIFACT_INVALID: "the recording cannot be read as what it claims to be",
    Reason.GRANT_TOO_LATE: "the answer came after the deadline; the step had begun without it",
    Reason.NOT_STARTED: "the window was granted, and nothing more was heard of it",
    Reason.PROCESS_EXIT: "the process was leaving",
    Reason.EXCEPTION: "an exception left the step",
    Reason.REREGISTERED: "the process registered again under another role",
    Reason.NODE_VANISHED: "the node of the window was not heard of for 30 s",
}
"""Why a window is denied, failed, aborted or expired, or what closed it."""

INCOMPLETE: Mapping[Incomplete, str] = {
    Incomplete.CAPPED: "a cap closed the window early",
    Incomplete.STOPPED: "the window was stopped early on request",
    Incomplete.NOT_PUBLISHED: "the step was left without `weights_published(version)`",
    Incomplete.VALIDATION_INSIDE: "a validation or a checkpoint overlapped the window",
    Incomplete.OPENED_LATE: "the window was opened when the step had begun already",
    Incomplete.PARTIAL_STEP: "the step was never completed by an update",
    Incomplete.EXCEPTION: "an exception left the step",
    Incomplete.PROCESS_EXIT: "the process was leaving",
    Incomplete.MARKERS_MISSING: "spans that were mirrored are not in the recording",
    Incomplete.KERNELS_MISSING: "launches onto the accelerator have left nothing on it; the share is of the launches",
    Incomplete.KERNELS_MISSING_HEAD: "the same, at the beginning of the recording",
    Incomplete.KERNELS_MISSING_TAIL: "the same, at the end of the recording",
    Incomplete.GAP_HEAD: "the profiler was on only after the window had begun; the share is of the window's time",
    Incomplete.GAP_TAIL: "the profiler was off before the window ended; the share is of the window's time",
    Incomplete.SAMPLES_MISSING: (
        "the tool came too late for some of its samples, of which the process was none the slower; the "
        "share is of the window's time"
    ),
    Incomplete.TRUNCATED: "the profiler had no room for more, and says so",
    Incomplete.CLOSED_LATE: "the window was closed after its boundary, and holds some of what followed",
}
"""Why a recording that was kept does not hold the whole of its step."""


def meaning(reason: str, texts: Mapping[Reason, str] | Mapping[Incomplete, str]) -> str:
    """
    What ``texts`` say of ``reason``; "" of one of another release.
    """
    return next((text for name, text in texts.items() if name.value == reason), "")
