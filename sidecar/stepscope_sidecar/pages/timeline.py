"""
The timeline of a run: a row for each process, a column for each step, and under it what the steps cost and learned.

Pure. It is a table, so that it can be read out and walked through; what is drawn in a cell is told in words too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from stepscope.names import Bucket, State
from stepscope_sidecar.labels import process_name, seconds
from stepscope_sidecar.lanes import SLOTS, Key, Strip
from stepscope_sidecar.pages.html import Content, Markup, joined, link, tag
from stepscope_sidecar.rows import WindowRow
from stepscope_sidecar.steptable import UNKNOWN, StepRow

MAX_LANES = 24
"""Processes on the page: two screens of rows. Those with recordings come first; the rest is in each step's page."""

HEIGHT = 32
"""Of a bar, in its own units."""

MARKS = {State.READY: "●", State.RECORDING: "◉", State.DENIED: "○", State.FAILED: "✕"}
"""What stands for a window, beside its colour; another state is on its way, or lost."""

KINDS = {State.READY: "ready", State.DENIED: "dim"}
BAD = frozenset({State.FAILED, State.ABORTED, State.EXPIRED, State.LOST})

Placed = Mapping[tuple[int, str, int], Sequence[WindowRow]]
"""Windows by step, role and rank."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """
    The part of the run that is shown: its steps, oldest first, and what there is of them.
    """

    steps: Sequence[StepRow] = ()
    lanes: Mapping[int, Mapping[Key, Strip]] = field(default_factory=dict)
    windows: Sequence[WindowRow] = ()
    newest: int = 0
    """The run's newest step, which may not be among them."""
    oldest: int = 0


def timeline(shown: Shown) -> Markup:
    """
    The table, with what its colours mean and the ways to earlier and later steps.
    """
    placed = _placed(shown)
    keys = {key for strips in shown.lanes.values() for key in strips} | {key[1:] for key in placed}
    recorded = {key[1:] for key in placed}
    # Trainers first, as their steps are the run's; those that are recorded before others of the role.
    ordered = sorted(keys, key=lambda key: (key[0] != "trainer", key[0], key not in recorded, key[1]))
    head = "".join(map(_column, shown.steps))
    rows = [_lane(key, shown, placed) for key in ordered[:MAX_LANES]]
    figures = _figures(shown.steps)
    table = Markup(
        '<table class="timeline"><caption hidden>What each process did in each step</caption>'
        f'<thead><tr><th scope="col">process</th>{head}</tr></thead>\n<tbody>{"".join(rows)}</tbody>'
        f'\n<tbody class="figures">{figures}</tbody></table>'
    )
    scroll = Markup(f'<div class="scroll" tabindex="0" role="region" aria-label="Timeline of steps">{table.text}</div>')
    more = len(ordered) - MAX_LANES
    return joined(
        [
            scroll,
            _legend(),
            tag("p", f"And {more} more processes, on the page of each step.", kind="dim") if more > 0 else None,
            _ways(shown),
        ],
        "\n",
    )


def strip(found: Strip | None) -> Markup:
    """
    The picture of one process in one step.
    """
    if found is None:
        return Markup("")
    told = ", ".join(f"{bucket} {seconds(taken)}" for bucket, taken in found.spent.items())
    said = f"{seconds(found.seconds)}{'' if found.over else ' so far'}{f': {told}' if told else ''}"
    paths = "".join(f'<path class="{bucket}" d="{_outline(runs)}"/>' for bucket, runs in found.painted.items())
    label = tag("title", said)
    return Markup(
        f'<svg class="strip" viewBox="0 0 {SLOTS} 10" preserveAspectRatio="none" role="img">{label.text}{paths}</svg>'
    )


def _outline(runs: Sequence[tuple[int, int]]) -> str:
    return "".join(f"M{since} 0h{until - since}v10h-{until - since}z" for since, until in runs)


def mark(row: WindowRow, *, top: str = "") -> Markup:
    """
    What stands for a window, which leads to its page.
    """
    state = State(row.state)
    kind = KINDS.get(state, "bad" if state in BAD else "dim")
    gone = ", recording removed" if row.removed else ""
    told = f"{row.tool} in {process_name(row.role, row.rank)}: {row.state}{gone}"
    if row.removed:
        kind, shown = "dim", "◌ removed"
    else:
        shown = f"{MARKS.get(state, '…')} {'rec' if state is State.READY else row.state}"
    return Markup(
        link(f"{top}windows/{row.window}", shown, title=told).text.replace("<a ", f'<a class="window {kind}" ', 1)
    )


def _placed(shown: Shown) -> Placed:
    steps = {row.step for row in shown.steps}
    found: dict[tuple[int, str, int], list[WindowRow]] = {}
    for row in shown.windows:
        for step in steps & set(range(row.step, min(row.last_step, shown.newest) + 1)):
            found.setdefault((step, row.role, row.rank), []).append(row)
    return found


def _column(row: StepRow) -> str:
    version = f"v{row.version}" if row.partial else f"v{row.version}→v{row.step}"
    inside = joined([link(f"steps/{row.step}", str(row.step), title=row.title), tag("small", version)], "")
    return f'<th scope="col">{inside.text}</th>'


def _lane(key: Key, shown: Shown, placed: Placed) -> str:
    cells = []
    for row in shown.steps:
        found = placed.get((row.step, *key), ())
        recorded = any(window.state in {State.READY, State.RECORDING} and not window.removed for window in found)
        kind = ' class="recorded"' if recorded else ""
        inside = joined([strip(shown.lanes.get(row.step, {}).get(key)), *map(mark, found)], "")
        cells.append(f"<td{kind}>{inside.text}</td>")
    return f'<tr><th scope="row">{tag("span", process_name(*key)).text}</th>{"".join(cells)}</tr>\n'


def _figures(steps: Sequence[StepRow]) -> str:
    rows: list[tuple[str, Callable[[StepRow], float | None], Callable[[StepRow], str]]] = [
        ("trainer s", lambda row: row.trainer_seconds, lambda row: _decimals(row.trainer_seconds, 2)),
        ("rollouter s", lambda row: row.rollouter_seconds, lambda row: _decimals(row.rollouter_seconds, 2)),
        ("staleness", lambda row: row.staleness, _staleness),
        ("profiling cost", lambda row: row.overhead_ratio, lambda row: row.overhead),
        ("reward", lambda row: row.reward, lambda row: _decimals(row.reward, 3)),
    ]
    return "".join(
        _figure(title, [(value(row), told(row)) for row in steps])
        for title, value, told in rows
        if any(told(row) for row in steps)
    )


def _figure(title: str, values: Sequence[tuple[float | None, str]]) -> str:
    known = [value for value, _ in values if value is not None]
    lowest, highest = min([0.0, *known]), max([0.0, *known])
    cells = "".join(f"<td>{_bar(value, lowest, highest).text}{tag('span', told).text}</td>" for value, told in values)
    return f'<tr><th scope="row">{title}</th>{cells}</tr>\n'


def _bar(value: float | None, lowest: float, highest: float) -> Markup:
    """
    From 0 up to ``value``, or down to it, where the row reaches from ``lowest`` to ``highest``, with 0 among them; the
    number is beside it, so that it is not told twice.
    """
    if value is None:
        return Markup("")
    scale = HEIGHT / ((highest - lowest) or 1.0)
    zero = round(highest * scale) if highest > lowest else HEIGHT
    high = max(1, round(abs(value) * scale))
    top = min(max(0, zero if value < 0 else zero - high), HEIGHT - high)
    line = f'<rect class="zero" width="60" y="{min(zero, HEIGHT - 1)}" height="1"/>' if lowest < 0 else ""
    return Markup(
        f'<svg class="bar" viewBox="0 0 60 {HEIGHT}" preserveAspectRatio="none" aria-hidden="true">'
        f'{line}<rect class="value" x="18" width="24" y="{top}" height="{high}"/></svg>'
    )


def _legend() -> Markup:
    kinds: list[Content] = [joined([_sample(bucket.value), bucket.value], "") for bucket in Bucket]
    marks: list[Content] = [
        "● recorded",
        "◌ recorded, and removed since",
        "◉ recording",
        "○ denied",
        "✕ failed",
        "… on its way, or ended otherwise",
    ]
    return Markup(f'<ul class="legend">{"".join(tag("li", item).text for item in (*kinds, *marks))}</ul>')


def _sample(bucket: str) -> Markup:
    inside = f'<rect class="{bucket}" width="1" height="1"/>'
    return Markup(f'<svg class="sample" viewBox="0 0 1 1" preserveAspectRatio="none" aria-hidden="true">{inside}</svg>')


def _ways(shown: Shown) -> Content:
    if not shown.steps:
        return None
    first, last = shown.steps[0].step, shown.steps[-1].step
    count = len(shown.steps)
    ways: list[Content] = [f"steps {first} to {last} of {shown.oldest} to {shown.newest}"]
    if first > shown.oldest:
        ways.append(link(f"?before={first}", "← earlier"))
    if last < shown.newest:
        ways += [link(f"?before={last + count + 1}", "later →"), link("./", "newest")]
    return tag("p", joined(ways), kind="pages")


def _decimals(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _staleness(row: StepRow) -> str:
    if row.staleness is not None:
        return f"{row.staleness:.2f}"
    return UNKNOWN if row.staleness_unknown else ""
