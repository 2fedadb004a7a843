"""
The step of a process without a loop of its own: it is told by the calls that the process gets.

Owns what travels with a call beyond whose child it is, and when the process follows. Leaves what a boundary does to
:mod:`stepscope.boundary`, what a call runs in to :mod:`stepscope.received`, and how calls are made to
:mod:`stepscope.integrations`. A process that has made a boundary call of its own is told nothing any more. Light:
without the OpenTelemetry SDK.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from opentelemetry import context as otel_context

from stepscope import names, propagation, registration
from stepscope.flow import Flow, adrive, drive, on_loop

if TYPE_CHECKING:
    from stepscope.boundary import Boundary
    from stepscope.seam import WindowsSeam
    from stepscope.turn import Turn
    from stepscope.version import StepState

VERSION = str(names.PARAM_VERSION)
"""In a carrier: the version in force where the call was made."""

INSIDE = "inside"
"""In a carrier: ``1`` where the caller was inside its step, ``0`` where it was between two."""

PATIENCE = 15.0
"""Seconds that a call waits for another that moves the process: a profiler's first start, and the request for it."""

TOLD = otel_context.create_key("stepscope-told")
"""Under it a context carries what the call told: ``init()`` may come inside it."""


class Part(Enum):
    """
    What a method is in the update that ends the process's step.
    """

    NONE = "none"
    LOADS = "loads"
    """The weights change in it: the step ends before it."""
    PUBLISHES = "publishes"
    """It hands them over: the step ends with it."""


@dataclass(frozen=True, slots=True)
class Told:
    """
    What a call says of its caller's place in the run.
    """

    param_version: int
    inside: bool


def carrier() -> dict[str, str]:
    """
    What a call takes along: its parent, and this process's version where that is known.
    """
    if (session := registration.session) is None:
        return {}
    found = propagation.carrier(session.spans.current())
    if found and session.boundary.placed:
        found[VERSION] = str(session.state.now.param_version)
        found[INSIDE] = str(int(session.state.inside))
    return found


def told(carrier: propagation.Carrier | None) -> Told | None:
    """
    What ``carrier`` tells, if it tells a version.
    """
    if not isinstance(carrier, Mapping):
        return None
    version = carrier.get(VERSION, "")
    if not (isinstance(version, str) and version.isdecimal()):
        return None
    return Told(int(version), carrier.get(INSIDE) == "1")


class Driven:
    """
    Moves a process as it is told. Calls may come on several threads, or in tasks of several event loops; one of
    them moves it.
    """

    def __init__(self, *, boundary: Boundary, state: StepState, windows: WindowsSeam, turn: Turn) -> None:
        self._boundary = boundary
        self._state = state
        self._windows = windows
        self._turn = turn

    def begins(self, told: Told | None, part: Part) -> None:
        """
        A call begins on this thread.
        """
        if self._comes(told, part):
            self._drive(self._begin(told, part))

    async def abegins(self, told: Told | None, part: Part) -> None:
        """
        The same in a coroutine.
        """
        await self._adrive(self._begin(told, part), lambda: self._comes(told, part))

    def ends(self, told: Told | None, part: Part) -> None:
        """
        A call has ended well.
        """
        if part is not Part.NONE and not self._boundary.led:
            self._drive(self._end(told, part))

    async def aends(self, told: Told | None, part: Part) -> None:
        """
        The same in a coroutine.
        """
        if part is not Part.NONE and not self._boundary.led:
            await self._adrive(self._end(told, part), lambda: not self._boundary.led)

    def _comes(self, told: Told | None, part: Part) -> bool:
        """
        Whether a call that begins moves the process: never back, and never again into a step that it has left.
        """
        if self._boundary.led:
            return False
        if part is Part.LOADS:
            return self._state.inside
        if told is None:
            return False
        now = self._state.now
        if told.param_version != now.param_version:
            return told.param_version > now.param_version
        return told.inside and not self._state.inside and self._boundary.closed_step < now.step

    def _begin(self, told: Told | None, part: Part) -> Flow:
        # Another call may have moved it meanwhile.
        if not self._comes(told, part):
            return
        if part is Part.LOADS:
            yield from self._boundary.loading(led=False)
        elif told is not None:
            yield from self._boundary.loaded(told.param_version, led=False, enters=told.inside)

    def _end(self, told: Told | None, part: Part) -> Flow:
        version = self._state.now.param_version
        if part is Part.PUBLISHES and self._state.inside:
            yield from self._boundary.published(version + 1, led=False)
        elif part is Part.LOADS and told is not None and told.param_version > version:
            yield from self._boundary.loaded(told.param_version, led=False, enters=told.inside)

    def _drive(self, flow: Flow) -> None:
        # On an event loop whoever moves the process may be waiting for this very thread.
        if self._turn.take(0.0 if on_loop() else PATIENCE):
            try:
                drive(flow, self._windows)
            finally:
                self._turn.give()

    async def _adrive(self, flow: Flow, wanted: Callable[[], bool]) -> None:
        if await self._turn.atake(PATIENCE, wanted=wanted):
            try:
                await adrive(flow, self._windows)
            finally:
                self._turn.give()


def catch_up(driven: Driven) -> None:
    """
    ``init()`` has come inside a call: what it told holds for the process that has just registered.
    """
    found = otel_context.get_value(TOLD)
    if isinstance(found, Told):
        driven.begins(found, Part.NONE)
