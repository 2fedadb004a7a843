"""
The closed lists: kinds of time, states of a window, reasons, what a recording can lack, levels, and tools.

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
    The states of a window; the last six are final.

    ``lost`` is no state on a window's own node: it is what a sidecar shows of a node that it hears no more of.
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
    LOST = "lost"

    @property
    def final(self) -> bool:
        """
        Whether a window in this state never changes again; a lost one does when its node comes back.
        """
        return self in {State.READY, State.DENIED, State.FAILED, State.ABORTED, State.EXPIRED, State.LOST}


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
    NODE_VANISHED = "node_vanished"


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
    KERNELS_MISSING = "kernels_missing"
    KERNELS_MISSING_HEAD = "kernels_missing_head"
    KERNELS_MISSING_TAIL = "kernels_missing_tail"
    GAP_HEAD = "gap_head"
    GAP_TAIL = "gap_tail"
    SAMPLES_MISSING = "samples_missing"
    TRUNCATED = "truncated"
    CLOSED_LATE = "closed_late"


class Level(StrEnum):
    """
    How much a window records; each level holds the one before it.
    """

    DEVICE = "device"
    SPANS = "spans"
    OPS = "ops"
    FULL = "full"


class Tool(StrEnum):
    """
    The profilers that can be named. One that a program registers itself has a name that begins with ``x-``.
    """

    TORCH = "torch"
    TORCH_NPU = "torch_npu"
    VLLM = "vllm"
    HTTP = "http"
    MSPROF = "msprof"
    PY_SPY = "py-spy"
    NSYS = "nsys"
    CUDA_RANGE = "cuda_range"
    TORCH_MEMORY = "torch_memory"
