"""
For tests of programs that use stepscope: run it in the test's own process, without a sidecar, and look at what came.

    with capture_spans(role="trainer", selected={2}) as captured:
        run_my_loop()
    assert ["train.update_actor"] == [span.name for span in captured.named("train.update_actor")]

No thread is started and no socket opened. The agent here is a stand-in: it grants what is selected, records nothing,
and keeps a list of what was asked of it.
"""

# ruff: noqa: ARG002 - stand-ins take what the real ones take

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import format_span_id, format_trace_id
from opentelemetry.util.types import AttributeValue

from stepscope import names, registration
from stepscope.seam import Identity, SampleRow
from stepscope.session import Session
from stepscope.settings import Settings


@dataclass(frozen=True, kw_only=True, slots=True)
class SpanLink:
    """
    What a span points at.
    """

    trace_id: str
    span_id: str
    attributes: Mapping[str, AttributeValue]


@dataclass(frozen=True, kw_only=True, slots=True)
class SpanData:
    """
    A finished span as plain data; ids are lower-case hex, a missing parent is empty.
    """

    name: str
    trace_id: str
    span_id: str
    parent_span_id: str
    start_unix_ns: int
    end_unix_ns: int
    attributes: Mapping[str, AttributeValue]
    links: tuple[SpanLink, ...]
    events: tuple[tuple[str, Mapping[str, AttributeValue]], ...]
    status: str
    resource: Mapping[str, AttributeValue]

    @property
    def param_version(self) -> AttributeValue | None:
        """
        The version in force when it began.
        """
        return self.attributes.get(names.PARAM_VERSION)

    @property
    def step(self) -> AttributeValue | None:
        """
        The step it belongs to.
        """
        return self.attributes.get(names.STEP)


class FakeWindows:
    """
    Windows that record nothing; ``calls`` is what was asked of them, in order.
    """

    def __init__(self, *, grant: bool = True, calls: list[tuple[str, dict[str, object]]] | None = None) -> None:
        self.recording = False
        self.lingering = False
        self.last = 0
        """The last step of the window that was opened last."""
        self.continuous = False
        """Whether windows go on into the next step."""
        self.grant = grant
        self.marks = (0, 0)
        """When the marks of all spans begin and end, in nanoseconds since 1970; 0: spans have none."""
        self.calls = calls if calls is not None else []

    def names(self) -> list[str]:
        """
        The calls by name.
        """
        return [name for name, _ in self.calls]

    def of(self, name: str) -> list[dict[str, object]]:
        """
        What the calls of ``name`` were told.
        """
        return [told for called, told in self.calls if called == name]

    def outcome(self) -> Mapping[str, str]:
        """
        The state now.
        """
        return {"state": "recording" if self.recording else "", "reason": "", "window": ""}

    def open(
        self, *, step: int, param_version: int, forced: bool = False, late: bool = False, roaming: bool = False
    ) -> bool:
        """
        Grant, unless told not to.
        """
        self.calls.append(("open", {"step": step, "param_version": param_version, "forced": forced, "late": late}))
        self.recording, self.last = self.grant, step
        return self.grant

    async def aopen(
        self, *, step: int, param_version: int, forced: bool = False, late: bool = False, roaming: bool = False
    ) -> bool:
        """
        The same.
        """
        return self.open(step=step, param_version=param_version, forced=forced, late=late, roaming=roaming)

    def started(self, *, trace_id: str, span_id: str) -> None:
        """
        Note it.
        """
        self.calls.append(("started", {"trace_id": trace_id, "span_id": span_id}))

    def close(self, *, version: int, reason: str = "boundary", incomplete: str = "") -> None:
        """
        Note it, if anything records.
        """
        if self.recording:
            self.recording = self.lingering = False
            self.calls.append(("close", {"version": version, "reason": str(reason), "incomplete": str(incomplete)}))

    async def aclose(self, *, version: int, reason: str = "boundary", incomplete: str = "") -> None:
        """
        The same.
        """
        self.close(version=version, reason=reason, incomplete=incomplete)

    def carries(self, step: int) -> bool:
        """
        Whether it was told to be continuous, and records.
        """
        return self.continuous and self.recording and not self.lingering and step in {self.last, self.last + 1}

    def extend(self, *, step: int, trace_id: str, span_id: str) -> None:
        """
        Note it.
        """
        self.last = step
        self.calls.append(("extend", {"step": step, "trace_id": trace_id, "span_id": span_id}))

    def linger(self, *, version: int, incomplete: str = "") -> bool:
        """
        Note it, if anything records.
        """
        if self.recording:
            self.lingering = True
            self.calls.append(("linger", {"version": version, "incomplete": str(incomplete)}))
        return self.lingering

    def resume(self) -> None:
        """
        Stop what lingers at once.
        """
        if self.lingering:
            self.recording = self.lingering = False
            self.calls.append(("resume", {}))

    def span_started(self, span_id: int, name: str) -> int:
        """
        Note it; its mark begins at ``marks[0]``.
        """
        self.calls.append(("span_started", {"span_id": span_id, "name": name}))
        return self.marks[0]

    def span_ended(self, span_id: int) -> int:
        """
        Note it; its mark ends at ``marks[1]``.
        """
        self.calls.append(("span_ended", {"span_id": span_id}))
        return self.marks[1]


class FakeAgent:
    """
    An agent without a sidecar; ``selected`` are the steps it says yes to.
    """

    def __init__(self, *, selected: Iterable[int] = (), grant: bool = True) -> None:
        self.calls: list[tuple[str, dict[str, object]]] = []
        self.windows = FakeWindows(grant=grant)
        self.rows: list[SampleRow] = []
        self.drops: dict[str, int] = {}
        self.profilers: list[object] = []
        self.endpoint = ""
        self.closed = False
        self.stopped = False
        """Whether recording is stopped, whatever is selected."""
        self.stall: dict[str, float] = {}
        """Seconds by phase that the next step is told of."""
        self.update_delay = 0.0
        """Seconds that updates were told to have waited for profiling."""
        self._selected = frozenset(selected)

    def selected(self, step: int) -> bool:
        """
        Whether ``step`` is among those given.
        """
        return step in self._selected

    def records(self, step: int) -> bool:
        """
        The same, unless it was told to be stopped.
        """
        return not self.stopped and self.selected(step)

    def entered(self, step: int, version: int, update_delay: float = 0.0) -> None:
        """
        Note it.
        """
        self.update_delay += update_delay
        self.calls.append(("entered", {"step": step, "version": version}))

    def step_closed(self, step: int, partial: bool = False, version: int | None = None) -> None:
        """
        Note it.
        """
        self.calls.append(("step_closed", {"step": step, "partial": partial, "version": version}))

    def samples(self, *, step: int, mini_batch: int, param_version: int, rows: Sequence[SampleRow]) -> None:
        """
        Keep the rows.
        """
        self.calls.append(("samples", {"step": step, "mini_batch": mini_batch, "param_version": param_version}))
        self.rows.extend(rows)

    def dropped(self, counts: Mapping[str, int]) -> None:
        """
        Add them up.
        """
        for reason, count in counts.items():
            self.drops[reason] = self.drops.get(reason, 0) + count

    def take_stall(self) -> Mapping[str, float]:
        """
        What was put into ``stall``, once.
        """
        taken, self.stall = self.stall, {}
        return taken

    def otlp_endpoint(self) -> str:
        """
        The address put into ``endpoint``.
        """
        return self.endpoint

    def register_profiler(self, profiler: object) -> None:
        """
        Keep it.
        """
        self.profilers.append(profiler)

    def close(self, timeout: float = 5.0) -> None:
        """
        Note it.
        """
        self.closed = True


@dataclass(kw_only=True, slots=True)
class Captured:
    """
    The spans that have finished so far, oldest first, and the stand-in agent.
    """

    agent: FakeAgent
    spans: list[SpanData] = field(default_factory=list)

    def named(self, name: str) -> list[SpanData]:
        """
        The finished spans called ``name``.
        """
        return [span for span in self.spans if span.name == name]

    def __call__(self, span: ReadableSpan) -> None:
        """
        Take a finished span.
        """
        self.spans.append(plain(span))

    def shutdown(self, timeout: float) -> None:
        """
        Nothing waits here.
        """


@contextmanager
def capture_spans(
    *,
    role: str = "trainer",
    rank: int = 0,
    param_version: int = 0,
    total_steps: int | None = None,
    selected: Iterable[int] = (),
    grant: bool = True,
    request_spans: int | None = None,
    stop_after: bool = False,
    attempt: str = "attempt",
    clock: Callable[[], int] = time.time_ns,
) -> Iterator[Captured]:
    """
    Inside, this process is registered as ``role`` and ``rank``, and its spans come to the object given.

    ``init()`` in the tested code has to be left out. What was in force before is in force again afterwards. Leaving
    ends what is open, as leaving a process does.
    """
    settings = Settings(run="test", attempt=attempt, directory=Path("runs"), stop_after=stop_after)
    if request_spans is not None:
        settings = replace(settings, request_spans=request_spans)
    agent = FakeAgent(selected=selected, grant=grant)
    captured = Captured(agent=agent)
    identity = Identity(role=role, rank=rank, param_version=param_version, total_steps=total_steps)
    session = Session(settings=settings, identity=identity, agent=agent, sink=captured, clock=clock)
    before = registration.use(session)
    try:
        yield captured
    finally:
        session.close(timeout=1.0)
        registration.use(before)


def plain(span: ReadableSpan) -> SpanData:
    """
    The finished ``span`` as plain data.
    """
    context = span.get_span_context()
    return SpanData(
        name=span.name,
        trace_id=format_trace_id(context.trace_id) if context else "",
        span_id=format_span_id(context.span_id) if context else "",
        parent_span_id=format_span_id(span.parent.span_id) if span.parent else "",
        start_unix_ns=span.start_time or 0,
        end_unix_ns=span.end_time or 0,
        attributes=MappingProxyType(dict(span.attributes or {})),
        links=tuple(
            SpanLink(
                trace_id=format_trace_id(link.context.trace_id),
                span_id=format_span_id(link.context.span_id),
                attributes=MappingProxyType(dict(link.attributes or {})),
            )
            for link in span.links
        ),
        events=tuple((event.name, MappingProxyType(dict(event.attributes or {}))) for event in span.events),
        status=span.status.status_code.name.lower(),
        resource=MappingProxyType(dict(span.resource.attributes)),
    )
