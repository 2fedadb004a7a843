"""
What every reader of recordings makes: one table of events, whatever profiler wrote the file.

Owns the type: columns of numbers, names and tracks once each, and a header that says what the file is and what is
wrong with it. How a file is read is left to its format's module, what the numbers mean to ``attribution`` and others.

A column is an array with one element per event, in the file's order. Times are whole nanoseconds, since the epoch
where ``Header.clock`` says so. Nothing in here holds metadata of the file but what is named.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
"""Times, lengths and ids."""

Places = npt.NDArray[np.int32]
"""Places in a table: of names, of tracks, of events."""

Mask = npt.NDArray[np.bool_]

NONE = -1
"""Stands for an id, a device, a stream, a process or a thread that the file does not give."""


class Kind(IntEnum):
    """
    What an event is. A collective that a CUDA or ROCm device runs is a kernel; Ascend has rows of its own for them.
    """

    OTHER = 0
    KERNEL = 1
    MEMCPY = 2
    MEMSET = 3
    RUNTIME = 4
    DRIVER = 5
    CPU_OP = 6
    ANNOTATION = 7
    DEVICE_ANNOTATION = 8
    PYTHON = 9
    COMMUNICATION = 10
    SYNC = 11
    OVERHEAD = 12


WORK = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET, Kind.COMMUNICATION)
"""Kinds that keep a device busy, where they are on one."""


class Clock(StrEnum):
    """
    What times are counted from: the epoch, or something that only the file's profiler knows.
    """

    EPOCH = "epoch"
    RELATIVE = "relative"


class Fault(StrEnum):
    """
    What can be wrong with a file.
    """

    UNREADABLE = "unreadable"
    """Nothing could be read."""
    UNKNOWN_FORMAT = "unknown_format"
    EMPTY = "empty"
    """No bytes in it."""
    NO_EVENTS = "no_events"
    """A sound file, in which nothing was recorded."""
    TRUNCATED = "truncated"
    INVALID = "invalid"
    """Not what its format demands; what is whole was read."""
    NO_EPOCH = "no_epoch"
    """Times can't be placed in real time: ``Header.clock_reason`` says why."""
    UNPLACED_EVENTS = "unplaced_events"
    """Events without a usable start or length; see ``Header.unplaced``."""
    NOT_EVENTS = "not_events"
    """Elements of the event list that are no events."""
    NUMBERS_AS_TEXT = "numbers_as_text"
    NOT_FINITE = "not_finite"
    """NaN or Infinity, which JSON does not have."""
    LARGE_NUMBERS = "large_numbers"
    """Ids of more than 63 bits, which are left out."""
    DUPLICATE_KEYS = "duplicate_keys"
    LOST_NAMES = "lost_names"
    """torch writes ``unknown`` for a name that is not plain ASCII."""
    NAME_DECEIVES = "name_deceives"
    """The file is compressed and its name says otherwise, or the other way round."""
    ENDED_EARLY = "ended_early"
    """The profiler had no room for more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Flag:
    """
    One thing that is wrong with a file, and in words how it shows.
    """

    fault: Fault
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Unplaced:
    """
    Events of a kind that are not in the table: without a start, without a length, or with one below nought.
    """

    kind: Kind
    count: int
    duration_ns: int
    """Of those that say one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Header:
    """
    What a file is, where its numbers come from, and what is wrong with it.
    """

    path: Path
    format: str
    """``kineto``, ``torch_npu``, ``msprof``, ``torch_npu_db``, ``nsys``, ``speedscope``, ``memory``, or ``unknown``."""
    era: str = ""
    """In words, the versions of the profiler whose files look like this."""
    clock: Clock = Clock.EPOCH
    clock_reason: str = ""
    """Why times are not since the epoch."""
    base_ns: int = 0
    """What was added to the times in the file."""
    rank: int | None = None
    rank_from: str = ""
    """Where the rank was found."""
    world_size: int | None = None
    devices: tuple[str, ...] = ()
    """What the devices are called, by number where the file numbers them."""
    session_ns: tuple[int, int] | None = None
    """From when to when the profiler says that it was on."""
    metadata: dict[str, str] = field(default_factory=dict)
    """What stepscope wrote into the file, by its keys under ``stepscope.``."""
    flags: tuple[Flag, ...] = ()
    guesses: tuple[str, ...] = ()
    """Rules that had to be guessed, in words."""
    unplaced: tuple[Unplaced, ...] = ()

    def has(self, fault: Fault) -> bool:
        """
        Whether ``fault`` is flagged.
        """
        return any(flag.fault == fault for flag in self.flags)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tracks:
    """
    Where events ran: a thread of a process, or a stream of a device. ``NONE`` stands for what is not known.
    """

    pid: Ints
    tid: Ints
    device: Ints
    stream: Ints
    on_device: Mask

    def __len__(self) -> int:
        return len(self.pid)


@dataclass(frozen=True, kw_only=True, slots=True)
class Points:
    """
    Moments on host tracks at which device work was asked for, by the correlation of that work.

    A correlation may have several: the first one in time counts.
    """

    correlation: Ints
    track: Places
    at_ns: Ints

    def __len__(self) -> int:
        return len(self.correlation)


@dataclass(frozen=True, kw_only=True, slots=True)
class Collective:
    """
    What a profiler says about a collective, as it says it.
    """

    name: str
    elements_in: int | None = None
    elements_out: int | None = None
    group_size: int | None = None
    group: str = ""
    dtype: str = ""


@dataclass(frozen=True, kw_only=True)
class Trace:
    """
    All events of one recording that have a start and a length, by columns.
    """

    header: Header
    names: tuple[str, ...]
    tracks: Tracks
    start_ns: Ints
    duration_ns: Ints
    name: Places
    """Places in ``names``."""
    kind: npt.NDArray[np.int8]
    """Values of ``Kind``."""
    track: Places
    """Places in ``tracks``."""
    correlation: Ints
    """The same for a launch and for what it launched; ``NONE`` where there is none. Not unique: see graph launches."""
    external_id: Ints
    """The same for an operator and what was launched by it, in files where it can be trusted: see ``attribution``."""
    points: Points
    """Launches that are no events of their own, as flows of Ascend's files; others are RUNTIME and DRIVER events."""
    collectives: dict[int, Collective] = field(default_factory=dict)
    """By the place of the event."""

    def __len__(self) -> int:
        return len(self.start_ns)

    @cached_property
    def on_device(self) -> Mask:
        """
        Whether each event ran on a device.
        """
        return self.tracks.on_device[self.track]

    @property
    def pid(self) -> Ints:
        """
        The process of each event.
        """
        return self.tracks.pid[self.track]

    @property
    def tid(self) -> Ints:
        """
        The thread of each event.
        """
        return self.tracks.tid[self.track]

    @property
    def device(self) -> Ints:
        """
        The device of each event.
        """
        return self.tracks.device[self.track]

    @property
    def stream(self) -> Ints:
        """
        The stream of each event.
        """
        return self.tracks.stream[self.track]

    @property
    def end_ns(self) -> Ints:
        """
        When each event ended.
        """
        return self.start_ns + self.duration_ns

    def rows(self, *kinds: Kind) -> Places:
        """
        The places of events of these kinds, in the file's order.
        """
        return np.flatnonzero(np.isin(self.kind, kinds)).astype(np.int32)

    def named(self, wanted: Callable[[str], bool]) -> Mask:
        """
        Whether each event has a name that is ``wanted``, which is asked once per name.
        """
        found = np.fromiter((wanted(name) for name in self.names), dtype=np.bool_, count=len(self.names))
        return found[self.name] if len(found) else np.zeros(len(self), dtype=np.bool_)

    def name_of(self, row: int) -> str:
        """
        The name of the event at ``row``.
        """
        return self.names[int(self.name[row])]
