"""
The grammar of steps and ranks.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.errors import ConfigurationError, SelectionError
from stepscope.selection import Ranks, Selection, by_role

STEP = st.integers(min_value=0, max_value=300)
RANGE = st.tuples(STEP, STEP).map(sorted).map(tuple)
EVERY = st.tuples(st.integers(min_value=1, max_value=40), st.none() | STEP)


def chosen(text: str, last: int = 20) -> list[int]:
    """
    The steps up to ``last`` that ``text`` selects.
    """
    selection = Selection.parse(text)
    return [step for step in range(-2, last + 1) if step in selection]


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        ([], ""),
        ([], "  "),
        ([3], "3"),
        ([3, 10, 11, 12], "3,10-12"),
        ([3, 10, 11, 12], " 3 , 10 - 12 "),
        ([5, 10, 15, 20], "every:5"),
        ([2, 9, 16], "every:7@2"),
        ([1, 5], "v0,v4"),
        ([], "0"),
        ([], "-3"),
        ([1, 2], "0-2"),
        ([1, 2, 3], "1-2,2-3"),
        ([6, 12, 18], "every:6@0"),
    ],
)
def test_a_selection_means_what_the_grammar_says(expected: list[int], text: str) -> None:
    """
    Steps below 1 never occur and are never selected.
    """
    assert expected == chosen(text)


@pytest.mark.parametrize(
    "text",
    ["x", "3,", ",", "3-1", "every:0", "every:", "every:2@", "v", "1..3", "3;4", "1.5", "--2"]
    + [form.format("9" * 5000) for form in ("{}", "1-{}", "every:{}", "every:2@{}", "v{}")],
)
def test_what_is_not_in_the_grammar_is_an_error_that_says_so(text: str) -> None:
    """
    The message holds what was wrong.
    """
    with pytest.raises(SelectionError, match="steps") as raised:
        Selection.parse(text)

    assert len(str(raised.value)) < 400


def test_a_backward_range_is_told_the_right_way_round() -> None:
    """
    The likely fix is in the message.
    """
    with pytest.raises(SelectionError, match="write 1-3"):
        Selection.parse("3-1")


@given(st.lists(RANGE, max_size=5), st.lists(EVERY, max_size=3), st.integers(min_value=-5, max_value=400))
def test_a_step_is_selected_if_any_part_holds_it(
    ranges: list[tuple[int, int]], every: list[tuple[int, int | None]], step: int
) -> None:
    """
    Checked against the definition, part by part.
    """
    parts = [f"{first}-{last}" for first, last in ranges]
    parts += [f"every:{stride}" + ("" if start is None else f"@{start}") for stride, start in every]
    expected = step >= 1 and (
        any(first <= step <= last for first, last in ranges)
        or any(step in range(stride if start is None else start, step + 1, stride) for stride, start in every)
    )

    assert expected == (step in Selection.parse(",".join(parts)))


@given(st.lists(RANGE, max_size=5))
def test_a_selection_survives_being_sent_as_text(ranges: list[tuple[int, int]]) -> None:
    """
    Parsing its own text gives the same selection.
    """
    selection = Selection.parse(",".join(f"{first}-{last}" for first, last in ranges))

    assert selection == Selection.parse(selection.text)


@given(st.text(max_size=30))
def test_any_text_is_a_selection_or_a_selection_error(text: str) -> None:
    """
    Nothing else is ever raised.
    """
    try:
        selection = Selection.parse(text)
    except SelectionError:
        return

    assert 0 not in selection


@pytest.mark.parametrize(
    ("expected", "text", "resumed", "total"),
    [
        ([], "1-3", 0, None),
        (["0"], "0", 0, None),
        (["3"], "3", 3, None),
        (["1-3"], "1-5", 3, None),
        (["11-12"], "9-12", 0, 10),
        (["13"], "13", 0, 12),
        (["-2"], "-2", 0, None),
        (["every:5@20"], "every:5@20", 0, 12),
        (["1-2", "6"], "1-6", 2, 5),
    ],
)
def test_steps_that_cannot_occur_are_named(expected: list[str], text: str, resumed: int, total: int | None) -> None:
    """
    Zero, negative, at or below the version resumed from, and beyond the last.
    """
    assert expected == Selection.parse(text).unreachable(resumed_from=resumed, total_steps=total)


@pytest.mark.parametrize(
    ("expected", "text", "role", "rank"),
    [
        (True, "0", "trainer", 0),
        (False, "0", "trainer", 1),
        (True, "all", "rollouter", 17),
        (True, "0-3", "trainer", 3),
        (True, "trainer=0-3,rollouter=0", "trainer", 2),
        (False, "trainer=0-3,rollouter=0", "rollouter", 2),
        (False, "trainer=0-3", "rollouter", 0),
        (True, "trainer=0+2", "trainer", 2),
        (False, "trainer=0+2", "trainer", 1),
        (True, "0,trainer=all", "trainer", 5),
        (False, "0,trainer=all", "rollouter", 5),
        (True, "0,2", "trainer", 2),
    ],
)
def test_ranks_are_chosen_by_role(expected: bool, text: str, role: str, rank: int) -> None:
    """
    Where only roles are named, no rank of another role is selected.
    """
    assert expected is Ranks.parse(text).holds(role=role, rank=rank)


@pytest.mark.parametrize("text", ["", "x", "3-1", "=0", "trainer=", "trainer=x", "-1", "trainer=all,trainer=0"])
def test_bad_ranks_are_an_error(text: str) -> None:
    """
    The message says ranks.
    """
    with pytest.raises(SelectionError, match="ranks"):
        Ranks.parse(text)


def test_a_value_by_role() -> None:
    """
    One for all is under the empty role.
    """
    assert {"": "torch"} == by_role("torch", what="tool")
    assert {"trainer": "torch", "rollouter": "vllm"} == by_role("trainer=torch,rollouter=vllm", what="tool")


@pytest.mark.parametrize("text", ["", "trainer=", "=torch", "torch,torch", "trainer=torch,trainer=vllm"])
def test_a_value_by_role_is_said_once_and_whole(text: str) -> None:
    """
    An empty part, or a second value for one role, is an error that shows it.
    """
    with pytest.raises(ConfigurationError, match="tool"):
        by_role(text, what="tool")
