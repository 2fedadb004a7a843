"""
The page of a run: what is in force, its steps, its windows with their recordings, what is missing, what it cost.

Pure: from rows to HTML. Knows nothing of the server or the store.
"""

from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

from stepscope.names import Incomplete, Reason, State
from stepscope_sidecar.overhead import Estimate
from stepscope_sidecar.pages.html import Content, Markup, document, facts, joined, link, table, tag
from stepscope_sidecar.rows import WindowRow
from stepscope_sidecar.steptable import UNKNOWN, StepRow

REFRESH = 5
"""Seconds between two loads while the run is live: steps take seconds, and each load costs the machine a little."""

LISTED = 6
"""Of a list of ranks, the last ones: a rank that is always missing would fill the page."""

ENDED = "ended"
"""No process of the run lives, and nothing changes any more."""

SHOWN_DIGITS = 8
"""Of a trace id; the whole one is in its title."""

STEP_COLUMNS = ("step", "trainer s", "rollouter s", "reward", "staleness", "windows", "overhead")
WINDOW_COLUMNS = ("step", "process", "tool", "level", "state", "complete", "stall", "size", "recording", "trace")
NUMBERS = frozenset({"trainer s", "rollouter s", "reward", "staleness", "overhead", "stall", "size"})


def run_page(
    status: Mapping[str, object],
    *,
    steps: Sequence[StepRow],
    windows: Sequence[WindowRow],
    estimates: Mapping[str, Estimate],
) -> str:
    """
    The page, newest steps first. It loads itself again until the run has ended and its recordings are final.
    """
    run, attempt = str(status.get("run", "")), str(status.get("attempt", ""))
    state = _stage(status, windows)
    listed = [tag("h2", "Steps"), _steps(steps) if steps else tag("p", "No step has ended yet.", kind="dim")]
    return document(
        f"{run} {attempt} - stepscope",
        [
            tag("h1", joined([run, tag("span", attempt, kind="dim")])),
            *([_stopped(str(status.get("stopped_by") or ""))] if status.get("stopped") else []),
            _head(status, state=state),
            tag("section", joined(listed, "\n"), kind="steps"),
            tag("h2", "Windows"),
            _windows(windows) if windows else tag("p", "No window was asked for.", kind="dim"),
            tag("h2", "Overhead of profiling"),
            _overhead(estimates),
        ],
        refresh=0 if state == ENDED else REFRESH,
    )


def size(count: int) -> str:
    """
    ``count`` bytes for a person.
    """
    number = float(count)
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} GiB"


def seconds(value: float) -> str:
    """
    ``value`` seconds for a person.
    """
    return f"{value * 1000:.1f} ms" if abs(value) < 1 else f"{value:.2f} s"


def _stage(status: Mapping[str, object], windows: Sequence[WindowRow]) -> str:
    if status.get("processes") == []:
        return "no process yet"
    if _count(status.get("processes")):
        return "running"
    unfinished = status.get("windows_unfinished") or any(not State(row.state).final for row in windows)
    return "finishing" if unfinished else ENDED


def _stopped(by: str) -> Markup:
    """
    What takes a stop back; a file that asked for it stops later runs as well.
    """
    parts: list[Content] = [f"Stopped by the {by}" if by.startswith("file ") else "Stopped"]
    parts += [": nothing is recorded until ", tag("code", "stepscope profile --steps …")]
    parts += ["; remove the file, or later runs are stopped too." if by.startswith("file ") else "."]
    return tag("p", joined(parts, ""), kind="note")


def _head(status: Mapping[str, object], *, state: str) -> Markup:
    pairs: list[tuple[str, Content]] = [("state", state)]
    version = status.get("param_version")
    if isinstance(version, int):
        pairs.append(("in force", f"weights v{version}, step {version + 1}"))
    pairs.append(("records", str(status.get("selection") or "nothing")))
    if status.get("node"):
        pairs.append(("node", str(status["node"])))
    if "processes" in status:
        pairs.append(("processes", _count(status["processes"])))
    for key in ("expected", "missing"):
        if key in status:
            pairs.append((f"{key} ranks", _ranks(status[key])))
    links = [link("api/steps", "steps"), link("api/windows", "windows"), link("metrics", "metrics")]
    return facts([*pairs, ("data", joined(links, " · "))])


def _steps(rows: Sequence[StepRow]) -> Markup:
    return table(
        STEP_COLUMNS,
        (
            (
                row.title,
                _decimals(row.trainer_seconds, 2),
                _decimals(row.rollouter_seconds, 2),
                _decimals(row.reward, 3),
                _staleness(row),
                row.recorded,
                row.overhead,
            )
            for row in reversed(rows)
        ),
        numbers=NUMBERS,
    )


def _windows(rows: Sequence[WindowRow]) -> Markup:
    newest = sorted(rows, key=lambda row: (-row.step, row.role, row.rank, row.tool, row.asked_unix_ns))
    return table(
        WINDOW_COLUMNS,
        (
            (
                row.step,
                f"{row.role} {row.rank} (pid {row.pid})",
                row.tool,
                joined([row.level, f"(not {row.level_fallback})" if row.level_fallback else None]),
                _state(row),
                _complete(row),
                seconds(sum(row.stall_seconds.values())) if row.stall_seconds else None,
                size(row.bytes) if row.bytes else None,
                _recording(row),
                _trace(row),
            )
            for row in newest
        ),
        numbers=NUMBERS,
    )


def _state(row: WindowRow) -> Markup:
    kind = {State.READY: "good", State.FAILED: "bad", State.ABORTED: "bad", State.EXPIRED: "bad"}
    why = None if row.reason in {"", Reason.BOUNDARY} else f": {row.reason}"
    detail = tag("span", row.detail, kind="dim") if row.detail else None
    state = tag("span", row.state, kind=kind.get(State(row.state), "dim"))
    return joined([joined([state, why], ""), detail])


def _complete(row: WindowRow) -> Content:
    if row.complete is None:
        return None
    if row.complete:
        return "yes"
    share = ""
    if row.incomplete_share is not None and row.incomplete_reason == Incomplete.MARKERS_MISSING:
        share = f" ({row.incomplete_share:.0%})"
    return f"no: {row.incomplete_reason}{share}"


def _recording(row: WindowRow) -> Content:
    if not row.artifact:
        return None
    return link(f"artifacts/{quote(row.artifact)}", "download", title=f"SHA-256 {row.sha256}")


def _trace(row: WindowRow) -> Content:
    if not row.trace_id:
        return None
    return tag("code", f"{row.trace_id[:SHOWN_DIGITS]}…", title=row.trace_id)


def _overhead(estimates: Mapping[str, Estimate]) -> Markup:
    if not estimates:
        return tag("p", f"{UNKNOWN}: no step has been profiled yet", kind="dim")
    return facts((role, _ratio(found)) for role, found in estimates.items())


def _ratio(found: Estimate) -> Markup:
    stall = f"stall {seconds(found.stall)} in all"
    if found.ratio is None:
        return joined([f"{UNKNOWN} ({found.why}); {stall}"])
    wall = UNKNOWN if found.wall_ratio is None else f"{found.wall_ratio:+.1%}"
    return joined([f"{found.ratio:+.1%} of productive time, {wall} of wall time; {stall}"])


def _staleness(row: StepRow) -> str:
    """
    Nothing where no sample was told of: most loops don't tell.
    """
    unknown = f"{row.staleness_unknown} unknown" if row.staleness_unknown else ""
    if row.staleness is None:
        return unknown
    return f"{row.staleness:.2f}" + (f" ({unknown})" if unknown else "")


def _decimals(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:.{digits}f}"


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
