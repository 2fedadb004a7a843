"""
From a span in a trace view to its recording, over the spans of a real run: Jaeger's UI and Grafana as described.
"""

import hashlib
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest

from stepscope import names
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.serve import application
from tests import linking
from tests.integration.jobs import Job
from tests.unit.sidecar.calling import Caller
from tests.unit.sidecar.jaegers import CALLS, TRACE, conforms
from tests.unit.sidecar.test_pages import Page

STEP = 2


def served(job: Job) -> Caller:
    """
    What ``stepscope serve`` serves of ``job``.
    """
    return Caller(application(job.store, token=""), host="127.0.0.1:8321")


def recorded(caller: Caller) -> dict[str, Any]:
    """
    The trace of the step that was recorded, found as a person would.
    """
    found = caller.get(
        "/api/traces", params={"service": "trainer", "operation": "rl.step", "tags": f'{{"rl.step":"{STEP}"}}'}
    ).json()
    conforms(found, TRACE)
    (trace,) = found["data"]
    assert isinstance(trace, dict)
    return trace


def opened(caller: Caller, url: str) -> str:
    """
    The recording that the page at ``url`` leads to: its SHA-256.
    """
    page = caller.get(urlsplit(url).path)
    (download,) = [link for link in Page(page.text).links() if "artifacts/" in link]
    answer = caller.get(urlsplit(urljoin(url, download)).path)
    assert (200, 200) == (page.status_code, answer.status_code)
    return hashlib.sha256(answer.content).hexdigest()


def captures(trace: dict[str, Any]) -> dict[str, str]:
    """
    By span id, the SHA-256 of the recording that a capture span of ``trace`` stands for.
    """
    tags = {span["spanID"]: {tag["key"]: tag["value"] for tag in span["tags"]} for span in trace["spans"]}
    named = {span["spanID"] for span in trace["spans"] if span["operationName"] == names.PROFILE_CAPTURE}
    return {span_id: found[names.ARTIFACT_SHA256] for span_id, found in tags.items() if span_id in named}


def test_every_attribute_of_a_link_is_on_spans_of_a_run(finished: Job) -> None:
    """
    What the files under deploy/ name does occur.
    """
    with open_reader(finished.store) as reader:
        occurring = {key for row in reader.spans() for key in row.attributes}

    assert set() == linking.attributes() - occurring


def test_a_run_is_one_trace_per_step_and_services_call_each_other(finished: Job) -> None:
    """
    The tree over all processes, with links and nothing left over.
    """
    caller = served(finished)
    trace = recorded(caller)
    spans = {span["spanID"]: span for span in trace["spans"]}
    parents = [ref["spanID"] for span in trace["spans"] for ref in span["references"] if ref["refType"] == "CHILD_OF"]
    ended = max(span["startTime"] for span in trace["spans"]) // 1000 + 3_600_000
    calls = caller.get(f"/api/dependencies?endTs={ended}&lookback=86400000").json()

    assert ["rollouter", "stepscope-sidecar", "trainer"] == caller.get("/api/services").json()["data"]
    assert ["rl.step"] == [span["operationName"] for span in trace["spans"] if not span["references"]]
    assert set() == set(parents) - spans.keys()
    assert {"rollouter", "stepscope-sidecar", "trainer"} == {
        trace["processes"][span["processID"]]["serviceName"] for span in trace["spans"]
    }
    conforms(calls, CALLS)
    assert {("trainer", "rollouter"), ("trainer", "stepscope-sidecar"), ("rollouter", "stepscope-sidecar")} == {
        (item["parent"], item["child"]) for item in calls["data"]
    }


def test_jaegers_links_lead_to_the_recording(finished: Job) -> None:
    """
    From each capture span to the bytes that its hash is of; from any span, and the trace, to the list of recordings.
    """
    caller = served(finished)
    trace = recorded(caller)
    links = linking.jaeger_links(trace)
    of_windows = [url for url in links[names.PROFILE_CAPTURE] if "/windows/" in url]

    assert 2 == len(captures(trace)) == len(of_windows)
    assert set(captures(trace).values()) == {opened(caller, url) for url in of_windows}
    for url in {*links[""], *links["train.update_actor"]}:
        page = caller.get(urlsplit(url).path)
        assert (200, 2) == (page.status_code, page.text.count('href="../windows/'))


@pytest.mark.parametrize("uid", ["stepscope", "tempo"])
def test_grafanas_links_lead_to_the_recording(finished: Job, uid: str) -> None:
    """
    The same from Grafana's data sources; spans without a recording have the link of the trace alone.
    """
    caller = served(finished)
    trace = recorded(caller)
    source = linking.sources()[uid]
    spans = {span["spanID"]: span for span in trace["spans"]}
    trained = next(span for span in trace["spans"] if span["operationName"] == "train.update_actor")

    for span_id, sha256 in captures(trace).items():
        to_window, to_trace = linking.grafana_links(source, spans[span_id])
        assert sha256 == opened(caller, to_window)
        assert 200 == caller.get(urlsplit(to_trace).path).status_code
    assert [to_trace] == linking.grafana_links(source, trained)
