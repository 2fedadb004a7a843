"""
Whatever happens in whatever order: every window ends in exactly one final state, and no two share what is exclusive.

Processes that follow the protocol, over a network that does not, against the real controller, recordings and windows.
What processes that do not follow it can do is in ``test_windows``.
"""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import HealthCheck, Phase, given, settings

from stepscope.names import Reason, State

from .model import FIRST, LAST, ModelAgent
from .rig import Rig

PROCESSES: tuple[Mapping[str, object], ...] = (
    {"role": "trainer", "rank": 0, "device_ids": ["gpu0"]},
    {"role": "trainer", "rank": 1, "device_ids": ["gpu1"]},
    {"role": "rollouter", "rank": 0, "device_ids": ["gpu0"]},
    {"role": "rollouter", "rank": 1, "device_ids": ["gpu1", "gpu2"]},
    {"role": "trainer", "rank": 0, "device_ids": []},
)
"""Trainer and rollouter that share devices, and a second process that claims a rank which is taken."""

ACTIONS = (
    *("opens",) * 8,
    *("ends",) * 4,
    *("goes_on",) * 3,
    *("enter", "hear", "begin", "boundary", "deliver", "deliver", "finalised") * 2,
    *(
        "echo",
        "swap",
        "greedy",
        "cut",
        "connect",
        "connect",
        "tick",
        "wait",
        "start_fails",
        "cap",
        "stop_fails",
        "stop_hangs",
    ),
    *("forced", "gives_up", "stray", "unusable", "stop", "profile", "profile", "restart", "kill", "leave", "respawn"),
    *("respawn", "finalised"),
)
"""What can happen: a step that begins or ends without any trouble, and each of its parts, and all trouble, alone."""

MOVES = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, len(PROCESSES) - 1)), min_size=40, max_size=150)

GIVEN_UP = frozenset({Reason.SIDECAR_LOST, Reason.GRANT_TOO_LATE, Reason.NOT_STARTED})
"""Why a window may be over for the controller while its process, out of reach for too long, still records."""


class World:
    """
    The processes, the network and the controller, and what must hold of them.
    """

    def __init__(self, rig: Rig) -> None:
        """
        Begin with all processes registered.
        """
        self.rig = rig
        self.agents = [ModelAgent(rig, 100 + number, facts) for number, facts in enumerate(PROCESSES)]
        for agent in self.agents:
            agent.connect()

    def play(self, action: str, who: int) -> None:
        """
        Make one move; what a process cannot do now does nothing.
        """
        agent, rig = self.agents[who], self.rig
        moves: dict[str, Callable[[], object]] = {
            "opens": agent.opens,
            "ends": agent.ends,
            "enter": lambda: agent.enter(forced=False),
            "forced": lambda: agent.enter(forced=True),
            "hear": lambda: agent.hear(fails=False),
            "start_fails": lambda: agent.opens(fails=True),
            "begin": agent.begin,
            "boundary": agent.boundary,
            "goes_on": agent.go_on,
            "cap": lambda: agent.close(Reason.CAP_SECONDS),
            "stop_fails": lambda: agent.fail(Reason.STOP_ERROR),
            "stop_hangs": lambda: agent.fail(Reason.STOP_TIMEOUT),
            "gives_up": lambda: agent.opens(waits=False),
            "deliver": agent.deliver,
            "echo": agent.echo,
            "swap": agent.swap,
            "cut": agent.cut,
            "connect": agent.connect,
            "stray": lambda: agent.stray(self.agents[who - 1]),
            "greedy": agent.greedy,
            "leave": agent.leave,
            "respawn": lambda: self._respawn(who),
            "kill": agent.kill,
            "tick": rig.controller.tick,
            "wait": self._wait,
            "finalised": lambda: self._finalised(),
            "unusable": lambda: self._finalised(reason=Reason.ARTIFACT_INVALID),
            "stop": lambda: rig.controller.stop("test"),
            "profile": lambda: rig.controller.set_selection("8-11", "test"),
            "restart": self._restart,
        }
        moves[action]()

    def check(self) -> None:
        """
        At most one profiler is on in a process and on a device, and no two windows are of the same, but for those that
        were lost with their process.
        """
        rows = self.rig.ledger.rows
        running = [window for window in self.rig.controller.recordings.windows if window.leased]
        granted = [window for window in rows.values() if window.state is not State.DENIED]
        lost = [window for window in granted if window.reason == Reason.PROCESS_LOST]
        covered = [
            (step, window.role, window.rank, window.tool, window.process if window in lost else None)
            for window in granted
            for step in range(window.step, max(window.step, window.last_step) + 1)
        ]
        on = {agent.window for agent in self.agents if agent.window}

        assert len(running) == len({window.process for window in running})
        assert len(covered) == len(set(covered))
        devices = [device for window in running for device in window.devices if window.state is not State.CLOSING]
        assert len(devices) == len(set(devices))
        over = {name: (rows[name].state, rows[name].reason) for name in on if not rows[name].leased}
        assert {} == {name: ended for name, ended in over.items() if ended[1] not in GIVEN_UP}

    def end(self) -> None:
        """
        Everybody comes back and leaves in order, time passes, the finaliser does what it was given.
        """
        for agent in self.agents:
            agent.connect()
            agent.arrive()
            agent.hear(fails=False)
            agent.leave()
        self.rig.now += 1000.0
        self.rig.controller.tick()
        while self.rig.jobs:
            self._finalised()

    def check_end(self) -> None:
        """
        Every window that was asked for has one final state with a reason, and no recording was lost.
        """
        rows = self.rig.ledger.rows.values()
        lost = {State.ABORTED, State.EXPIRED}
        assert [] == [window for window in rows if not window.state.final]
        assert [] == [window for window in rows if window.reason not in set(Reason)]
        for agent in self.agents:
            mine = [
                window for window in rows if (window.role, window.rank) == (agent.facts["role"], agent.facts["rank"])
            ]
            assert agent.asked <= {step for step in range(FIRST, LAST + 1) if any(item.covers(step) for item in mine)}
            kept = {window.window: window for window in mine if window.window in agent.recorded}
            assert agent.recorded == set(kept)
            assert {} == {
                name: window for name, window in kept.items() if window.state in lost and window.reason not in GIVEN_UP
            }

    def _respawn(self, who: int) -> None:
        if not self.agents[who].alive:
            self.agents.append(self.agents[who])
            self.agents[who] = ModelAgent(self.rig, 100 + len(self.agents), self.agents[who].facts)
            self.agents[who].connect()

    def _wait(self) -> None:
        self.rig.now += 4.0
        self.rig.controller.tick()

    def _finalised(self, *, reason: str = "") -> None:
        if self.rig.jobs:
            self.rig.done(self.rig.jobs.pop(0), reason=reason)

    def _restart(self) -> None:
        for agent in self.agents:
            agent.cut()
        self.rig.restart()


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.too_slow],
)
@given(moves=MOVES)
def test_any_interleaving_ends_every_window_exactly_once(moves: list[tuple[str, int]]) -> None:
    """
    Opens, starts, closes, caps, stops, crashes, timeouts, reconnects, repeated and reordered messages.
    """
    with tempfile.TemporaryDirectory() as folder:
        world = World(Rig(Path(folder), STEPSCOPE_STEPS="8-11"))
        for move in moves:
            world.play(*move)
            world.check()

        world.end()

        world.check()
        world.check_end()
