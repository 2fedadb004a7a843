"""
A span under stepscope against a bare span of the OpenTelemetry SDK that carries the same attributes.

Both with a batching exporter whose far end takes everything at once, so that the figure is what the training thread
pays. Rounds of either kind alternate in one process; the figures are medians over the rounds.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.util.types import AttributeValue

import stepscope
from stepscope import registration
from stepscope.seam import Identity
from stepscope.session import Session
from stepscope.settings import Settings
from stepscope.testing import FakeAgent
from tests.bench.machine import describe, table

ROUNDS = 600
"""Of each kind; many short ones, so that what else the machine does falls on both kinds alike."""

SPANS = 40
"""In one round: a few milliseconds, under the interpreter's switch to the thread that exports."""

OWN: dict[str, AttributeValue] = {"rl.mini_batch": 1, "rl.tokens": 4096}


class Nowhere(SpanExporter):
    """
    Takes spans and forgets them.
    """

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """
        Done.
        """
        return SpanExportResult.SUCCESS


class Batches:
    """
    The sink of the session: the SDK's own batch processor, so that both sides pay for the same one.
    """

    def __init__(self, processor: BatchSpanProcessor) -> None:
        self._processor = processor

    def __call__(self, span: ReadableSpan) -> None:
        """
        Hand it over.
        """
        self._processor.on_end(span)

    def shutdown(self, timeout: float) -> None:
        """
        The benchmark ends the processor.
        """


def _round(work: Callable[[], None]) -> float:
    begin = time.perf_counter()
    for _ in range(SPANS):
        work()
    return (time.perf_counter() - begin) / SPANS


def run() -> dict[str, float]:
    """
    Microseconds of one span of each kind, and the ratio of the medians.
    """
    theirs = BatchSpanProcessor(Nowhere())
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(theirs)
    tracer = provider.get_tracer("bare")
    ours = BatchSpanProcessor(Nowhere())
    identity = Identity(role="trainer")
    settings = Settings(run="bench", attempt="bench", directory=Path(tempfile.gettempdir()))
    session = Session(settings=settings, identity=identity, agent=FakeAgent(), sink=Batches(ours))
    same: dict[str, AttributeValue] = {
        "param_version": 0,
        "rl.step": 1,
        "rl.role": "trainer",
        "rl.rank": 0,
        "rl.bucket": "productive",
        **OWN,
    }

    def bare() -> None:
        with tracer.start_as_current_span("train.update_actor", attributes=same):
            pass

    def under_stepscope() -> None:
        with stepscope.span("train.update_actor", bucket="productive", attributes=OWN):
            pass

    bare_seconds: list[float] = []
    span_seconds: list[float] = []
    off_seconds: list[float] = []
    for number in range(ROUNDS + 2):
        registration.use(None)
        without = _round(under_stepscope)
        registration.use(session)
        with stepscope.step(profile=False):
            first = number % 2
            one = _round(bare if first else under_stepscope)
            two = _round(under_stepscope if first else bare)
        if number >= 2:  # the first rounds warm caches and the adaptive interpreter
            bare_seconds.append(one if first else two)
            span_seconds.append(two if first else one)
            off_seconds.append(without)
    session.close(timeout=1.0)
    registration.use(None)
    theirs.shutdown()  # type: ignore[no-untyped-call]
    ours.shutdown()  # type: ignore[no-untyped-call]
    bare_us, span_us = (statistics.median(seconds) * 1e6 for seconds in (bare_seconds, span_seconds))
    ratios = [mine / other for mine, other in zip(span_seconds, bare_seconds, strict=True)]
    return {
        "bare_us": round(bare_us, 2),
        "stepscope_us": round(span_us, 2),
        "off_us": round(statistics.median(off_seconds) * 1e6, 3),
        "ratio": round(span_us / bare_us, 3),
        "ratio_p10": round(statistics.quantiles(ratios, n=10)[0], 3),
        "ratio_p90": round(statistics.quantiles(ratios, n=10)[-1], 3),
    }


def main() -> int:
    """
    Print the table.
    """
    result = run()
    rows: list[tuple[str, ...]] = [
        ("kind", "us a span"),
        ("bare SDK span", f"{result['bare_us']:.2f}"),
        ("under stepscope", f"{result['stepscope_us']:.2f}"),
        ("stepscope off", f"{result['off_us']:.3f}"),
        ("ratio", f"{result['ratio']:.3f}  (p10 {result['ratio_p10']:.3f}, p90 {result['ratio_p90']:.3f}; aim 1.05)"),
    ]
    sys.stdout.write(table("A span with the same seven attributes", rows, note=describe("opentelemetry-sdk")) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
