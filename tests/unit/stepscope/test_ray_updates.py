"""
The part in the update of a process without a loop of its own: the methods that load and that publish weights.
"""

from collections.abc import Callable

import pytest

from stepscope.errors import ConfigurationError
from stepscope.integrations import ray
from stepscope.testing import capture_spans
from tests.unit.stepscope.driven_worker import Worker, carried, parts, told, windows


def test_the_step_ends_before_the_weights_change() -> None:
    """
    The load is not in the window; and what still comes from the old step does not begin it again.
    """
    first, second = carried(0), carried(1)
    worker = Worker()
    with capture_spans(role="worker", selected={1, 2}) as captured:
        told(worker, "work", first)
        told(worker, "load", first)
        opened, closed = windows(captured)
        told(worker, "work", first)
        told(worker, "work", second)
        again, _ = windows(captured)

    [load] = captured.named("weights.load")
    assert ([(1, 0)], [(0, "boundary", "")]) == (opened, closed)
    assert parts(captured)[0].end_unix_ns <= load.start_unix_ns
    assert 1 == load.step
    assert [(1, 0), (2, 1)] == again
    assert [1, 2] == [span.step for span in parts(captured)]


def test_a_load_that_comes_with_the_next_step_enters_it_when_it_is_done() -> None:
    """
    As where a worker fetches the weights at the beginning of a step.
    """
    first, second = carried(0), carried(1)
    worker = Worker()
    with capture_spans(role="worker", selected={1, 2}) as captured:
        told(worker, "work", first)
        told(worker, "load", second)
        opened, closed = windows(captured)

    [load], [before, after] = captured.named("weights.load"), parts(captured)
    assert ([(1, 0), (2, 1)], [(0, "boundary", "")]) == (opened, closed)
    assert before.end_unix_ns <= load.start_unix_ns <= load.end_unix_ns <= after.start_unix_ns


def test_the_first_load_ends_no_step() -> None:
    """
    Before its first step a process has none to leave.
    """
    setup = carried(0, inside=False)
    worker = Worker()
    with capture_spans(role="worker", selected={1}) as captured:
        told(worker, "load", setup)
        told(worker, "load", None)
        told(worker, "work", carried(0))
        opened, closed = windows(captured)

    assert ([(1, 0)], []) == (opened, closed)


def test_the_step_ends_with_the_hand_over() -> None:
    """
    It is in the window, and what follows it belongs to the next step, which begins when it is told.
    """
    first, second = carried(0), carried(1)
    worker = Worker()
    with capture_spans(role="worker", selected={1, 2}) as captured:
        told(worker, "work", first)
        told(worker, "send", first)
        opened, closed = windows(captured)
        assert [2, 2] == [told(worker, "work", carrier) for carrier in (first, second)]
        again, _ = windows(captured)

    [publish] = captured.named("weights.publish")
    assert ([(1, 0)], [(0, "boundary", "")]) == (opened, closed)
    assert publish.end_unix_ns <= parts(captured)[0].end_unix_ns
    assert [(1, 0), (2, 1)] == again


def test_a_hand_over_that_fails_ends_nothing() -> None:
    """
    The version stays, and the window goes on.
    """

    @ray.traced(publishes="fail")
    class Failing(Worker):
        pass

    with capture_spans(role="worker", selected={1}) as captured:
        with pytest.raises(ValueError, match="cannot"):
            told(Failing(), "fail", carried(0))
        opened, closed = windows(captured)

    assert ([(1, 0)], []) == (opened, closed)


@pytest.mark.parametrize("misused", [lambda: ray.traced(loads="lode")(Worker), lambda: ray.traced(loads="_x")(Worker)])
def test_a_method_that_is_not_there_is_named(misused: Callable[[], object]) -> None:
    """
    When the class is decorated, not when the update comes.
    """
    with pytest.raises(ConfigurationError, match="has no public method"):
        misused()
