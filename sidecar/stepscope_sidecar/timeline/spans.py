"""
Draws spans: those of a process on lanes of its own, a child in its parent, and arrows from samples to their training.

Owns where a span lies on the timeline.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import orjson

from stepscope import names
from stepscope_sidecar.rows import SampleRow, SpanRow, Value
from stepscope_sidecar.timeline.drawing import Drawing, Track
from stepscope_sidecar.timeline.lanes import Lanes

OURS = (names.PROFILE_OPENED, names.PROFILE_CAPTURE)
"""Spans about windows, which lie across those of the process and have a track of their own."""

SAMPLES = "samples"
"""What the arrows are called from the request that made samples to what trained on them."""


class Drawn(NamedTuple):
    """
    Where a span lies.
    """

    track: Track
    start_ns: int
    end_ns: int


class Rows:
    """
    Lanes of one process that are called alike; a lane becomes a track when there is something for it.
    """

    def __init__(self, drawing: Drawing, pid: int, name: str) -> None:
        self._drawing = drawing
        self._pid = pid
        self._name = name
        self._lanes = Lanes()
        self._tracks: list[Track] = []

    def track(self, start_ns: int, end_ns: int, key: str = "", *, above: frozenset[str] = frozenset()) -> Track:
        """
        The track for a slice, which may lie in those of the keys ``above``.
        """
        number = self._lanes.place(start_ns, end_ns, key, inside=above.__contains__)
        while number >= len(self._tracks):
            more = f" {len(self._tracks) + 1}" if self._tracks else ""
            self._tracks.append(self._drawing.track(self._pid, f"{self._name}{more}"))
        return self._tracks[number]


def draw(drawing: Drawing, pid: int, spans: Sequence[SpanRow], *, shift_ns: int = 0) -> Mapping[tuple[str, str], Drawn]:
    """
    Draw the spans of one process: where each lies, by trace and span id.
    """
    rows, windows = Rows(drawing, pid, "spans"), Rows(drawing, pid, "windows")
    parents = {span.span_id: span.parent_span_id for span in spans}
    ours = frozenset(span.span_id for span in spans if span.name in OURS)
    found = {}
    for span in sorted(spans, key=lambda one: (one.name in OURS, one.start_unix_ns, -one.end_unix_ns, one.span_id)):
        start, end = span.start_unix_ns + shift_ns, max(span.start_unix_ns, span.end_unix_ns) + shift_ns
        lanes, above = (windows, ours) if span.name in OURS else (rows, _above(span, parents))
        track = lanes.track(start, end, span.span_id, above=above)
        told = orjson.dumps(_told(span)).decode()
        drawing.slice(track, orjson.dumps(span.name).decode(), start, end, category="span", told=told)
        found[span.trace_id, span.span_id] = Drawn(track, start, end)
    return found


def connect(
    drawing: Drawing,
    drawn: Mapping[tuple[str, str], Drawn],
    sources: Mapping[tuple[str, str], Sequence[SpanRow]],
) -> int:
    """
    Draw an arrow from the end of each of ``sources`` that is drawn to the beginning of what trained on it: how many.
    """
    count = 0
    for source, consumers in sources.items():
        for trained in consumers if source in drawn else ():
            target = drawn[trained.trace_id, trained.span_id]
            left, came = _bound(drawn[source], target)
            drawing.flow(SAMPLES, drawn[source].track, left, target.track, came)
            count += 1
    return count


def _bound(source: Drawn, target: Drawn) -> tuple[int, int]:
    """
    Where an arrow leaves and where it comes to: inside of both.
    """
    came = min(target.start_ns + 1, target.end_ns)
    left = max(source.end_ns - 1, source.start_ns)
    if left > came:
        # Training began while the request went on: the arrow must not point back if it need not.
        came = max(came, min(left, target.end_ns - 1))
        left = max(source.start_ns, min(left, came))
    return left, came


def consumed(spans: Sequence[SpanRow], samples: Iterable[SampleRow]) -> Mapping[tuple[str, str], Sequence[SpanRow]]:
    """
    By trace and span id, what made samples, and the spans of ``spans`` that trained on them.

    By the links of mini-batches, else by the sample table, which does not say which of the ranks it was: the first.
    """
    found: dict[tuple[str, str], list[SpanRow]] = {}
    linked = set()
    for span in spans:
        for source in _linked(span) if span.name not in OURS else ():
            found.setdefault(source, []).append(span)
            linked.add((source, span.attributes.get(names.MINI_BATCH)))
    updates: dict[Value, SpanRow] = {}
    for span in sorted(spans, key=lambda one: (one.rank or 0, one.start_unix_ns), reverse=True):
        if span.name == names.TRAIN_UPDATE_ACTOR:
            updates[span.attributes.get(names.MINI_BATCH)] = span
    for sample in samples:
        source = (sample.trace_id, sample.span_id)
        if sample.span_id and (source, sample.mini_batch) not in linked and sample.mini_batch in updates:
            linked.add((source, sample.mini_batch))
            found.setdefault(source, []).append(updates[sample.mini_batch])
    return found


def _linked(span: SpanRow) -> Iterator[tuple[str, str]]:
    for link in span.links:
        if isinstance(link, dict):
            yield str(link.get("trace_id") or ""), str(link.get("span_id") or "")


def _above(span: SpanRow, parents: Mapping[str, str]) -> frozenset[str]:
    """
    The ids of the spans that hold a span.
    """
    above, passed = span.parent_span_id, set()
    while above and above not in passed:
        passed.add(above)
        above = parents.get(above, "")
    return frozenset(passed)


def _told(span: SpanRow) -> dict[str, Value]:
    told: dict[str, Value] = {**span.attributes, "trace_id": span.trace_id, "span_id": span.span_id}
    if span.status.get("code") == "error":
        told["status"] = span.status
    return told
