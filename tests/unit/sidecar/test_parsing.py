"""
JSON that is unusual but valid, as programs write it into recordings: it is read like any other.
"""

import json
import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepscope_sidecar import traces
from stepscope_sidecar.artifacts.parsing import loads, paired, slowly
from stepscope_sidecar.artifacts.pieces import Pieces
from stepscope_sidecar.traces import Fault, chrome
from stepscope_sidecar.traces.chrome import Event
from stepscope_sidecar.traces.summary import summarise
from tests.unit.sidecar.merging import Run
from tests.unit.sidecar.traces import CLOSED, OPENED

SPECIAL = ("\ud800", "\udbff", "\udc00", "\udfff", "\\", '"', "/", "\0", "\x7f", "u", "d", "8", "0", "}", ",", "{")
ODD = st.text(st.characters(codec="utf-8") | st.sampled_from(SPECIAL))
"""Halves of characters, which make whole ones side by side; what looks like their escapes; and what cuts mistake."""


def readable(text: str) -> str:
    """
    What is to be read where ``json.dumps`` has written ``text``.
    """
    return re.sub("[\ud800-\udfff]", "\ufffd", json.loads(json.dumps(text)))


def kernel(name: object, **more: Any) -> dict[str, Any]:
    """
    Device work of a microsecond.
    """
    event = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": 5_107_424_936_000.5, "dur": 1.5}
    return {**event, "args": {"correlation": 3}, **more}


def recorded(path: Path, *events: dict[str, Any], **keys: Any) -> Path:
    """
    A recording of ``events``, as Python writes JSON.
    """
    base = OPENED - 5_107_424_935_000_000
    path.write_text(json.dumps({"baseTimeNanoseconds": base, **keys, "traceEvents": events}))
    return path


@settings(max_examples=300, deadline=None)
@given(text=ODD, key=ODD, ascii_only=st.booleans())
def test_any_text_is_read_the_same_by_every_parser(text: str, key: str, *, ascii_only: bool) -> None:
    """
    Half a character is "�", whichever parser is asked; everything else is what was written, and can be written again.
    """
    whole = text if not re.search("[\ud800-\udfff]", text + key) else ""
    written = json.dumps({key: [text, 1.5]}, ensure_ascii=ascii_only or not whole).encode()
    expected = {readable(key): [readable(text), 1.5]}

    assert expected == loads(written) == slowly(written) == orjson.loads(paired(written))
    assert expected == orjson.loads(orjson.dumps(loads(written)))


@settings(max_examples=200, deadline=None)
@given(
    names=st.lists(ODD | st.integers(), min_size=1, max_size=5),
    more=st.sampled_from([{}, {"args": "text"}, {"tid": True}, {"id": [1]}, {"args": {"x": "\ud800"}}]),
)
def test_events_with_any_text_are_events(names: list[object], more: dict[str, Any]) -> None:
    """
    Both decoders make the same of them, also where some of their members are of other types than they should be.
    """
    written = json.dumps([kernel(name, **more) for name in names]).encode()
    found, exact = chrome.decode(written), chrome.exactly(written)

    assert [readable(str(name)) for name in names] == [one.name for one in found if isinstance(one, Event)]
    assert [(one.name, one.tid, one.id, one.args) for one in exact if isinstance(one, Event)] == [
        (one.name, one.tid, one.id, one.args) for one in found if isinstance(one, Event)
    ]


@pytest.mark.parametrize("odd", ["half \ud800 a name", "\udfff", "a \ud83d\ude00 whole \ud83d"])
def test_half_a_character_costs_no_event(tmp_path: Path, odd: str) -> None:
    """
    One odd name among a thousand: all are read without a flag, by name, and what is shown of them is JSON.
    """
    names = [f"kernel {number}" for number in range(999)]
    found = traces.open(recorded(tmp_path / "r.json", *map(kernel, [*names, odd]), host_name=odd))
    told = orjson.loads(orjson.dumps(summarise(found).json()))

    assert (1000, ()) == (len(found), found.header.flags)
    assert {*names, readable(odd)} == set(found.names)
    assert 1000 == told["kernels"]["count"]


REFUSED = {
    "number": '{"x": 1e999}',
    "nesting": f'{{"x": {"[" * 700}{"]" * 700}}}',
    "id": '{"correlation": "\\ud800"}',
    "told": '{"Input Dims": [1e999, "\\udc00"]}',
}


@pytest.mark.parametrize("odd", REFUSED.values(), ids=REFUSED)
def test_what_one_parser_refuses_costs_no_other_event(run: Run, tmp_path: Path, odd: str) -> None:
    """
    Numbers beyond doubles and deep nesting are JSON: the events beside them are read, shown and merged.
    """
    path = recorded(tmp_path / "recording.json", *map(kernel, ["before", "odd", "after"]))
    text = path.read_text().replace('"name": "odd", ', f'"name": "odd", "z": {odd}, ')
    path.write_text(text.replace('{"correlation": 3}', odd))
    run.window(recording=path, opened_unix_ns=OPENED, closed_unix_ns=CLOSED)
    _, timeline = run.merge()
    found = traces.open(path)

    assert ["before", "odd", "after"] == [found.name_of(row) for row in range(len(found))]
    assert {"before", "odd", "after"} <= {one.name for one in timeline.slices}


def test_nesting_beyond_every_parser_costs_the_event_alone(tmp_path: Path) -> None:
    """
    It is left out, and said; nothing is raised.
    """
    path = recorded(tmp_path / "r.json", *map(kernel, ["before", "odd", "after"]))
    deep = "[" * 200_000 + "]" * 200_000
    path.write_text(path.read_text().replace('"name": "odd", ', f'"name": "odd", "z": {deep}, '))
    found = traces.open(path)

    assert ["before", "after"] == [found.name_of(row) for row in range(len(found))]
    assert found.header.has(Fault.INVALID)


NONE = (b"NaN", b"-Infinity", b"1e", b'"\x01"', b'"\xed\xa0\x80"', b'"\\ud8"', b"[" * 100_000)


@pytest.mark.parametrize("text", NONE, ids=range(len(NONE)))
def test_what_is_no_json_stays_none(text: bytes) -> None:
    """
    Though the standard library would take some of it.
    """
    with pytest.raises(ValueError, match=r"\S"):
        loads(text)
    with pytest.raises(ValueError, match=r"\S"):
        chrome.decode(b"[" + text + b"]")


def test_pieces_need_no_search_for_a_boundary_where_half_a_character_is(tmp_path: Path) -> None:
    """
    Each piece is cut where it was guessed to end; a file with such names is read as fast as any.
    """
    path = recorded(tmp_path / "r.json", *(kernel(f"\ud800 {number}") for number in range(100)))
    with path.open("rb") as stream:
        sizes = [len(piece.events) for piece in Pieces(stream, chunk=1000)]

    assert 100 == sum(sizes)
    assert len(sizes) > 10
