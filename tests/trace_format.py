"""
Reads a trace by the rules of Chrome's trace-event format, and nothing of ours: what breaks one is an assertion.

Times are kept as decimals, exactly as they are written.
"""

import gzip
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

Row = tuple[int, int]
"""Process and thread."""

PHASES = frozenset("BEXiIPNODMVvRcbenSTpFstf(),")
"""All that the format has, of which complete events, metadata and flows are checked further."""


@dataclass(frozen=True)
class Slice:
    """
    A complete event.
    """

    row: Row
    name: str
    category: str
    start: Decimal
    end: Decimal
    args: Mapping[str, Any]


@dataclass(frozen=True)
class Timeline:
    """
    A file that has been read.
    """

    keys: Mapping[str, Any]
    events: Sequence[Mapping[str, Any]]

    @cached_property
    def slices(self) -> Sequence[Slice]:
        """
        The complete events, in the file's order.
        """
        return [
            Slice(
                (event["pid"], event["tid"]),
                event["name"],
                event["cat"],
                event["ts"],
                event["ts"] + event["dur"],
                event["args"],
            )
            for event in self.events
            if event["ph"] == "X"
        ]

    @cached_property
    def processes(self) -> Mapping[int, str]:
        """
        The names of processes.
        """
        named = [event for event in self.events if event["name"] == "process_name"]
        assert len(named) == len({event["pid"] for event in named})
        return {event["pid"]: event["args"]["name"] for event in named}

    @cached_property
    def threads(self) -> Mapping[Row, str]:
        """
        The names of threads.
        """
        named = [event for event in self.events if event["name"] == "thread_name"]
        assert len(named) == len({event["tid"] for event in named})
        return {(event["pid"], event["tid"]): event["args"]["name"] for event in named}

    @cached_property
    def base_ns(self) -> int:
        """
        What times count from.
        """
        return int(self.keys["baseTimeNanoseconds"])

    def unix_ns(self, moment: Decimal) -> int:
        """
        A moment of the file in nanoseconds since the epoch.
        """
        exact = moment * 1000
        assert exact == int(exact)
        return self.base_ns + int(exact)

    def of(self, process: str, thread: str = "", *, category: str = "") -> Sequence[Slice]:
        """
        The slices of processes and threads whose names begin so.
        """
        return [
            one
            for one in self.slices
            if self.processes[one.row[0]].startswith(process)
            and self.threads[one.row].startswith(thread)
            and category in {"", one.category}
        ]

    @cached_property
    def flows(self) -> Sequence[tuple[str, Slice, Slice]]:
        """
        The arrows: what each is called, and the innermost slices that it goes from and to.
        """
        rows: dict[Row, list[Slice]] = defaultdict(list)
        for one in self.slices:
            rows[one.row].append(one)
        ends: dict[str, dict[int, Mapping[str, Any]]] = {"s": {}, "f": {}}
        for event in self.events:
            if event["ph"] in ends:
                assert event["id"] not in ends[event["ph"]]
                ends[event["ph"]][event["id"]] = event
        assert ends["s"].keys() == ends["f"].keys()
        assert all(event["bp"] == "e" for event in ends["f"].values())
        held = {phase: _holding(rows, events) for phase, events in ends.items()}
        for number, event in ends["s"].items():
            assert (event["cat"], event["name"]) == (ends["f"][number]["cat"], ends["f"][number]["name"])
        return [(ends["s"][number]["name"], held["s"][number], held["f"][number]) for number in ends["s"]]


def read(path: Path) -> Timeline:
    """
    The file at ``path``, whatever its name says of its form, after all checks.
    """

    def refuse(word: str) -> Any:
        raise AssertionError(f"{word} is not JSON")

    data = path.read_bytes()
    text = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    assert path.name.endswith(".gz") == data.startswith(b"\x1f\x8b")
    found = json.loads(text.decode(), parse_float=Decimal, parse_int=_whole, parse_constant=refuse)
    timeline = Timeline({key: value for key, value in found.items() if key != "traceEvents"}, found["traceEvents"])
    for event in timeline.events:
        _check(event)
    assert {pid for pid, _ in timeline.threads} <= timeline.processes.keys()
    assert {one.row for one in timeline.slices} <= timeline.threads.keys()
    assert not {tid for _, tid in timeline.threads} & timeline.processes.keys()
    nested(timeline.slices)
    assert timeline.flows is not None
    return timeline


def nested(slices: Iterable[Slice]) -> None:
    """
    Slices of one row lie in each other or apart; viewers draw nothing else.
    """
    rows: dict[Row, list[Slice]] = defaultdict(list)
    for one in slices:
        rows[one.row].append(one)
    for found in rows.values():
        above: list[Slice] = []
        for one in sorted(found, key=lambda one: (one.start, -one.end)):
            while above and above[-1].end <= one.start:
                above.pop()
            assert not above or one.end <= above[-1].end, (above[-1], one)
            above.append(one)


def _whole(text: str) -> int:
    assert len(text) < 40
    return int(text)


def _check(event: Mapping[str, Any]) -> None:
    assert event["ph"] in PHASES
    assert isinstance(event["name"], str)
    assert type(event["pid"]) is int
    assert type(event["tid"]) is int
    assert event["ph"] not in "BE"
    if event["ph"] == "M":
        assert isinstance(event["args"], dict)
        return
    assert isinstance(event["cat"], str)
    for key in ("ts", "dur") if event["ph"] == "X" else ("ts",):
        assert isinstance(event[key], Decimal)
        assert event[key] >= 0
        assert -3 == event[key].as_tuple().exponent


def _holding(rows: Mapping[Row, Sequence[Slice]], events: Mapping[int, Mapping[str, Any]]) -> Mapping[int, Slice]:
    """
    For each event the innermost slice of its row that it lies in.
    """
    asked: dict[Row, list[tuple[Decimal, int]]] = defaultdict(list)
    for number, event in events.items():
        asked[event["pid"], event["tid"]].append((event["ts"], number))
    found = {}
    for row, moments in asked.items():
        above: list[Slice] = []
        waiting = sorted(rows[row], key=lambda one: (one.start, -one.end), reverse=True)
        for moment, number in sorted(moments):
            while waiting and waiting[-1].start <= moment:
                one = waiting.pop()
                while above and above[-1].end <= one.start:
                    above.pop()
                above.append(one)
            while len(above) > 1 and above[-1].end < moment:
                above.pop()
            assert above, (row, moment)
            assert above[-1].start <= moment <= above[-1].end, (row, moment)
            found[number] = above[-1]
    return found
