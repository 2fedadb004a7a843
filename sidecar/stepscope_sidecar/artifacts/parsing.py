"""
Parses the JSON of profilers: all that JSON permits, which is more than a fast parser takes.

Owns what becomes of half a character, which Python writes for a byte that is no text: it is "�", since nothing that
writes JSON or UTF-8 takes it. Where in a file the JSON is, and what it means, is left to others.
"""

import json
import re
from collections.abc import Callable
from contextlib import suppress

import orjson

HALF = rb"\ufffd"
"""What stands for half a character: Unicode's own sign for what could not be read."""

_HALVES = re.compile(rb"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(
    rb"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.", re.DOTALL
)
"""A pair, a half, or another escape: read one after the other, because a backslash may itself be escaped."""


def loads(text: bytes) -> object:
    """
    What ``text`` says.

    Raises:
        ValueError: it is no JSON, or nothing here can hold it.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        strict = error
    sound = paired(text)
    with suppress(orjson.JSONDecodeError):
        if sound != text:
            return orjson.loads(sound)
    try:
        return slowly(sound)
    except ValueError:
        raise strict from None


def slowly(text: bytes, *, number: Callable[[str], object] = float) -> object:
    """
    The same by the standard library, which takes what faster ones refuse though JSON permits it, as numbers beyond
    doubles. ``number`` makes those with decimals.

    Raises:
        ValueError: it is no JSON, or nothing here can hold it.
    """
    try:
        return json.loads(paired(text).decode(), parse_float=number, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError(str(error)) from None


def paired(text: bytes) -> bytes:
    """
    ``text`` with "�" for each half of a character; JSON's escapes write those beyond 16 bits in two halves.
    """
    return _ESCAPE.sub(lambda found: HALF if found[2] else found[0], text) if _HALVES.search(text) else text


def _refuse(word: str) -> object:
    raise ValueError(f"{word} is no JSON")
