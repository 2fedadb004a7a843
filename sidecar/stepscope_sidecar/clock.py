"""
How far this node's clock is from the upstream's, and how sure that is.

Pure. Each report brings one estimate whose error is half of what the way there and back took; of the last ones the
surest holds. Nothing is corrected by it: it is shown.
"""

from collections import deque
from dataclasses import dataclass

KEPT = 60
"""Estimates among which the surest is chosen: about five minutes, in which a free-running clock drifts some 10 ms."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """
    ``offset_ns`` is what has to be added to our clock to have the other's; it is right to within ``error_ns``.
    """

    offset_ns: int
    error_ns: int

    @classmethod
    def of(cls, *, sent_unix_ns: int, took_ns: int, answered_unix_ns: int, held_ns: int) -> "Estimate":
        """
        The estimate of one exchange.

        Args:
            sent_unix_ns: when we asked, by our clock.
            took_ns: how long until the answer was there.
            answered_unix_ns: when it was answered, by the other's clock.
            held_ns: how long the other had it before it answered.
        """
        held = min(max(0, held_ns), max(0, took_ns))
        # Halfway between our two moments it was, for the other, halfway between its two.
        offset = (answered_unix_ns - held // 2) - (sent_unix_ns + took_ns // 2)
        return cls(offset_ns=offset, error_ns=max(1, (took_ns - held + 1) // 2))

    def agrees(self, other: "Estimate") -> bool:
        """
        Whether both can be true.
        """
        return abs(self.offset_ns - other.offset_ns) <= self.error_ns + other.error_ns


class Clock:
    """
    The estimates of the last minutes.
    """

    def __init__(self) -> None:
        """
        Nothing is known.
        """
        self._recent: deque[Estimate] = deque(maxlen=KEPT)

    @property
    def best(self) -> Estimate | None:
        """
        The surest of them.
        """
        return min(self._recent, key=lambda item: item.error_ns, default=None)

    def add(self, estimate: Estimate) -> None:
        """
        One more. Those that it contradicts are of before a clock was set, or of a clock that has drifted on.
        """
        kept = [item for item in self._recent if item.agrees(estimate)]
        self._recent.clear()
        self._recent.extend([*kept, estimate])
