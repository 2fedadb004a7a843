"""
The events of a Chrome trace as Kineto, torch_npu and msprof write them, parsed for what a table of events needs.

Owns the shape of an event. Cutting a file of any size into pieces is ``artifacts.pieces``', what an event means is for
the readers of each format. The members that are named here are built as objects and the others only passed over,
which takes a third of the time of building them all (msgspec against orjson, on Kineto's of an A100).
"""

from collections.abc import Callable, Mapping
from typing import cast

import msgspec

from stepscope_sidecar.artifacts.parsing import paired, slowly

MAX_DIGITS = 40
"""Digits of an id that is written as text; Python refuses thousands."""


class Arguments(msgspec.Struct, gc=False):
    """
    An event's ``args``, as far as they are of use.
    """

    correlation: object = None
    external: object = msgspec.field(default=None, name="External id")
    external_old: object = msgspec.field(default=None, name="external id")
    device: object = None
    stream: object = None
    connection: object = msgspec.field(default=None, name="connection_id")
    task_type: object = msgspec.field(default=None, name="Task Type")
    stream_physical: object = msgspec.field(default=None, name="Physic Stream Id")
    name: object = None
    collective: object = msgspec.field(default=None, name="Collective name")
    elements_in: object = msgspec.field(default=None, name="In msg nelems")
    elements_out: object = msgspec.field(default=None, name="Out msg nelems")
    group_size: object = msgspec.field(default=None, name="Group size")
    group: object = msgspec.field(default=None, name="Process Group Name")
    dtype: object = None


class Event(msgspec.Struct, gc=False):
    """
    One event.
    """

    ph: str | None = None
    cat: str | None = None
    name: str | None = None
    pid: int | str | None = None
    tid: int | str | None = None
    ts: object = None
    dur: object = None
    """Both are numbers, or text as torch_npu writes them, or what a broken file has there."""
    id: object = None
    args: Arguments | None = None


MEMBERS = {field.encode_name: field.name for field in msgspec.structs.fields(Arguments)}

_DECODER = msgspec.json.Decoder(list[Event])


class Digits(str):
    """
    A number with decimals, as it is written.
    """

    __slots__ = ()


_EXACT = msgspec.json.Decoder(list[Event], float_hook=Digits)


def decode(text: bytes) -> list[object]:
    """
    The elements of the JSON list ``text``: events, and whatever else there is as it is.

    Raises:
        ValueError: it is no JSON, or nothing here can hold it.
    """
    return _decoded(text, _DECODER, float)


def exactly(text: bytes) -> list[object]:
    """
    The same, but that numbers with decimals are their digits: slower, and without a rounding.
    """
    return _decoded(text, _EXACT, Digits)


def _decoded(text: bytes, decoder: msgspec.json.Decoder[list[Event]], number: Callable[[str], object]) -> list[object]:
    try:
        return cast("list[object]", decoder.decode(text))
    except msgspec.ValidationError:
        # JSON, but of other types.
        return [event(element) for element in cast("list[object]", slowly(text, number=number))]
    except RecursionError as error:
        raise ValueError(str(error)) from None
    except msgspec.DecodeError:
        sound = paired(text)
        if sound == text:
            raise
    return _decoded(sound, decoder, number)


def event(element: object) -> object:
    """
    An event of what a parser without types makes of it; what is no object is left as it is.
    """
    if isinstance(element, Event) or not isinstance(element, dict):
        return element
    found = cast("dict[str, object]", element)
    return Event(
        ph=_text(found.get("ph")),
        cat=_text(found.get("cat")),
        name=_text(found.get("name")),
        pid=_place(found.get("pid")),
        tid=_place(found.get("tid")),
        ts=found.get("ts"),
        dur=found.get("dur"),
        id=found.get("id"),
        args=_arguments(found.get("args")),
    )


def number(value: object) -> int | None:
    """
    The id in ``value``, which some write as text.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.isdecimal() and len(value) <= MAX_DIGITS:
        return int(value)
    return None


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else str(value)


def _place(value: object) -> int | str | None:
    return value if isinstance(value, int | str) else _text(value)


def _arguments(value: object) -> Arguments | None:
    if not isinstance(value, dict):
        return None
    told = cast("Mapping[str, object]", value)
    return Arguments(**{MEMBERS[key]: told[key] for key in MEMBERS.keys() & told.keys()})
