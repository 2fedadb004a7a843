"""
Validation that follows an update: the replicas stay out of their next step until it is over.

verl resumes the replicas first and validates on them then, without telling them. The trainer's process knows, so it
tells their servers, ahead of the update: a call that nobody waits for, and only where validation is due. Owns both
ends of it. A call that is lost costs the replica that step's window, or puts the validation into it.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from stepscope import sdk
from stepscope.complaints import complaints

Due = Callable[[int], bool]
"""Whether verl validates after the update that makes a version."""


class Ahead:
    """
    The trainer's end: which servers were told to wait.
    """

    def __init__(self) -> None:
        self._due: Due | None = None
        self._waiting: list[Any] = []

    def expect(self, due: Due) -> None:
        """
        The trainer's configuration says, by ``due``, after which updates it validates.
        """
        self._due = due

    def before(self, version: int, replicas: Iterable[Any]) -> bool:
        """
        The update that makes ``version`` is about to come to ``replicas``. Whether validation follows it.
        """
        try:
            if self._due is None or not self._due(version):
                return False
            for replica in replicas:
                for server in getattr(replica, "servers", ()):
                    server.__ray_call__.remote(wait)
                    self._waiting.append(server)
        except Exception as error:  # noqa: BLE001 - the update comes without it
            complaints.fault("telling replicas of validation", error)
        return True

    def over(self) -> None:
        """
        Validation is over, or there was none after all.
        """
        waiting, self._waiting = self._waiting, []
        try:
            for server in waiting:
                server.__ray_call__.remote(go)
        except Exception as error:  # noqa: BLE001 - training goes on; the replica enters with the next update
            complaints.fault("telling replicas of validation", error)


class Held:
    """
    The server's end: whether its next weights are for validation first, and which those are.

    The trainer's calls come on a thread of Ray's; everything else happens on the server's event loop.
    """

    def __init__(self) -> None:
        self._next = False
        self.version: int | None = None
        """What it has been given, while it waits."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._entering: asyncio.Task[None] | None = None

    def wait(self) -> None:
        """
        The next weights that come are validated first. From any thread.
        """
        self._next = True

    def takes(self, version: int) -> bool:
        """
        ``version`` has come. Whether its step has to wait.
        """
        self._loop = asyncio.get_running_loop()
        held, self._next = self._next, False
        self.version = version if held else None
        return held

    def go(self) -> None:
        """
        Validation is over. From any thread.
        """
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._enter)

    def _enter(self) -> None:
        version, self.version, self._next = self.version, None, False
        if version is not None:
            self._entering = asyncio.get_running_loop().create_task(sdk.aweights_loaded(version))


ahead = Ahead()
held = Held()


def wait(server: object) -> None:  # noqa: ARG001 - Ray hands the actor over
    """
    In a server: see :meth:`Held.wait`.
    """
    held.wait()


def go(server: object) -> None:  # noqa: ARG001 - Ray hands the actor over
    """
    In a server: see :meth:`Held.go`.
    """
    try:
        held.go()
    except Exception as error:  # noqa: BLE001 - nobody waits for the answer, and Ray would print it
        complaints.fault("the end of validation", error)
