"""
The window state machine, and a controller driven by messages in any order.
"""

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepscope import wire
from stepscope.names import Reason, State
from stepscope_sidecar.processes import Process
from stepscope_sidecar.windows import Window, Windows

from .rig import FakeLink, Rig, closed, reopened, started


def _window(name: str = "w", **changes: object) -> Window:
    values: dict[str, object] = {
        "window": name,
        "step": 5,
        "param_version": 4,
        "role": "trainer",
        "rank": 0,
        "pid": 1,
        "process_start": 2,
        "tool": "torch",
        "devices": ("gpu0",),
        **changes,
    }
    return Window(**values)  # type: ignore[arg-type]  # the values above have their types


def _state(windows: Windows, name: str = "w") -> State:
    window = windows.get(name)
    assert window is not None
    return window.state


def test_a_window_goes_from_opening_to_ready() -> None:
    """
    Opening, recording, finalising, ready: each message moves it on.
    """
    windows = Windows()
    seen = [windows.put(_window()).state]

    windows.started(started("w"))
    seen.append(_state(windows))
    windows.closed(closed("w"))
    seen.append(_state(windows))
    windows.ready("w", artifact="a", size=1, sha256="s", complete=True)
    seen.append(_state(windows))

    assert [State.OPENING, State.RECORDING, State.FINALISING, State.READY] == seen
    assert not windows.ignored


def test_a_close_record_without_a_start_is_enough() -> None:
    """
    `closed` in place of a lost `started` brings all that `started` would have.
    """
    windows = Windows()
    windows.put(_window())

    window = windows.closed(closed("w"))

    assert window is not None
    assert (State.FINALISING, 5, 9) == (window.state, window.opened_unix_ns, window.closed_unix_ns)


def test_messages_that_do_not_fit_are_ignored_and_counted() -> None:
    """
    A final window never changes, and an unknown one is nobody's.
    """
    windows = Windows()
    windows.put(_window())
    windows.ended(wire.Ended(window="w", state="failed", reason="start_error"), unix_ns=1)

    assert windows.started(started("w")) is None
    assert windows.closed(closed("w")) is None
    assert windows.stopping("w", reason="stopped_by_user") is None
    assert windows.lost("w", reason=Reason.PROCESS_LOST, unix_ns=1) is None
    assert windows.ready("w", artifact="", size=0, sha256="", complete=True) is None
    assert windows.closed(closed("another")) is None
    assert _state(windows) is State.FAILED
    assert {"started": 1, "closed": 2, "stop": 1, "lost": 1, "finalised": 1} == dict(windows.ignored)


def test_a_stop_that_overtakes_the_start_keeps_the_window_closing() -> None:
    """
    `started` after a stop brings the span, not the state.
    """
    windows = Windows()
    windows.put(_window())
    windows.stopping("w", reason="stopped_by_user")

    window = windows.started(started("w"))

    assert window is not None
    assert (State.CLOSING, 5) == (window.state, window.opened_unix_ns)


@pytest.mark.parametrize(
    ("state", "expected"),
    [("expired", State.EXPIRED), ("denied", State.DENIED), ("failed", State.FAILED), ("x", State.FAILED)],
)
def test_an_ended_window_has_a_reason_from_the_closed_list(state: str, expected: State) -> None:
    """
    A reason that is not in the list becomes detail, and the list's nearest reason stands in its place.
    """
    windows = Windows()
    windows.put(_window())

    window = windows.ended(wire.Ended(window="w", state=state, reason="made up"), unix_ns=1)

    assert window is not None
    assert expected is window.state
    assert window.reason in set(Reason)
    assert window.detail == "made up"


def test_a_window_that_records_is_not_denied_any_more() -> None:
    """
    What comes too late for that is a failure.
    """
    windows = Windows()
    windows.put(_window())
    windows.started(started("w"))

    window = windows.ended(wire.Ended(window="w", state="denied", reason="tool_unavailable"), unix_ns=1)

    assert window is not None
    assert State.FAILED is window.state


def test_the_lease_ends_when_the_raw_recording_is_written() -> None:
    """
    A process and its devices are free again while their window is finalised.
    """
    windows = Windows()
    windows.put(_window())

    assert windows.leased(process=(1, 2))
    assert windows.holder(["gpu0"]) is not None
    windows.closed(closed("w"))
    assert not windows.leased(process=(1, 2))
    assert windows.holder(["gpu0"]) is None


def test_adopting_a_window_on_a_held_device_closes_it() -> None:
    """
    Two processes that record one device after a restart: the one that comes later is stopped, not forgotten.
    """
    windows = Windows()
    windows.put(_window("other", pid=7, rank=1, state=State.RECORDING))

    adopted = windows.adopt(_window(trace_id="t"))

    assert adopted is not None
    assert (State.CLOSING, Reason.BUSY_DEVICE) == (adopted.state, adopted.reason)


# Any order -----------------------------------------------------------------------------------------------------

PROCESSES = (
    {"pid": 100, "role": "trainer", "rank": 0, "device_ids": ["gpu0"]},
    {"pid": 101, "role": "trainer", "rank": 1, "device_ids": ["gpu1"]},
    {"pid": 102, "role": "rollouter", "rank": 0, "device_ids": ["gpu0"]},
    {"pid": 103, "role": "rollouter", "rank": 1, "device_ids": []},
    {"pid": 104, "role": "trainer", "rank": 0, "device_ids": ["gpu2"]},
)
"""Colocated trainer and rollouter, one without a device, and one that claims another's role and rank."""

ACTIONS = (
    *("open",) * 6,
    *("started", "closed", "ready") * 3,
    *("register", "register_listing", "ended", "profile", "record", "wait", "unusable", "unlink", "missed", "tick") * 2,
    *("stop", "kill", "bye", "restart"),
)
"""What can happen; what makes windows happens more often than what ends everything."""

MOVES = st.lists(
    st.tuples(
        st.sampled_from(ACTIONS), st.integers(0, len(PROCESSES) - 1), st.integers(0, 40), st.sampled_from([5, 8, 9, 10])
    ),
    min_size=30,
    max_size=80,
)


class World:
    """
    Plays moves against a controller, and looks at what must hold after each.
    """

    def __init__(self, rig: Rig) -> None:
        """
        Begin with all processes registered.
        """
        self.rig = rig
        self.links: dict[int, tuple[Process, FakeLink]] = {}
        for who in range(len(PROCESSES)):
            self.play("register", who, 0, 5)

    def play(self, action: str, who: int, which: int, step: int) -> None:
        """
        Make one move; those that make no sense now are made all the same where a process could.
        """
        rig, controller = self.rig, self.rig.controller
        facts = dict(PROCESSES[who])
        pid = int(str(facts.pop("pid")))
        # Mostly about a window of its own, and then mostly the newest; now and then about another's.
        own = [name for name, window in rig.ledger.rows.items() if window.pid == pid or which % 8 == 0]
        window = (own[-1] if which % 2 else own[which % len(own)]) if own else "nothing"
        if action in {"register", "register_listing"} and pid not in rig.dead:
            listed = [reopened(window, step)] if action == "register_listing" else []
            self.links[pid] = rig.register(pid, facts, open_windows=listed)
        elif action == "stop":
            controller.stop("test")
        elif action == "profile":
            controller.set_selection("5,8-10", "test")
        elif action == "kill":
            rig.dead.add(pid)
            if pid in self.links:
                controller.gone(self.links[pid][0])
                del self.links[pid]
        elif action == "ready":
            rig.done(window)
        elif action == "unusable":
            rig.done(window, reason=Reason.ARTIFACT_INVALID)
        elif action == "record":
            rig.records[window] = closed(window)
        elif action == "wait":
            rig.now += 4.0
            controller.tick()
        elif action == "tick":
            controller.tick()
        elif action == "restart":
            rig.restart()
            self.links.clear()
        elif pid in self.links:
            self._say(action, *self.links[pid], window, step)

    def _say(self, action: str, process: Process, link: FakeLink, window: str, step: int) -> None:
        controller = self.rig.controller
        messages: dict[str, wire.Message] = {
            "open": wire.Open(id=1, step=step, param_version=step - 1, forced=step == 10),
            "started": started(window),
            "closed": closed(window),
            "ended": wire.Ended(window=window, state="expired", reason="grant_too_late"),
            "missed": wire.Missed(step=step, param_version=step - 1, reason="sidecar_lost", unix_ns=1),
        }
        if action == "unlink":
            controller.unlinked(process, link)
        elif action == "bye":
            controller.handle(process, wire.Bye())
            del self.links[process.pid]
        elif action in messages:
            controller.handle(process, messages[action])

    def check(self) -> None:
        """
        One window per process, per device and per (step, role, rank, tool), but for those lost with another process.
        """
        windows = list(self.rig.controller.recordings.windows)
        running = [window for window in windows if window.state in {State.OPENING, State.RECORDING}]
        processes = [window.process for window in running]
        devices = [device for window in running for device in window.devices]
        keys = [
            (*window.key, window.process if window.reason == Reason.PROCESS_LOST else None)
            for window in windows
            if window.state is not State.DENIED
        ]

        assert len(processes) == len(set(processes))
        assert len(devices) == len(set(devices))
        assert len(keys) == len(set(keys))

    def end(self) -> None:
        """
        Everybody dies, time passes, the finaliser does what it was given.
        """
        self.rig.dead.update(int(str(facts["pid"])) for facts in PROCESSES)
        for process in self.rig.controller.processes.alive():
            self.rig.controller.gone(process)
        self.rig.now += 1000.0
        self.rig.controller.tick()
        for window in list(self.rig.jobs):
            self.rig.done(window)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(moves=MOVES)
def test_every_window_ends_in_exactly_one_final_state_whatever_the_order(
    moves: list[tuple[str, int, int, int]],
) -> None:
    """
    Random interleavings of messages, deaths, restarts and results: no window stays open, none ends twice.
    """
    with tempfile.TemporaryDirectory() as folder:
        world = World(Rig(Path(folder)))
        for move in moves:
            world.play(*move)
            world.check()

        world.end()

        assert [] == [window for window in world.rig.ledger.rows.values() if not window.state.final]
        assert {} == {
            window.window: window.reason
            for window in world.rig.ledger.rows.values()
            if window.state is not State.READY and window.reason not in set(Reason)
        }
