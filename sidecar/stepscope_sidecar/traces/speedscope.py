"""
Reads speedscope's files, as py-spy writes them: sampled or entered stacks of each thread, as calls of functions.

Owns how samples become calls: a frame that is in samples one after the other, with the same callers, is one call. It
lasts as long as the samples do, which is as exact as sampling is. Files are parsed whole, up to a bound.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import orjson

from stepscope_sidecar.artifacts import InvalidArtifact
from stepscope_sidecar.artifacts.parsing import paired
from stepscope_sidecar.artifacts.pieces import open_raw
from stepscope_sidecar.artifacts.speedscope import MAX_BYTES, SCHEMA, UNIT_SECONDS
from stepscope_sidecar.traces import ranks
from stepscope_sidecar.traces.columns import Columns
from stepscope_sidecar.traces.trace import NONE, Clock, Fault, Flag, Header, Kind, Trace

OPENED = "stepscope.opened_unix_ns"
"""When the tool began, which is what its times count from."""

NO_BASE = "times count from when the tool began, and the file does not say when that was"

_THREAD = re.compile(r"Process (?P<pid>\d+).*?Thread (?P<tid>(?:0x[0-9A-Fa-f]+|\d+))|Thread (?P<only>\d+)")

Call = tuple[int, int, int]
"""Frame, start and end."""


def is_speedscope(head: bytes) -> bool:
    """
    Whether a file that begins so is one.
    """
    return b'"$schema"' in head and SCHEMA.encode() in head


def read(path: Path, header: Header) -> Trace:
    """
    The calls in the file at ``path``.

    Raises:
        InvalidArtifact: it is no such file.
    """
    with open_raw(path) as file:
        text = file.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise InvalidArtifact(f"more than {MAX_BYTES} bytes of samples")
    try:
        told = orjson.loads(paired(text))
        columns = _columns(told)
        about = told.get("stepscope", {})
        metadata = {str(key): str(value) for key, value in about.items()} if isinstance(about, dict) else {}
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise InvalidArtifact(f"not a speedscope file: {type(error).__name__} {error}") from error
    base = int(metadata[OPENED]) if metadata.get(OPENED, "").isdecimal() else 0
    rank, rank_from, _ = ranks.rank(metadata, path)
    flags = list(header.flags)
    if not base:
        flags.append(Flag(fault=Fault.NO_EPOCH, reason=NO_BASE))
    if not columns.length:
        flags.append(Flag(fault=Fault.NO_EVENTS, reason="no samples: the process ran no Python"))
    made = replace(
        header,
        format="speedscope",
        era=str(told.get("exporter", "")),
        clock=Clock.EPOCH if base else Clock.RELATIVE,
        clock_reason="" if base else NO_BASE,
        base_ns=base,
        rank=rank,
        rank_from=rank_from,
        metadata={key: value for key, value in metadata.items() if key.startswith("stepscope.")},
        flags=tuple(flags),
    )
    return columns.trace(made, offset_ns=base)


def _columns(told: Mapping[str, object]) -> Columns:
    columns = Columns()
    shared = cast("Mapping[str, Sequence[Mapping[str, object]]]", told["shared"])
    names = [columns.name(_name(frame)) for frame in shared["frames"]]
    for number, profile in enumerate(cast("Sequence[Mapping[str, object]]", told["profiles"])):
        unit = UNIT_SECONDS[str(profile["unit"])] * 1e9
        # Times are doubles in the file itself, of a hundredth of a second.
        made = _sampled(profile, unit) if profile["type"] == "sampled" else _evented(profile, unit)
        calls = sorted(made, key=lambda call: (call[1], -call[2]))
        track = columns.host(*_thread(str(profile.get("name", "")), number))
        columns.add(
            start_ns=[start for _, start, _ in calls],
            duration_ns=[end - start for _, start, end in calls],
            name=[names[frame] for frame, _, _ in calls],
            kind=[Kind.PYTHON] * len(calls),
            track=[track] * len(calls),
            correlation=[NONE] * len(calls),
            external_id=[NONE] * len(calls),
        )
    return columns


def _sampled(profile: Mapping[str, object], unit: float) -> Iterator[Call]:
    open_calls: list[tuple[int, int]] = []
    start = float(cast("float", profile.get("startValue", 0)))
    passed, now = start, round(start * unit)
    samples = cast("Sequence[Sequence[int]]", profile["samples"])
    weights = cast("Sequence[float]", profile["weights"])
    for stack, weight in zip(samples, weights, strict=True):
        same = 0
        while same < min(len(stack), len(open_calls)) and stack[same] == open_calls[same][0]:
            same += 1
        yield from ((frame, begin, now) for frame, begin in open_calls[same:])
        open_calls[same:] = [(frame, now) for frame in stack[same:]]
        passed += weight
        now = round(passed * unit)
    yield from ((frame, begin, now) for frame, begin in open_calls)


def _evented(profile: Mapping[str, object], unit: float) -> Iterator[Call]:
    open_calls: list[tuple[int, int]] = []
    for event in cast("Sequence[Mapping[str, object]]", profile["events"]):
        now, frame = round(float(cast("float", event["at"])) * unit), int(cast("int", event["frame"]))
        if event["type"] == "O":
            open_calls.append((frame, now))
        elif open_calls and open_calls[-1][0] == frame:
            yield (frame, open_calls.pop()[1], now)
    end = round(float(cast("float", profile.get("endValue", 0))) * unit)
    yield from ((frame, begin, max(begin, end)) for frame, begin in open_calls)


def _name(frame: Mapping[str, object]) -> str:
    name, file, line = str(frame.get("name", "")), frame.get("file"), frame.get("line")
    # As Kineto calls functions, so that both compare; only the file's own name, not where somebody's home is.
    return f"{Path(str(file)).name}({line}): {name}" if file else name


def _thread(name: str, number: int) -> tuple[int, int]:
    found = _THREAD.search(name)
    if found is None:
        return NONE, number
    tid = int(found["only"] or found["tid"], 0)
    return int(found["pid"] or NONE), tid if tid < 2**63 else number
