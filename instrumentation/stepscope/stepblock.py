"""
The block of a trainer's step, of either kind: it enters and leaves, and hides nothing of what happens inside.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from stepscope import registration
from stepscope.complaints import complaints

if TYPE_CHECKING:
    from stepscope.session import Session


class StepBlock:
    """
    One step of the trainer, as ``with`` and ``async with``.
    """

    __slots__ = ("_profile", "_session")

    def __init__(self, profile: bool | None) -> None:
        self._profile = profile
        self._session: Session | None = None

    def __enter__(self) -> StepBlock:
        """
        Enter the step: open its window if one is due.
        """
        if (session := self._take()) is not None:
            try:
                session.drive(session.boundary.enter(self._profile))
            except BaseException as error:
                # A signal's: what is not entered is never left.
                self._session = None
                session.drive(session.boundary.leave(error))
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        """
        Leave the step; after ``weights_published()`` nothing is left to do.
        """
        if (session := self._give()) is not None:
            session.drive(session.boundary.leave(error))

    async def __aenter__(self) -> StepBlock:
        """
        Enter the step, awaiting the start of an engine's profiler.
        """
        if (session := self._take()) is not None:
            await session.adrive(session.boundary.enter(self._profile), begins=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        """
        Leave the step, awaiting the stop of an engine's profiler.
        """
        if (session := self._give()) is not None:
            await session.adrive(session.boundary.leave(error))

    def _take(self) -> Session | None:
        session = registration.session
        if session is not None and session.state.inside:
            if session.boundary.adopt():
                # A call has put the process into its step: it goes on, as its own.
                self._session = session
            else:
                complaints.warn("nested step", "step() inside a step: the inner one is ignored")
            return None
        self._session = session
        return session

    def _give(self) -> Session | None:
        session, self._session = self._session, None
        return session if session is registration.session else None
