"""
Cutting JSON of any layout into pieces, and noticing that some of it is missing.
"""

import json
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepscope_sidecar.artifacts import InvalidArtifact, pieces
from tests.unit.sidecar import traces

CHUNKS = (64, 1000, pieces.CHUNK)
"""Sizes read at a time: less than an event, a few events, and more than any file here."""


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(min_value=0, max_value=len(traces.trace(8)) - 1), size=st.sampled_from(CHUNKS))
def test_a_file_cut_anywhere_is_refused(tmp_path_factory: pytest.TempPathFactory, cut: int, size: int) -> None:
    """
    Head, middle or tail: whatever is missing is noticed, whichever way it falls into what is read at a time.
    """
    path = traces.put(tmp_path_factory.mktemp("cut"), traces.trace(8)[:cut]) / "recording.json"

    with pytest.raises(InvalidArtifact), path.open("rb") as stream:
        list(pieces.Pieces(stream, chunk=size))


@settings(max_examples=100, deadline=None)
@given(
    values=st.lists(
        st.recursive(
            st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
            max_leaves=8,
        ),
        max_size=8,
    ),
    head=st.dictionaries(st.text(max_size=4), st.text() | st.lists(st.integers()), max_size=3),
    indent=st.sampled_from([None, 0, 2]),
    ascii_only=st.booleans(),
    size=st.integers(1, 200),
)
def test_pieces_are_the_whole_list_in_order(
    tmp_path_factory: pytest.TempPathFactory,
    values: list[Any],
    head: dict[str, Any],
    indent: int | None,
    ascii_only: bool,
    size: int,
) -> None:
    """
    Whatever JSON lies in the list, its pieces together are the list, and their text joined by commas is its text.

    Only what is no number, which Python and Kineto write as NaN or Infinity though JSON has no such word, is null.
    """
    whole = {**head, "traceEvents": values, "after": head}
    text = json.dumps(whole, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    path = tmp_path_factory.mktemp("pieces") / "t.json"
    path.write_bytes(text)

    with path.open("rb") as stream:
        found = pieces.Pieces(stream, chunk=size)
        parts = list(found)

    frame = found.frame
    assert _strict(whole) == json.loads(frame.head + b",".join(part.text for part in parts) + b"]" + frame.tail)
    assert len(values) == sum(len(part.events) for part in parts)


def _strict(value: Any) -> Any:
    """
    ``value`` as strict JSON can hold it.
    """
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_strict(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
