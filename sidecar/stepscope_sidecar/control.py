"""
The control socket: connections of processes, who is at their other end, and whether those still live.

Owns sockets and pidfds. What is said over them is the controller's. A peer of another user, a line that is no message
or one that is too long ends its connection after one line in the log, and nothing else.
"""

import asyncio
import contextlib
import logging
import os
import socket
import struct
from collections.abc import Callable, Coroutine
from pathlib import Path

from stepscope import wire
from stepscope.errors import WireError
from stepscope_sidecar.controller import Controller
from stepscope_sidecar.processes import Process

LOG = logging.getLogger(__name__)

REGISTER_LIMIT = 10.0
"""Seconds from connecting to registering; an agent sends its registration at once."""

LAST_WORDS = 1.0
"""Seconds that what a dead process had sent may take to be read, before its windows are given up."""

MAX_UNREAD = 4 * 1024 * 1024
"""Bytes that a peer may leave unread. It is sent some hundred bytes a step: one that far behind does not read."""

CREDENTIALS = struct.Struct("3i")
"""``struct ucred``: pid, uid, gid."""

UNIX_MODE = 0o600
"""For this user alone."""


class Connection:
    """
    One connection, as the controller sees it.
    """

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        """
        Write to ``writer``.
        """
        self._writer = writer
        self.over = asyncio.Event()
        """Set when all that was sent on it has been read, and it is closed."""

    def send(self, message: wire.Message) -> None:
        """
        Queue ``message``; a peer that does not read is cut off.
        """
        if self._writer.is_closing():
            return
        self._writer.write(wire.encode(message))
        if self._writer.transport.get_write_buffer_size() > MAX_UNREAD:
            LOG.warning("a process does not read what it is sent; closing its connection")
            self._writer.transport.abort()

    def close(self) -> None:
        """
        End it after what is queued.
        """
        self._writer.close()


class Control:
    """
    Serves the control socket of one sidecar.
    """

    def __init__(
        self,
        controller: Controller,
        *,
        pidfd: Callable[[int], int] = os.pidfd_open,
    ) -> None:
        """
        Tell ``controller`` of messages and deaths. ``pidfd`` opens a handle on a process.
        """
        self._controller = controller
        self._pidfd = pidfd
        self._server: asyncio.Server | None = None
        self._watched: dict[tuple[int, int], int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, path: Path) -> None:
        """
        Listen at ``path``, where nothing else listens (the caller holds the lock).
        """
        mask = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(self._serve, path=path, limit=wire.MAX_LINE)
        finally:
            os.umask(mask)
        path.chmod(UNIX_MODE)

    async def close(self) -> None:
        """
        Stop listening, and end all connections.
        """
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for identity in list(self._watched):
            self._unwatch(identity)

    def watch(self, process: Process) -> None:
        """
        Notice when ``process`` ends. One that is gone already is told of at once.
        """
        if process.identity in self._watched or not process.watch_pid:
            return
        try:
            handle = self._pidfd(process.watch_pid)
        except ProcessLookupError:
            self._spawn(self._gone(process.identity))
            return
        except OSError as error:
            LOG.warning("cannot watch pid %d (%s); asking now and then instead", process.watch_pid, error)
            return
        self._watched[process.identity] = handle
        asyncio.get_running_loop().add_reader(handle, self._ended, process.identity)

    def _ended(self, identity: tuple[int, int]) -> None:
        self._unwatch(identity)
        self._spawn(self._gone(identity))

    def _unwatch(self, identity: tuple[int, int]) -> None:
        handle = self._watched.pop(identity, None)
        if handle is not None:
            asyncio.get_running_loop().remove_reader(handle)
            os.close(handle)

    async def _gone(self, identity: tuple[int, int]) -> None:
        # What it sent last lies in the socket still, and counts. A child it forked may keep the socket open.
        links = [process.link for process in self._controller.processes.of(identity)]
        for link in links:
            if isinstance(link, Connection):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(link.over.wait(), LAST_WORDS)
        for process in self._controller.processes.of(identity):
            self._controller.gone(process)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        connection = Connection(writer)
        process: Process | None = None
        pid = 0
        try:
            pid, uid = credentials(writer.get_extra_info("socket"))
            if uid != os.getuid():
                LOG.warning("refused a connection of user %d (pid %d)", uid, pid)
                return
            async with asyncio.timeout(REGISTER_LIMIT) as limit:
                while line := await reader.readline():
                    message = wire.decode(line)
                    if isinstance(message, wire.Register):
                        process = self._controller.register(message, connection, peer=pid, former=process)
                        if process is None:
                            return
                        limit.reschedule(None)
                        self.watch(process)
                    elif process is not None:
                        self._controller.handle(process, message)
                    else:
                        raise WireError(f"{type(message).__name__} before registering")
        except (WireError, ValueError) as error:
            LOG.warning("closing the connection of pid %d: %s", pid, error)
        except TimeoutError:
            # Nothing came: whoever looks whether the socket is there does no harm, and no process of the run is lost.
            LOG.info("closing a connection of pid %d that said nothing for %g s", pid, REGISTER_LIMIT)
        except ConnectionError:
            pass  # The other end went without a word; whether the process did too, its pidfd tells.
        finally:
            connection.over.set()
            if process is not None:
                self._controller.unlinked(process, connection)
            await _farewell(writer)


async def _farewell(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError, asyncio.CancelledError):
        await writer.wait_closed()


def credentials(peer: socket.socket) -> tuple[int, int]:
    """
    Pid and user of the process at the other end; the pid is 0 if it is in a pid namespace that we cannot see.
    """
    data = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    pid, uid, _ = CREDENTIALS.unpack(data)
    return pid, uid
