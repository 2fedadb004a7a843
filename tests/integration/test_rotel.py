"""
Ours before and behind the collector ``rotel``, which is somebody else's reading of OTLP.
"""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from stepscope_sidecar.inbox import DROPPED, FORWARDED
from stepscope_sidecar.rows import SpanRow
from tests.integration.receiving import receiving
from tests.unit.sidecar.bodies import ATTEMPT, batch, body, foreign, span
from tests.unit.sidecar.stored import WAIT, holds

pytestmark = pytest.mark.rotel

EXECUTABLE = os.environ.get("STEPSCOPE_TEST_ROTEL", "")


@contextlib.contextmanager
def rotel(tmp_path: Path, *, upstream: str, protocol: str = "http") -> Iterator[str]:
    """
    A running rotel that exports to ``upstream``; its OTLP/HTTP endpoint.
    """
    if not EXECUTABLE:
        pytest.skip("STEPSCOPE_TEST_ROTEL does not name rotel's executable (rotel-agent)")
    log = tmp_path / "rotel.log"
    # Two addresses, because rotel 0.0.1a15 panics when both endpoints read the same, port 0 or not.
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                *(EXECUTABLE, "start", "--otlp-http-endpoint", "127.0.0.1:0", "--otlp-grpc-endpoint", "127.0.0.2:0"),
                *("--exporter", "otlp", "--otlp-exporter-endpoint", upstream, "--otlp-exporter-protocol", protocol),
                *("--otlp-exporter-compression", "gzip", "--batch-timeout", "50ms"),
                *("--pid-file", str(tmp_path / "rotel.pid")),
            ],
            stdout=output,
            stderr=output,
        )
    try:
        ports: list[int] = []

        def listens() -> bool:
            assert process.poll() is None, log.read_text()
            ports[:] = [
                connection.laddr.port
                for connection in psutil.Process(process.pid).net_connections(kind="tcp")
                if connection.status == psutil.CONN_LISTEN and connection.laddr.ip == "127.0.0.1"
            ]
            return bool(ports)

        assert holds(listens), log.read_text()
        yield f"http://127.0.0.1:{ports[0]}"
    finally:
        process.terminate()
        process.wait(WAIT)


def compared(rows: list[SpanRow]) -> list[SpanRow]:
    """
    Spans in an order that does not depend on how they were batched.
    """
    return sorted(rows, key=lambda row: row.span_id)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_spans_pass_through_rotel_intact(tmp_path: Path, protocol: str) -> None:
    """
    Ours to rotel to ours (by HTTP and by gRPC): ids, parents, attributes, links, status and resource are the same.
    """
    with receiving(tmp_path / "behind.db", attempt="other") as behind:
        target = behind.http if protocol == "http" else f"http://{behind.grpc}"
        with (
            rotel(tmp_path, upstream=target, protocol=protocol) as endpoint,
            receiving(tmp_path / "before.db", attempt=ATTEMPT, upstream=endpoint) as before,
        ):
            linked = span(1, name="rl.step.process", bucket=None, links=(("ab" * 16, "cd" * 8),))
            store = before.store
            store.append(body(linked, foreign(2, step=1)), 2).result(WAIT)
            store.append(batch(512, first=100), 512).result(WAIT)
            assert before.forwarder is not None
            assert 0 == before.forwarder.flush(timeout=WAIT)

            assert holds(lambda: len(behind.spans()) == 514)
            assert 514.0 == before.totals().value(FORWARDED)
            assert 0.0 == before.totals().value(DROPPED, reason="rejected")
            assert compared(before.spans()) == compared(behind.spans())


def test_spans_wait_for_a_rotel_that_comes_later(tmp_path: Path) -> None:
    """
    What was received while no collector ran is forwarded by the next sidecar once there is one.
    """
    path = tmp_path / "before.db"
    with receiving(path, attempt=ATTEMPT, upstream="http://127.0.0.1:9") as before:
        before.store.append(batch(20), 20).result(WAIT)
    with (
        receiving(tmp_path / "behind.db", attempt="other") as behind,
        rotel(tmp_path, upstream=behind.http) as endpoint,
        receiving(path, attempt=ATTEMPT, upstream=endpoint) as before,
    ):
        assert before.forwarder is not None
        assert 0 == before.forwarder.flush(timeout=WAIT)

        assert holds(lambda: len(behind.spans()) == 20)
