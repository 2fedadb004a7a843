"""
The steps of a process that verl moves: entered with its first work, ended with the update.

Owns which boundary calls are made and that they are made once; what they do is :mod:`stepscope.boundary`'s. verl tells
one update in several ways and at several places (a second manager, a sync at the end of the run), so a version that is
in force already is no boundary. Calls of one process come one after another, on the thread or loop that runs it.
"""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING, Any

from stepscope import registration, sdk
from stepscope.complaints import complaints
from stepscope.errors import ConfigurationError
from stepscope.flow import Closing, Flow
from stepscope.integrations.verl import patching
from stepscope.names import Incomplete, Reason

if TYPE_CHECKING:
    from stepscope.session import Session
    from stepscope.stepblock import StepBlock


class Loop:
    """
    The boundary calls of this process. Raises nothing.
    """

    def __init__(self) -> None:
        self._block: StepBlock | None = None

    def enter(self) -> None:
        """
        Work of a step begins: enter it, unless the process is inside.
        """
        if (block := self._entering()) is not None:
            block.__enter__()

    async def aenter(self) -> None:
        """
        The same in a coroutine.
        """
        if (block := self._entering()) is not None:
            await block.__aenter__()

    def published(self, version: object) -> None:
        """
        The update that makes ``version`` is complete.
        """
        if isinstance(version, int) and self.is_news(version):
            sdk.weights_published(version)

    async def apublished(self, version: object) -> None:
        """
        The same in a coroutine.
        """
        if isinstance(version, int) and self.is_news(version):
            await sdk.aweights_published(version)

    def cut(self) -> None:
        """
        End the window before the step's update: what comes now, a checkpoint, must not lie in it.
        """
        if (session := registration.session) is not None and session.spans.windows.recording:
            session.drive(_cut(session))

    async def acut(self) -> None:
        """
        The same in a coroutine.
        """
        if (session := registration.session) is not None and session.spans.windows.recording:
            await session.adrive(_cut(session))

    def leave(self, error: BaseException | None = None) -> None:
        """
        The work is over, by ``error`` if there is one.
        """
        block, self._block = self._block, None
        if block is not None:
            block.__exit__(type(error) if error else None, error, None)

    async def aleave(self, error: BaseException | None = None) -> None:
        """
        The same in a coroutine.
        """
        block, self._block = self._block, None
        if block is not None:
            await block.__aexit__(type(error) if error else None, error, None)

    def is_news(self, version: int) -> bool:
        """
        Whether ``version`` is yet to come in this process.
        """
        return (session := registration.session) is not None and version > session.state.now.param_version

    def _entering(self) -> StepBlock | None:
        session = registration.session
        if session is None or session.state.inside:
            return None
        self._block = sdk.step()
        return self._block


process = Loop()
"""The one of this process. A wrapper reaches it through this module: what Ray sends elsewhere by value is a copy."""


def enrol(
    *,
    role: str,
    rank: int,
    version: int,
    world_size: int | None = None,
    total: Any = None,
    resumed: bool = False,
    register_only: bool = False,
) -> bool:
    """
    Register this process, at ``version``, unless it is registered as that already. Raises nothing.

    ``resumed`` where it is the run that began at that version, and not only this process. ``register_only`` where it
    has spans, and no step of its own.
    """
    session = registration.session
    if session is not None and not session.identity.register_only and is_role(role) and session.identity.rank == rank:
        return True
    try:
        registration.init(
            role=role,
            rank=rank,
            world_size=world_size,
            param_version=version,
            resumed_from=version if resumed and version else None,
            total_steps=total if isinstance(total, int) and total > 0 else None,
            register_only=register_only,
        )
    except ConfigurationError as error:
        # The driver said so before anything was started; here it would end a worker in the middle of the run.
        complaints.warn("configuration", "stepscope is off in this process: %s", error)
    except Exception as error:  # noqa: BLE001 - must not reach the training loop
        complaints.fault("init", error)
    patching.say(installed())
    return registration.session is not None


def deliver() -> None:
    """
    Send what has finished, now: Ray ends a driven process without a word once the trainer's is done.
    """
    if (session := registration.session) is not None:
        session.hurry()


def is_role(role: str) -> bool:
    """
    Whether this process is registered as ``role``.
    """
    return (session := registration.session) is not None and session.identity.role == role


def installed() -> str:
    """
    The version of verl that is installed here; "?" where its distribution has another name.
    """
    try:
        return metadata.version("verl")
    except metadata.PackageNotFoundError:
        return "?"


def _cut(session: Session) -> Flow:
    yield Closing(version=session.state.now.param_version, reason=Reason.BOUNDARY, incomplete=Incomplete.NOT_PUBLISHED)
