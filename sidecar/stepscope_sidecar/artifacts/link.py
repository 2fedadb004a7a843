"""
The files that are put into an artifact's folder: which window it is of, and the spans that its profiler did not draw.

What a single recording carries itself. The same close record gives the same bytes.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson

LINK = "stepscope.json"
SPANS = "stepscope_spans.json"


def write(path: Path, metadata: Mapping[str, str]) -> None:
    """
    Write ``metadata`` into the folder ``path``.
    """
    _put(path / LINK, orjson.dumps(metadata, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n")


def write_spans(path: Path, events: Sequence[bytes]) -> None:
    """
    Write ``events``, of a Chrome trace whose clock is the epoch, into the folder ``path``; no file for none.
    """
    if events:
        _put(path / SPANS, b"[\n" + b",\n".join(events) + b"\n]\n")


def _put(path: Path, data: bytes) -> None:
    partial = path.with_name(f"{path.name}.partial")
    partial.write_bytes(data)
    partial.replace(path)
