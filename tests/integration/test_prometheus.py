"""
A real Prometheus reads our exposition, and gives values and exemplars back through its own API.
"""

from pathlib import Path

import pytest

from stepscope import ids
from tests.integration.prometheus import prometheus
from tests.integration.receiving import receiving
from tests.unit.sidecar.bodies import ATTEMPT, body, span
from tests.unit.sidecar.stored import WAIT, holds

pytestmark = pytest.mark.prometheus


def test_prometheus_reads_values_and_exemplars(tmp_path: Path) -> None:
    """
    Counters, gauges and a histogram have our values, and an exemplar leads to the span and the step behind it.
    """
    with receiving(tmp_path / "stepscope.db", attempt=ATTEMPT) as ours:
        process = span(1, step=3, name="rl.step.process", bucket=None, seconds=2.0)
        ours.store.append(body(process, span(2, step=3, seconds=0.75)), 2).result(WAIT)
        assert holds(
            lambda: ours.totals().value("stepscope_bucket_seconds_total", role="trainer", bucket="productive") > 0
        )
        with prometheus(tmp_path, targets=[ours.http.removeprefix("http://")]) as found:
            value = found.value
            assert holds(lambda: value("stepscope_spans_received_total") == 2.0)
            assert 0.75 == value('stepscope_bucket_seconds_total{role="trainer",bucket="productive"}')
            assert 2.0 == value('stepscope_step_seconds_sum{role="trainer"}')
            assert 1.0 == value('stepscope_step_seconds_bucket{role="trainer",le="2.5"}')
            assert 0.0 == value('stepscope_step_seconds_bucket{role="trainer",le="1.0"}')
            assert 2.0 == value('stepscope_param_version{role="trainer"}')
            assert 2.0 == value('stepscope_processes{role="trainer"}')
            assert value("stepscope_profiling_overhead_ratio") is None
            [exemplar] = found.exemplars("stepscope_step_seconds_bucket")

    expected = {"trace_id": f"{ids.trace_id(ATTEMPT, 3):032x}", "span_id": f"{1:016x}", "step": "3"}
    assert expected == exemplar["labels"]
    assert 2.0 == float(exemplar["value"])
