"""
A controller with everything around it stood in for: clock, disk, finaliser, ledger, connections.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stepscope import wire
from stepscope.settings import Settings, read
from stepscope_sidecar.controller import Controller
from stepscope_sidecar.jobs import Result
from stepscope_sidecar.plan import Plan
from stepscope_sidecar.processes import Process
from stepscope_sidecar.rows import MissingRow
from stepscope_sidecar.seams import World
from stepscope_sidecar.windows import Window

TRACE = "0" * 31 + "1"
SPAN = "0" * 15 + "2"


@dataclass(eq=False)
class FakeLink:
    """
    A connection that keeps what it is sent.
    """

    sent: list[wire.Message] = field(default_factory=list)
    closed: bool = False

    def send(self, message: wire.Message) -> None:
        """
        Keep ``message``.
        """
        self.sent.append(message)

    def close(self) -> None:
        """
        Note that it was closed.
        """
        self.closed = True

    def last(self) -> wire.Message:
        """
        What was sent last.
        """
        return self.sent[-1]


@dataclass(eq=False)
class FakeLedger:
    """
    A ledger that keeps every change, and fails the test when a final window changes.
    """

    changes: list[Window] = field(default_factory=list)
    rows: dict[str, Window] = field(default_factory=dict)
    plans: list[Plan] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    taken: list[wire.Samples] = field(default_factory=list)
    lost: dict[str, int] = field(default_factory=dict)
    absent: list[MissingRow] = field(default_factory=list)
    cpu: float = 0.0
    delays: dict[str, float] = field(default_factory=dict)

    def window(self, window: Window, *, before: Window | None) -> None:
        """
        Keep ``window``.
        """
        known = self.rows.get(window.window)
        assert known is None or not known.state.final, f"{window.window} was {known.state} and became {window.state}"
        assert known == before or before is None or known is None
        self.changes.append(window)
        self.rows[window.window] = window

    def process(self, process: Process) -> None:
        """
        Keep ``process``.
        """
        self.processes.append(process)

    def plan(self, plan: Plan) -> None:
        """
        Keep ``plan``.
        """
        self.plans.append(plan)

    def samples(self, message: wire.Samples) -> None:
        """
        Keep ``message``.
        """
        self.taken.append(message)

    def dropped(self, spans: Mapping[str, int]) -> None:
        """
        Count ``spans``.
        """
        for reason, count in spans.items():
            self.lost[reason] = self.lost.get(reason, 0) + count

    def tool(self, role: str, tool: str) -> None:
        """
        Of no concern.
        """

    def missing(self, by_role: Mapping[str, int], found: Sequence[MissingRow]) -> None:
        """
        Note the last, and what was found.
        """
        self.lacks = dict(by_role)
        self.absent.extend(found)

    def update_delayed(self, role: str, seconds: float) -> None:
        """
        Add ``seconds`` up.
        """
        self.delays[role] = self.delays.get(role, 0.0) + seconds

    def finalise_cpu(self, seconds: float) -> None:
        """
        Count ``seconds``.
        """
        self.cpu += seconds


class Rig:
    """
    One controller and its surroundings; :meth:`restart` puts another in its place.
    """

    def __init__(self, folder: Path, **environment: str) -> None:
        """
        Begin, with selection ``5,8-9`` and all ranks unless ``environment`` says otherwise.
        """
        self.environment = {
            "STEPSCOPE_STEPS": "5,8-9",
            "STEPSCOPE_RANKS": "all",
            "STEPSCOPE_DIR": str(folder),
            "STEPSCOPE_RUN": "run",
            "STEPSCOPE_ATTEMPT": "a1",
            **environment,
        }
        self.settings: Settings = read(self.environment)
        self.ledger = FakeLedger()
        self.now = 1000.0
        self.records: dict[str, wire.Closed] = {}
        self.dead: set[int] = set()
        self.disk = 10**12
        self.written = 0
        self.ratio: float | None = None
        self.jobs: list[str] = []
        self.troubles: list[str] = []
        self.controller = self.make()

    def make(self) -> Controller:
        """
        A controller that nobody has told anything yet.
        """
        world = World(
            unix_ns=lambda: int(self.now * 1e9),
            monotonic=lambda: self.now,
            record=lambda window: self.records.get(window.window),
            alive=lambda pid, start: pid not in self.dead,
            disk_left=lambda: self.disk,
            written=lambda window: self.written,
            overhead=lambda role: self.ratio,
            finalise=lambda window, record: self.jobs.append(window.window),
            otlp=lambda: "http://127.0.0.1:1",
            troubles=lambda: self.troubles,
        )
        plan = Plan.of(self.settings, environment=self.environment)
        return Controller(self.settings, plan, ledger=self.ledger, world=world, node="here")

    def restart(self) -> None:
        """
        The sidecar is killed, and another takes over from what was kept.
        """
        before = self.controller
        self.jobs.clear()
        self.controller = self.make()
        self.controller.plan = before.plan
        processes = [process for process in before.processes if process.alive]
        for process in processes:
            process.link = None
        self.controller.resume(processes, list(self.ledger.rows.values()))

    def register(
        self,
        pid: int = 100,
        changes: Mapping[str, object] | None = None,
        *,
        link: FakeLink | None = None,
        former: Process | None = None,
        **more: object,
    ) -> tuple[Process, FakeLink]:
        """
        A process that registers and is not refused.
        """
        link = link or FakeLink()
        process = self.controller.register(register(pid, **{**(changes or {}), **more}), link, peer=pid, former=former)
        assert process is not None, link.sent
        return process, link

    def open(self, process: Process, link: FakeLink, step: int = 5, *, forced: bool = False) -> str:
        """
        Ask for a window: its id, or the reason why there is none.
        """
        self.controller.handle(process, wire.Open(id=7, step=step, param_version=step - 1, forced=forced))
        answer = next(item for item in reversed(link.sent) if isinstance(item, (wire.Grant, wire.Deny)))
        return answer.window if isinstance(answer, wire.Grant) else answer.reason

    def states(self) -> dict[str, str]:
        """
        State and reason of each window.
        """
        return {window.window: f"{window.state}:{window.reason}" for window in self.ledger.rows.values()}

    def done(self, window: str, *, reason: str = "") -> None:
        """
        The finaliser is done with ``window``.
        """
        artifact = str(self.settings.directory.absolute() / "x" / "recording.json.gz")
        result = Result(window=window, artifact=artifact, bytes=3, sha256="ab", complete=True, reason=reason)
        self.controller.finalised(result)


def register(pid: int = 100, /, **changes: object) -> wire.Register:
    """
    A registration of process ``pid``.
    """
    values: dict[str, object] = {
        "id": 1,
        "protocol": wire.PROTOCOL,
        "run": "run",
        "attempt": "a1",
        "node": "here",
        "pid": pid,
        "process_start": pid + 1,
        "role": "trainer",
        "rank": 0,
        "tools": {"torch": ""},
        **changes,
    }
    return wire.Register(**values)  # type: ignore[arg-type]  # the values above have their types


def started(window: str) -> wire.Started:
    """
    The profiler of ``window`` runs.
    """
    return wire.Started(
        window=window, trace_id=TRACE, span_id=SPAN, opened_unix_ns=5, level="spans", stall={"open": 0.1, "start": 0.2}
    )


def closed(window: str, reason: str = "boundary") -> wire.Closed:
    """
    ``window`` has been closed.
    """
    return wire.Closed(
        window=window,
        reason=reason,
        version_at_close=5,
        opened_unix_ns=5,
        closed_unix_ns=9,
        artifact="recording.json",
        trace_id=TRACE,
        span_id=SPAN,
        level="spans",
        stall={"stop": 0.3},
    )


def reopened(window: str, step: int = 5) -> wire.OpenWindow:
    """
    ``window`` is still open.
    """
    return wire.OpenWindow(
        window=window,
        step=step,
        param_version=step - 1,
        tool="torch",
        level="spans",
        opened_unix_ns=5,
        trace_id=TRACE,
        span_id=SPAN,
    )
