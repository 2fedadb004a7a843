"""
What the table of steps is made of: spans, samples and costs, as tests of it and of the page share them.
"""

from typing import Any

from stepscope_sidecar.overhead import Cost, Estimate
from stepscope_sidecar.rows import SampleRow, SpanRow


def span(
    name: str, step: int, *, role: str = "trainer", rank: int = 0, seconds: float = 1.0, **attributes: Any
) -> SpanRow:
    """
    A span of one process in ``step``; dots in attribute names are written ``__``.
    """
    return SpanRow(
        trace_id="1" * 32,
        span_id=f"{step:08x}{rank:08x}",
        parent_span_id="",
        name=name,
        start_unix_ns=10**18,
        end_unix_ns=10**18 + int(seconds * 1e9),
        attributes={key.replace("__", "."): value for key, value in attributes.items()},
        role=role,
        rank=rank,
        step=step,
        param_version=step - 1,
    )


def sample(step: int, oldest: int | None, newest: int | None) -> SampleRow:
    """
    A sample consumed in ``step``.
    """
    return SampleRow(
        step=step, mini_batch=0, param_version=step - 1, sample_id="s", oldest_version=oldest, newest_version=newest
    )


def estimate(*costs: Cost, ratio: float | None = 0.1, why: str = "") -> Estimate:
    """
    An estimate of the trainer's overhead.
    """
    return Estimate(role="trainer", stall=0.5, slowdown=0.1, ratio=ratio, wall_ratio=None, why=why, costs=costs)


def cost(step: int, ratio: float | None, *, rank: int = 0) -> Cost:
    """
    What a window of ``step`` cost.
    """
    slowdown = None if ratio is None else 0.25
    return Cost(role="trainer", rank=rank, step=step, stall=0.5, slowdown=slowdown, ratio=ratio)
