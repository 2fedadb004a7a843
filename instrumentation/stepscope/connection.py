"""
The process's end of the control socket: one reader thread, requests with a deadline, reconnecting, a circuit breaker.

Owns when something may be sent. What becomes of what could not be is :mod:`stepscope.kept`'s, what the messages mean
:mod:`stepscope.agent`'s. The training thread never waits for the peer but for the deadline of a request: sending does
not block, and a peer that is slow, silent or talks garbage opens the breaker.
"""

import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from stepscope import wire
from stepscope.complaints import complaints
from stepscope.errors import WireError
from stepscope.kept import Kept, encoded
from stepscope.names import Reason, State
from stepscope.outgoing import Outgoing
from stepscope.waiting import Waiting

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

AHEAD = 1 << 18
"""Bytes waiting at which nothing is added of what was kept: a request has to come through within its deadline."""

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
        register: makes the registration for a request id; called on the reader thread on every connection, and when
            it is to be renewed.
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
        # The end of a span may end a window, and so may one in the handler of a signal that came below this lock.
        self._lock = threading.RLock()
        self._outgoing = Outgoing()
        self._pending: dict[int, _Answer] = {}
        self._abandoned: dict[int, wire.Missed] = {}
        self._kept = Kept()
        self._ids = 0
        self._registration = 0
        self._up = False
        self._misses = 0
        self._give_up_at = float("inf")
        self._renew = False
        self._closing = False
        self._eager = True
        self._warned = False
        self._settled = threading.Event()
        self._waiting = Waiting()
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
        if not came:
            self._warn_lost(why or "no answer to the registration")
        self._eager = False
        return came

    def request(self, make: Callable[[int], wire.Message], *, missed: wire.Missed) -> wire.Message | None:
        """
        Send what ``make`` makes of an id, and wait for the answer.

        ``None`` when there is nobody to ask or the deadline passed; then ``missed`` is told to the next sidecar, unless
        the answer still comes.
        """
        answer = _Answer()
        with self._lock:
            self._ids += 1
            number = self._ids
            if not self._up or not (line := encoded(make(number))):
                self._keep(missed)
                return None
            self._pending[number] = answer
            if not self._push(line):
                # It has not read for long: as good as a missed deadline.
                del self._pending[number]
                self._keep(missed)
                self._trip()
                return None
        if not answer.done.wait(self._deadline):
            with self._lock:
                if self._pending.pop(number, None) is not None:
                    self._abandoned[number] = missed
                    self._trip()
                    return None
        if answer.message is None:
            with self._lock:
                self._keep(missed)
        else:
            self._misses = 0
        return answer.message

    def send(self, message: wire.Message, *, keep: bool = False) -> bool:
        """
        Send without an answer; what cannot be sent now is sent to the next sidecar if it is to be kept.
        """
        line = encoded(message)
        if not line:
            return False
        with self._lock:
            if self._up and self._push(line):
                return True
            if keep:
                self._kept.add(message, line)
            elif self._up:
                complaints.warn("unsent", "the sidecar does not read; %s is left out", type(message).__name__)
        return False

    def renew(self) -> None:
        """
        Register again: what was registered has changed. On the same connection, so that whatever is asked next is asked
        after it; on a new one where none is up.
        """
        with self._lock:
            self._ids += 1
            number = self._ids
        line = encoded(self._register(number)) if self._up else b""
        with self._lock:
            if line and self._up and self._push(line):
                self._registration = number
                return
        self._renew = True
        self._waiting.wake()

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
        # The goodbye is the last word, and has to come through in time even where not all of the rest does.
        until = self._clock() + timeout / 2
        while self._up and self._kept and self._clock() < until:
            self._waiting.wake()
            idle.wait(0.005)
        if self._up and self._kept:
            complaints.warn("left", "the sidecar has not taken all that waited for it; the rest is left out")
        self.send(wire.Bye())
        while self._up and self._outgoing and self._clock() < deadline:
            idle.wait(0.005)
        self._closing = True
        self._waiting.wake()
        if self._thread.ident is not None:
            self._thread.join(max(0.1, deadline - self._clock()))
        if not self._thread.is_alive():
            self._waiting.close()

    def forget(self) -> None:
        """
        Let go in a forked child, whose copies of the lock and the socket belong to its parent.
        """
        self._lock = threading.RLock()
        self._up, self._closing = False, True
        self._waiting.close()
        self._outgoing.hang_up()

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
            self._waiting.pause(EAGER if self._eager else max(self._retry, self._hold()))
        # Here, too, where close() could not wait so long.
        self._waiting.close()

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
            self._outgoing.lead_to(sock)
            self._ids += 1
            number = self._registration = self._ids
        hello = encoded(self._register(number))
        if not hello:
            return "the registration cannot be sent"
        with self._lock:
            self._push(hello)
            self._give_up_at = self._clock() + self._deadline
        buffer = bytearray()
        while not self._closing and not self._renew:
            left = self._give_up_at - self._clock()
            if left <= 0:
                return "it does not answer in time"
            wait = None if left == float("inf") else left
            writing = bool(self._outgoing) or (self._up and bool(self._kept))
            events = self._waiting.until_ready(sock, wait, writing=writing)
            if events.writable:
                # One at a time: between two of them others get the lock, and what they have to say is sent.
                with self._lock:
                    self._outgoing.flush()
                    self._push_kept()
            if not events.readable:
                continue
            data = sock.recv(CHUNK)
            if not data:
                return "it closed the connection"
            buffer += data
            *lines, rest = buffer.split(b"\n")
            buffer = rest
            for line in lines:
                try:
                    self._take(wire.decode(bytes(line)))
                except WireError as error:
                    self._misses += 1
                    return f"it talks garbage: {error}"
            if len(buffer) > wire.MAX_LINE:
                self._misses += 1
                return "it talks garbage: a message without end"
        return ""

    def _take(self, message: wire.Message) -> None:
        if isinstance(message, wire.Registered | wire.Refused) and message.id == self._registration:
            self._heard(message)
            with self._lock:
                self._give_up_at = float("inf")
                self._up = isinstance(message, wire.Registered)
                self._warned = self._warned and not self._up
                self._push_kept()
                lost = self._kept.lost() if self._up else ""
            if lost:
                complaints.warn("lost", "while there was no sidecar more came than is kept: %s left out", lost)
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
                    late = wire.Ended(window=message.window, state=State.EXPIRED, reason=Reason.GRANT_TOO_LATE)
                    if not self._push(encoded(late)):
                        self._keep(late)
                if not self._abandoned:
                    # Everything late has come; only a fresh registration in time closes the breaker.
                    self._give_up_at = min(self._give_up_at, self._clock() + self._retry)

    def _trip(self) -> None:
        self._up = False
        self._misses += 1
        self._give_up_at = self._clock() + LINGER
        self._waiting.wake()

    def _lose(self) -> None:
        with self._lock:
            self._up = False
            self._outgoing.hang_up()
            for answer in self._pending.values():
                answer.done.set()
            self._pending.clear()
            for missed in self._abandoned.values():
                self._keep(missed)
            self._abandoned.clear()

    # Writing, with the lock held -------------------------------------------------------------------------------

    def _keep(self, message: wire.Message) -> None:
        if line := encoded(message):
            self._kept.add(message, line)
            if self._up:
                # Connected anew since: the reader waits, and knew of nothing to write.
                self._waiting.wake()

    def _push_kept(self) -> None:
        if self._up and self._kept and len(self._outgoing) < AHEAD:
            self._push(self._kept.take())

    def _push(self, line: bytes) -> bool:
        taken = self._outgoing.push(line)
        if self._outgoing:
            self._waiting.wake()
        return taken

    def _warn_lost(self, reason: str) -> None:
        if self._warned:
            return
        self._warned = True
        complaints.warn(
            "sidecar", "no sidecar at %s (%s): the run goes on, selected steps are not recorded", self._path, reason
        )
