"""
The page of a step: its processes, its windows, what was expected and is missing, its timeline to be downloaded.

Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stepscope.names import State
from stepscope_sidecar.labels import plural, process_name, seconds, size, some
from stepscope_sidecar.lanes import Key, Strip
from stepscope_sidecar.pages.cells import complete, process, recording, state, tool
from stepscope_sidecar.pages.figures import spans
from stepscope_sidecar.pages.html import Content, Live, document, facts, joined, link, part, table, tag, ways
from stepscope_sidecar.pages.timeline import mark, strip
from stepscope_sidecar.rows import WindowRow
from stepscope_sidecar.steptable import UNKNOWN, StepRow

TOP = "../"

PROCESSES = ("process", "seconds", "productive", "overhead", "idle", "wasted", "picture", "windows")
WINDOWS = ("process", "tool", "level", "state", "complete", "stall", "size", "recording", "window")
NUMBERS = frozenset({"seconds", "productive", "overhead", "idle", "wasted", "stall", "size"})


@dataclass(frozen=True, kw_only=True, slots=True)
class StepShown:
    """
    What there is of a step.
    """

    row: StepRow
    trace_id: str
    lanes: Mapping[Key, Strip] = field(default_factory=dict)
    windows: Sequence[tuple[WindowRow, bool]] = ()
    """Each with whether it is of this node."""
    away: Sequence[WindowRow] = ()
    """Those whose recording lies on another node, and not in the merged timeline that is offered."""
    expected: Sequence[tuple[str, int, str]] = ()
    """Role and rank of each process that was to be recorded, and why it is missing, or ""."""
    digests: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    """By window, of those with a recording; None while one is being read."""
    before: int | None = None
    after: int | None = None
    trace_view: str = ""
    """Where the trace is shown elsewhere; "" where nothing is configured."""


def step_page(shown: StepShown, *, live: Live | None) -> str:
    """
    The page.
    """
    row = shown.row
    around = [(f"{TOP}", "the run")]
    around += [(f"{one}", f"step {one}") for one in (shown.before, shown.after) if one is not None]
    ready = [window for window, _ in shown.windows if window.state == State.READY and not window.removed]
    return document(
        f"step {row.step} - stepscope",
        [
            ways(*around),
            tag("h1", row.title),
            part("head", [facts(_head(shown))]),
            tag("h2", "Processes"),
            part("processes", [_processes(shown)]),
            tag("h2", "Windows"),
            part("windows", [_windows(shown)]),
            part("expected", _expected(shown)),
            part(
                "spans",
                [
                    tag("h2", "Time per span, where it was recorded"),
                    *(piece for window in ready for piece in _spans(window, shown)),
                ]
                if ready
                else [],
            ),
        ],
        top=TOP,
        live=live,
    )


def _head(shown: StepShown) -> list[tuple[str, Content]]:
    row = shown.row
    lines: list[tuple[str, Content]] = [
        *((f"{role}, slowest", seconds(taken)) for role, taken in row.seconds.items()),
        *([("reward", f"{row.reward:.3f}")] if row.reward is not None else []),
    ]
    if row.staleness is not None or row.staleness_unknown:
        known = UNKNOWN if row.staleness is None else f"{row.staleness:.2f} versions"
        lines.append(("staleness", known + (f", {row.staleness_unknown} unknown" if row.staleness_unknown else "")))
    if row.overhead:
        lines.append(("profiling cost", row.overhead))
    # Where nothing was to be recorded there is no page of the trace's recordings, and its spans are all there is.
    place = "traces" if shown.windows else "api/traces"
    trace: list[Content] = [link(f"{TOP}{place}/{shown.trace_id}", tag("code", shown.trace_id))]
    if shown.trace_view:
        trace.append(link(shown.trace_view, "in the trace view"))
    lines.append(("trace", joined(trace)))
    return [*lines, ("merged timeline", _merged(shown))]


def _merged(shown: StepShown) -> Content:
    step = shown.row.step
    whose = "the recordings that are on this node" if shown.away else "recordings"
    what = f"spans and {whose} of all processes on one clock, made when asked for"
    parts: list[Content] = [link(f"{step}/timeline.json.gz", "download"), tag("span", what, kind="dim")]
    if shown.away:
        named = some([f"{process_name(row.role, row.rank)} ({row.node})" for row in shown.away])
        count = plural(len(shown.away), "recording")
        absent = f"not in it: {count} on other nodes, of {named}; stepscope merge --step {step} fetches them"
        parts.append(tag("p", absent, kind="note"))
    return joined(parts)


def _processes(shown: StepShown) -> Content:
    if not shown.lanes:
        return tag("p", "No process has told of this step.", kind="dim")
    rows = []
    for key, found in shown.lanes.items():
        marks = [mark(row, top=TOP) for row, _ in shown.windows if (row.role, row.rank) == key]
        spent = [
            seconds(found.spent[bucket]) if bucket in found.spent else None
            for bucket in ("productive", "overhead", "idle", "wasted")
        ]
        length = f"{seconds(found.seconds)}{'' if found.over else ' so far'}"
        rows.append((process_name(*key), length, *spent, strip(found), joined(marks)))
    return table(PROCESSES, rows, numbers=NUMBERS)


def _windows(shown: StepShown) -> Content:
    if not shown.windows:
        return tag("p", "No window was asked for.", kind="dim")
    return table(
        WINDOWS,
        (
            (
                process(row),
                tool(row),
                row.level,
                state(row),
                complete(row),
                seconds(sum(row.stall_seconds.values())) if row.stall_seconds else None,
                size(row.bytes) if row.bytes else None,
                recording(row, here=here, top=TOP),
                link(f"{TOP}windows/{row.window}", "open"),
            )
            for row, here in shown.windows
        ),
        numbers=NUMBERS,
    )


def _expected(shown: StepShown) -> list[Content]:
    if not shown.expected:
        return []
    missing = [(role, rank, why) for role, rank, why in shown.expected if why]
    told = f"{len(shown.expected) - len(missing)} of {len(shown.expected)} recordings that were expected are there"
    cells = [(process_name(role, rank), tag("span", why, kind="bad")) for role, rank, why in missing]
    found = [table(("missing", "why"), cells)] if missing else []
    return [tag("h2", "Expected recordings"), tag("p", f"{told}."), *found]


def _spans(row: WindowRow, shown: StepShown) -> list[Content]:
    name = f"{process_name(row.role, row.rank)}, {row.tool}"
    return [tag("h3", link(f"{TOP}windows/{row.window}", name)), *spans(shown.digests.get(row.window))]
