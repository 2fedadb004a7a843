"""
A stand-in for the sidecar: a unix socket that answers as a test tells it to.

It decides nothing by itself. ``answer`` maps a message to the messages (or raw bytes) to send back; what came in is
kept in order.
"""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from stepscope import wire

PATIENCE = 60.0
"""Seconds that a test waits for something that takes milliseconds on an idle machine."""

Reply = wire.Message | bytes
M = TypeVar("M")


class FakeSidecar:
    """
    Listens on ``path`` while entered. Every open is granted, in a folder below ``folder``, unless told otherwise.
    """

    def __init__(self, path: Path, folder: Path, *, steps: str = "every:1", level: str = "spans") -> None:
        self.path = path
        self.folder = folder
        self.steps = steps
        self.level = level
        self.caps = wire.Caps()
        self.answers: dict[type, Callable[[wire.Message], Iterable[Reply]]] = {
            wire.Register: self.registered,
            wire.Open: self.granted,
        }
        self.heard: list[wire.Message] = []
        self.connections = 0
        self._news = threading.Condition()
        self._peers: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._over = False
        self._windows = 0

    def __enter__(self) -> Self:
        """
        Start to listen.
        """
        self._server.bind(str(self.path))
        self._server.listen()
        self._spawn(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """
        Go away: close everything, leave no socket behind.
        """
        self._over = True
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.hang_up()
        for thread in self._threads:
            thread.join(PATIENCE)
        self.path.unlink(missing_ok=True)

    def registered(self, message: wire.Message) -> list[Reply]:
        """
        The usual answer to a registration.
        """
        assert isinstance(message, wire.Register)
        return [
            wire.Registered(
                id=message.id,
                selection=self.steps,
                revision=1,
                stopped=False,
                otlp_endpoint="http://127.0.0.1:1",
            )
        ]

    def granted(self, message: wire.Message) -> list[Reply]:
        """
        The usual answer to a request: yes.
        """
        assert isinstance(message, wire.Open)
        self._windows += 1
        folder = self.folder / f"window-{self._windows}"
        return [
            wire.Grant(
                id=message.id,
                window=f"w{self._windows}",
                tool="torch",
                level=self.level,
                folder=str(folder),
                caps=self.caps,
            )
        ]

    def say(self, *replies: Reply) -> None:
        """
        Send something unasked, to everybody.
        """
        for peer in list(self._peers):
            for reply in replies:
                with contextlib.suppress(OSError):
                    peer.sendall(reply if isinstance(reply, bytes) else wire.encode(reply))

    def hang_up(self) -> None:
        """
        Close the connections that there are.
        """
        for peer in list(self._peers):
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)

    def all(self, kind: type[M]) -> list[M]:
        """
        The messages of ``kind`` so far.
        """
        return [message for message in self.heard if isinstance(message, kind)]

    def wait(self, kind: type[M], count: int = 1) -> list[M]:
        """
        The messages of ``kind`` once there are ``count``.
        """
        with self._news:
            came = self._news.wait_for(lambda: len(self.all(kind)) >= count, PATIENCE)
        assert came, f"{count} {kind.__name__} expected, heard {self.heard}"
        return self.all(kind)

    def _spawn(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, name="fake-sidecar", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._over:
            try:
                peer, _ = self._server.accept()
            except OSError:
                return
            self.connections += 1
            self._peers.append(peer)
            self._spawn(partial(self._serve, peer))

    def _serve(self, peer: socket.socket) -> None:
        with peer, contextlib.suppress(OSError), peer.makefile("rb") as lines:
            for line in lines:
                message = wire.decode(line)
                with self._news:
                    self.heard.append(message)
                    self._news.notify_all()
                answer = self.answers.get(type(message))
                for reply in answer(message) if answer else ():
                    peer.sendall(reply if isinstance(reply, bytes) else wire.encode(reply))
        self._peers.remove(peer)


def until(condition: Callable[[], bool], *, what: str = "it") -> None:
    """
    Wait until ``condition`` holds.
    """
    idle = threading.Event()
    for _ in range(int(PATIENCE / 0.01)):
        if condition():
            return
        idle.wait(0.01)
    raise AssertionError(f"{what} did not happen within {PATIENCE} s")
