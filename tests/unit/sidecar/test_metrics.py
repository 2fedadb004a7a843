"""
The exposition: exactly the registered families, exemplars where OpenMetrics is asked for.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import parser
from prometheus_client.core import Metric
from prometheus_client.openmetrics import parser as openmetrics

from stepscope import names
from stepscope_sidecar import totals
from stepscope_sidecar.metrics import Exposition, Gauge
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.store import Store
from stepscope_sidecar.totals import Exemplar, Totals
from tests.unit.sidecar.bodies import ATTEMPT, body, span
from tests.unit.sidecar.stored import WAIT

OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"


class Gauges:
    """
    What is live: two processes, an unknown overhead left out, and a gauge nobody registered.
    """

    def gauges(self) -> list[Gauge]:
        """
        Their values.
        """
        return [
            Gauge(name="stepscope_processes", labels={"role": "trainer"}, value=2),
            Gauge(name="stepscope_spans_pending", value=0),
            Gauge(name="stepscope_made_up", value=1),
        ]


def parse_openmetrics(text: str) -> Iterator[Metric]:
    """
    The families of an OpenMetrics exposition.
    """
    yield from openmetrics.text_string_to_metric_families(text)  # type: ignore[no-untyped-call]


@pytest.fixture
def exposition(tmp_path: Path) -> Exposition:
    """
    The metrics of a run with one step of the trainer.
    """
    path = tmp_path / "stepscope.db"
    store = Store.open(path, attempt=ATTEMPT)
    store.append(body(span(1, name="rl.step.process", bucket=None, seconds=2.0), span(2)), 2).result(WAIT)
    assert store.close(timeout=WAIT)

    def read() -> Totals:
        with open_reader(path) as reader:
            return reader.totals()

    return Exposition(totals=read, live=Gauges())


def test_the_families_are_those_of_the_registry() -> None:
    """
    Every metric in names.METRICS is exposed before anything happened, with its help and kind, and no other.
    """
    exposition = Exposition(totals=lambda: Totals(values=[], histograms=[]), live=Gauges())
    body, _ = exposition.render(OPENMETRICS)
    found = {
        (family.name + ("_total" if family.type == "counter" else ""), family.type, family.documentation)
        for family in parse_openmetrics(body.decode())
    }

    assert {(metric.name, metric.kind, metric.help) for metric in names.METRICS} == found


def test_histograms_have_bounds_and_nothing_else_has() -> None:
    """
    totals.BOUNDS and the histograms of the registry are the same names.
    """
    assert {metric.name for metric in names.METRICS if metric.kind == "histogram"} == set(totals.BOUNDS)


def test_labels_are_those_of_the_registry(exposition: Exposition) -> None:
    """
    Every sample carries its metric's labels (and le), never a step, version, pid or trace id.
    """
    registered = {metric.name: set(metric.labels) for metric in names.METRICS}
    body, _ = exposition.render(OPENMETRICS)

    for family in parse_openmetrics(body.decode()):
        name = family.name + ("_total" if family.type == "counter" else "")
        for sample in family.samples:
            assert registered[name] == set(sample.labels) - {"le"}


def test_openmetrics_carries_exemplars(exposition: Exposition) -> None:
    """
    The bucket that a step fell into and the seconds of its spans lead to a span, a trace and a step.
    """
    body, content_type = exposition.render(OPENMETRICS)
    samples = [sample for family in parse_openmetrics(body.decode()) for sample in family.samples]
    exemplars = {sample.name: sample.exemplar for sample in samples if sample.exemplar}

    assert content_type.startswith("application/openmetrics-text")
    assert {"stepscope_step_seconds_bucket", "stepscope_bucket_seconds_total"} == set(exemplars)
    assert {"trace_id", "span_id", "step"} == set(exemplars["stepscope_step_seconds_bucket"].labels)
    assert 2.0 == exemplars["stepscope_step_seconds_bucket"].value
    assert not [sample.name for sample in samples if sample.name.endswith("_created")]
    assert body.decode().endswith("# EOF\n")


def test_plain_text_is_served_where_openmetrics_is_not_asked_for(exposition: Exposition) -> None:
    """
    The old text format, without exemplars, with the same values.
    """
    body, content_type = exposition.render("")
    values = {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in parser.text_string_to_metric_families(body.decode())
        for sample in family.samples
    }

    assert content_type.startswith("text/plain")
    assert b"trace_id" not in body
    assert 0.5 == values["stepscope_bucket_seconds_total", ("productive", "trainer")]
    assert 1.0 == values["stepscope_step_seconds_count", ("trainer",)]
    assert 2.0 == values["stepscope_spans_received_total", ()]
    assert 0.0 == values["stepscope_spans_forwarded_total", ()]
    assert 2.0 == values["stepscope_processes", ("trainer",)]
    assert ("stepscope_made_up", ()) not in values
    assert not [name for name, _ in values if "overhead_ratio" in name]


def test_a_histogram_is_cumulative() -> None:
    """
    Each bucket holds those below it, and +Inf all.
    """
    histogram = totals.Histogram(
        name="stepscope_sample_staleness_versions",
        labels={},
        bounds=totals.BOUNDS["stepscope_sample_staleness_versions"],
        counts=[2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 4],
        sum=141.0,
        exemplars=[*[None] * 10, Exemplar(trace_id="t", span_id="s", step=3, value=35.0)],
    )
    exposition = Exposition(totals=lambda: Totals(values=[], histograms=[histogram]), live=Gauges())
    lines = exposition.render(OPENMETRICS)[0].decode().splitlines()

    assert 'stepscope_sample_staleness_versions_bucket{le="0.0"} 2' in lines[_first(lines, 'le="0.0"')]
    assert "} 3" in lines[_first(lines, 'versions_bucket{le="1.0"')]
    assert '} 7.0 # {span_id="s",step="3",trace_id="t"} 35.0' in lines[_first(lines, 'versions_bucket{le="+Inf"')]


def _first(lines: list[str], text: str) -> int:
    return next(index for index, line in enumerate(lines) if text in line)
