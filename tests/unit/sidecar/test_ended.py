"""
What Prometheus scrapes of a run that is served from its store.
"""

from pathlib import Path

from prometheus_client import parser

from stepscope_sidecar.serve import application
from tests.unit.sidecar.calling import Caller
from tests.unit.sidecar.ledgers import costly
from tests.unit.sidecar.stored import holds

TOKEN = "s3cret"


def test_its_metrics_are_served_to_who_shows_the_token(tmp_path: Path) -> None:
    """
    As in compose, under a name that is no loopback: what was counted, what profiling cost, and no process any more.
    """
    path = tmp_path / "run-a1" / "stepscope.db"
    path.parent.mkdir()
    with costly(path):
        pass
    caller = Caller(application(path, token=TOKEN), host="demo:8321")

    def scraped() -> dict[str, float]:
        answer = caller.get("/metrics", headers={"authorization": f"Bearer {TOKEN}"})
        return {
            sample.name: sample.value
            for family in parser.text_string_to_metric_families(answer.raise_for_status().text)
            for sample in family.samples
            if sample.labels in ({"role": "trainer"}, {})
        }

    # It is reckoned when first asked for.
    assert holds(lambda: "stepscope_profiling_overhead_ratio" in scraped())
    found = scraped()

    status = caller.get("/api/status", headers={"authorization": f"Bearer {TOKEN}"}).json()

    assert 401 == caller.get("/metrics").status_code
    assert 12.0 == found["stepscope_step_seconds_count"]
    assert 1.5 == round(found["stepscope_profiling_overhead_ratio"], 6)
    assert 0.0 == found["stepscope_processes"]
    assert found["stepscope_profiling_overhead_ratio"] == status["overhead"]["trainer"]
    assert 2 == status["overhead_estimates"]["trainer"]["profiled"]
