"""
What surrounds the body of a call that was received: the caller's context, and the caller's step.

Owns that a context is left where it was entered, also by a generator that runs in pieces. What the process does when it
is told a step is :mod:`stepscope.driven`'s. Light: without the OpenTelemetry SDK.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import Token
from types import TracebackType
from typing import TYPE_CHECKING, Self

from opentelemetry import context as otel_context
from opentelemetry import trace

from stepscope import propagation, registration
from stepscope.complaints import complaints
from stepscope.driven import TOLD, Part, Told, told

if TYPE_CHECKING:
    from opentelemetry.context import Context


class Received:
    """
    Around the body of a call that was received, as ``with`` and ``async with``. Hides nothing of what happens inside.
    """

    __slots__ = ("_carrier", "_context", "_part", "_token", "_told")

    def __init__(self, carrier: propagation.Carrier | None, part: Part = Part.NONE) -> None:
        self._carrier = carrier
        self._part = part
        self._told: Told | None = None
        self._context: Context | None = None
        self._token: Token[Context] | None = None

    def __enter__(self) -> Self:
        """
        Take the caller's context, and follow it.
        """
        self._attach()
        try:
            if (session := registration.session) is not None:
                session.driven.begins(self._told, self._part)
        except BaseException:
            self._detach()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        """
        Leave the step if this was the process's part of the update.
        """
        try:
            if kind is None and (session := registration.session) is not None:
                session.driven.ends(self._told, self._part)
        finally:
            self._detach()

    async def __aenter__(self) -> Self:
        """
        The same where an engine's profiler is awaited.
        """
        self._attach()
        try:
            if (session := registration.session) is not None:
                await session.driven.abegins(self._told, self._part)
        except BaseException:
            self._detach()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        """
        The same where an engine's profiler is awaited.
        """
        try:
            if kind is None and (session := registration.session) is not None:
                await session.driven.aends(self._told, self._part)
        finally:
            self._detach()

    def _attach(self) -> None:
        if not isinstance(self._carrier, Mapping) or (registration.session is None and registration.disabled()):
            return
        try:
            self._told = told(self._carrier)
            context = otel_context.get_current()
            if self._told is not None:
                context = otel_context.set_value(TOLD, self._told, context)
            if (remote := propagation.emitted(self._carrier)) is not None:
                context = trace.set_span_in_context(propagation.Attached(remote), context)
            self._context = context
            self.resume()
        except Exception as error:  # noqa: BLE001 - must not reach the program's own call
            complaints.fault("call", error)

    def resume(self) -> None:
        """
        The body of a generator goes on: it gets the context in which it paused.
        """
        if self._context is not None and self._token is None:
            self._token = otel_context.attach(self._context)

    def pause(self) -> None:
        """
        It has given an item, and its consumer goes on in a context of its own.
        """
        if self._token is not None:
            self._context = otel_context.get_current()
            propagation.leave(self._token)
            self._token = None

    def _detach(self) -> None:
        self.pause()
        if (session := registration.session) is not None:
            # The caller goes on with the answer, and may end this process before spans have waited for company.
            session.hurry()
