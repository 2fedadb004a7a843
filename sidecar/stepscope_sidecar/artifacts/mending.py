"""
Mends names in a Kineto trace that are no JSON: torch writes the name of a Python function as it is.

Code that was generated can have any name; that of protobuf has quotes in some. One of them in a recording with stacks
would cost the whole of it. Owns what such a name becomes; every other line is left as it is.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from stepscope_sidecar.artifacts.parsing import loads

NAME = re.compile(rb'(?P<head>\s*"name": ")(?P<name>.*)(?P<tail>",?\s*)', re.DOTALL)
"""A line that holds a name and nothing else, as Kineto writes them."""

FURTHER = b'", "'
"""Stands in no name, but between two members of one line."""

MAX_LINE = 1 << 20
"""Bytes of a line. Kineto's are far shorter; a file of longer ones is not its, and would be read into memory whole."""


def mend(raw: Path, to: Path) -> int:
    """
    Copy ``raw`` to ``to`` with every such name made plain; how many there were. Where there is none, nothing is copied.
    """
    count = sum(mended for _, mended in _lines(raw))
    if count:
        with to.open("wb") as target:
            target.writelines(line for line, _ in _lines(raw))
    return count


def _lines(raw: Path) -> Iterator[tuple[bytes, bool]]:
    ended = True
    with raw.open("rb") as source:
        while line := source.readline(MAX_LINE):
            began, ended = ended, line.endswith(b"\n")
            made = plain(line) if began and ended else line
            yield made, made is not line


def plain(line: bytes) -> bytes:
    """
    The line with its name made plain; the line itself if it holds none or one that is sound.
    """
    found = NAME.fullmatch(line) if b'"name": "' in line else None
    if found is None or FURTHER in found["name"]:
        return line
    try:
        loads(b'"' + found["name"] + b'"')
    except ValueError:
        return found["head"] + found["name"].replace(b"\\", b"/").replace(b'"', b"'") + found["tail"]
    return line
