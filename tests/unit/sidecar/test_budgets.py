"""
What profiling may cost denies windows for as long as it is exceeded, and no longer.
"""

from pathlib import Path

import pytest

from stepscope import wire
from stepscope.names import Reason

from .rig import Rig, closed


@pytest.mark.parametrize("later", [0.04, None], ids=["lower", "unknown"])
def test_the_bound_on_overhead_is_lifted_when_the_figure_falls(tmp_path: Path, later: float | None) -> None:
    """
    Below the bound, or unknown: a window is granted again.
    """
    rig = Rig(tmp_path, STEPSCOPE_STEPS="5-8", STEPSCOPE_MAX_OVERHEAD="0.05")
    process, link = rig.register()
    answers = []
    for step, ratio in ((5, 0.06), (6, 0.5), (7, later)):
        rig.ratio = ratio
        answers.append(rig.open(process, link, step))

    assert ["budget_overhead", "budget_overhead"] == answers[:2]
    assert answers[2] in rig.ledger.rows


def test_a_run_at_its_bound_goes_on_recording(tmp_path: Path) -> None:
    """
    It is what may be spent.
    """
    rig = Rig(tmp_path, STEPSCOPE_MAX_OVERHEAD="0.05")
    process, link = rig.register()
    rig.ratio = 0.05

    assert rig.open(process, link) in rig.ledger.rows


def _caps(rig: Rig, rank: int, step: int = 5) -> tuple[str, int | str]:
    """
    The window that a process of ``rank`` gets, and how many bytes it may write; or "" and why it gets none.
    """
    process, link = rig.register(100 * step + rank, rank=rank)
    rig.open(process, link, step)
    answer = next(item for item in reversed(link.sent) if isinstance(item, (wire.Grant, wire.Deny)))
    return (answer.window, answer.caps.bytes) if isinstance(answer, wire.Grant) else ("", answer.reason)


def test_windows_of_one_moment_share_what_is_left_of_the_disk(tmp_path: Path) -> None:
    """
    Each is granted at most half of what the others cannot write any more; one for which nothing is left is denied.
    """
    rig = Rig(tmp_path, STEPSCOPE_CAP_BYTES="400")
    rig.disk = 1000

    found = [_caps(rig, rank)[1] for rank in range(12)]

    assert [400, 300, 150, 75, 37, 19, 9, 5, 2, 1, 1, 1] == found
    assert 1000 == sum(map(int, found))
    assert "budget_disk" == _caps(rig, 12)[1]


def test_a_window_without_a_bound_is_granted_half_of_what_is_left(tmp_path: Path) -> None:
    """
    Until it is over others have the rest.
    """
    rig = Rig(tmp_path, STEPSCOPE_CAP_BYTES="0")
    rig.disk = 1000
    name, granted = _caps(rig, 0)
    other, rest = _caps(rig, 1)
    for window in (name, other):
        rig.controller.recordings.lost(window, Reason.PROCESS_LOST)

    assert (500, 250) == (granted, rest)
    assert 500 == _caps(rig, 0, 8)[1]


def test_what_a_closed_window_has_written_is_taken_until_it_is_final(tmp_path: Path) -> None:
    """
    Though nobody may have looked at the disk since; what it was granted beyond that is free again.
    """
    rig = Rig(tmp_path, STEPSCOPE_CAP_BYTES="400")
    rig.disk, rig.written = 1000, 300
    process, link = rig.register(1)
    name = rig.open(process, link)
    rig.controller.handle(process, closed(name))
    finalising = [_caps(rig, rank)[1] for rank in (1, 2)]
    rig.done(name)

    assert [350, 175] == finalising
    assert 237 == _caps(rig, 3)[1]


@pytest.mark.parametrize(("cap", "granted"), [("400", [300, 150]), ("0", ["budget_disk", "budget_disk"])])
def test_what_a_former_sidecar_granted_is_taken(tmp_path: Path, cap: str, granted: list[int | str]) -> None:
    """
    All that a window may have been granted at most.
    """
    rig = Rig(tmp_path, STEPSCOPE_CAP_BYTES=cap)
    rig.disk = 1000
    _caps(rig, 0)
    rig.restart()

    assert granted == [_caps(rig, rank)[1] for rank in (1, 2)]
