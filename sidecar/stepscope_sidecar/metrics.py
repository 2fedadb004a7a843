"""
What Prometheus reads: the totals kept in the store and the gauges of the moment, as one exposition.

Every family of ``names.METRICS`` is there from the first scrape on, and no other. Counters and histograms carry
exemplars (trace id, span id, step) where OpenMetrics is asked for. Counts nothing itself.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.samples import Exemplar as Example
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from stepscope import names
from stepscope_sidecar.totals import Exemplar, Histogram, Totals


@dataclass(frozen=True, kw_only=True, slots=True)
class Gauge:
    """
    The value of a gauge now; a gauge whose value is unknown is left out.
    """

    name: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


class Live(Protocol):
    """
    Whoever knows the gauges of the moment.
    """

    def gauges(self) -> Iterable[Gauge]:
        """
        Their values now. Called on the event loop; must not block.
        """


class Exposition:
    """
    Renders the metrics of one run on one node.
    """

    def __init__(self, *, totals: Callable[[], Totals], live: Live) -> None:
        """
        ``totals`` reads what the store has counted.
        """
        self._totals = totals
        self._live = live
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def collect(self) -> Iterable[Family]:
        """
        All families, in the order of ``names.METRICS``.
        """
        families = {metric.name: _family(metric) for metric in names.METRICS}
        counted = self._totals()
        for total in counted.values:
            if family := families.get(total.name):
                example = _example(total.exemplar) if family.type == "counter" else None
                family.add_sample(total.name, total.labels, total.value, exemplar=example)
        for histogram in counted.histograms:
            if family := families.get(histogram.name):
                _add_histogram(family, histogram)
        for gauge in self._live.gauges():
            if family := families.get(gauge.name):
                family.add_sample(gauge.name, dict(gauge.labels), gauge.value)
        for metric in names.METRICS:
            # A counter that begins with its first event has no increase that Prometheus could see.
            if metric.kind == "counter" and not metric.labels and not families[metric.name].samples:
                families[metric.name].add_sample(metric.name, {}, 0.0)
        return families.values()

    def render(self, accept: str) -> tuple[bytes, str]:
        """
        The exposition in the format that the Accept header asks for, and its content type.
        """
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def route(self, path: str = "/metrics") -> Route:
        """
        The route that serves it.
        """

        async def metrics(request: Request) -> Response:
            body, content_type = self.render(request.headers.get("accept", ""))
            return Response(body, headers={"content-type": content_type})

        return Route(path, metrics, methods=["GET"])


def _family(metric: names.Metric) -> Family:
    # Counters are called without their suffix in OpenMetrics; the encoders put it where it belongs.
    name = metric.name.removesuffix("_total") if metric.kind == "counter" else metric.name
    return Family(name, metric.help, metric.kind)


def _add_histogram(family: Family, histogram: Histogram) -> None:
    running = 0
    for bound, count, exemplar in zip(
        (*histogram.bounds, float("inf")), histogram.counts, histogram.exemplars, strict=True
    ):
        running += count
        labels = {**histogram.labels, "le": "+Inf" if bound == float("inf") else str(bound)}
        family.add_sample(f"{family.name}_bucket", labels, running, exemplar=_example(exemplar))
    family.add_sample(f"{family.name}_count", histogram.labels, running)
    family.add_sample(f"{family.name}_sum", histogram.labels, histogram.sum)


def _example(exemplar: Exemplar | None) -> Example | None:
    if exemplar is None:
        return None
    labels = {"trace_id": exemplar.trace_id, "span_id": exemplar.span_id, "step": str(exemplar.step)}
    return Example(labels, exemplar.value, exemplar.unix_ns / 1e9 if exemplar.unix_ns else None)
