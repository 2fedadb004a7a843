"""
Spans forwarded to ``arize-phoenix``, a backend of somebody else with a user interface, and read back from its API.

What Phoenix 20.26 does not keep cannot be read back: links (its answers have the field, and it is always empty), and
times beyond microseconds, which it rounds either way. What is forwarded has both: see ``test_rotel``.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from stepscope import names
from stepscope_sidecar.inbox import DROPPED, FORWARDED
from tests.integration.collector import free_port
from tests.integration.jobs import Job, eventually
from tests.integration.programs import run_program, settle
from tests.integration.receiving import receiving
from tests.unit.sidecar.bodies import ATTEMPT, body, foreign, span
from tests.unit.sidecar.stored import WAIT, holds

pytestmark = pytest.mark.phoenix

EXECUTABLE = os.environ.get("STEPSCOPE_TEST_PHOENIX", "")

START = 600.0
"""Seconds until it listens: about ten, most of them imports and migrations, and far more on crowded cores."""

PAGE = 1000
"""Spans in one answer, the most that it gives."""

PROJECT = "default"
"""Where spans go whose resource names no project of its."""

ROUNDING = 2000
"""Nanoseconds that a time may be off."""

ODD = {
    "param_version.end": AnyValue(int_value=9),
    "rl.step.partial": AnyValue(bool_value=True),
    "rl.reward": AnyValue(double_value=0.25),
    "large": AnyValue(int_value=2**62),
    "text": AnyValue(string_value="é 模型 \n"),
    "empty": AnyValue(string_value=""),
    "rl.completion.versions": AnyValue(
        array_value=ArrayValue(values=[AnyValue(string_value="v3[0:5] v4[5:9]"), AnyValue(string_value="v4[0:2]")])
    ),
}
"""Attributes of all types that ours have; two have names that others begin with."""


class Phoenix:
    """
    A running Phoenix.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def spans(self) -> list[dict[str, Any]]:
        """
        All it has, in the shape of OTLP's JSON with its own names of fields.
        """
        found: list[dict[str, Any]] = []
        cursor = ""
        with httpx.Client(base_url=self.url, trust_env=False, timeout=WAIT) as client:
            while True:
                query = {"limit": str(PAGE), **({"cursor": cursor} if cursor else {})}
                answer = client.get(f"/v1/projects/{PROJECT}/spans/otlpv1", params=query)
                if answer.status_code == 404:
                    # It makes the project with the first span.
                    return found
                page = answer.raise_for_status().json()
                found += page["data"]
                cursor = page["next_cursor"] or ""
                if not cursor:
                    return found


@pytest.fixture(scope="module")
def phoenix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Phoenix]:
    """
    One on loopback that keeps its data in a folder of the test and calls nobody.
    """
    if not EXECUTABLE:
        pytest.skip("STEPSCOPE_TEST_PHOENIX does not name Phoenix's executable (phoenix)")
    folder = tmp_path_factory.mktemp("phoenix")
    port = free_port()
    log = folder / "phoenix.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [EXECUTABLE, "serve"],
            env={
                **{name: value for name, value in os.environ.items() if not name.startswith(("PHOENIX_", "OTEL_"))},
                "HOME": str(folder),
                "PHOENIX_WORKING_DIR": str(folder),
                "PHOENIX_HOST": "127.0.0.1",
                "PHOENIX_PORT": str(port),
                "PHOENIX_GRPC_PORT": str(free_port()),
                "PHOENIX_TELEMETRY_ENABLED": "false",
                "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
                "PHOENIX_DISABLE_AGENT_ASSISTANT": "true",
            },
            stdout=output,
            stderr=output,
        )
    url = f"http://127.0.0.1:{port}"

    def listens() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            return httpx.get(f"{url}/healthz", trust_env=False, timeout=5.0).is_success
        except httpx.HTTPError:
            return False

    try:
        eventually(listens, deadline=START)
        yield Phoenix(url)
    finally:
        process.terminate()
        try:
            process.wait(WAIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, phoenix: Phoenix) -> Job:
    """
    A real run of three steps, of which step 2 was recorded, with Phoenix as its upstream.
    """
    job = run_program(
        tmp_path_factory.mktemp("run"),
        "tests.integration.small_loop",
        *("--steps", "3"),
        STEPSCOPE_STEPS="2",
        OTEL_EXPORTER_OTLP_ENDPOINT=phoenix.url,
    )
    assert 0 == job.code, job.errors
    settle(job)
    return job


def value(told: dict[str, Any]) -> Any:
    """
    The value of an attribute.
    """
    (found,) = [(kind, item) for kind, item in told.items() if item is not None] or [("", None)]
    return [value(item) for item in found[1]["values"]] if found[0] == "array_value" else found[1]


def plain(item: dict[str, Any]) -> dict[str, Any]:
    """
    A span of Phoenix's as ``stepscope spans --json`` has it, as far as both say the same.
    """
    return {
        "trace_id": item["trace_id"],
        "span_id": item["span_id"],
        "parent_span_id": item["parent_span_id"] or "",
        "name": item["name"],
        "attributes": {told["key"]: value(told["value"]) for told in item["attributes"]},
        "status": ("unset", "ok", "error")[item["status"]["code"]],
        "message": item["status"]["message"] or "",
        "events": [
            (event["name"], {told["key"]: value(told["value"]) for told in event["attributes"]})
            for event in item["events"] or []
        ],
    }


def expected(item: dict[str, Any], *, told: set[str]) -> dict[str, Any]:
    """
    A span of ours in the same words; ``told`` are its attributes in what was received, which ours has from elsewhere.
    """
    on_resource = {str(names.ROLE), str(names.RANK)} & item["resource"].keys() - told
    return {
        **{key: item[key] for key in ("trace_id", "span_id", "parent_span_id", "name")},
        "attributes": {key: value for key, value in item["attributes"].items() if key not in on_resource},
        "status": item["status"]["code"],
        "message": item["status"]["message"],
        "events": [(event["name"], event["attributes"]) for event in item["events"]],
    }


def near(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """
    Whether a span's times are the same but for what Phoenix rounds.
    """
    pairs = (("start_unix_ns", "start_time_unix_nano"), ("end_unix_ns", "end_time_unix_nano"))
    return all(abs(ours[own] - theirs[other]) <= ROUNDING for own, other in pairs)


def test_a_real_run_reads_back_as_it_was(phoenix: Phoenix, job: Job) -> None:
    """
    Every span once, with its parent, times, attributes, events and status: the tree of each step is whole.
    """
    ours = {item["span_id"]: item for item in job.spans}
    eventually(lambda: ours.keys() <= {item["span_id"] for item in phoenix.spans()}, deadline=60.0)
    theirs = [item for item in phoenix.spans() if item["span_id"] in ours]

    assert len(ours) == len(theirs)
    for item in theirs:
        found = plain(item)
        assert expected(ours[item["span_id"]], told=found["attributes"].keys()) == found
        assert near(ours[item["span_id"]], item)
    captures = [item for item in theirs if item["name"] == names.PROFILE_CAPTURE]
    assert 2 == len(captures)
    assert {"rl.step.process"} == {ours[item["parent_span_id"]]["name"] for item in captures}


def test_every_kind_of_attribute_reads_back(phoenix: Phoenix, tmp_path: Path) -> None:
    """
    Numbers, text, lists, a name that begins another's; what passes the sidecar has its step; links are not kept.
    """
    request = ExportTraceServiceRequest.FromString(body(span(71, step=9, links=(("ab" * 16, "cd" * 8),))))
    sent = request.resource_spans[0].scope_spans[0].spans[0]
    for key, told in ODD.items():
        sent.attributes.append(KeyValue(key=key, value=told))
    sent.status.CopyFrom(Status(code=Status.STATUS_CODE_ERROR, message="lost"))
    event = KeyValue(key="rl.selection.steps", value=AnyValue(string_value="5"))
    sent.events.append(
        Span.Event(name="selection.changed", time_unix_nano=sent.start_time_unix_nano, attributes=[event])
    )
    with receiving(tmp_path / "s.db", attempt=ATTEMPT, upstream=phoenix.url) as before:
        before.store.append(request.SerializeToString(), 1).result(WAIT)
        before.store.append(body(foreign(72, step=9)), 1).result(WAIT)
        assert before.forwarder is not None
        assert 0 == before.forwarder.flush(timeout=WAIT)
        assert (2.0, 0.0) == (before.totals().value(FORWARDED), before.totals().value(DROPPED, reason="rejected"))
        rows: dict[str, dict[str, Any]] = {row.span_id: dict(row.json()) for row in before.spans()}

    def arrived() -> list[dict[str, Any]]:
        return [item for item in phoenix.spans() if item["span_id"] in rows]

    assert holds(lambda: len(arrived()) == 2)
    for item in arrived():
        found = plain(item)
        assert expected(rows[item["span_id"]], told=found["attributes"].keys()) == found
        assert not item["links"]
    assert {"param_version.end", "rl.step.partial"} <= rows[span(71).span_id]["attributes"].keys()
    assert 9 == rows[foreign(72).span_id]["attributes"]["rl.step"]
