"""
The process's end of the control socket: one reader thread, requests with a deadline, reconnecting, a circuit breaker.

Owns when something may be sent and what becomes of what could not be. What the messages mean is
:mod:`stepscope.agent`'s. The training thread never waits for the peer but for the deadline of a request: sending does
not block, and a peer that is slow, silent or talks garbage opens the breaker.
"""

import contextlib
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from stepscope import wire
from stepscope.complaints import complaints
from stepscope.errors import WireError
from stepscope.names import Reason, State

DEADLINE = 1.0
"""Seconds that a request, and the registration on a new connection, may take."""

RETRY = 1.0
"""Seconds between two attempts to reach a sidecar; one attempt costs some microseconds."""

EAGER = 0.02
"""The same while ``init()`` waits for a sidecar that is only starting."""

GLANCE = 0.1
"""Seconds between two looks at whether the sidecar that ``init()`` waits for has ended; one is a system call."""

LINGER = 5.0
"""Seconds that a late answer may still take: a late grant must be given back, or it holds its lease."""

MAX_HOLD = 60.0
"""Longest time the breaker stays open. It doubles with each missed deadline, so a peer that registers at once and then
never answers does not cost one deadline per step."""

MAX_KEPT = 1000
"""Messages kept for a sidecar that comes back."""

MAX_OUTGOING = 8 * 1024 * 1024
"""Bytes waiting for a peer that does not read, two of the largest messages; beyond it the connection is given up."""

CHUNK = 1 << 16
"""Bytes read at once."""


@dataclass(slots=True)
class _Answer:
    done: threading.Event = field(default_factory=threading.Event)
    message: wire.Message | None = None


class Connection:
    """
    Talks to the sidecar at ``path``. Thread-safe; nothing raises.

    Args:
        register: makes the registration for a request id; called on the reader thread on every connection.
        heard: takes ``Registered``, ``Refused``, ``Selected`` and ``Stop``, on the reader thread.
    """

    def __init__(
        self,
        path: Path,
        *,
        register: Callable[[int], wire.Register],
        heard: Callable[[wire.Message], None],
        deadline: float = DEADLINE,
        retry: float = RETRY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._register = register
        self._heard = heard
        self._deadline = deadline
        self._retry = retry
        self._clock = clock
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None
        self._outgoing = bytearray()
        self._pending: dict[int, _Answer] = {}
        self._abandoned: dict[int, wire.Missed] = {}
        self._kept: deque[wire.Message] = deque(maxlen=MAX_KEPT)
        self._ids = 0
        self._up = False
        self._misses = 0
        self._give_up_at = float("inf")
        self._renew = False
        self._closing = False
        self._eager = True
        self._warned = False
        self._settled = threading.Event()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="stepscope-connection", daemon=True)

    @property
    def up(self) -> bool:
        """
        Whether the sidecar has taken the registration and answers.
        """
        return self._up

    def start(self) -> None:
        """
        Begin to connect.
        """
        self._thread.start()

    def settled(self, timeout: float, *, quiet: bool = False, hopeless: Callable[[], str] = str) -> bool:
        """
        Wait for the answer to the first registration; whether it came. From then on attempts are made unhurriedly.

        ``quiet``: why there is none has been said. ``hopeless`` says why none will come; then nobody waits for it.
        """
        self._warned = self._warned or quiet
        until, why = self._clock() + timeout, ""
        while not (came := self._settled.wait(max(0.0, min(GLANCE, until - self._clock())))):
            if (why := hopeless()) or self._clock() >= until:
                break
        self._eager = False
        if not came:
            self._warn_lost(why or "no answer to the registration")
        return came

    def request(self, make: Callable[[int], wire.Message], *, missed: wire.Missed) -> wire.Message | None:
        """
        Send what ``make`` makes of an id, and wait for the answer.

        ``None`` when there is nobody to ask or the deadline passed; then ``missed`` is told to the next sidecar, unless
        the answer still comes.
        """
        answer = _Answer()
        with self._lock:
            if not self._up:
                self._kept.append(missed)
                return None
            self._ids += 1
            number = self._ids
            self._pending[number] = answer
            self._push(make(number))
        if not answer.done.wait(self._deadline):
            with self._lock:
                if self._pending.pop(number, None) is not None:
                    self._abandoned[number] = missed
                    self._trip()
                    return None
        if answer.message is None:
            with self._lock:
                self._kept.append(missed)
        else:
            self._misses = 0
        return answer.message

    def send(self, message: wire.Message, *, keep: bool = False) -> bool:
        """
        Send without an answer; what cannot be sent now is sent to the next sidecar if it is to be kept.
        """
        with self._lock:
            if self._up and self._push(message):
                return True
            if keep:
                self._kept.append(message)
        return False

    def renew(self) -> None:
        """
        Register again, on a new connection: what was registered has changed.
        """
        self._renew = True
        self._wake()

    def close(self, timeout: float = 1.0) -> None:
        """
        Say goodbye, wait for what is still to be written, and end the thread.
        """
        deadline, idle = self._clock() + timeout, threading.Event()
        if not self._up and (self._kept or self._abandoned) and (probe := self._connect()):
            # Somebody listens: a sidecar that had stood still, or a new one. It shall know what it missed.
            probe.close()
            self.renew()
            until = self._clock() + min(timeout, self._deadline)
            while not self._up and self._clock() < until:
                idle.wait(0.005)
        self.send(wire.Bye())
        while self._up and self._outgoing and self._clock() < deadline:
            idle.wait(0.005)
        self._closing = True
        self._wake()
        if self._thread.ident is not None:
            self._thread.join(max(0.1, deadline - self._clock()))
        if not self._thread.is_alive():
            self._wake_in.close()
            self._wake_out.close()

    def forget(self) -> None:
        """
        Let go in a forked child, whose copies of the lock and the socket belong to its parent.
        """
        self._lock = threading.Lock()
        self._up, self._closing = False, True
        for sock in (self._sock, self._wake_in, self._wake_out):
            if sock is not None:
                with contextlib.suppress(OSError):
                    sock.close()
        self._sock = None

    # The reader thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing:
            self._renew = False
            sock = self._connect()
            reason = "nobody listens there"
            if sock is not None:
                try:
                    reason = self._serve(sock)
                except OSError as error:
                    reason = str(error)
                except Exception as error:  # noqa: BLE001 - the thread must live on; the next connection may do
                    complaints.fault("connection", error)
                    reason = "an error of our own"
                finally:
                    self._lose()
            if self._closing or self._renew:
                continue
            if not self._eager:
                self._warn_lost(reason)
            self._pause(EAGER if self._eager else max(self._retry, self._hold()))

    def _hold(self) -> float:
        return 0.0 if not self._misses else min(MAX_HOLD, self._retry * 2 ** (self._misses - 1))

    def _connect(self) -> socket.socket | None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.connect(str(self._path))
        except OSError:
            sock.close()
            return None
        return sock

    def _serve(self, sock: socket.socket) -> str:
        """
        Register, then read until the connection ends or is given up; why it did.
        """
        with self._lock:
            self._sock = sock
            self._ids += 1
            registration = self._ids
        message = self._register(registration)
        with self._lock:
            self._push(message)
            self._give_up_at = self._clock() + self._deadline
        buffer = bytearray()
        while not self._closing and not self._renew:
            left = self._give_up_at - self._clock()
            if left <= 0:
                return "it does not answer in time"
            readable = self._wait(sock, None if left == float("inf") else left)
            if not readable:
                continue
            data = sock.recv(CHUNK)
            if not data:
                return "it closed the connection"
            buffer += data
            *lines, rest = buffer.split(b"\n")
            buffer = rest
            for line in lines:
                try:
                    self._take(wire.decode(bytes(line)), registration)
                except WireError as error:
                    self._misses += 1
                    return f"it talks garbage: {error}"
            if len(buffer) > wire.MAX_LINE:
                self._misses += 1
                return "it talks garbage: a message without end"
        return ""

    def _take(self, message: wire.Message, registration: int) -> None:
        if isinstance(message, wire.Registered | wire.Refused) and message.id == registration:
            self._heard(message)
            with self._lock:
                self._give_up_at = float("inf")
                self._up = isinstance(message, wire.Registered)
                self._warned = self._warned and not self._up
                while self._up and self._kept and self._push(self._kept[0]):
                    self._kept.popleft()
            self._settled.set()
        elif isinstance(message, wire.Grant | wire.Deny | wire.Refused):
            self._answer(message)
        elif isinstance(message, wire.Selected | wire.Stop):
            self._heard(message)

    def _answer(self, message: wire.Grant | wire.Deny | wire.Refused) -> None:
        with self._lock:
            answer = self._pending.pop(message.id, None)
            if answer is not None:
                answer.message = message
                answer.done.set()
            elif self._abandoned.pop(message.id, None) is not None:
                if isinstance(message, wire.Grant):
                    self._push(wire.Ended(window=message.window, state=State.EXPIRED, reason=Reason.GRANT_TOO_LATE))
                if not self._abandoned:
                    # Everything late has come; only a fresh registration in time closes the breaker.
                    self._give_up_at = min(self._give_up_at, self._clock() + self._retry)

    def _trip(self) -> None:
        self._up = False
        self._misses += 1
        self._give_up_at = self._clock() + LINGER
        self._wake()

    def _lose(self) -> None:
        with self._lock:
            sock, self._sock = self._sock, None
            self._up = False
            self._outgoing.clear()
            for answer in self._pending.values():
                answer.done.set()
            self._pending.clear()
            self._kept.extend(self._abandoned.values())
            self._abandoned.clear()
        if sock is not None:
            sock.close()

    # Writing, with the lock held -------------------------------------------------------------------------------

    def _push(self, message: wire.Message) -> bool:
        if self._sock is None:
            return False
        data = wire.encode(message)
        if len(data) > wire.MAX_LINE or len(self._outgoing) + len(data) > MAX_OUTGOING:
            complaints.warn("unsent", "the sidecar does not take what it is sent; %s left out", type(message).__name__)
            return True
        self._outgoing += data
        self._flush()
        if self._outgoing:
            self._wake()
        return True

    def _flush(self) -> None:
        try:
            while self._outgoing and self._sock is not None:
                sent = self._sock.send(self._outgoing, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
                del self._outgoing[:sent]
        except BlockingIOError:
            pass
        except OSError:
            # The reader sees the end of the connection too, and deals with it.
            self._outgoing.clear()

    # Waiting ---------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        # A full pipe means that the thread is being woken already.
        with contextlib.suppress(OSError):
            self._wake_out.send(b"w")

    def _drain_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake_in.recv(CHUNK)

    def _pause(self, seconds: float) -> None:
        poll = select.poll()
        poll.register(self._wake_in, select.POLLIN)
        poll.poll(seconds * 1000)
        self._drain_wake()

    def _wait(self, sock: socket.socket, seconds: float | None) -> bool:
        """
        Wait until there is something to read, to write or to do; whether it is reading.
        """
        # Not select(): a training process may have more than its 1,024 files open.
        poll = select.poll()
        poll.register(sock, select.POLLIN | (select.POLLOUT if self._outgoing else 0))
        poll.register(self._wake_in, select.POLLIN)
        events = dict(poll.poll(None if seconds is None else seconds * 1000 + 1))
        self._drain_wake()
        found = events.get(sock.fileno(), 0)
        if found & select.POLLOUT:
            with self._lock:
                self._flush()
        return bool(found & ~select.POLLOUT)

    def _warn_lost(self, reason: str) -> None:
        if self._warned:
            return
        self._warned = True
        complaints.warn(
            "sidecar", "no sidecar at %s (%s): the run goes on, selected steps are not recorded", self._path, reason
        )
