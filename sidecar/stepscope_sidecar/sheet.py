"""
A window and its recording in numbers, as text for a person.

Pure: makes lines of what ``show`` has found. Names come last in a line, because kernels have very long ones.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from stepscope.names import Level
from stepscope_sidecar.labels import duration, process_name, size, step_name
from stepscope_sidecar.rows import WindowRow
from stepscope_sidecar.show import Against, Shown
from stepscope_sidecar.traces.collectives import Exchange
from stepscope_sidecar.traces.devices import DeviceTime
from stepscope_sidecar.traces.difference import SHARE, Change, Difference, What
from stepscope_sidecar.traces.summary import SpanTime, Summary
from stepscope_sidecar.traces.ties import How
from stepscope_sidecar.traces.totals import Total

TOP = 10
"""Names in a table; all are in the JSON."""

MAX_NAME = 120
"""Characters of a name; kernels of templates have thousands."""

GAP = 12
"""Columns before what a line says."""

WHY = {
    How.BEFORE: "launched before the recording",
    How.UNTIED: "whose launch nothing tells of",
    How.OUTSIDE: "launched outside of spans",
}
"""Why work of a device belongs to no span."""

NOT_AT_SPANS = "level spans records none; STEPSCOPE_LEVEL=ops does"


def lines(found: Shown, *, near: Path) -> list[str]:
    """
    The page; paths below ``near`` are relative to it.
    """
    row = found.row
    made = [f"{step_name(row.step, row.last_step)}: {process_name(row.role, row.rank, pid=row.pid)}"]
    made.append(_line("window", f"{row.window}, {_state(row)}"))
    if found.why:
        made.append(_line("", found.why))
    if row.artifact:
        told = str(row.json(directory=found.directory)["artifact"])
        here = told if found.directory is None else _near(Path(told), near)
        made.append(_line("recording", f"{here} ({size(row.bytes)}, {row.tool} at level {row.level})"))
    for number, summary in enumerate(found.summaries):
        if len(found.summaries) > 1:
            made += ["", f"recording {number + 1} of {len(found.summaries)}: {summary.header.path.name}"]
        made += _summary(summary, row)
        if number < len(found.against.differences):
            made += ["", *_difference(found.against, found.against.differences[number])]
    if found.summaries and not found.against.differences:
        made += ["", _line("difference", _unknown(found.against))]
    return made


def _state(row: WindowRow) -> str:
    if row.complete is False:
        share = "" if row.incomplete_share is None else f", {row.incomplete_share:.1%} of it"
        return f"{row.state}, incomplete: {row.incomplete_reason}{share}" + (f" ({row.detail})" if row.detail else "")
    return f"{row.state}, complete" if row.complete else str(row.state)


def _summary(summary: Summary, row: WindowRow) -> Iterator[str]:
    header, wall = summary.header, summary.extent.wall_ns
    rank = f", rank {header.rank} by {header.rank_from}" if header.rank is not None else ""
    yield _line("format", f"{header.format}{f' ({header.era})' if header.era else ''}{rank}")
    yield _line("wall", f"{duration(wall)} ({summary.extent.by}), {summary.events} events")
    for flag in header.flags:
        yield _line("flag", f"{flag.fault}: {flag.reason}")
    for guess in header.guesses:
        yield _line("guessed", guess)
    if total := summary.device_time:
        yield ""
        yield from _device(total, len(summary.devices))
    elif "devices" in summary.absent:
        yield _line("device", summary.absent["devices"])
    if (launched := summary.launches) is not None:
        waits = f", {launched.waits} waits for a device in {duration(launched.waiting_ns)}" if launched.waits else ""
        yield _line("launches", f"{launched.calls} calls in {duration(launched.host_ns)}{waits}")
    if summary.devices:
        yield _line("bound by", str(summary.bound.by))
        yield from (_line("", told) for told in summary.bound.evidence)
    elif "devices" in summary.absent:
        # The reason is in the line about the device.
        yield _line("bound by", str(summary.bound.by))
    yield from _totals("kernels", summary.kernels, "")
    at_spans = row.level == Level.SPANS and not header.flags
    yield from _totals(
        "operators", summary.operators, NOT_AT_SPANS if at_spans else summary.absent.get("operators", "")
    )
    yield from _collectives(summary.collectives)
    yield from _spans(summary)


def _device(time: DeviceTime, count: int) -> Iterator[str]:
    def part(nanoseconds: int) -> str:
        return f"{duration(nanoseconds)} ({_share(nanoseconds, time.wall_ns)})"

    devices = "" if count == 1 else f", {count} devices together"
    yield _line("device", f"busy {part(time.busy_ns)}, idle {part(time.idle_ns)}{devices}")
    yield _line("", f"compute {part(time.compute_ns)}")
    for name, whole, hidden, beside in (
        ("communication", time.communication_ns, time.communication_overlapped_ns, "computing"),
        ("memory", time.memory_ns, time.memory_overlapped_ns, "computing or communication"),
    ):
        if whole:
            yield _line("", f"{name} {part(whole)}, {_share(hidden, whole)} of it beside {beside}")


def _totals(title: str, totals: Sequence[Total], absent: str) -> Iterator[str]:
    whole = sum(one.own_ns for one in totals)
    if not totals:
        if absent:
            yield _line(title, absent)
        return
    yield ""
    calls = sum(one.count for one in totals)
    yield _line(title, f"{len(totals)} names, {calls} calls, {duration(whole)}")
    rows = [(duration(one.own_ns), _share(one.own_ns, whole), str(one.count), _name(one.name)) for one in totals[:TOP]]
    yield from _table(("time", "share", "calls", "name"), rows)


def _collectives(exchanges: Sequence[Exchange]) -> Iterator[str]:
    if not exchanges:
        return
    yield ""
    where = "" if exchanges[0].on_device else ", as the host tells of them"
    yield _line("collectives", f"{sum(one.count for one in exchanges)} calls{where}")
    rows = [
        (
            duration(one.total_ns),
            str(one.count),
            one.group or "-",
            "-" if one.group_size is None else str(one.group_size),
            "-" if one.elements is None else str(one.elements),
            one.dtype or "-",
            _name(one.name),
        )
        for one in exchanges[:TOP]
    ]
    yield from _table(("time", "calls", "group", "ranks", "elements", "type", "name"), rows)


def _spans(summary: Summary) -> Iterator[str]:
    if not summary.spans:
        return
    yield ""
    yield _line("spans", f"{len(summary.spans)} on the timeline; what is told of each is in no span inside it")
    by_name: dict[str, list[SpanTime]] = {}
    for span in summary.spans:
        by_name.setdefault(span.name, []).append(span)
    # Columns for what was recorded at all.
    parts: list[tuple[str, Callable[[SpanTime], int], int]] = []
    if summary.devices:
        parts.append(("device", lambda span: span.device_ns, summary.unattributed_device_ns))
    if summary.operators:
        parts.append(("operators", lambda span: span.operator_ns, summary.unattributed_operator_ns))
    rows = [
        (
            duration(sum(span.duration_ns for span in alike)),
            *(duration(sum(map(part, alike))) for _, part, _ in parts),
            str(len(alike)),
            _name(name),
        )
        for name, alike in by_name.items()
    ]
    if any(nowhere for _, _, nowhere in parts):
        rows.append(("-", *(duration(nowhere) for _, _, nowhere in parts), "-", "in no span"))
    yield from _table(("time", *(title for title, _, _ in parts), "spans", "name"), rows)
    if summary.unattributed_device_ns:
        told = summary.attributed.items()
        reasons = [f"{duration(time)} {WHY[how]}" for how, (_, time) in told if how in WHY]
        yield _line("", f"in no span: {', '.join(reasons)}")


def _unknown(against: Against) -> str:
    if against.window is None:
        return against.why
    return f"to {step_name(against.window.step, against.window.last_step)}: unknown; {against.why}"


def _difference(against: Against, found: Difference) -> Iterator[str]:
    assert against.window is not None
    row = against.window
    yield _line("difference", f"to {step_name(row.step, row.last_step)}, window {row.window}")
    yield from (_line("", told) for told in measures(found))
    if not found.changes:
        return
    rows = [_change(change) for change in found.changes[:TOP]]
    yield from _table(("what", "then", "now", "calls", "kind", "name"), rows)
    if (more := len(found.changes) - TOP) > 0:
        yield _line("", f"and {more} more; --json has all")


def measures(found: Difference) -> Iterator[str]:
    """
    What a difference is measured by, and what all names share; what is said of each name is beyond that.
    """
    yield f"per {found.unit}: {found.before:g} then, {found.after:g} now"
    yield _band(found)
    for side, pace in found.pace.items():
        if pace > found.band[side] or pace * found.band[side] < 1:
            yield f"all {side}s took {pace:.2f} times as long (median), which no line below repeats"
    if found.changes:
        yield f"then and now are the time of one {found.unit}, disturbances left out; calls are of the whole recording"
    else:
        yield "none beyond that"


def _band(found: Difference) -> str:
    bands = " and ".join(f"{found.band[side]:g} times for {side}s" for side, count in found.compared.items() if count)
    return f"noise is up to {bands}, or less than {SHARE:.0%} of all"


def _change(change: Change) -> tuple[str, ...]:
    then = "-" if change.what is What.ADDED else duration(change.before_ns)
    now = "-" if change.what is What.GONE else duration(change.after_ns)
    calls = f"{change.count_before} -> {change.count_after}"
    return (str(change.what), then, now, calls, change.side, _name(change.name))


def _table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """
    Columns to the right, but for the last one.
    """
    cells = [heading, *rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(heading) - 1)]
    for row in cells:
        yield _line("", "  ".join([*(cell.rjust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]))


def _line(title: str, text: str) -> str:
    return f"{title.ljust(GAP)}{text}".rstrip()


def _name(name: str) -> str:
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 3]}..."


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def _near(path: Path, near: Path) -> str:
    return str(path.relative_to(near)) if path.is_relative_to(near) else str(path)
