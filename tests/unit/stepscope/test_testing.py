"""
The helpers for users' own tests.
"""

import pytest

import stepscope
from stepscope.testing import capture_spans


def test_a_loop_can_be_looked_at_without_a_sidecar() -> None:
    """
    Spans come as plain data, and the stand-in agent knows what was asked of it.
    """
    with capture_spans(selected={1}) as captured:
        with stepscope.step(), stepscope.span("train.update_actor"):
            pass

        assert ["train.update_actor", "rl.step.process"] == [span.name for span in captured.spans]

    assert [{"step": 1, "param_version": 0, "forced": False, "late": False}] == captured.agent.windows.of("open")
    assert captured.agent.closed


def test_what_was_in_force_is_in_force_again() -> None:
    """
    Captures nest, and outside of them nothing is registered.
    """
    with capture_spans(param_version=4):
        with capture_spans(param_version=9):
            assert 9 == stepscope.current_version()
        assert 4 == stepscope.current_version()

    assert 0 == stepscope.current_version()


def test_an_exception_leaves_the_capture_in_order() -> None:
    """
    It is the test's own.
    """
    with pytest.raises(KeyError), capture_spans():
        raise KeyError("x")

    assert 0 == stepscope.current_step()


def test_span_data_cannot_be_changed() -> None:
    """
    It is a record.
    """
    with capture_spans() as captured, stepscope.span("work"):
        pass

    with pytest.raises(TypeError):
        captured.spans[0].attributes["x"] = 1  # type: ignore[index]
