"""
What ``import stepscope`` offers: the calls of a training program, bound to the one session of this process.

Light: the OpenTelemetry SDK and everything of ours behind it is imported by ``init()``. Without it, or with
``STEPSCOPE_DISABLED=1``, every call does nothing. Nothing here raises but ``init()``, and that only
:class:`stepscope.errors.ConfigurationError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from opentelemetry import context as otel_context
from opentelemetry import trace

from stepscope import names, propagation, registration
from stepscope.complaints import complaints
from stepscope.nospan import NoSpan
from stepscope.seam import SampleRow
from stepscope.stepblock import StepBlock
from stepscope.steptracer import StepTracer
from stepscope.version import usable

if TYPE_CHECKING:
    from opentelemetry.trace import Link
    from opentelemetry.util.types import AttributeValue

    from stepscope.handle import Span
    from stepscope.session import Session

BUCKET = str(names.BUCKET)
WAIT_FOR = str(names.WAIT_FOR)

_NO_SPAN = NoSpan()
_TRACER = StepTracer()


def step(*, profile: bool | None = None) -> StepBlock:
    """
    The step that runs now, as a context manager of either kind; enter it after validation and checkpoint.

    ``profile`` overrides the selection: True records this step, False does not.
    """
    return StepBlock(profile)


def weights_published(version: int) -> None:
    """
    Every live replica has acknowledged ``version``. The last call inside ``with step():``, on every rank.
    """
    if (session := registration.session) is not None:
        session.drive(session.boundary.published(version))


async def aweights_published(version: int) -> None:
    """
    The same inside ``async with step():``.
    """
    if (session := registration.session) is not None:
        await session.adrive(session.boundary.published(version))


def weights_loading() -> None:
    """
    A replica has paused, and its weights are about to change.
    """
    if (session := registration.session) is not None:
        session.drive(session.boundary.loading())


async def aweights_loading() -> None:
    """
    The same where the profiler is an engine's.
    """
    if (session := registration.session) is not None:
        await session.adrive(session.boundary.loading())


def weights_loaded(version: int) -> None:
    """
    A replica has the weights ``version`` and is about to resume; also after the initial load.
    """
    if (session := registration.session) is not None:
        session.drive(session.boundary.loaded(version))


async def aweights_loaded(version: int) -> None:
    """
    The same where the profiler is an engine's.
    """
    if (session := registration.session) is not None:
        await session.adrive(session.boundary.loaded(version))


def span(
    name: str,
    *,
    bucket: str | None = None,
    attributes: Mapping[str, AttributeValue] | None = None,
    links: Sequence[Link | None] = (),
    wait_for: str | None = None,
    after_version: int | None = None,
    request: bool = False,
) -> Span | NoSpan:
    """
    A span of the step in force, as a context manager.

    ``bucket`` is the kind of time (``productive``, ``overhead``, ``idle``, ``wasted``); ``wait_for`` says for what an
    idle one waits. ``after_version`` puts validation and checkpoints after that update into the step it begins.
    ``request`` marks a per-request span, of which a step has a budget.
    """
    session = registration.session
    if session is None:
        return _NO_SPAN
    try:
        merged = dict(attributes) if attributes else None
        if bucket is not None or wait_for is not None:
            merged = merged or {}
            merged[BUCKET] = str(bucket or names.Bucket.IDLE)
            if wait_for is not None:
                merged[WAIT_FOR] = str(wait_for)
        place = None
        if after_version is not None and (after := usable(after_version)) is not None:
            place = session.spans.place_between(session.state.moment(after))
        elif after_version is not None:
            complaints.warn("after_version", "after_version=%r is no version number; it is ignored", after_version)
        return session.span_type(session.spans, str(name), merged, links, place, bool(request))
    except Exception as error:  # noqa: BLE001 - must not reach the training loop
        complaints.fault("span", error)
        return _NO_SPAN


def start_span(
    name: str,
    *,
    bucket: str | None = None,
    attributes: Mapping[str, AttributeValue] | None = None,
    links: Sequence[Link | None] = (),
    wait_for: str | None = None,
    after_version: int | None = None,
    request: bool = False,
) -> Span | NoSpan:
    """
    The same, begun now and ended by its ``end()``: for work that lives in a task, across boundaries.
    """
    return span(
        name,
        bucket=bucket,
        attributes=attributes,
        links=links,
        wait_for=wait_for,
        after_version=after_version,
        request=request,
    ).begin()


def inject() -> dict[str, str]:
    """
    A carrier of the current span, else of the process's step, to put into a payload.
    """
    session = registration.session
    if session is None:
        return {}
    try:
        return propagation.carrier(session.spans.current())
    except Exception as error:  # noqa: BLE001 - must not reach the training loop
        complaints.fault("inject", error)
        return {}


@contextmanager
def attached(carrier: propagation.Carrier | None) -> Iterator[None]:
    """
    Make the span that ``carrier`` names the parent of spans begun inside. It does not change the process's step.
    """
    remote = _named(carrier)
    if remote is None:
        yield
        return
    token = otel_context.attach(trace.set_span_in_context(propagation.Attached(remote)))
    try:
        yield
    finally:
        propagation.leave(token)


def link(carrier: propagation.Carrier | None) -> Link | None:
    """
    A link to the span that ``carrier`` names; None where there is none. ``span(links=…)`` skips Nones.
    """
    remote = _named(carrier)
    return None if remote is None else trace.Link(remote)


def consumed(
    *, mini_batch: int, rows: Iterable[tuple[str, int | None, int | None, propagation.Carrier | None]]
) -> None:
    """
    Record which samples mini-batch ``mini_batch`` of this step consumed: rows of sample id, oldest and newest version
    it was generated under (None: unknown), and the carrier of its rollout span.
    """
    if (session := registration.session) is None:
        return
    try:
        moment = session.state.now
        session.agent.samples(
            step=moment.step, mini_batch=int(mini_batch), param_version=moment.param_version, rows=_rows(rows)
        )
    except Exception as error:  # noqa: BLE001 - must not reach the training loop
        complaints.fault("consumed", error)


def current_step() -> int:
    """
    The step that runs now in this process; 0 while stepscope is off.
    """
    return session.state.now.step if (session := registration.session) is not None else 0


def current_version() -> int:
    """
    The param_version in force in this process; 0 while stepscope is off.
    """
    return session.state.now.param_version if (session := registration.session) is not None else 0


def timings() -> dict[str, float]:
    """
    What the last completed step of this process took, in seconds by kind of time, to log as metrics: a flat dictionary
    whose keys begin with ``stepscope/``. Empty before the first such step, and while stepscope is off.
    """
    return session.timings.last() if (session := registration.session) is not None else {}


def tracer() -> trace.Tracer:
    """
    A tracer for code that is written against the OpenTelemetry API; its spans know their step.
    """
    return _TRACER


def start_profiling() -> dict[str, str]:
    """
    Record the rest of the step in force. Twice is once. Says what became of it: ``state``, ``reason``, ``window``.
    """
    if (session := registration.session) is None:
        return _off()
    session.drive(session.boundary.start_profiling())
    return _outcome(session)


def stop_profiling() -> dict[str, str]:
    """
    Stop recording, if a window is open.
    """
    if (session := registration.session) is None:
        return _off()
    session.drive(session.boundary.stop_profiling())
    return _outcome(session)


async def astart_profiling() -> dict[str, str]:
    """
    The same where the profiler is an engine's.
    """
    if (session := registration.session) is None:
        return _off()
    await session.adrive(session.boundary.start_profiling(), begins=True)
    return _outcome(session)


async def astop_profiling() -> dict[str, str]:
    """
    The same where the profiler is an engine's.
    """
    if (session := registration.session) is None:
        return _off()
    await session.adrive(session.boundary.stop_profiling())
    return _outcome(session)


async def ashutdown(*, timeout: float = registration.EXIT_TIMEOUT) -> None:
    """
    ``shutdown()`` on the event loop of an engine whose profiler may be on: it is stopped first.
    """
    if (session := registration.session) is not None:
        try:
            await session.leave()
        finally:
            registration.shutdown(timeout=timeout)


def otlp_endpoint() -> str:
    """
    Where an engine shall send its own spans: the base address of the sidecar's OTLP/HTTP receiver; "" for nowhere.
    """
    return session.agent.otlp_endpoint() if (session := registration.session) is not None else ""


def register_profiler(profiler: object) -> None:
    """
    Offer an engine's profiler to the windows of this process; after ``init()``, before its first step.
    """
    if (session := registration.session) is not None:
        try:
            session.agent.register_profiler(profiler)
        except Exception as error:  # noqa: BLE001 - must not reach the training loop
            complaints.fault("register_profiler", error)


def _named(carrier: propagation.Carrier | None) -> trace.SpanContext | None:
    """
    The span that ``carrier`` names, if stepscope is on.
    """
    if registration.session is None:
        return None
    try:
        return propagation.emitted(carrier)
    except Exception as error:  # noqa: BLE001 - must not reach the training loop
        complaints.fault("carrier", error)
        return None


def _rows(
    rows: Iterable[tuple[str, int | None, int | None, propagation.Carrier | None]],
) -> list[SampleRow]:
    found: list[SampleRow] = []
    for sample, oldest, newest, carrier in rows:
        context = propagation.emitted(carrier)
        found.append(
            (
                str(sample),
                None if oldest is None else int(oldest),
                None if newest is None else int(newest),
                None if context is None else trace.format_trace_id(context.trace_id),
                None if context is None else trace.format_span_id(context.span_id),
            )
        )
    return found


def _outcome(session: Session) -> dict[str, str]:
    if session.boundary.refused:
        return {"state": str(names.State.DENIED), "reason": str(session.boundary.refused), "window": ""}
    try:
        return dict(session.agent.windows.outcome())
    except Exception as error:  # noqa: BLE001 - must not reach the training loop
        complaints.fault("outcome", error)
        return {"state": "", "reason": "", "window": ""}


def _off() -> dict[str, str]:
    if registration.forked:
        return {"state": str(names.State.DENIED), "reason": str(names.Reason.FORKED_CHILD), "window": ""}
    return {"state": "", "reason": "off", "window": ""}
