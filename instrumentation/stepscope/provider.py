"""
The private tracer provider: its limits, its ids, what it samples, and what happens as its spans begin and end.

Never the global provider: engines set that one whenever they trace. Leaves to :mod:`stepscope.spans` which step a
span belongs to, and to its sink where finished spans go.
"""

# ruff: noqa: ARG002 - the SDK names the parameters of its callbacks

import os
import random
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SynchronousMultiSpanProcessor, TracerProvider
from opentelemetry.sdk.trace import Span as SdkSpan
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import Link, SpanKind, TraceState
from opentelemetry.util.types import Attributes

from stepscope import finished, ids, names, trackers
from stepscope.complaints import complaints
from stepscope.errors import ConfigurationError
from stepscope.seam import Identity, LiveSpan, WindowsSeam
from stepscope.settings import Settings

MAX_ATTRIBUTES = 256
"""At the SDK's 128 the oldest attribute is evicted first, and the oldest are ours; twice that leaves users room."""

MAX_LINKS = 1024
"""A mini-batch links the rollouts it consumed; the whole list is in the sample table."""

MAX_LIVE = 20_000
"""Spans that a program begins and never ends are not held beyond this many."""

ROOT = str(names.RL_STEP)

Sink = Callable[[ReadableSpan], None]
"""Takes each finished span, on the thread that ended it; must not block."""


class Ids(IdGenerator):
    """
    Random ids, or the ones forced for the next span of this thread.

    Draws from a generator of its own: the seeds of the program's ``random`` decide its rewards, not our ids.
    """

    def __init__(self) -> None:
        self._random = random.Random(os.urandom(16))  # noqa: S311 - ids, not secrets
        self._forced = threading.local()
        self._draw = self._random.getrandbits

    def force(self, *, trace_id: int, span_id: int | None = None) -> None:
        """
        Give the next span of this thread these ids; the trace id is taken if that span has no parent.
        """
        self._forced.ids = (trace_id, span_id)

    def chance(self) -> float:
        """
        A number in [0, 1).
        """
        return self._random.random()

    def generate_span_id(self) -> int:
        """
        The forced id, or a random one.
        """
        if forced := getattr(self._forced, "ids", None):
            self._forced.ids = None
            if forced[1]:
                return int(forced[1])
        return self._draw(64) or 1

    def generate_trace_id(self) -> int:
        """
        The forced id, or a random one.
        """
        forced = getattr(self._forced, "ids", None)
        return int(forced[0]) if forced else self._draw(128) or 1


class AlwaysOn(Sampler):
    """
    Records every span: what is not to be recorded is never begun.
    """

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """
        Yes.
        """
        return SamplingResult(Decision.RECORD_AND_SAMPLE, attributes)

    def get_description(self) -> str:
        """
        The name of this sampler.
        """
        return "StepscopeAlwaysOn"


class Live(SynchronousMultiSpanProcessor):
    """
    The spans that are open now, told to the windows as they begin and end, and handed on when finished.

    ``version`` is the version in force, kept by :class:`stepscope.spans.Spans`. Callbacks run on the threads of the
    training program: they never raise and never block.
    """

    def __init__(self, *, sink: Sink, windows: WindowsSeam, version: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.version = version
        self.alive = True
        self._sink = sink
        self._windows = windows
        self._open: dict[int, tuple[SdkSpan, int, int, bool, int]] = {}

    def spans(self) -> list[LiveSpan]:
        """
        The spans that are open now.
        """
        return [
            (span_id, span.name, span.start_time or 0, thread)
            for span_id, (span, thread, *_) in list(self._open.items())
        ]

    def on_start(self, span: SdkSpan, parent_context: Context | None = None) -> None:
        """
        Take ``span`` in.
        """
        try:
            windows = self._windows
            # The root of a step is begun and ended when the step is over: on a timeline it would be a point.
            mirrored = windows.recording and self.alive and span.name != ROOT
            span_id = span.context.span_id
            version, thread, mark = self.version, threading.get_ident(), 0
            # Before its mark: the sidecar may close the window meanwhile, and asks for what is open.
            if len(self._open) < MAX_LIVE:
                self._open[span_id] = (span, thread, version, mirrored, 0)
            if mirrored:
                now = time.time_ns()
                mark = windows.span_started(span_id, span.name)
                if mark and span_id in self._open and finished.same(span.start_time, now):
                    self._open[span_id] = (span, thread, version, True, mark)
        except Exception as error:  # noqa: BLE001 - an exception here would reach the training loop
            complaints.fault("span start", error)

    def on_end(self, span: ReadableSpan) -> None:
        """
        Let ``span`` go.
        """
        try:
            span_id = span.context.span_id
            entry = self._open.pop(span_id, None)
            if not self.alive:
                return
            windows = self._windows
            start = end = 0
            if windows.recording or (entry is not None and entry[3]):
                now = time.time_ns()
                end = windows.span_ended(span_id)
                start = 0 if entry is None else entry[4]
                if not finished.same(span.end_time, now):
                    end = 0
            version = None if entry is None or entry[2] == self.version else self.version
            self._sink(finished.told(span, start_ns=start, end_ns=end, version=version))
        except Exception as error:  # noqa: BLE001 - an exception here would reach the training loop
            complaints.fault("span end", error)


def make(*, live: Live, ids_: Ids, resource: Resource) -> TracerProvider:
    """
    A provider that sends its spans through ``live``.

    Raises:
        ConfigurationError: an ``OTEL_*`` limit cannot be used.
    """
    try:
        limits = SpanLimits(max_span_attributes=MAX_ATTRIBUTES, max_links=MAX_LINKS)
    except ValueError as error:
        raise ConfigurationError(f"an OTEL_*_LIMIT cannot be used: {error}") from None
    return TracerProvider(
        sampler=AlwaysOn(),
        resource=resource,
        shutdown_on_exit=False,
        active_span_processor=live,
        id_generator=ids_,
        span_limits=limits,
    )


def resource(settings: Settings, identity: Identity) -> Resource:
    """
    What every span of this process has in common; ``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES`` win.
    """
    ours: dict[str, str | int] = {
        "service.namespace": settings.run,
        "service.instance.id": f"{identity.role}-{identity.rank}-{os.getpid()}",
        "host.name": ids.node(),
        "process.pid": os.getpid(),
        str(names.RUN): settings.run,
        str(names.ATTEMPT): settings.attempt,
        str(names.ROLE): identity.role,
        str(names.RANK): identity.rank,
    }
    ours.update(trackers.runs(os.environ, sys.modules))
    if identity.resumed_from is not None:
        ours[str(names.RESUMED_FROM)] = identity.resumed_from
    said = Resource.create({})
    if str(said.attributes.get(SERVICE_NAME, "unknown_service")).startswith("unknown_service"):
        ours[SERVICE_NAME] = identity.role
    return said.merge(
        Resource({key: value for key, value in ours.items() if key not in said.attributes or key == SERVICE_NAME})
    )


def request_ratio(environment: Mapping[str, str]) -> float:
    """
    The share of per-request spans that ``OTEL_TRACES_SAMPLER`` lets through.

    Drawn anew for each request: the requests of a step share a trace id, so a decision by trace id would take all or
    none of them.
    """
    sampler = environment.get("OTEL_TRACES_SAMPLER", "").strip().lower().removeprefix("parentbased_")
    if sampler in {"", "always_on"}:
        return 1.0
    if sampler == "always_off":
        return 0.0
    if sampler == "traceidratio":
        try:
            return min(1.0, max(0.0, float(environment.get("OTEL_TRACES_SAMPLER_ARG", "1.0"))))
        except ValueError:
            complaints.warn("sampler", "OTEL_TRACES_SAMPLER_ARG is no number; every request is traced")
            return 1.0
    complaints.warn("sampler", "OTEL_TRACES_SAMPLER=%s is not known here; every request is traced", sampler)
    return 1.0
