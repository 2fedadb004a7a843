"""
Messages on the control socket.
"""

import dataclasses
import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope import wire
from stepscope.errors import WireError
from tests.unit.stepscope.closes import CLOSED

st.register_type_strategy(float, st.floats(allow_nan=False))

MESSAGES = st.one_of([st.from_type(kind) for kind in typing.get_args(wire.Message)])


@given(MESSAGES)
def test_every_message_comes_out_as_it_went_in(message: wire.Message) -> None:
    """
    One line each, whatever the values.
    """
    line = wire.encode(message)

    assert message == wire.decode(line)
    assert line.endswith(b"\n")
    assert 1 == line.count(b"\n")


@given(MESSAGES)
def test_fields_of_a_later_release_are_ignored(message: wire.Message) -> None:
    """
    Ends of different releases can talk.
    """
    line = wire.encode(message)[:-2] + b',"from_the_future":[1]}\n'

    assert message == wire.decode(line)


@given(st.binary(max_size=200))
def test_garbage_is_a_wire_error_and_nothing_else(line: bytes) -> None:
    """
    A stranger on the socket cannot raise anything else.
    """
    with pytest.raises(WireError):
        wire.decode(line)


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b"{}",
        b'{"kind":"nothing"}',
        b'{"kind":["open"]}',
        b'{"kind":"open"}',
        b'{"kind":"open","id":"1","step":1,"param_version":0}',
        b'{"kind":"open","id":true,"step":1,"param_version":0}',
        b'{"kind":"open","id":null,"step":1,"param_version":0}',
        b'{"kind":"samples","step":1,"mini_batch":0,"param_version":0,"rows":[[{}]]}',
        b'{"kind":"grant","id":1,"window":"w","tool":"t","level":"l","folder":"f","caps":[]}',
        b"[" * 100_000,
    ],
)
def test_a_message_of_the_wrong_shape_is_refused(line: bytes) -> None:
    """
    Types are checked to the bottom, and deep nesting does not reach the interpreter's limit.
    """
    with pytest.raises(WireError):
        wire.decode(line)


def test_a_line_over_the_limit_is_refused_unread() -> None:
    """
    Memory is bounded.
    """
    with pytest.raises(WireError, match="over the limit"):
        wire.decode(b" " * (wire.MAX_LINE + 1))


def test_a_close_record_is_read_back_and_nothing_else_is_one() -> None:
    """
    It is the same message, kept as a file.
    """
    closed = dataclasses.replace(
        CLOSED,
        continued=[wire.ContinuedSpan(span_id="a", name="b", start_unix_ns=1, end_unix_ns=2, thread=3)],
    )

    assert closed == wire.load_closed(wire.encode(closed))
    with pytest.raises(WireError, match="not a close record"):
        wire.load_closed(wire.encode(wire.Bye()))


def test_every_message_has_a_kind_of_its_own() -> None:
    """
    The kind on the wire is the class's name in lower case.
    """
    assert len(wire.KINDS) == len(typing.get_args(wire.Message))
    assert all(dataclasses.is_dataclass(kind) for kind in wire.KINDS.values())


def test_text_that_utf8_has_no_bytes_for_arrives_as_escapes() -> None:
    """
    A name of a file may hold any bytes; a store, a report and a page hold text.
    """
    sent = wire.Samples(step=1, mini_batch=1, param_version=0, rows=[["a\udcff", 1, None, "été", ""]])
    reopened = wire.OpenWindow(
        window="w", step=1, param_version=0, tool="t\udcfe", level="", opened_unix_ns=1, trace_id="", span_id=""
    )
    process: dict[str, typing.Any] = {
        "node": "n",
        "pid": 1,
        "process_start": 1,
        "role": "r",
        "rank": 0,
        "open_windows": [reopened],
    }
    register = wire.Register(
        id=1, protocol=1, run="r", attempt="a", tools={"torch\udcfe": "no \udcff.so, été"}, **process
    )
    samples, registered = wire.decode(wire.encode(sent)), wire.decode(wire.encode(register))

    assert isinstance(samples, wire.Samples)
    assert isinstance(registered, wire.Register)
    assert [["a\\udcff", 1, None, "été", ""]] == samples.rows
    assert {"torch\\udcfe": "no \\udcff.so, été"} == registered.tools
    assert "t\\udcfe" == registered.open_windows[0].tool
