"""
How much work a recording is of, as spans and the sample table tell it.
"""

from stepscope_sidecar.rows import SampleRow, SpanRow, Value
from stepscope_sidecar.traces.work import Work
from stepscope_sidecar.worked import counted


def span(name: str, **attributes: Value) -> SpanRow:
    """
    A span of step 4.
    """
    told = {f"rl.{key}": value for key, value in attributes.items()}
    return SpanRow(
        trace_id="t", span_id="s", parent_span_id="", name=name, start_unix_ns=0, end_unix_ns=1, attributes=told, step=4
    )


SAMPLES = [SampleRow(step=4, mini_batch=number // 2, param_version=3, sample_id=str(number)) for number in range(6)]


def test_a_trainer_s_work_is_its_mini_batches() -> None:
    """
    With the samples that its spans tell of; other spans of the same samples do not count twice.
    """
    spans = [span("train.log_prob", samples=8), *(span("train.update_actor", samples=4, tokens=90) for _ in range(2))]

    assert Work(mini_batches=2, samples=8, tokens=180) == counted(spans, SAMPLES)


def test_what_no_span_tells_the_sample_table_does() -> None:
    """
    And a loop with names of its own says which mini-batch a span is of.
    """
    own = [span("mine", mini_batch=number) for number in (0, 0, 1)]

    assert Work(mini_batches=3, samples=6) == counted([], SAMPLES)
    assert Work(mini_batches=2, samples=6) == counted(own, SAMPLES)


def test_a_rollouter_s_work_is_its_requests() -> None:
    """
    And their tokens.
    """
    assert Work(requests=2, tokens=30) == counted(
        [span("rollout.generate", tokens=10), span("rollout.generate", tokens=20)]
    )
    assert Work(steps=2) == counted([], steps=2)
