"""
A set of whole numbers in bits does what Python's own does.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope_sidecar.artifacts import numbers
from stepscope_sidecar.artifacts.numbers import Numbers

SETS = st.sets(st.integers(0, 3000) | st.integers(0, 2**62), max_size=40)


def of(values: set[int]) -> Numbers:
    """
    ``values`` as :class:`Numbers`.
    """
    found = Numbers()
    for value in values:
        found.add(value)
    return found


@given(SETS, SETS, st.integers(0, 3000), st.integers(0, 3000))
def test_it_is_a_set(first: set[int], second: set[int], low: int, high: int) -> None:
    """
    Membership, size, order, difference, and taking in a part of another between two bounds.
    """
    part = of(first)
    part.update(of(second), between=(low, high))
    whole = of(first)
    whole.update(of(second))

    assert sorted(first) == list(of(first))
    assert len(first) == len(of(first))
    assert all(value in of(first) for value in first)
    assert [value in first for value in second] == [value in of(first) for value in second]
    assert sorted(first - second) == list(of(first).without(of(second)))
    assert sorted(first | second) == list(whole)
    assert sorted(first | {value for value in second if low < value < high}) == list(part)


def test_too_many_far_apart_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Memory is bounded: a set that is full says so, and so does what is made of it.
    """
    monkeypatch.setattr(numbers, "MAX_PAGES", 3)
    full, fine = of({1, 1000, 2000, 3000}), of({1, 2, 3})

    assert (True, False) == (full.full, fine.full)
    assert fine.without(full).full
