"""
How much a process did in the steps of a window, as its spans and the sample table say.

Reads; decides nothing.
"""

from collections.abc import Iterable, Sequence

from stepscope import names
from stepscope_sidecar.rows import SampleRow, SpanRow, WindowRow
from stepscope_sidecar.steptable import TRAINER, Source
from stepscope_sidecar.traces.work import Work


def spans_of(source: Source, row: WindowRow) -> Sequence[SpanRow]:
    """
    The spans of the process of ``row`` in the steps that its window covers.
    """
    steps = range(row.step, row.last_step + 1)
    return [
        span for step in steps for span in source.spans(step=step) if (span.role, span.rank) == (row.role, row.rank)
    ]


def work(source: Source, row: WindowRow, spans: Sequence[SpanRow]) -> Work:
    """
    The work of the window of ``row``, of whose process ``spans`` are.
    """
    steps = range(row.step, row.last_step + 1)
    samples = [sample for step in steps for sample in source.samples(step=step)] if row.role == TRAINER else []
    return counted(spans, samples, steps=len(steps))


def counted(spans: Sequence[SpanRow], samples: Sequence[SampleRow] = (), *, steps: int = 1) -> Work:
    """
    The work of these spans of one process.

    The sample table counts where no span says how many samples there were; it is of all trainers together.
    """
    updates = [span for span in spans if span.name == names.TRAIN_UPDATE_ACTOR]
    requests = [span for span in spans if span.name == names.ROLLOUT_GENERATE]
    numbered = {(span.step, span.attributes[names.MINI_BATCH]) for span in spans if names.MINI_BATCH in span.attributes}
    listed = {(sample.step, sample.mini_batch) for sample in samples}
    return Work(
        steps=steps,
        mini_batches=len(updates) or len(numbered) or len(listed),
        samples=_sum(updates, names.SAMPLES) or len(samples),
        tokens=_sum(updates or requests, names.TOKENS),
        requests=len(requests),
    )


def _sum(spans: Iterable[SpanRow], attribute: str) -> float:
    values = [span.attributes.get(attribute) for span in spans]
    return sum(float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool))
