"""
Launches onto an accelerator that have left nothing there: how many, and where.
"""

from collections.abc import Iterable
from typing import Any

import pytest

from stepscope_sidecar.artifacts import numbers
from stepscope_sidecar.artifacts.launches import Launched, Launches
from tests.unit.sidecar.devices import call, launches, work


def found(events: Iterable[dict[str, Any]]) -> Launched:
    """
    What is found in ``events``.
    """
    survey = Launches()
    for event in events:
        survey.add(event)
    return survey.found()


@pytest.mark.parametrize(
    ("missing", "where"),
    [
        (range(1, 11), "head"),
        (range(91, 101), "tail"),
        (range(41, 51), ""),
        (range(5, 101, 10), ""),
        ([*range(1, 10), 12], "head"),
        ([*range(1, 6), *range(96, 101)], ""),
    ],
)
def test_a_loss_has_a_share_and_a_place(missing: Iterable[int], where: str) -> None:
    """
    Whatever the order of the events, what was launched and did not run is counted, and where it is is told.
    """
    events = launches(range(1, 101), missing=set(missing))

    assert Launched(count=100, missing=10, where=where) == found(events)
    assert found(events) == found(reversed(events))


def test_all_missing_are_at_no_end() -> None:
    """
    A recording without any device work has lost all of it.
    """
    assert Launched(count=5, missing=5, where="") == found([call(number) for number in range(1, 6)])


def test_calls_that_launch_nothing_are_no_loss() -> None:
    """
    Waiting, asking and allocating; copies and fills, which of no bytes do nothing; functions of the host.
    """
    waits = ["cudaDeviceSynchronize", "cudaEventRecord", "cudaMalloc", "cudaMemcpyAsync", "cudaMemsetAsync"]
    others = ["cudaLaunchHostFunc", "cuLaunchHostFunc", "cudaStreamIsCapturing", "hipGetDevicePropertiesR0600"]
    events = [call(number, name) for number, name in enumerate([*waits, *others], 1)]

    assert Launched() == found(events)


def test_work_launched_before_the_recording_is_no_loss() -> None:
    """
    Nor is an event without an id, or with one that is no number.
    """
    strange = [{**call(1), "args": None}, {**call(1), "args": {"correlation": "7"}}, {**call(1), "args": {}}]

    assert Launched(count=1) == found([work(1), work(2), call(3), work(3), *strange])


def test_all_work_of_a_graph_launch_has_one_id() -> None:
    """
    The launch counts once, and a copy in the graph shows that it ran as well as a kernel does.
    """
    graphs = [call(1, "cudaGraphLaunch"), *(work(1) for _ in range(400)), call(2, "hipGraphLaunch")]
    copies = [call(3, "cuGraphLaunch", category="cuda_driver"), work(3, category="gpu_memcpy")]

    assert Launched(count=3, missing=1, where="") == found([*graphs, *copies])


def test_calls_captured_into_a_graph_launch_nothing() -> None:
    """
    What a thread calls between the beginning and the end of its capture is recorded, not run; other threads go on.
    """
    begin, end = "cudaStreamBeginCapture", "cudaStreamEndCapture"
    captured = [call(10, begin), *(call(number) for number in range(11, 20)), call(20, end)]
    elsewhere = [*launches([15 + 100], missing=[]), {**call(16), "tid": 2}, work(16)]
    half = [
        call(2, thread=3),
        call(3, end, thread=3),
        call(30, "cuStreamBeginCapture_v2", thread=3),
        call(31, thread=3),
    ]

    assert Launched(count=2) == found([*captured, *elsewhere, *half])


def test_too_many_to_keep_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Ids that are all over the place would take memory without end: nothing is said of such a recording.
    """
    monkeypatch.setattr(numbers, "MAX_PAGES", 10)

    assert Launched() == found(call(number * 10**6) for number in range(1, 20))
