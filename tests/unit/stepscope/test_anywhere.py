"""
A profiler whose coroutines need no event loop of their own: plain boundary calls, watchdog and exit drive it too.
"""

import asyncio
from pathlib import Path

import pytest

from stepscope import recorder
from tests.unit.stepscope.desk import SPAN, TRACE, Rig
from tests.unit.stepscope.fake_profiler import FakeEngine
from tests.unit.stepscope.fake_sidecar import until


class Anywhere(FakeEngine):
    """
    A stand-in for one that is reached over a socket.
    """

    anywhere = True


def test_plain_calls_drive_it(tmp_path: Path) -> None:
    """
    Outside an event loop, and inside one, where the loop stands still meanwhile.
    """
    rig = Rig(tmp_path, Anywhere())

    async def inside() -> None:
        assert rig.open(6)
        rig.windows.close(version=6)

    assert rig.open(5)
    rig.windows.close(version=5)
    asyncio.run(inside())
    rig.windows.end(version=6, timeout=5)

    assert ["boundary", "boundary"] == [closed.reason for closed in rig.desk.closed]
    assert [] == rig.desk.ended


def test_it_is_stopped_at_exit(tmp_path: Path) -> None:
    """
    Its event loop is no more; what it drives outlives the process and must not stay on.
    """
    engine = Anywhere()
    rig = Rig(tmp_path, engine)

    async def opened() -> None:
        assert await rig.windows.aopen(step=5, param_version=4)
        rig.windows.started(trace_id=TRACE, span_id=SPAN)

    asyncio.run(opened())
    rig.windows.end(version=4, timeout=5)

    assert ["start", "stop"] == engine.calls
    assert [("process_exit", "process_exit")] == [(item.reason, item.incomplete) for item in rig.desk.closed]


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_stop_ends_it_without_its_loop(tmp_path: Path, asynchronous: bool) -> None:
    """
    The watchdog's own thread sees it through, where the window was opened by a plain call or its loop has ended.
    """
    rig = Rig(tmp_path, Anywhere())

    async def opened() -> None:
        assert await rig.windows.aopen(step=5, param_version=4)

    if asynchronous:
        asyncio.run(opened())
        rig.windows.started(trace_id=TRACE, span_id=SPAN)
    else:
        assert rig.open(5)
    rig.windows.stop("w1", "stopped_by_user")
    until(lambda: bool(rig.desk.closed))
    rig.windows.end(version=4, timeout=5)

    assert ["stopped_by_user"] == [closed.reason for closed in rig.desk.closed]


def test_one_that_hangs_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A plain call comes back after the deadline too.
    """
    monkeypatch.setattr(recorder, "ENGINE_DEADLINE", 0.05)
    engine = Anywhere()
    rig = Rig(tmp_path, engine)
    assert rig.open(5)
    engine.hang = True
    rig.windows.close(version=5)
    rig.windows.end(version=5, timeout=5)

    assert [("failed", "stop_timeout")] == rig.desk.ended
