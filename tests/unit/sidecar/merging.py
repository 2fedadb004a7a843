"""
A run in a folder, whose steps tests merge into timelines: windows, recordings and spans, without a sidecar.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stepscope import ids
from stepscope_sidecar.rows import NodeRow, OwnSpan, WindowRow, upsert, values
from stepscope_sidecar.spans import build
from stepscope_sidecar.store import Store
from stepscope_sidecar.timeline import Merged, merge
from tests import trace_format
from tests.unit.sidecar.bodies import ATTEMPT
from tests.unit.sidecar.stored import WAIT, put, window
from tests.unit.sidecar.traces import CLOSED, OPENED

RUN = "demo-a"
MS = 1_000_000


def request(number: int, *, step: int) -> str:
    """
    The trace id of a request of a step.
    """
    return f"{ids.request_trace_id(ATTEMPT, step, number):032x}"


@dataclass
class Run:
    """
    The run; moments are nanoseconds since ``OPENED``.
    """

    directory: Path
    store: Store = field(init=False)

    def __post_init__(self) -> None:
        (self.directory / RUN).mkdir()
        self.store = Store.open(self.directory / RUN / "stepscope.db", attempt=ATTEMPT)

    def window(
        self, step: int = 5, *, role: str = "trainer", rank: int = 0, recording: bytes | Path | None = None, **more: Any
    ) -> WindowRow:
        """
        Put a window of a process there, with its recording.
        """
        state = more.pop("state", "ready")
        folder = f"{RUN}/step-{step:06d}/{role}-{rank}-7/torch"
        told: dict[str, Any] = {"opened_unix_ns": OPENED, "closed_unix_ns": CLOSED, "folder": folder, "complete": True}
        (self.directory / folder).mkdir(parents=True)
        if isinstance(recording, bytes):
            told["artifact"] = f"{folder}/recording.json"
            (self.directory / told["artifact"]).write_bytes(recording)
        elif recording is not None:
            told["artifact"] = f"{folder}/{recording.name}"
            place = self.directory / told["artifact"]
            shutil.copytree(recording, place) if recording.is_dir() else shutil.copy(recording, place)
        told |= {"window": f"w-{step}-{role}-{rank}", "attempt": ATTEMPT, "role": role, "rank": rank}
        made = window(step, state, **told | more)
        if made.node == "n":
            put(self.store, made)
        else:
            self._write(made, "node_windows")
        return made

    def node(self, name: str, *, offset_ns: int | None, error_ns: int | None = None) -> None:
        """
        Another node has reported.
        """
        row = NodeRow(node=name, run="r", attempt=ATTEMPT, heard_unix_ns=1, offset_ns=offset_ns, error_ns=error_ns)
        self._write(row, "nodes")

    def span(
        self,
        number: int,
        name: str,
        start: int,
        end: int,
        *,
        step: int = 5,
        role: str | None = "trainer",
        parent: int = 0,
        trace_id: str = "",
        links: tuple[tuple[str, str], ...] = (),
        resource: Mapping[str, str | int] | None = None,
        mini_batch: int | None = None,
    ) -> OwnSpan:
        """
        Receive a span of rank 0.
        """
        told: dict[str, Any] = {"rl.step": step, "param_version": step - 1}
        told |= {} if mini_batch is None else {"rl.mini_batch": mini_batch}
        made = OwnSpan(
            name=name,
            trace_id=trace_id or f"{ids.trace_id(ATTEMPT, step):032x}",
            span_id=f"{number:016x}",
            parent_span_id=f"{parent:016x}" if parent else "",
            start_unix_ns=OPENED + start,
            end_unix_ns=OPENED + end,
            attributes=told | ({"rl.role": role, "rl.rank": 0} if role else {}),
            links=links,
        )
        body = build([made], resource={"service.name": "tests", **(resource or {})})
        self.store.append(body, 1).result(WAIT)
        return made

    def merge(self, step: int = 5, *, name: str = "out.json") -> tuple[Merged, trace_format.Timeline]:
        """
        Merge a step, and read what came of it by the format's rules.
        """
        target = self.directory / name
        merged = merge(self.directory / RUN / "stepscope.db", step, target)
        return merged, trace_format.read(target)

    def _write(self, row: WindowRow | NodeRow, table: str) -> None:
        statement = upsert(row, table)
        self.store.submit(lambda connection: connection.execute(statement, values(row))).result(WAIT)
