"""
Messages as they are sent, and those of them that wait for a sidecar to take them.

Owns how many wait, and which are left out where they are too many. When they are sent is
:mod:`stepscope.connection`'s, whose lock is held here.
"""

from collections import Counter, deque

from stepscope import wire
from stepscope.complaints import complaints

MAX_TOLD = 1000
"""Messages kept that are no sample tables: of 1,000 steps at the least, and some 100 KB."""

MAX_TOLD_BYTES = wire.MAX_LINE
"""Bytes of these, so that they are sent in one go and in their order: the largest of all messages fits."""

MAX_TABLE_BYTES = 64 * 1024 * 1024
"""Bytes of sample tables kept: some 800 mini-batches of 1,024 samples, as much memory as waiting spans may take."""


def encoded(message: wire.Message) -> bytes:
    """
    ``message`` as it is sent; nothing if it cannot be: it is left out, or it would be tried again without end.
    """
    kind = type(message).__name__
    try:
        line = wire.encode(message)
    except (TypeError, ValueError, RecursionError) as error:
        complaints.fault(f"sending {kind}", error)
        return b""
    if len(line) > wire.MAX_LINE:
        complaints.warn("unsent", "%s of %d bytes is more than a sidecar takes; it is left out", kind, len(line))
        return b""
    return line


class Kept:
    """
    What waits, in its order; sample tables after everything else, which is small and says what became of windows.
    """

    def __init__(self) -> None:
        self._told: deque[bytes] = deque()
        self._told_bytes = 0
        self._tables: deque[bytes] = deque()
        self._table_bytes = 0
        self._spans: Counter[str] = Counter()
        self._lost: Counter[str] = Counter()

    def __bool__(self) -> bool:
        """
        Whether anything waits.
        """
        return bool(self._told or self._tables or self._spans)

    def add(self, message: wire.Message, line: bytes) -> None:
        """
        Keep ``message``, which is sent as ``line``.
        """
        size = len(line)
        if isinstance(message, wire.Dropped):
            # Told every second while spans are dropped: one sum, or it would crowd out what became of windows.
            self._spans.update(message.spans)
        elif not isinstance(message, wire.Samples):
            self._told.append(line)
            self._told_bytes += size
            while self._told and (len(self._told) > MAX_TOLD or self._told_bytes > MAX_TOLD_BYTES):
                gone = len(self._told.popleft())
                self._told_bytes -= gone
                self._lose("message")
        elif self._table_bytes + size > MAX_TABLE_BYTES:
            self._lose("sample table")
        else:
            self._tables.append(line)
            self._table_bytes += size

    def take(self) -> bytes:
        """
        What is to be sent next, which no longer waits: one sample table, or all of the rest at once.
        """
        if self._told or self._spans:
            spans, self._spans = self._spans, Counter()
            told, self._told, self._told_bytes = self._told, deque(), 0
            return b"".join(told) + (wire.encode(wire.Dropped(spans=dict(spans))) if spans else b"")
        line = self._tables.popleft() if self._tables else b""
        size = len(line)
        self._table_bytes -= size
        return line

    def lost(self) -> str:
        """
        What was left out since this was asked last, in words; "" for nothing.
        """
        lost, self._lost = self._lost, Counter()
        return ", ".join(f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in sorted(lost.items()))

    def _lose(self, kind: str) -> None:
        self._lost[kind] += 1
        complaints.warn(
            f"kept:{kind}", "more %ss wait for a sidecar than can be kept; what is too much is left out", kind
        )
