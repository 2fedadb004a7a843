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
from stepscope_sidecar import inbox
from stepscope_sidecar.totals import Exemplar, Histogram, Totals

OF_ROLES = ("stepscope_param_version", "stepscope_processes")
"""Whose series name the roles that there are, or were."""

ABSENT_IS_NONE = (
    "stepscope_processes",
    "stepscope_windows_open",
    "stepscope_window_open_age_seconds",
    "stepscope_missing_ranks",
)
"""Gauges that are 0 for a role of which nothing is held."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gauge:
    """
    The value of a series now that is not kept in the store; a gauge whose value is unknown is left out.
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
        _fill(families)
        return families.values()

    def render(self, accept: str) -> tuple[bytes, str]:
        """
        The exposition in the format that the Accept header asks for, and its content type.
        """
        try:
            encode, content_type = choose_encoder(accept)
        except (TypeError, ValueError):
            # A version that is no number: as for a caller that names none.
            encode, content_type = choose_encoder("")
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


def _fill(families: Mapping[str, Family]) -> None:
    # A counter that begins with its first event has no increase that Prometheus could see.
    for metric in names.METRICS:
        if metric.kind == "counter" and not metric.labels and not families[metric.name].samples:
            families[metric.name].add_sample(metric.name, {}, 0.0)
    dropped = families[inbox.DROPPED]
    counted = {sample.labels["reason"] for sample in dropped.samples}
    for reason in sorted({*inbox.REASONS} - counted):
        dropped.add_sample(inbox.DROPPED, {"reason": reason}, 0.0)
    # Nor may a role vanish because a restarted sidecar holds none of its processes any more.
    roles = {sample.labels["role"] for name in OF_ROLES for sample in families[name].samples}
    for name in ABSENT_IS_NONE:
        for role in sorted(roles - {sample.labels["role"] for sample in families[name].samples}):
            families[name].add_sample(name, {"role": role}, 0.0)


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
