"""
Grant or deny: each question, and the order in which they are asked.
"""

from dataclasses import replace

import pytest

from stepscope.names import Reason, State
from stepscope.selection import Ranks, Selection
from stepscope_sidecar.policy import Ask, Rules, decide
from stepscope_sidecar.windows import Window, Windows

ASK = Ask(step=5, role="trainer", rank=0, process=(1, 2), tool="torch", devices=("gpu0",), tools={"torch": ""})
RULES = Rules(selection=Selection.parse("5"), ranks=Ranks.parse("0"), disk_left=1)


def _holding(**changes: object) -> Windows:
    values: dict[str, object] = {
        "window": "w",
        "step": 4,
        "param_version": 3,
        "role": "other",
        "rank": 3,
        "pid": 7,
        "process_start": 8,
        "tool": "torch",
        "state": State.RECORDING,
        **changes,
    }
    windows = Windows()
    windows.put(Window(**values))  # type: ignore[arg-type]  # the values above have their types
    return windows


def test_a_selected_step_of_a_selected_rank_is_granted() -> None:
    """
    With nothing in the way there is no reason to deny.
    """
    assert decide(ASK, RULES, Windows()) is None


@pytest.mark.parametrize(
    ("reason", "rules"),
    [
        (Reason.STOPPED_BY_USER, replace(RULES, stopped=True)),
        (Reason.STEP_NOT_SELECTED, replace(RULES, selection=Selection.parse("6"))),
        (Reason.RANK_NOT_SELECTED, replace(RULES, ranks=Ranks.parse("1"))),
        (Reason.BUDGET_OVERHEAD, replace(RULES, overhead=0.2, max_overhead=0.1)),
        (Reason.BUDGET_DISK, replace(RULES, disk_left=0)),
    ],
)
def test_what_is_configured_denies(reason: Reason, rules: Rules) -> None:
    """
    Each rule denies with its own reason.
    """
    assert reason == decide(ASK, rules, Windows())


@pytest.mark.parametrize(
    ("reason", "windows"),
    [
        (Reason.DUPLICATE, _holding(step=5, role="trainer", rank=0, pid=9, state=State.READY)),
        (Reason.BUSY_PROCESS, _holding(pid=1, process_start=2)),
        (Reason.BUSY_DEVICE, _holding(devices=("gpu0",))),
    ],
)
def test_other_windows_deny(reason: Reason, windows: Windows) -> None:
    """
    One window per step, role, rank and tool; one at a time per process; one at a time per device.
    """
    assert reason == decide(ASK, RULES, windows)


def test_without_device_ids_there_is_no_lease() -> None:
    """
    Processes that name no device do not exclude each other.
    """
    assert decide(replace(ASK, devices=()), RULES, _holding(devices=())) is None


def test_a_reused_pid_is_another_process() -> None:
    """
    Busy is the process, not its number.
    """
    assert decide(ASK, RULES, _holding(pid=1, process_start=99)) is None


def test_a_denied_window_is_no_duplicate() -> None:
    """
    What was denied may be asked for again.
    """
    assert decide(ASK, RULES, _holding(step=5, role="trainer", rank=0, state=State.DENIED)) is None


@pytest.mark.parametrize("tools", [{}, {"torch": "no torch here"}])
def test_a_tool_that_is_not_available_denies(tools: dict[str, str]) -> None:
    """
    Neither one that the process does not know nor one that it cannot use.
    """
    assert Reason.TOOL_UNAVAILABLE == decide(replace(ASK, tools=tools), RULES, Windows())


def test_forced_asks_no_selection_but_all_else() -> None:
    """
    `step(profile=True)` overrides the selection, not a stop and not the ranks.
    """
    forced = replace(ASK, forced=True)
    rules = replace(RULES, selection=Selection())

    assert decide(forced, rules, Windows()) is None
    assert Reason.STOPPED_BY_USER == decide(forced, replace(rules, stopped=True), Windows())
    assert Reason.RANK_NOT_SELECTED == decide(forced, replace(rules, ranks=Ranks.parse("3")), Windows())


def test_an_unknown_overhead_denies_nothing() -> None:
    """
    Unknown is not 0, and it is not too much either.
    """
    assert decide(ASK, replace(RULES, overhead=None, max_overhead=0.0), Windows()) is None


def test_the_first_reason_in_the_order_is_the_answer() -> None:
    """
    A person reads what they configured first, then what is in the way, then what it costs.
    """
    rules = replace(
        RULES,
        stopped=True,
        selection=Selection(),
        ranks=Ranks.parse("7"),
        overhead=1.0,
        max_overhead=0.0,
        disk_left=0,
    )
    ask = replace(ASK, tools={})
    windows = _holding(step=5, role="trainer", rank=0, pid=1, process_start=2, devices=("gpu0",))
    found = []

    for relief in (
        {"stopped": False},
        {"selection": Selection.parse("5")},
        {"ranks": Ranks.parse("0")},
    ):
        found.append(decide(ask, rules, windows))
        rules = replace(rules, **relief)
    found.append(decide(ask, rules, windows))
    ask = replace(ask, step=6)
    rules = replace(rules, selection=Selection.parse("6"))
    found.append(decide(ask, rules, windows))
    ask = replace(ask, process=(3, 4))
    found.append(decide(ask, rules, windows))
    ask = replace(ask, devices=())
    found.append(decide(ask, rules, windows))
    ask = replace(ask, tools={"torch": ""})
    found.append(decide(ask, rules, windows))
    found.append(decide(ask, replace(rules, overhead=None), windows))

    assert [
        Reason.STOPPED_BY_USER,
        Reason.STEP_NOT_SELECTED,
        Reason.RANK_NOT_SELECTED,
        Reason.DUPLICATE,
        Reason.BUSY_PROCESS,
        Reason.BUSY_DEVICE,
        Reason.TOOL_UNAVAILABLE,
        Reason.BUDGET_OVERHEAD,
        Reason.BUDGET_DISK,
    ] == found
