"""
What a boundary call means to the process's place in the run.
"""

from hypothesis import given
from hypothesis import strategies as st

from stepscope.version import StepState, Verdict


def test_the_step_is_one_more_than_the_version_in_force() -> None:
    """
    Before any update version 0 is in force and step 1 runs.
    """
    state = StepState()

    assert (0, 1) == (state.now.param_version, state.now.step)


def test_a_resume_begins_at_the_step_after_its_version() -> None:
    """
    A run resumed at version 7 is in step 8.
    """
    assert 8 == StepState(param_version=7).now.step


def test_versions_are_judged_against_the_one_in_force() -> None:
    """
    The next, the same, another and nonsense are told apart.
    """
    state = StepState(param_version=3)

    assert [(Verdict.NEXT, 4), (Verdict.REPEAT, 3), (Verdict.JUMP, 9), (Verdict.JUMP, 1)] == [
        state.judge(version) for version in (4, 3, 9, 1)
    ]
    assert [(Verdict.UNUSABLE, 3)] * 6 == [
        state.judge(version) for version in (-1, None, "default", True, 4.0, 2**63 - 1)
    ]


def test_a_window_is_claimed_once_in_a_step() -> None:
    """
    Entering again for the same step opens no second window; the next step has its own.
    """
    state = StepState()

    assert [True, False] == [state.claim_window(), state.claim_window()]
    state.advance(1)
    assert state.claim_window()


def test_a_step_beyond_the_last_update_is_partial_and_has_no_window() -> None:
    """
    A run of two steps has a third only in part.
    """
    state = StepState(param_version=2, total_steps=2)

    assert state.now.partial
    assert not state.claim_window()


@given(st.lists(st.integers(min_value=0, max_value=50)))
def test_the_step_follows_whatever_is_told(versions: list[int]) -> None:
    """
    After any sequence of updates the step is one more than the last version told.
    """
    state = StepState()
    for version in versions:
        state.advance(version)

    assert (versions or [0])[-1] + 1 == state.now.step
    assert not state.inside
