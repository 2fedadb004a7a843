"""
Events added up by name.

Pure; whole nanoseconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepscope_sidecar.traces.trace import Ints, Trace


@dataclass(frozen=True, kw_only=True, slots=True)
class Total:
    """
    All events of one name. ``own_ns`` is without what ran inside them; of work on a device it is all.
    """

    name: str
    count: int
    total_ns: int
    own_ns: int

    def json(self) -> dict[str, str | int]:
        """
        As ``stepscope show --json`` prints it.
        """
        return {"name": self.name, "count": self.count, "total_ns": self.total_ns, "own_ns": self.own_ns}


def by_name(trace: Trace, rows: npt.NDArray[np.integer], *, own_ns: Ints | None = None) -> Sequence[Total]:
    """
    The events at ``rows`` by name, most time of their own first; ``own_ns`` belongs to ``rows``.
    """
    lengths = trace.duration_ns[rows]
    own = lengths if own_ns is None else own_ns
    places, which = np.unique(trace.name[rows], return_inverse=True)
    count = np.bincount(which, minlength=len(places))
    total, mine = np.zeros(len(places), dtype=np.int64), np.zeros(len(places), dtype=np.int64)
    # Not with bincount's weights, which are doubles.
    np.add.at(total, which, lengths)
    np.add.at(mine, which, own)
    found = [
        Total(name=trace.names[place], count=int(count[at]), total_ns=int(total[at]), own_ns=int(mine[at]))
        for at, place in enumerate(places.tolist())
    ]
    return sorted(found, key=lambda one: (-one.own_ns, one.name))
