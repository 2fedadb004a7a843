"""
A run that has ended, served from its store by a process of its own.
"""

import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from stepscope_sidecar.store import Store
from tests.integration.jobs import CLI, environment
from tests.unit.sidecar.bodies import body, span
from tests.unit.sidecar.calling import DATA, FOLDER, attempt
from tests.unit.sidecar.jaegers import TRACE, conforms
from tests.unit.sidecar.stored import WAIT, receive


@pytest.fixture
def served(tmp_path: Path) -> Iterator[httpx.Client]:
    """
    A client of ``stepscope serve`` over an attempt with windows and spans.
    """
    directory = attempt(tmp_path)
    store = Store.open(directory / "demo-a1" / "stepscope.db", run="demo", attempt="a1")
    try:
        store.append(body(span(1)), 1)
        receive(store, [span(2, step=2, name="profile.capture")])
    finally:
        store.close()
    process = subprocess.Popen(
        [*CLI, "serve", "--run", "demo", "--http", "127.0.0.1:0"],
        env=environment(directory),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"demo-a1 is at (http://127\.0\.0\.1:\d+);", line)
        assert found is not None, line
        with httpx.Client(base_url=found[1], trust_env=False, timeout=WAIT) as client:
            yield client
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(WAIT)
        if process.stdout is not None:
            process.stdout.close()
    assert 0 == code


def test_all_that_can_be_read_is_served(served: httpx.Client) -> None:
    """
    Page, windows, spans, a recording, metrics and traces; the page does not load itself again.
    """
    page = served.get("/")
    traces = served.get("/api/traces?service=tests").json()

    assert (200, False) == (page.status_code, "http-equiv" in page.text)
    assert [5, 6, 7, 8, 9, 10] == [row["step"] for row in served.get("/api/windows").json()]
    assert [span(1).span_id] == [row["span_id"] for row in served.get("/api/spans?step=1").json()]
    assert DATA == served.get(f"/artifacts/{FOLDER}/recording.json.gz").content
    assert "stepscope_spans_received_total 2.0" in served.get("/metrics").text
    assert ["stepscope-sidecar", "tests"] == served.get("/api/services").json()["data"]
    conforms(traces, TRACE)
    assert [span(1).trace_id] == [trace["traceID"] for trace in traces["data"]]
    assert 200 == served.get("/windows/w-5-ready").status_code


def test_nothing_can_be_ordered_and_nobody_else_may_ask(served: httpx.Client) -> None:
    """
    Orders are refused with the reason; foreign names and pages too, for traces as for everything.
    """
    for path in ("/api/profile", "/api/stop"):
        answer = served.post(path, json={"steps": "5"})
        assert (400, True) == (answer.status_code, "served from its store" in answer.json()["error"])
    for headers in ({"host": "evil.example"}, {"origin": "http://evil.example"}):
        for path in ("/api/services", "/api/traces?service=tests", "/windows/w-5-ready"):
            answer = served.get(path, headers=headers)
            assert (403, None) == (answer.status_code, answer.headers.get("access-control-allow-origin"))
