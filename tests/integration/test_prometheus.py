"""
A real Prometheus reads our exposition, and gives values and exemplars back through its own API.
"""

import contextlib
import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepscope import ids
from tests.integration.receiving import WAIT, eventually, receiving
from tests.unit.sidecar.bodies import ATTEMPT, body, span

pytestmark = pytest.mark.prometheus

EXECUTABLE = shutil.which("prometheus")


@contextlib.contextmanager
def prometheus(tmp_path: Path, *, target: str) -> Iterator[str]:
    """
    A running Prometheus that scrapes ``target`` (host:port) each second; the URL of its API.
    """
    if EXECUTABLE is None:
        pytest.skip("Debian's prometheus is not installed")
    configuration = tmp_path / "prometheus.yml"
    configuration.write_text(
        "global: {scrape_interval: 1s}\n"
        f"scrape_configs: [{{job_name: stepscope, static_configs: [{{targets: ['{target}']}}]}}]\n"
    )
    log = tmp_path / "prometheus.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                EXECUTABLE,
                f"--config.file={configuration}",
                f"--storage.tsdb.path={tmp_path / 'data'}",
                "--web.listen-address=127.0.0.1:0",
                "--enable-feature=exemplar-storage",
            ],
            stdout=output,
            stderr=output,
        )
    try:
        found: list[str] = []

        def listens() -> bool:
            assert process.poll() is None, log.read_text()
            match = re.search(r'msg="Listening on" address=(\S+)', log.read_text())
            found[:] = [match[1]] if match else []
            return bool(found)

        assert eventually(listens), log.read_text()
        yield f"http://{found[0]}/api/v1"
    finally:
        process.terminate()
        process.wait(WAIT)


def ask(url: str, **arguments: str) -> Any:
    """
    The data of one answer of Prometheus' API.
    """
    try:
        with urllib.request.urlopen(f"{url}?{urllib.parse.urlencode(arguments)}", timeout=WAIT) as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        if error.code == 503:  # still starting
            return {"result": []}
        raise


def test_prometheus_reads_values_and_exemplars(tmp_path: Path) -> None:
    """
    Counters, gauges and a histogram have our values, and an exemplar leads to the span and the step behind it.
    """
    with receiving(tmp_path / "stepscope.db", attempt=ATTEMPT) as ours:
        process = span(1, step=3, name="rl.step.process", bucket=None, seconds=2.0)
        ours.store.append(body(process, span(2, step=3, seconds=0.75)), 2).result(WAIT)
        assert eventually(
            lambda: ours.totals().value("stepscope_bucket_seconds_total", role="trainer", bucket="productive") > 0
        )
        with prometheus(tmp_path, target=ours.http.removeprefix("http://")) as api:

            def value(query: str) -> float | None:
                result = ask(f"{api}/query", query=query)["result"]
                return float(result[0]["value"][1]) if result else None

            assert eventually(lambda: value("stepscope_spans_received_total") == 2.0)
            assert 0.75 == value('stepscope_bucket_seconds_total{role="trainer",bucket="productive"}')
            assert 2.0 == value('stepscope_step_seconds_sum{role="trainer"}')
            assert 1.0 == value('stepscope_step_seconds_bucket{role="trainer",le="2.5"}')
            assert 0.0 == value('stepscope_step_seconds_bucket{role="trainer",le="1.0"}')
            assert 2.0 == value('stepscope_param_version{role="trainer"}')
            assert 2.0 == value('stepscope_processes{role="trainer"}')
            assert value("stepscope_profiling_overhead_ratio") is None
            [exemplar] = [
                item
                for series in ask(
                    f"{api}/query_exemplars", query="stepscope_step_seconds_bucket", start="0", end="4102444800"
                )
                for item in series["exemplars"]
            ]

    expected = {"trace_id": f"{ids.trace_id(ATTEMPT, 3):032x}", "span_id": f"{1:016x}", "step": "3"}
    assert expected == exemplar["labels"]
    assert 2.0 == float(exemplar["value"])
