"""
Spans that are put onto a recording's timeline when it is finalised.
"""

import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

from stepscope_sidecar.artifacts import kineto
from tests.unit.sidecar import traces
from tests.unit.sidecar.finalising import finalised


def test_spans_that_the_profiler_did_not_see_whole_are_added(tmp_path: Path) -> None:
    """
    They are clipped to the window, to the nanosecond, on their own thread, and say on which side they were cut.
    """
    spans = [
        traces.continued(-5_000, 1_234_567, span_id="a", name='ro"ll\\out\n'),
        traces.continued(1_999_999_999, 2_000_000_001, span_id="b"),
        traces.continued(3, 0, span_id="c"),
        traces.continued(-10, -5, span_id="d"),
    ]
    spans[2] = replace(spans[2], name="still.open", end_unix_ns=0)

    found = finalised(tmp_path, traces.trace(5), continued=spans)

    text = gzip.decompress(found.path.read_bytes()).decode()
    added = {event["name"]: event for event in traces.read(found.path)["traceEvents"] if event.get("tid") == 77}
    assert {"rollout #000000000000000a", "rollout.generate #000000000000000b", "still.open #000000000000000c"} == set(
        added
    )
    first = added["rollout #000000000000000a"]
    assert ("X", "user_annotation", traces.PID) == (first["ph"], first["cat"], first["pid"])
    assert '"ts":5107424935000.000,"dur":1234.567' in text
    assert '"ts":5107426934999.999,"dur":0.001' in text
    assert '"ts":5107424935000.003,"dur":1999999.997' in text
    assert {"stepscope.continued": True, "stepscope.begun_before": True, "stepscope.ended_after": False} == first[
        "args"
    ]
    assert [False, True] == [
        added["still.open #000000000000000c"]["args"][key]
        for key in ("stepscope.begun_before", "stepscope.ended_after")
    ]
    assert 3 == found.continued


def test_a_continued_span_does_not_stand_for_a_missing_marker(tmp_path: Path) -> None:
    """
    What finalising added is no proof that the profiler recorded it, now or when asked again.
    """
    changes: dict[str, Any] = {"mirrored": ["aa".zfill(16)], "continued": [traces.continued(0, 5)]}

    first = finalised(tmp_path, traces.trace(5), **changes)

    assert ["aa".zfill(16)] == first.missing
    assert first == kineto.finalise(tmp_path, traces.closed(**changes), pid=traces.PID)


def test_a_span_that_the_close_cut_off_is_drawn_once(tmp_path: Path) -> None:
    """
    What the profiler has on its timeline is not added a second time.
    """
    span_id = "ab".zfill(16)
    data = traces.trace(5, spans=(span_id,))
    changes: dict[str, Any] = {"mirrored": [span_id], "continued": [traces.continued(0, 0, span_id=span_id)]}

    found = finalised(tmp_path, data, **changes)
    drawn = [event for event in traces.read(found.path)["traceEvents"] if str(event.get("name")).endswith(span_id)]

    assert 1 == len(drawn)
    assert [] == found.missing
