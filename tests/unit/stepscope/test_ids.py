"""
Ids that every process computes alike.
"""

import os

from hypothesis import given
from hypothesis import strategies as st

from stepscope import ids

ATTEMPT = st.text(min_size=1, max_size=20)
STEP = st.integers(min_value=1, max_value=10**6)


def test_the_ids_of_a_step_never_change_between_releases() -> None:
    """
    Processes of different releases meet in one trace; the literal values are SHA-256 of the documented text.
    """
    import hashlib

    expected = int.from_bytes(hashlib.sha256(b"trace/a/3").digest()[:16])

    assert expected == ids.trace_id("a", 3)
    assert int.from_bytes(hashlib.sha256(b"root/a/3").digest()[:8]) == ids.root_span_id("a", 3)


@given(ATTEMPT, STEP, STEP)
def test_steps_and_requests_have_traces_of_their_own(attempt: str, step: int, request: int) -> None:
    """
    Another step, another trace; a request's trace shares the first 8 bytes of its step's.
    """
    trace = ids.trace_id(attempt, step)
    own = ids.request_trace_id(attempt, step, request)

    assert 0 < trace < 2**128
    assert trace != ids.trace_id(attempt, step + 1)
    assert trace >> 64 == own >> 64
    assert trace != own
    assert 0 < ids.root_span_id(attempt, step) < 2**64


def test_attempts_differ_and_fit_a_folder_name() -> None:
    """
    Two starts in one second are two attempts.
    """
    assert ids.new_attempt() != ids.new_attempt()
    assert "/" not in ids.new_attempt()


def test_the_start_of_a_process_is_read_and_a_missing_one_is_zero() -> None:
    """
    Together with the pid it names a process for good.
    """
    assert ids.process_start() == ids.process_start(os.getpid()) > 0
    assert 0 == ids.process_start(2**22 + 1)
