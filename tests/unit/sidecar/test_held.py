"""
Finding windows among many: what a process waits for does not take longer the more windows there are.
"""

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepscope import wire
from stepscope.names import State
from stepscope_sidecar.held import Held
from stepscope_sidecar.windows import Window

from .rig import Rig

SOME = 200
"""Calls that caches and the collector of garbage make a difference of; to look at each window takes thousands."""


def _window(step: int, *, rank: int = 0, state: State = State.READY, last_step: int = 0) -> Window:
    return Window(
        window=f"w{step}-{rank}",
        step=step,
        last_step=last_step,
        param_version=step - 1,
        role="trainer",
        rank=rank,
        pid=1,
        process_start=2,
        tool="torch",
        state=state,
    )


def _calls(act: Callable[[], object]) -> int:
    """
    How many functions are called, or generators go on, in ``act``.
    """
    found: Counter[str] = Counter()

    def note(frame: object, event: str, what: Any) -> None:
        found[event] += 1

    former = sys.getprofile()
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(former)
    return found["call"] + found["c_call"]


@pytest.mark.parametrize("rank", [0, 9])
def test_an_ask_takes_as_much_work_however_many_windows_are_held(tmp_path: Path, rank: int) -> None:
    """
    A grant and a denial, with what is told at a step's begin and at the grant's end.
    """

    def taken(steps: int) -> int:
        rig = Rig(tmp_path, STEPSCOPE_STEPS="every:1", STEPSCOPE_RANKS="0")
        process, link = rig.register(rank=rank)
        for step in range(1, steps):
            for other in range(8):
                rig.controller.recordings.windows.put(_window(step, rank=other))

        def ask() -> None:
            rig.controller.handle(process, wire.Version(step=900, param_version=899))
            name = rig.open(process, link, 900)
            rig.controller.handle(process, wire.Ended(window=name, state="failed", reason="no_artifact"))
            rig.controller.tick()

        return _calls(ask)

    assert taken(500) < taken(10) + SOME


def test_windows_are_found_by_what_they_are_of() -> None:
    """
    At each step that they cover, once; and those of others never.
    """
    held, kin = Held(), ("trainer", 0, "torch")
    for window in (_window(3, last_step=5), _window(6), _window(6, rank=1), _window(9, state=State.DENIED)):
        held.put(window)

    found = {step: [window.window for window in held.of(kin, step)] for step in range(2, 10)}

    assert {2: [], 3: ["w3-0"], 4: ["w3-0"], 5: ["w3-0"], 6: ["w6-0"], 7: [], 8: [], 9: ["w9-0"]} == found
    assert ["w6-0", "w9-0"] == [window.window for window in held.after(kin, 5)]


def test_what_is_forgotten_is_found_nowhere() -> None:
    """
    Only what is over, and covers no step that is kept.
    """
    held, kin = Held(), ("trainer", 0, "torch")
    for window in (_window(1), _window(2, state=State.RECORDING), _window(3, last_step=8), _window(4), _window(7)):
        held.put(window)
    held.forget(before_step=7)
    held.put(_window(2))
    held.put(_window(3, last_step=9))

    assert ["w2-0", "w3-0", "w7-0"] == [window.window for window in held]
    assert [["w2-0"], ["w3-0"], []] == [[window.window for window in held.of(kin, step)] for step in (2, 9, 1)]
    assert ([], []) == (held.leased(), held.unfinished())
    held.forget(before_step=100)
    assert 0 == len(held)
    assert [] == [window for step in range(10) for window in held.of(kin, step)]


def test_windows_are_leased_and_unfinished_as_long_as_their_state_says() -> None:
    """
    Whatever they become.
    """
    held, found = Held(), {}
    for state in State:
        held.put(_window(1, state=state))
        found[state] = (len(held.leased()), len(held.unfinished()))

    assert {state: (int(_window(1, state=state).leased), int(not state.final)) for state in State} == found
