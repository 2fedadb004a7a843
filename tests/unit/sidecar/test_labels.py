"""
How things are written for a person.
"""

import pytest

from stepscope_sidecar import labels


def test_a_step_is_named_with_the_weights_that_it_works_under_and_makes() -> None:
    """
    Also several that share a window, and work after the last update, which makes none.
    """
    assert "step 4 (weights v3 in force, makes v4)" == labels.step_name(4, 4)
    assert "steps 4-5 (weights v3-v4 in force, makes v4-v5)" == labels.step_name(4, 5)
    assert "step 4 (weights v3 in force, after the last update)" == labels.step_name(4, partial=True)
    assert ("4", "v3, makes v4") == labels.step_cells(4)
    assert ("4-5", "v3-v4, makes v4-v5") == labels.step_cells(4, 5)


def test_a_process_is_named_by_role_and_rank() -> None:
    """
    With its pid where that is given.
    """
    assert "trainer 0" == labels.process_name("trainer", 0)
    assert "trainer 0 (pid 7)" == labels.process_name("trainer", 0, pid=7)


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0.0 ms"), (0.25, "250.0 ms"), (-0.5, "-500.0 ms"), (1, "1.00 s"), (-2.5, "-2.50 s")]
)
def test_times_below_a_second_are_in_milliseconds(value: float, text: str) -> None:
    """
    A difference may be negative.
    """
    assert text == labels.seconds(value)


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 << 20, "3.0 MiB"), (5 << 40, "5120.0 GiB")]
)
def test_sizes_are_in_the_unit_that_fits(value: int, text: str) -> None:
    """
    Up to GiB.
    """
    assert text == labels.size(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 ns"), (999, "999 ns"), (1000, "1.00 us"), (2_500_000, "2.50 ms"), (-90 * 10**9, "-90.00 s")],
)
def test_durations_are_in_the_unit_that_fits(value: int, text: str) -> None:
    """
    From nanoseconds on.
    """
    assert text == labels.duration(value)


def test_one_is_no_plural() -> None:
    """
    In counts that people read.
    """
    assert ["0 open windows", "1 open window", "2 open windows"] == [
        labels.plural(number, "open window") for number in range(3)
    ]


def test_stall_is_told_in_the_order_of_its_phases() -> None:
    """
    Whoever reported it in whichever order; a phase that is not known comes last.
    """
    told = labels.in_phases({"new": 1.0, "export": 1.0, "stop": 1.0, "open": 1.0, "start": 1.0})

    assert ["open", "start", "stop", "export", "new"] == list(told)
