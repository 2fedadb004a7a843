"""
The page of a run: what is in force, its steps as a timeline, its windows with their recordings, what is missing, what
it cost.

Pure: from rows to HTML. Knows nothing of the server or the store.
"""

from collections.abc import Iterable, Mapping, Sequence

from stepscope.names import State
from stepscope_sidecar.labels import seconds, size, step_numbers, unattended
from stepscope_sidecar.overhead import Estimate
from stepscope_sidecar.pages.cells import complete, process, recording, short_trace, state, tool
from stepscope_sidecar.pages.html import Content, Live, Markup, document, facts, joined, link, part, table, tag, ways
from stepscope_sidecar.pages.nodes import Others, nodes_section
from stepscope_sidecar.pages.timeline import Shown, timeline
from stepscope_sidecar.roster import place
from stepscope_sidecar.rows import WindowRow
from stepscope_sidecar.steptable import UNKNOWN

REFRESH = 2
"""Seconds between two looks while the run is live: steps take seconds, and the page is made only when one has ended."""

PULSE = "api/pulse"
"""From the first page."""

LISTED = 6
"""Of a list of ranks, the last ones: a rank that is always missing would fill the page."""

FINISHING = "finishing"
"""No process of the run lives, and recordings are not final yet."""

ENDED = "ended"
"""No process of the run lives, and nothing changes any more."""

UNATTENDED = "no sidecar answers; still alive here"
"""The run is shown from its store, and processes of it live on this node."""

UNKNOWN_END = "no sidecar answers"
"""The run is shown from its store, none of its processes lives on this node, and of another nothing is known."""

WINDOW_COLUMNS = (
    "step",
    "process",
    "tool",
    "level",
    "state",
    "complete",
    "stall",
    "size",
    "recording",
    "window",
    "trace",
)
NUMBERS = frozenset({"stall", "size"})


def run_page(
    status: Mapping[str, object],
    *,
    shown: Shown,
    estimates: Mapping[str, Estimate] | None,
    others: Others | None = None,
    mark: str = "",
    runs: str = "runs",
) -> str:
    """
    The page of the steps in ``shown``. It keeps itself up to date until the run has ended and its recordings are final.
    ``estimates`` are None while nobody has made any, ``mark`` is what ``api/pulse`` answers for what is shown,
    ``runs`` leads to the page of all runs.
    """
    others = others or Others()
    run, attempt = str(status.get("run", "")), str(status.get("attempt", ""))
    windows = [*shown.windows, *others.windows]
    state, still = stage(status, windows), settled(status, windows) and estimates is not None
    whole = Shown(
        steps=shown.steps, lanes=shown.lanes, windows=windows, newest=shown.newest, oldest=shown.oldest
    )  # fmt: skip
    return document(
        f"{run} {attempt} - stepscope",
        [
            ways((runs, "all runs")),
            tag("h1", joined([run, tag("span", attempt, kind="dim")])),
            part(
                "head",
                [
                    *([_stopped(str(status.get("stopped_by") or ""))] if status.get("stopped") else []),
                    *_warned(status),
                    _head(status, state=state),
                ],
            ),
            tag("h2", "Steps"),
            part("steps", [timeline(whole) if shown.steps else tag("p", "No step has ended yet.", kind="dim")]),
            tag("h2", "Windows"),
            part(
                "windows",
                [
                    _windows(shown.windows, others)
                    if windows
                    else tag("p", "No window was asked for in these steps.", kind="dim")
                ],
            ),
            part("nodes", nodes_section(others, own=str(status.get("node") or ""), ordered=status.get("ordered"))),
            tag("h2", "Profiling cost"),
            part("overhead", [_overhead(estimates)]),
        ],
        top="",
        live=None if still else Live(seconds=REFRESH, pulse=PULSE, mark=mark),
    )


def stage(status: Mapping[str, object], windows: Sequence[WindowRow]) -> str:
    """
    How far the run is.
    """
    if status.get("unattended"):
        return _left(status, windows)
    if status.get("processes") == []:
        return "no process yet"
    if _count(status.get("processes")):
        return "running"
    unfinished = status.get("windows_unfinished") or any(not State(row.state).final for row in windows)
    return FINISHING if unfinished else ENDED


def over(status: Mapping[str, object]) -> bool:
    """
    Whether no process of the run lives any more, as far as is known.
    """
    return stage(status, []) in {FINISHING, ENDED, UNKNOWN_END}


def settled(status: Mapping[str, object], windows: Sequence[WindowRow]) -> bool:
    """
    Whether nothing will change any more that is seen from here.
    """
    return stage(status, windows) in {ENDED, UNKNOWN_END}


def _left(status: Mapping[str, object], windows: Sequence[WindowRow]) -> str:
    """
    How far a run is whose sidecar is not there. What nobody will end has been marked as such among ``windows``.
    """
    if _count(status.get("processes")):
        return UNATTENDED
    told = status.get("processes")
    unknown = any(process.get("alive") is None for process in told) if isinstance(told, list) else False
    return UNKNOWN_END if unknown or any(not State(row.state).final for row in windows) else ENDED


def _stopped(by: str) -> Markup:
    """
    What takes a stop back; a file that asked for it stops later runs as well.
    """
    parts: list[Content] = [f"Stopped by the {by}" if by.startswith("file ") else "Stopped"]
    parts += [": nothing is recorded until ", tag("code", "stepscope profile --steps …")]
    parts += ["; remove the file, or later runs are stopped too." if by.startswith("file ") else "."]
    return tag("p", joined(parts, ""), kind="note")


def _warned(status: Mapping[str, object]) -> list[Markup]:
    """
    What is wrong with the configuration, but for a stop: that is said above.
    """
    told = status.get("warnings")
    stop = f"recording is stopped by the {status.get('stopped_by')}"
    found = [str(warning) for warning in told] if isinstance(told, list) else []
    return [tag("p", f"Warning: {warning}.", kind="note") for warning in found if not warning.startswith(stop)]


def _head(status: Mapping[str, object], *, state: str) -> Markup:
    told = status.get("processes")
    told_of = unattended(told if isinstance(told, list) else [])
    pairs: list[tuple[str, Content]] = [("state", told_of if state in {UNATTENDED, UNKNOWN_END} else state)]
    version = status.get("param_version")
    if isinstance(version, int):
        # Nobody works on a step any more once all have left.
        left = over(status) or status.get("unattended")
        pairs.append(
            ("last weights", f"v{version}") if left else ("in force", f"weights v{version}, step {version + 1}")
        )
    pairs.append(("selected steps", str(status.get("selection") or "none")))
    if status.get("node"):
        pairs.append(("node", str(status["node"])))
    if "processes" in status and not status.get("unattended"):
        pairs.append(("processes", _count(status["processes"])))
    if "missing" in status:
        pairs.append(("missing ranks", _ranks(status["missing"])))
    links = [
        link("api/steps", "steps"),
        link("api/windows", "windows"),
        link("api/missing", "missing"),
        link("api/nodes", "nodes"),
        link("metrics", "metrics"),
    ]
    return facts([*pairs, ("data", joined(links, " · "))])


def _windows(rows: Sequence[WindowRow], others: Others) -> Markup:
    here = {id(row) for row in rows}
    newest = sorted([*rows, *others.windows], key=lambda row: (-row.step, *place(row)[1:]))
    # Where there is one node alone, it goes without saying.
    node = ["node"] * bool(others.nodes)
    return table(
        (WINDOW_COLUMNS[0], *node, *WINDOW_COLUMNS[1:]),
        (
            (
                link(f"steps/{row.step}", step_numbers(row.step, row.last_step)),
                *([row.node] * len(node)),
                process(row),
                tool(row),
                joined([row.level, f"(not {row.level_fallback})" if row.level_fallback else None]),
                state(row),
                complete(row),
                seconds(sum(row.stall_seconds.values())) if row.stall_seconds else None,
                size(row.bytes) if row.bytes else None,
                recording(row, here=id(row) in here),
                link(f"windows/{row.window}", "open"),
                short_trace(row),
            )
            for row in newest
        ),
        numbers=NUMBERS,
    )


def _overhead(estimates: Mapping[str, Estimate] | None) -> Markup:
    if estimates is None:
        return tag("p", "being reckoned …", kind="dim")
    if not estimates:
        return tag("p", f"{UNKNOWN}: no step has been profiled yet", kind="dim")
    return facts((role, _ratio(found)) for role, found in estimates.items())


def _ratio(found: Estimate) -> Markup:
    stall = f"stall {seconds(found.stall)} in all"
    if found.ratio is None:
        return joined([f"{UNKNOWN} ({found.unknown}); {stall}"])
    wall = UNKNOWN if found.wall_ratio is None else f"{found.wall_ratio:+.1%}"
    return joined([f"{found.ratio:+.1%} of productive time, {wall} of wall time; {stall}"])


def _count(value: object) -> int:
    """
    How many live: a number, or a list of processes that may say whether they do.
    """
    if isinstance(value, Mapping):
        return sum(_count(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return sum(not isinstance(item, Mapping) or bool(item.get("alive", True)) for item in value)
    return int(value) if isinstance(value, (int, float)) else 0


def _ranks(value: object) -> Content:
    if isinstance(value, Mapping):
        return _listed(f"{role}: {_plain(ranks)}" for role, ranks in value.items()) or "none"
    return _plain(value) or "none"


def _plain(value: object) -> str:
    if isinstance(value, (list, tuple)):
        more = [f"and {len(value) - LISTED} before"] if len(value) > LISTED else []
        return ", ".join([*map(str, value[-LISTED:]), *more])
    return "" if value is None else str(value)


def _listed(texts: Iterable[str]) -> str:
    return "; ".join(texts)
