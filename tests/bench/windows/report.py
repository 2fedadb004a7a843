"""
The table: a row for each question, a column for each way and number of mini-batches, ready for a Markdown page.
"""

from collections.abc import Callable, Sequence

from tests.bench.windows import columns
from tests.bench.windows.columns import Judgement, Seconds
from tests.bench.windows.outcome import Column
from tests.bench.windows.setting import Scenario, Way
from tests.bench.windows.truth import Record

TITLES = {
    Way.NONE: "no profiling",
    Way.VERL: "verl's logic",
    Way.OPS: "stepscope `ops`",
    Way.SPANS: "stepscope `spans`",
}

NOTHING = "-"

ROLES = ("trainer", "rollouter")

Cell = Callable[[Column], str]


def table(found: Sequence[Column]) -> str:
    """
    All of it, in Markdown.
    """
    rows: list[tuple[str, Cell]] = [("mini-batches per step", lambda column: str(column.mini_batches))]
    rows += [(f"artifacts per step, {role}", _judged(role, _artifacts)) for role in ROLES]
    rows += [(f"named for the right step, {role}", _judged(role, _named)) for role in ROLES]
    rows += [
        ("operators of other steps inside", _summed(lambda judged: judged.of_other_steps)),
        *((f"operators of the step missing, {role}", _judged(role, _missing)) for role in ROLES),
        ("validation and checkpoint inside", _summed(lambda judged: judged.after_update)),
    ]
    rows += [
        (f"profilers still on: {words}", _ended(scenario, lambda outcome: str(outcome.left_on)))
        for scenario, words in (
            (Scenario.EXCEPTION, "after an exception"),
            (Scenario.LAST_STEP, "after the last step"),
            (Scenario.RESUME, "after resume and end"),
        )
    ]
    rows += [
        ("stops without a start, resuming", _ended(Scenario.RESUME, lambda outcome: str(outcome.stops_without_start))),
        ("selected steps with no artifact, all endings", _lost),
    ]
    rows += [(f"entering to armed, {role}, ms", _timed(role, _armed)) for role in ROLES]
    rows += [(f"stall per window, {role}, ms", _timed(role, _stall)) for role in ROLES]
    rows += [
        ("stall per step, trainer, ms", _timed("trainer", _step_stall)),
        ("update delay, ms", _timed("trainer", _delay)),
        ("a selected step, trainer, ms", _timed("trainer", _whole)),
        ("stall per window, trainer, against verl's", _against(found, "trainer", _stall)),
        ("stall per step, trainer, against verl's", _against(found, "trainer", _step_stall)),
        ("update delay, against verl's", _against(found, "trainer", _delay)),
    ]
    lines = [["", *(TITLES[column.way] for column in found)], ["---"] * (1 + len(found))]
    lines += [[name, *(cell(column) for column in found)] for name, cell in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _judged(role: str, cell: Callable[[Judgement], str]) -> Cell:
    def of(column: Column) -> str:
        if column.way is Way.NONE:
            return NOTHING
        return cell(column.whole.judgements[role])

    return of


def _summed(count: Callable[[Judgement], int]) -> Cell:
    def of(column: Column) -> str:
        if column.way is Way.NONE:
            return NOTHING
        return str(sum(count(judged) for judged in column.whole.judgements.values()))

    return of


def _artifacts(judged: Judgement) -> str:
    least, most = min(judged.artifacts, default=0), max(judged.artifacts, default=0)
    return str(least) if least == most else f"{least} to {most}"


def _named(judged: Judgement) -> str:
    return f"{judged.named_right} of {sum(judged.artifacts) + judged.unexpected}"


def _missing(judged: Judgement) -> str:
    return f"{judged.missing} of {judged.expected_markers}"


def _ended(scenario: Scenario, cell: Callable[..., str]) -> Cell:
    def of(column: Column) -> str:
        return cell(column.endings[scenario]) if scenario in column.endings else NOTHING

    return of


def _lost(column: Column) -> str:
    if not column.endings:
        return NOTHING
    judged = [each for outcome in column.endings.values() for each in outcome.judgements.values()]
    return f"{sum(each.without_artifact for each in judged)} of {sum(len(each.artifacts) for each in judged)}"


Measure = Callable[[Column, Record], Seconds | None]


def _record(column: Column, role: str) -> Record:
    return next(record for record in column.whole.records if record.role == role)


def _timed(role: str, measure: Measure) -> Cell:
    def of(column: Column) -> str:
        seconds = measure(column, _record(column, role))
        return NOTHING if seconds is None else f"{seconds.median * 1e3:.1f} (≤ {seconds.most * 1e3:.1f})"

    return of


def _against(found: Sequence[Column], role: str, measure: Measure) -> Cell:
    def of(column: Column) -> str:
        theirs = [each for each in found if each.way is Way.VERL and each.mini_batches == column.mini_batches]
        if not column.way.ours or not theirs:
            return NOTHING
        ours, other = (measure(each, _record(each, role)) for each in (column, theirs[0]))
        if ours is None or other is None or other.median <= 0:
            return NOTHING
        return f"{ours.median / other.median:.3f}x"

    return of


def _armed(column: Column, record: Record) -> Seconds | None:
    return columns.armed(record, selected=column.whole.setting.selected)


def _stall(column: Column, record: Record) -> Seconds | None:
    return columns.stall_per_window(record, column.whole.recordings, selected=column.whole.setting.selected)


def _step_stall(column: Column, record: Record) -> Seconds | None:
    return columns.stall_per_step(record, selected=column.whole.setting.selected)


def _whole(column: Column, record: Record) -> Seconds | None:
    return columns.whole_step(record, selected=column.whole.setting.selected)


def _delay(column: Column, record: Record) -> Seconds | None:
    return columns.update_delay(record, touched=column.whole.setting.touched)
