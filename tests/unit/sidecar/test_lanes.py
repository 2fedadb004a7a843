"""
Strips of the timeline: when which kind of time passed in each process of a step.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from stepscope import names
from stepscope_sidecar import lanes as lanes_module
from stepscope_sidecar.lanes import SLOTS, Lanes, Part, Strip
from stepscope_sidecar.reader import Moment, open_reader
from stepscope_sidecar.rows import OwnSpan
from stepscope_sidecar.store import Store
from tests.unit.sidecar.stored import count, holds, receive

SECOND = 10**9
KEY = ("trainer", 0)


def spans(step: int, *parts: tuple[str, float, float], whole: float | None = 1.0, first: int = 1) -> list[OwnSpan]:
    """
    A process in ``step`` that takes ``whole`` seconds, or is still in it; ``parts`` are kinds, from when until when.
    """
    start = step * 10 * SECOND
    told: list[tuple[str, str, float, float]] = []
    if whole is not None:
        told.append((names.RL_STEP_PROCESS, "", 0.0, whole))
    told += [("train.update_actor", *part) for part in parts]
    return [
        OwnSpan(
            name=name,
            trace_id="1" * 32,
            span_id=f"{step * 1000 + number + first:016x}",
            start_unix_ns=start + int(begin * SECOND),
            end_unix_ns=start + int(end * SECOND),
            attributes={
                names.STEP: step,
                names.PARAM_VERSION: step - 1,
                names.ROLE: "trainer",
                names.RANK: 0,
                **({names.BUCKET: kind} if kind else {}),
            },
        )
        for number, (name, kind, begin, end) in enumerate(told)
    ]


def read(path: Path, step: int, *, newest: int = 0, lanes: Lanes | None = None) -> Strip:
    """
    The strip of the process in ``step``.
    """
    with open_reader(path) as reader:
        return (lanes or Lanes()).read(reader, [step], newest=newest or step)[step][KEY]


def indexed(path: Path, spans: int) -> bool:
    """
    Whether so many are in the tables.
    """
    return count(path, "spans") == spans


def test_parts_lie_where_their_spans_were(store: Store, path: Path) -> None:
    """
    Productive half, idle quarter, and a gap of which nobody has told.
    """
    receive(store, spans(5, ("productive", 0.0, 0.5), ("idle", 0.75, 1.0)))
    found = read(path, 5)

    assert {"productive": [(0, SLOTS // 2)], "idle": [(SLOTS * 3 // 4, SLOTS)]} == found.painted
    assert {"productive": 0.5, "idle": 0.25} == found.spent
    assert (1.0, True) == (found.seconds, found.over)


def test_where_kinds_overlap_productive_shows_and_seconds_are_counted_once(store: Store, path: Path) -> None:
    """
    Requests side by side are one time in which something was going on, not two.
    """
    receive(store, spans(5, ("productive", 0.25, 0.75), ("productive", 0.5, 0.75), ("idle", 0.0, 1.0)))
    found = read(path, 5)

    assert {"idle": 1.0, "productive": 0.5} == found.spent
    assert [(SLOTS // 4, SLOTS * 3 // 4)] == found.painted["productive"]
    assert [(0, SLOTS // 4), (SLOTS * 3 // 4, SLOTS)] == found.painted["idle"]


def test_what_lies_outside_the_step_is_cut_off(store: Store, path: Path) -> None:
    """
    A request that outlives its step fills the strip to its end and no further.
    """
    receive(store, spans(5, ("productive", -0.5, 0.5), ("wasted", 0.5, 7.0)))
    found = read(path, 5)

    assert {"productive": [(0, SLOTS // 2)], "wasted": [(SLOTS // 2, SLOTS)]} == found.painted
    assert {"productive": 0.5, "wasted": 0.5} == found.spent


def test_a_process_that_is_still_in_the_step_has_what_was_received(store: Store, path: Path) -> None:
    """
    Not over, and as long as its spans so far.
    """
    receive(store, spans(5, ("productive", 0.0, 0.25), whole=None))
    found = read(path, 5)

    assert (0.25, False) == (found.seconds, found.over)


def test_a_step_is_read_again_once_there_is_more_of_it(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    However late it comes: a process may hand its spans over long after the others. Else one that is over is kept.
    """
    lanes, asked = Lanes(), []

    def counted(moment: Moment, step: int) -> Iterator[Part]:
        asked.append(step)
        return stored(moment, step)

    stored = lanes_module._stored
    monkeypatch.setattr(lanes_module, "_stored", counted)
    found = []
    for number in (1, 2, 3):
        whole = 1.0 if number == 1 else None
        receive(store, spans(5, ("idle", number / 4, (number + 1) / 4), whole=whole, first=number * 10))
        assert holds(partial(indexed, path, number + 1))
        found += [read(path, 5, newest=8, lanes=lanes).spent for _ in range(2)]

    assert [{"idle": 0.25}] * 2 + [{"idle": 0.5}] * 2 + [{"idle": 0.75}] * 2 == found
    assert [5, 5, 5] == asked
