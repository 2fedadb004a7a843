"""
Which window is meant, and which recording came before it.
"""

import pytest

from stepscope_sidecar.lookup import LookupFailedError, before, chosen
from tests.unit.sidecar.stored import window

ROWS = [
    window(3, artifact="3.json.gz", closed_unix_ns=30),
    window(4, artifact="4.json.gz", closed_unix_ns=40),
    window(4, "denied", rank=1, asked_unix_ns=50),
]


def test_a_window_is_named_by_its_id_or_its_beginning() -> None:
    """
    Without a name it is the one that was recorded last; where none was, the one that was asked for last.
    """
    assert "w-3-ready" == chosen(ROWS, "w-3").window
    assert "w-4-denied" == chosen(ROWS, "w-4-denied").window
    assert "w-4-ready" == chosen(ROWS, "").window
    assert "w-4-denied" == chosen(ROWS[2:], "").window


def test_an_id_that_begins_another_is_meant_itself() -> None:
    """
    A whole id is never ambiguous.
    """
    assert "w" == chosen([window(3, window="w"), window(4, window="w2")], "w").window


@pytest.mark.parametrize(
    ("rows", "wanted", "words"),
    [
        (ROWS, "w-9", ("'w-9'", "no id is that or begins with it", "w-3-ready", "stepscope windows", "--run")),
        (ROWS, "w-4", ("'w-4'", "2 windows", "w-4-ready", "w-4-denied", "step 4", "trainer 1", "give more of it")),
        ([], "", ("no window was asked for", "stepscope status")),
        ([window(step) for step in range(1, 9)], "w", ("8 windows", "and 3 more")),
    ],
)
def test_what_cannot_be_told_is_an_error_that_helps(rows: list[object], wanted: str, words: tuple[str, ...]) -> None:
    """
    It has the value, what is wrong with it, and what to do.
    """
    with pytest.raises(LookupFailedError) as error:
        chosen(rows, wanted)  # type: ignore[arg-type]

    assert all(word in str(error.value) for word in words), error.value


def test_the_recording_before_is_the_last_one_of_the_same_kind() -> None:
    """
    Of the same role, rank, tool and level, with a recording; from outside, of the same pid too.
    """
    row = window(9, artifact="9")
    earlier = [window(step, artifact=str(step)) for step in (2, 5)]
    others = [
        window(6, artifact="6", role="rollouter"),
        window(6, artifact="6", rank=1),
        window(6, artifact="6", level="spans"),
        window(6, artifact="6", tool="vllm"),
        window(6, "failed"),
        window(11, artifact="11"),
    ]
    outside = [window(step, artifact=str(step), tool="py-spy", pid=pid) for step, pid in ((2, 7), (5, 8))]

    assert earlier[1] == before([*earlier, *others, row], row)
    assert before([*others, row], row) is None
    assert outside[0] == before(outside, window(9, artifact="9", tool="py-spy", pid=7))
