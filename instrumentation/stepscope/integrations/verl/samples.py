"""
The span of a sample: one trajectory in an agent loop's process, the parent of its requests on the servers.

Owns how a sample is named, which step it begins in, and how its context comes to a server: in the request's id, the one
thing that verl's client hands over as it is. Its span's id follows from its name, as a step's does, so that the trainer
knows it without being told. Role ``agent_loop``: such a process has no boundary, so it records nothing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from opentelemetry import context as otel_context

from stepscope import names, propagation, registration
from stepscope.complaints import complaints
from stepscope.integrations.verl import loop
from stepscope.integrations.verl.phases import whole
from stepscope.names import Bucket
from stepscope.nospan import NoSpan

if TYPE_CHECKING:
    from stepscope.handle import Span
    from stepscope.place import Place
    from stepscope.session import Session

ROLE = "agent_loop"

KEPT = 4
"""Steps of which a process remembers how many spans it has emitted: samples of two or three are under way at a time."""

ADDRESSED = re.compile(r"(.*)\.(00-[0-9a-f]{32}-[0-9a-f]{16}-01)", re.DOTALL)
"""A request's id with a sample's context behind it."""

ACTOR = re.compile(r"agent_loop_worker_(\d+)")
"""The number in the name that verl gives such an actor."""


HEARING, HEARINGS = 0.01, 50
"""Seconds between two looks for the trainer's word, and how many: half a second, once in a process, at most."""


class Known:
    """
    What this process knows of the run beyond its samples. Used on one event loop.
    """

    def __init__(self) -> None:
        self.version: int | None = None
        """The newest version that the trainer has told of; None where its prompts say it, or nobody does."""
        self.rollouter: Any = None
        """In the trainer of fully_async: the actor that has the agent loops."""
        self.running = 0
        self.deaf = False
        """Nobody tells this process of a version: no sample waits for it again."""
        self._refused = False
        self._places: dict[int, Place] = {}

    def session(self, version: int) -> Session | None:
        """
        That of this process, registered with its first sample; None while stepscope is off in it.
        """
        if registration.session is None and not self._refused:
            self._refused = not loop.enrol(role=ROLE, rank=_rank(), version=version, register_only=True)
        return registration.session

    def place(self, session: Session, version: int) -> Place:
        """
        The place of spans of the step after ``version``: one for each step, since it counts them.
        """
        place = self._places.get(version)
        if place is None:
            place = self._places[version] = session.spans.place_between(session.state.moment(version))
            while len(self._places) > KEPT:
                del self._places[min(self._places)]
        return place


class Sample:
    """
    A sample under way: its span, and what its turns have said.
    """

    def __init__(self, span: Span | NoSpan, version: int) -> None:
        self.span = span
        self.version = version
        self._newest = version
        self._tokens = 0

    def turn(self, output: Any) -> None:
        """
        A turn, or its part up to an update, has come back from a server.
        """
        version = whole(output.extra_fields.get("global_steps"))
        if version is None:
            # A teacher's server, which has no version of the run.
            return
        self._newest = max(self._newest, version)
        self._tokens += len(output.token_ids)

    def finish(self) -> None:
        """
        Say what it came to, before its span ends.
        """
        if self._newest > self.version:
            self.span.set(names.PARAM_VERSION_END, self._newest)
        if self._tokens:
            self.span.set(names.TOKENS, self._tokens)


known = Known()
_current: ContextVar[Sample | None] = ContextVar("stepscope_verl_sample", default=None)


@contextmanager
def running(name: str, *, version: int | None, validates: bool) -> Iterator[Sample | None]:
    """
    Inside, sample ``name``, begun under ``version``, is worked on. Nothing where nobody knows the version.
    """
    session = None if version is None else known.session(version)
    if session is None or version is None:
        yield None
        return
    known.running += 1
    try:
        with _span(session, name, version, validates) as span:
            sample = Sample(span, version)
            token = _current.set(sample)
            try:
                yield sample
            finally:
                _current.reset(token)
                sample.finish()
    finally:
        known.running -= 1
        if not known.running:
            # Ray ends the process without a word once the trainer's is done.
            loop.deliver()


def turn(output: Any) -> None:
    """
    What a server answered to the sample under way.
    """
    sample = _current.get()
    if sample is not None:
        try:
            sample.turn(output)
        except Exception as error:  # noqa: BLE001 - an answer of another shape must not stop the sample
            complaints.fault("the turn of a sample", error)


def addressed(request: str) -> str:
    """
    ``request``, a request's id, with the context of the sample under way, if it has one.
    """
    sample = _current.get()
    told = sample.span.carrier() if sample is not None else None
    return f"{request}.{told[propagation.TRACEPARENT]}" if told and propagation.emitted(told) else request


def taken(request: Any) -> tuple[Any, propagation.Carrier | None]:
    """
    A request's id as verl made it, and the context that came with it.
    """
    match = ADDRESSED.fullmatch(request) if isinstance(request, str) else None
    return (request, None) if match is None else (match[1], {propagation.TRACEPARENT: match[2]})


@contextmanager
def placed(version: int | None) -> Iterator[None]:
    """
    Inside, spans are of the step after ``version``, which the process has yet to enter, and below the sample all the
    same.
    """
    session = registration.session
    if version is None or session is None:
        yield
        return
    from stepscope.spans import PLACE

    place = session.spans.place_between(session.state.moment(version))
    token = otel_context.attach(otel_context.set_value(PLACE, place))
    try:
        yield
    finally:
        propagation.leave(token)


def carrier(name: str, step: object) -> propagation.Carrier | None:
    """
    The carrier of sample ``name`` begun in ``step``, in a process that has not heard of its span.
    """
    session, number = registration.session, whole(step)
    return propagation.carrier(session.spans.sample(number, name)) if session is not None and number else None


def carried(extras: object) -> propagation.Carrier | None:
    """
    The carrier that an agent loop left in verl's ``extras`` of a trajectory, if it did.
    """
    found = extras.get(ROLE) if isinstance(extras, dict) else None
    return found if isinstance(found, dict) else None


def tell(version: object) -> None:
    """
    In the trainer of fully_async, whose prompts don't say a version: the agent loops are to hear of ``version``.

    Before the rollouter is told to go on, so that what it begins then is in the step after it.
    """
    try:
        if known.rollouter is not None and isinstance(version, int):
            known.rollouter.__ray_call__.remote(pass_on, version)
    except Exception as error:  # noqa: BLE001 - samples begin in an earlier step, or have no span
        complaints.fault("telling agent loops of a version", error)


def pass_on(rollouter: Any, version: int) -> None:
    """
    In the rollouter: to each of its agent loops.
    """
    manager = getattr(rollouter, "async_rollout_manager", None)
    for worker in getattr(manager, "agent_loop_workers", ()):
        tell_one(worker, version)


def tell_one(worker: Any, version: int) -> None:
    """
    To one agent loop.
    """
    try:
        worker.__ray_call__.remote(hear, version)
    except Exception as error:  # noqa: BLE001 - as above
        complaints.fault("telling an agent loop of a version", error)


def hear(worker: object, version: int) -> None:  # noqa: ARG001 - Ray hands the actor over
    """
    In an agent loop: samples that begin from now on begin in the step after ``version``.
    """
    known.version = max(version, known.version or 0)


async def heard() -> int | None:
    """
    The version that the trainer has told of. The first samples may begin before its word arrives, and wait for it.
    """
    for _ in range(0 if known.deaf else HEARINGS):
        if known.version is not None:
            break
        await asyncio.sleep(HEARING)
    known.deaf = known.version is None
    return known.version


def _span(session: Session, name: str, version: int, validates: bool) -> Span | NoSpan:
    try:
        attributes: dict[str, Any] = {str(names.SAMPLE_ID): name}
        place = known.place(session, version)
        if validates:
            attributes[str(names.BUCKET)] = str(Bucket.OVERHEAD)
        else:
            session.spans.call_next(session.spans.sample(version + 1, name))
        return session.span_type(session.spans, names.ROLLOUT_SAMPLE, attributes, (), place, True)
    except Exception as error:  # noqa: BLE001 - the sample goes without a span
        complaints.fault("the span of a sample", error)
        return NoSpan()


def _rank() -> int:
    try:
        import ray

        # Asked elsewhere, Ray starts a cluster, or warns.
        inside = ray.is_initialized() and ray.get_runtime_context().worker.mode == ray.WORKER_MODE
        match = ACTOR.match(ray.get_runtime_context().get_actor_name() or "") if inside else None
        return int(match[1]) if match else 0
    except Exception as error:  # noqa: BLE001 - verl's and Ray's names are not ours
        complaints.fault("the number of an agent loop", error)
        return 0
