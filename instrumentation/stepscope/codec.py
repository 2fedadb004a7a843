"""
Dataclasses to and from JSON values, with every field's type checked on the way in.

Pure. Knows no message: which there are, and how long a line may be, is :mod:`stepscope.wire`'s. What a class needs is
worked out once, because a process waits for its answer while messages are read.
"""

import functools
import types
import typing
from collections.abc import Callable
from dataclasses import fields, is_dataclass

from stepscope.errors import WireError

Check = Callable[[object, str], object]
"""Takes a value and where it stands; answers with it as the field wants it, or raises ``WireError``."""

PLAIN = frozenset({str, int, bool, type(None)})
"""Types whose values are taken as they come."""


def unbuilt(value: typing.Any) -> dict[str, object]:
    """
    The fields of a dataclass by name, not copied; those that are dataclasses themselves are left as they are.
    """
    kind: type = type(value)
    return {name: getattr(value, name) for name in _names(kind)}


def encodable(text: str) -> str:
    """
    ``text`` with escapes for what UTF-8 has no bytes for: halves of characters, of which names of files may consist.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="backslashreplace").decode()
    return text


def build(kind: type, data: dict[str, object]) -> object:
    """
    A ``kind`` of ``data``; keys that it does not know are ignored, so that a newer peer may say more.

    Raises:
        WireError: a field is missing, or has the wrong type.
    """
    values = {}
    for name, check in _checks(kind):
        if name in data:
            values[name] = check(data[name], name)
    try:
        return kind(**values)
    except TypeError as error:
        raise WireError(f"{kind.__name__}: {error}") from error


@functools.cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(item.name for item in fields(kind))


@functools.cache
def _checks(kind: type) -> tuple[tuple[str, Check], ...]:
    hints = typing.get_type_hints(kind)
    return tuple((name, _check(hints[name], kind.__name__)) for name in _names(kind))


def _check(hint: typing.Any, owner: str) -> Check:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in {typing.Union, types.UnionType}:
        return _any_of([_check(option, owner) for option in arguments], frozenset(arguments) & PLAIN, owner)
    if origin is list:
        return _list(_check(arguments[0], owner), owner)
    if origin is dict:
        return _dict(_check(arguments[0], owner), _check(arguments[1], owner), owner)
    if is_dataclass(hint):
        return _nested(typing.cast("type", hint), owner)
    if hint is float:
        return _number(owner)
    return _exactly(hint, owner)


def _wrong(owner: str, where: str, value: object) -> WireError:
    return WireError(f"{owner}.{where} cannot be {value!r:.60}")


def _exactly(kind: type, owner: str) -> Check:
    def check(value: object, where: str) -> object:
        # JSON gives no subclasses, and a bool is no number.
        if type(value) is not kind:
            raise _wrong(owner, where, value)
        return encodable(value) if type(value) is str else value

    return check


def _number(owner: str) -> Check:
    def check(value: object, where: str) -> object:
        if type(value) is float:
            return value
        if type(value) is int:
            return float(value)
        raise _wrong(owner, where, value)

    return check


def _nested(kind: type, owner: str) -> Check:
    def check(value: object, where: str) -> object:
        if not isinstance(value, dict):
            raise _wrong(owner, where, value)
        return build(kind, value)

    return check


def _list(item: Check, owner: str) -> Check:
    def check(value: object, where: str) -> object:
        if not isinstance(value, list):
            raise _wrong(owner, where, value)
        return [item(each, where) for each in value]

    return check


def _dict(key: Check, item: Check, owner: str) -> Check:
    def check(value: object, where: str) -> object:
        if not isinstance(value, dict):
            raise _wrong(owner, where, value)
        return {key(name, where): item(each, where) for name, each in value.items()}

    return check


def _any_of(options: list[Check], plain: frozenset[type], owner: str) -> Check:
    def check(value: object, where: str) -> object:
        # A sample table has some ten thousand of these; asking each option raises for most.
        if type(value) in plain:
            return encodable(value) if type(value) is str else value
        for option in options:
            try:
                return option(value, where)
            except WireError:
                continue
        raise _wrong(owner, where, value)

    return check
