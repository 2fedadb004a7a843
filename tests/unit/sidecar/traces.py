"""
Chrome traces as Kineto of torch 2.13 lays them out, for tests to bend, and the files of other releases where present.
"""

import gzip
import json
from pathlib import Path
from typing import Any

from stepscope.wire import Closed, ContinuedSpan

DATA = Path(__file__).parents[3].parent / "shared" / "data"
"""Recordings of many profilers and releases; not part of the repository."""

PID = 4242
BASE = 1_790_857_026_000_000_000
OPENED = BASE + 5_107_424_935_000_000
CLOSED = OPENED + 2_000_000_000
SPAN = "00f067aa0ba902b7"

HEAD = """ {
    "schemaVersion": 1,
    "deviceProperties": [],

      "trace_id": "C59DE5D87A02475881B71DA88A4F1C25",
      "stepscope.step": "5",
      "host_name": "vm",
    "displayTimeUnit": "ms",
    "baseTimeNanoseconds": %d,
    "traceEvents": [

"""

META = """  {
    "ph": "M",
    "name": "process_name",
    "ts": 5107424935577.644,
    "pid": %d,
    "tid": 0,
    "args": {
      "name": "python"
    }
  }"""

EVENT = """  {
    "ph": "X",
    "cat": "%s",
    "name": "%s",
    "pid": %d,
    "tid": %d,
    "ts": %s,
    "dur": %s
    ,
    "args": {
      "External id": %d,"Record function id": 0, "Ev Idx": %d
    }
  }"""

TAIL = """
  ],"traceName": "recording.json" }"""


def events(count: int, *, spans: tuple[str, ...] = (SPAN,)) -> list[str]:
    """
    ``count`` operators, before them one annotation per span id; 10 us apart, the first at OPENED + 1 ms.
    """
    names = [("user_annotation", f"train.update_actor #{span}") for span in spans]
    names += [("cpu_op", f"aten::op{number % 7}") for number in range(count)]
    return [
        EVENT % (category, name, PID, PID, f"{5107424936000 + 10 * number}.000", "7.500", number, number)
        for number, (category, name) in enumerate(names)
    ]


def trace(count: int = 20, *, spans: tuple[str, ...] = (SPAN,), extra: tuple[str, ...] = ()) -> bytes:
    """
    A whole file; ``extra`` events come last.
    """
    parts = [META % PID, *events(count, spans=spans), *extra]
    return (HEAD % BASE + ",\n".join(parts) + TAIL).encode()


def closed(**changes: Any) -> Closed:
    """
    The close record that goes with :func:`trace`.
    """
    values: dict[str, Any] = {
        "window": "w1",
        "reason": "boundary",
        "version_at_close": 5,
        "opened_unix_ns": OPENED,
        "closed_unix_ns": CLOSED,
        "artifact": "recording.json",
        "trace_id": "0af7651916cd43dd8448eb211c80319c",
        "span_id": "b7ad6b7169203331",
        "level": "ops",
        "mirrored": [SPAN],
        "metadata": {"stepscope.step": "5", "stepscope.role": "trainer", "stepscope.rank": "1"},
    }
    return Closed(**{**values, **changes})


def continued(
    start: int, end: int, *, span_id: str = "00000000000000aa", name: str = "rollout.generate"
) -> ContinuedSpan:
    """
    A span from ``start`` to ``end``, in ns since the window opened.
    """
    return ContinuedSpan(span_id=span_id, name=name, start_unix_ns=OPENED + start, end_unix_ns=OPENED + end, thread=77)


def put(folder: Path, data: bytes, *, name: str = "recording.json") -> Path:
    """
    The window's folder with ``data`` as its raw recording.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)
    return folder


def read(path: Path) -> dict[str, Any]:
    """
    The trace in ``path``, by a strict parser that is not the one under test.
    """

    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is not JSON")

    found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()), parse_constant=refuse)
    return found
