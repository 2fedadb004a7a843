"""
The closed lists: kinds of time, states of a window, reasons, what a recording can lack, and levels.

Owns their wire values; ``names`` hands them on, so that call sites import one module.
"""

from enum import StrEnum


class Bucket(StrEnum):
    """
    What kind of time a leaf span of the loop is (attribute ``rl.bucket``).
    """

    PRODUCTIVE = "productive"
    OVERHEAD = "overhead"
    IDLE = "idle"
    WASTED = "wasted"


class State(StrEnum):
    """
    The states of a window; the last five are final.
    """

    OPENING = "opening"
    RECORDING = "recording"
    CLOSING = "closing"
    FINALISING = "finalising"
    READY = "ready"
    DENIED = "denied"
    FAILED = "failed"
    ABORTED = "aborted"
    EXPIRED = "expired"

    @property
    def final(self) -> bool:
        """
        Whether a window in this state never changes again.
        """
        return self in {State.READY, State.DENIED, State.FAILED, State.ABORTED, State.EXPIRED}


class Reason(StrEnum):
    """
    Why a window is denied, failed, aborted, expired or was closed before its boundary. A closed list.
    """

    BOUNDARY = "boundary"
    RANK_NOT_SELECTED = "rank_not_selected"
    STEP_NOT_SELECTED = "step_not_selected"
    DUPLICATE = "duplicate"
    BUSY_PROCESS = "busy_process"
    BUSY_DEVICE = "busy_device"
    FOREIGN_PROFILER = "foreign_profiler"
    TOOL_UNAVAILABLE = "tool_unavailable"
    BUDGET_OVERHEAD = "budget_overhead"
    BUDGET_DISK = "budget_disk"
    MEMORY_GUARD = "memory_guard"
    CAP_SECONDS = "cap_seconds"
    CAP_BYTES = "cap_bytes"
    START_ERROR = "start_error"
    STOP_ERROR = "stop_error"
    STOP_TIMEOUT = "stop_timeout"
    PROCESS_LOST = "process_lost"
    SIDECAR_LOST = "sidecar_lost"
    FORKED_CHILD = "forked_child"
    WRONG_THREAD = "wrong_thread"
    STOPPED_BY_USER = "stopped_by_user"
    NO_ARTIFACT = "no_artifact"
    ARTIFACT_INVALID = "artifact_invalid"
    GRANT_TOO_LATE = "grant_too_late"
    NOT_STARTED = "not_started"
    PROCESS_EXIT = "process_exit"
    EXCEPTION = "exception"
    REREGISTERED = "reregistered"


class Incomplete(StrEnum):
    """
    Why a recording that was kept does not hold the whole of its step. A closed list.
    """

    CAPPED = "capped"
    STOPPED = "stopped"
    NOT_PUBLISHED = "not_published"
    VALIDATION_INSIDE = "validation_inside"
    OPENED_LATE = "opened_late"
    PARTIAL_STEP = "partial_step"
    EXCEPTION = "exception"
    PROCESS_EXIT = "process_exit"
    MARKERS_MISSING = "markers_missing"
    TRUNCATED = "truncated"
    PROFILER_STOLEN = "profiler_stolen"
    CLOSED_LATE = "closed_late"


class Level(StrEnum):
    """
    How much a window records; each level holds the one before it.
    """

    DEVICE = "device"
    SPANS = "spans"
    OPS = "ops"
    FULL = "full"
