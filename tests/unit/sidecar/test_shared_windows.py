"""
Windows that consecutive steps share: how they are granted, counted as recorded, kept, shown and linked.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from stepscope import names, wire
from stepscope.names import Reason, State
from stepscope_sidecar import capture, steptable
from stepscope_sidecar.costs import Costs
from stepscope_sidecar.processes import Process
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.recast import window_of, window_row
from stepscope_sidecar.windows import Window, Windows
from tests.unit.sidecar.ledgers import READY, RECORDING, kept, ledger_of, step_spans
from tests.unit.sidecar.stepped import span
from tests.unit.sidecar.stored import put, receive

from .rig import SPAN, TRACE, FakeLink, Rig, closed, reopened, started

FURTHER = "0" * 31 + "6"


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """
    A controller with selection 5-6,8 for all ranks, in continuous mode.
    """
    return Rig(tmp_path, STEPSCOPE_STEPS="5-6,8", STEPSCOPE_CONTINUOUS="1")


def going_on(window: str, step: int) -> wire.Continued:
    """
    ``window`` goes on into ``step``.
    """
    return wire.Continued(window=window, step=step, trace_id=FURTHER, span_id=SPAN)


def shared(rig: Rig, process: Process, link: FakeLink) -> str:
    """
    A window that ``process`` records step 5 and 6 in.
    """
    rig.controller.handle(process, wire.Version(step=5, param_version=4))
    name = rig.open(process, link)
    rig.controller.handle(process, started(name))
    rig.controller.handle(process, wire.StepClosed(step=5, param_version=5))
    rig.controller.handle(process, wire.Version(step=6, param_version=5))
    rig.controller.handle(process, going_on(name, 6))
    return name


def test_a_grant_says_whether_the_window_may_go_on(rig: Rig, tmp_path: Path) -> None:
    """
    By the setting of the run; the first process that registers brings it along.
    """
    process, link = rig.register()
    rig.open(process, link)
    told = link.last()
    other = Rig(tmp_path)
    process, link = other.register(environment={"STEPSCOPE_CONTINUOUS": "1"})
    other.open(process, link)
    brought = link.last()
    apart = Rig(tmp_path)
    process, link = apart.register()
    apart.open(process, link)

    assert [True, True, False] == [
        grant.continuous for grant in (told, brought, link.last()) if isinstance(grant, wire.Grant)
    ]


def test_a_step_within_a_shared_window_is_recorded(rig: Rig) -> None:
    """
    Nothing is missing in either of them.
    """
    process, link = rig.register()
    name = shared(rig, process, link)
    rig.controller.handle(process, replace(closed(name), last_step=6))
    rig.done(name)
    for step in (7, 8):
        rig.controller.handle(process, wire.StepClosed(step=step - 1))
        rig.controller.handle(process, wire.Version(step=step, param_version=step - 1))
    rig.controller.tick()

    assert {5: [], 6: []} == rig.controller.census.missing
    assert 6 == rig.ledger.rows[name].last_step


def test_a_step_after_a_shared_window_that_ended_early_asks_anew(rig: Rig) -> None:
    """
    There is one window of a step at most: the step that it had gone on into has one already.
    """
    process, link = rig.register()
    name = shared(rig, process, link)
    rig.controller.handle(process, replace(closed(name, reason="cap_seconds"), last_step=6))
    again = rig.open(process, link, 6)
    later = rig.open(process, link, 8)

    assert Reason.DUPLICATE == again
    assert later.startswith("000008-trainer-0-")
    assert [name, later] == [window.window for window in rig.controller.recordings.windows]


def test_a_window_does_not_go_on_into_a_step_that_another_has(rig: Rig) -> None:
    """
    Nor into an earlier one, nor when it is over, nor at another process's word.
    """
    process, link = rig.register()
    other, _ = rig.register(101, rank=1)
    name = shared(rig, process, link)
    for step in (6, 5):
        rig.controller.handle(process, going_on(name, step))
    rig.controller.handle(other, going_on(name, 7))
    rig.controller.handle(process, closed(name))
    rig.controller.handle(process, going_on(name, 7))

    assert 6 == rig.ledger.rows[name].last_step
    assert 4 == rig.controller.recordings.windows.ignored["continued"]


def test_a_sidecar_that_comes_back_learns_how_far_a_window_has_gone_on(rig: Rig) -> None:
    """
    From the process, whether it knew the window or not.
    """
    process, link = rig.register()
    name = rig.open(process, link)
    rig.controller.handle(process, started(name))
    rig.restart()
    rig.register(open_windows=[replace(reopened(name), last_step=6)])
    rig.ledger.rows.clear()
    rig.restart()
    rig.register(open_windows=[replace(reopened(name), last_step=6)])

    assert 6 == rig.ledger.rows[name].last_step
    assert State.RECORDING == rig.ledger.rows[name].state


def test_a_shared_window_is_found_by_each_of_its_steps(tmp_path: Path) -> None:
    """
    In the store, in the table of steps, and as a sidecar that takes over finds it.
    """
    window = replace(RECORDING, state=State.READY, reason="boundary", last_step=6, also=((FURTHER, SPAN),))
    row = window_row(window, run="run", attempt="a1")
    with kept(tmp_path / "s.db") as store:
        put(store, row)
    with open_reader(tmp_path / "s.db") as reader:
        found = {step: [item.window for item in reader.windows(step=step)] for step in (4, 5, 6, 7)}
    table = steptable.table([span("rl.step.process", step) for step in (5, 6)], windows=[row])

    assert {4: [], 5: ["w"], 6: ["w"], 7: []} == found
    assert [(5, "1 ready"), (6, "1 ready")] == [(item.step, item.recorded) for item in table]
    assert window == window_of(row)
    assert (5, 6) == (row.json(directory=tmp_path)["step"], row.json(directory=tmp_path)["last_step"])


def test_the_trace_of_each_step_shows_a_shared_window(tmp_path: Path) -> None:
    """
    ``profile.opened`` lies below the process's span of each step; the capture span is linked to all of them.
    """
    window = replace(RECORDING, last_step=6, also=((FURTHER, SPAN),))
    path = tmp_path / "s.db"
    with kept(path) as store:
        ledger = ledger_of(store, tmp_path)
        ledger.window(RECORDING, before=None)
        ledger.window(window, before=RECORDING)
    with open_reader(path) as reader:
        spans = {span.trace_id: span for span in reader.spans(name=names.PROFILE_OPENED)}
    ended = capture.capture(replace(window, state=State.READY, closed_unix_ns=9), url="")

    assert {TRACE, FURTHER} == spans.keys()
    assert (SPAN, 6, 5) == (
        spans[FURTHER].parent_span_id,
        spans[FURTHER].attributes[names.STEP],
        spans[FURTHER].attributes[names.PARAM_VERSION],
    )
    assert ((TRACE, SPAN), (FURTHER, SPAN)) == ended.links
    assert (5, 6) == (ended.attributes[names.STEP], ended.attributes[names.LAST_STEP])


def test_the_cost_of_a_shared_window_is_that_of_all_its_steps(tmp_path: Path) -> None:
    """
    Twelve steps of 1 s, the fifth and the sixth of 1.5 s: half a second each, and the stall once.
    """
    with kept(tmp_path / "s.db") as store:
        for step in range(1, 13):
            receive(store, step_spans(step, seconds=1.5 if step in {5, 6} else 1.0))
        window = replace(READY, opened_unix_ns=1, closed_unix_ns=2, last_step=6)
        put(store, window_row(window, run="run", attempt="a1"))
    found = Costs(tmp_path / "s.db").refresh()["trainer"]

    assert pytest.approx((1.0, 1.0)) == (found.stall, found.slowdown)
    assert [5, 6] == [cost.step for cost in found.costs]


def test_costs_of_a_window_that_says_it_has_no_end_are_those_of_the_steps_that_there_are(tmp_path: Path) -> None:
    """
    Nobody counts up to the last step that a process told.
    """
    with kept(tmp_path / "s.db") as store:
        for step in range(1, 8):
            receive(store, step_spans(step, seconds=1.0))
        window = replace(READY, opened_unix_ns=1, closed_unix_ns=2, last_step=2**63 - 1)
        put(store, window_row(window, run="run", attempt="a1"))

    assert [5, 6, 7] == [cost.step for cost in Costs(tmp_path / "s.db").refresh()["trainer"].costs]


def test_what_kept_an_update_waiting_is_counted_by_role(rig: Rig) -> None:
    """
    As the process tells when it enters the step after it.
    """
    process, _ = rig.register(role="rollouter")
    for step, seconds in ((5, 0.5), (6, 0.0), (7, 0.25)):
        rig.controller.handle(process, wire.Version(step=step, param_version=step - 1, update_delay=seconds))

    assert {"rollouter": 0.75} == rig.ledger.delays


def test_the_steps_of_a_shared_window_are_one_key(rig: Rig) -> None:
    """
    A window covers what lies between its first and its last step, both included.
    """
    alone = Window(window="w", step=5, param_version=4, role="trainer", rank=0, pid=1, process_start=2, tool="torch")
    several = replace(alone, last_step=7)

    assert [5] == [step for step in range(9) if alone.covers(step)]
    assert [5, 6, 7] == [step for step in range(9) if several.covers(step)]
    windows = Windows()
    windows.put(several)
    assert several is windows.of_key((6, "trainer", 0, "torch"), process=(9, 9))
    assert windows.of_key((6, "trainer", 1, "torch"), process=(9, 9)) is None
    assert windows.of_key((8, "trainer", 0, "torch"), process=(9, 9)) is None
