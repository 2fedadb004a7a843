"""
The messages between a process's agent and its sidecar: newline-delimited JSON over a unix socket.

Owns the shape of every message and its bounds. Both ends decode with :func:`decode`, which accepts nothing but
these messages; unknown fields are ignored so that ends of different releases can talk.
"""

import json
import typing
from dataclasses import dataclass, field

from stepscope import codec
from stepscope.errors import WireError

PROTOCOL = 1
"""Raised when a message changes in a way that an older end would misread."""

RECORD = "closed.json"
"""The close record in a window's folder: what a sidecar that was away finds."""

GRANTED = "granted"
"""The grant, in a window's folder until its close record lies there: what is left of a window whose process and sidecar
are both killed before the sidecar has written it down."""

MAX_LINE = 4 * 1024 * 1024
"""Bytes of one message. A step's sample table of 10,000 rows takes about 0.7 MB; anything larger is not ours."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Caps:
    """
    Bounds of one window; 0 means no bound. ``memory`` is growth of resident memory in bytes.
    """

    seconds: float = 0.0
    bytes: int = 0
    memory: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenWindow:
    """
    A window that was open when the connection was lost, told at registering again.
    """

    window: str
    step: int
    param_version: int
    tool: str
    level: str
    opened_unix_ns: int
    trace_id: str
    span_id: str
    stall: dict[str, float] = field(default_factory=dict)
    last_step: int = 0
    """The last step it covers so far; 0: ``step`` alone."""
    level_fallback: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Register:
    """
    Agent to sidecar, first on every connection. ``tools`` maps each tool to "" or to why it is unavailable.

    ``process_start`` is field 22 of /proc/PID/stat (clock ticks since boot), so that a reused pid is noticed.
    """

    id: int
    protocol: int
    run: str
    attempt: str
    node: str
    pid: int
    process_start: int
    role: str
    rank: int
    world_size: int | None = None
    param_version: int = 0
    resumed_from: int | None = None
    total_steps: int | None = None
    device_ids: list[str] = field(default_factory=list)
    tools: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    """Those of :data:`stepscope.settings.SHARED` that are set in this process, as they were written."""
    open_windows: list[OpenWindow] = field(default_factory=list)
    register_only: bool = False
    """It has no steps of its own, and never asks for a window."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Registered:
    """
    Sidecar to agent: the registration holds.
    """

    id: int
    selection: str
    revision: int
    stopped: bool
    otlp_endpoint: str
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    """
    Sidecar to agent: the registration or request cannot be taken, and why.
    """

    id: int
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Version:
    """
    Agent to sidecar, no answer: the process entered ``step`` with ``param_version`` in force.
    """

    step: int
    param_version: int
    update_delay: float = 0.0
    """Seconds that profiling kept the update waiting that led here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepClosed:
    """
    Agent to sidecar, no answer: the process closed ``step``; ``partial`` steps belong to no update.

    ``param_version`` is in force after the boundary, where that is known there: a trainer's update makes it.
    """

    step: int
    partial: bool = False
    param_version: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Open:
    """
    Agent to sidecar: may a window open now? ``forced`` is ``step(profile=True)``: the selection is not asked.
    """

    id: int
    step: int
    param_version: int
    forced: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Grant:
    """
    Sidecar to agent: open it. ``folder`` is absolute; the raw artifact and its close record go there.
    """

    id: int
    window: str
    tool: str
    level: str
    folder: str
    caps: Caps
    continuous: bool = False
    """It may go on into the next step where that is selected too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Deny:
    """
    Sidecar to agent: no window, for this reason (one of ``names.Reason``).
    """

    id: int
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Started:
    """
    Agent to sidecar, no answer: the profiler runs and the process's span has begun. Times are unix-epoch ns.
    """

    window: str
    trace_id: str
    span_id: str
    opened_unix_ns: int
    level: str
    level_fallback: str = ""
    stall: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Continued:
    """
    Agent to sidecar, no answer: an open window goes on into ``step``, whose process's span is the one given.
    """

    window: str
    step: int
    trace_id: str
    span_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """
    Agent to sidecar, no answer: a granted window that never recorded, or whose profiler failed.

    ``state`` is expired (the grant came too late), denied (the tool cannot record here as was granted) or failed.
    """

    window: str
    state: str
    reason: str
    detail: str = ""
    stall: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Missed:
    """
    Agent to sidecar, no answer: a selected window that was denied while there was no sidecar to ask.
    """

    step: int
    param_version: int
    reason: str
    unix_ns: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ContinuedSpan:
    """
    A span that is not, or not wholly, on the profiler's timeline: clipped to the window and marked when finalising.
    """

    span_id: str
    name: str
    start_unix_ns: int
    end_unix_ns: int
    thread: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Closed:
    """
    Agent to sidecar, no answer; also the close record, as JSON beside the raw artifact (``closed.json``).

    ``artifact`` is the raw file's name within the window's folder. ``mirrored`` are the ids of the spans that were
    put on the profiler's timeline, ``continued`` those that finalising has to add.
    """

    window: str
    reason: str
    version_at_close: int
    opened_unix_ns: int
    closed_unix_ns: int
    artifact: str
    trace_id: str
    span_id: str
    level: str
    stall: dict[str, float] = field(default_factory=dict)
    incomplete: str = ""
    mirrored: list[str] = field(default_factory=list)
    continued: list[ContinuedSpan] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)
    last_step: int = 0
    """The last step it covers; 0: the one it was opened for, alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Samples:
    """
    Agent to sidecar, no answer: rows ``[sample id, oldest version | None, newest version | None, trace id, span id]``
    consumed by one mini-batch.
    """

    step: int
    mini_batch: int
    param_version: int
    rows: list[list[str | int | None]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Dropped:
    """
    Agent to sidecar, no answer: spans that this process could not deliver, by reason, since it last said so.
    """

    spans: dict[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Bye:
    """
    Agent to sidecar, no answer: the process leaves in order; nothing more will come.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Selected:
    """
    Sidecar to agent: the selection changed, or everything was stopped.
    """

    selection: str
    revision: int
    stopped: bool
    source: str = ""
    """What changed it: api or file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stop:
    """
    Sidecar to agent: close this window now, for this reason.
    """

    window: str
    reason: str


FromAgent = (
    Register | Version | StepClosed | Open | Started | Continued | Ended | Missed | Closed | Samples | Dropped | Bye
)
FromSidecar = Registered | Refused | Grant | Deny | Selected | Stop
Message = FromAgent | FromSidecar

KINDS: dict[str, type[Message]] = {kind.__name__.lower(): kind for kind in typing.get_args(Message)}


def encode(message: Message) -> bytes:
    """
    The message as one line of JSON, newline included.
    """
    data = {"kind": type(message).__name__.lower(), **codec.unbuilt(message)}
    return json.dumps(data, separators=(",", ":"), default=codec.unbuilt).encode() + b"\n"


def decode(line: bytes) -> Message:
    """
    The message in ``line``.

    Raises:
        WireError: it is not JSON, not an object, of no known kind, too long, or a field has the wrong type.
    """
    if len(line) > MAX_LINE:
        raise WireError(f"message of {len(line)} bytes is over the limit of {MAX_LINE}")
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise WireError(f"message is not JSON: {line[:60]!r}") from error
    kind = data.get("kind") if isinstance(data, dict) else None
    if not isinstance(kind, str) or kind not in KINDS:
        raise WireError(f"message is of no known kind: {line[:60]!r}")
    return typing.cast("Message", codec.build(KINDS[kind], data))


def load_closed(data: bytes) -> Closed:
    """
    The close record in ``data``.

    Raises:
        WireError: it is not one.
    """
    message = decode(data)
    if not isinstance(message, Closed):
        raise WireError(f"not a close record but {type(message).__name__}")
    return message
