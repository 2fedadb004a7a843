"""
A scripted agent: a process that speaks to the sidecar over a raw socket, and one that only holds a connection open.
"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from stepscope import ids, wire
from stepscope_sidecar.closing import Closing

TRACE = f"{1:032x}"
SPAN = f"{2:016x}"

ANSWER_DEADLINE = 60.0
"""Seconds for an answer on a busy machine; the real agent waits one."""


class Agent(Closing):
    """
    One connection to the sidecar, driven by hand.
    """

    def __init__(self, path: Path, *, attempt: str = "a1", pid: int | None = None, **changes: object) -> None:
        """
        Connect to the socket at ``path`` as process ``pid`` (default: this one).
        """
        self.attempt = attempt
        self.pid = pid or os.getpid()
        self._changes = changes
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(ANSWER_DEADLINE)
        self._socket.connect(str(path))
        self._reader = self._socket.makefile("rb")
        self.pushed: list[wire.Message] = []

    def close(self) -> None:
        """
        Break the connection.
        """
        self._reader.close()
        self._socket.close()

    def send(self, message: wire.Message) -> None:
        """
        Say ``message``.
        """
        self._socket.sendall(wire.encode(message))

    def send_raw(self, data: bytes) -> None:
        """
        Say anything.
        """
        self._socket.sendall(data)

    def receive(self) -> wire.Message | None:
        """
        The next message; None when the sidecar has closed the connection.
        """
        try:
            line = self._reader.readline()
        except ConnectionError:
            return None
        return wire.decode(line) if line else None

    def answer(self, request: wire.Message) -> wire.Message | None:
        """
        Say ``request`` and wait for what answers it; orders that come in between are put aside.
        """
        self.send(request)
        while True:
            message = self.receive()
            if isinstance(message, (wire.Selected, wire.Stop)):
                self.pushed.append(message)
                continue
            return message

    def register(self, *open_windows: wire.OpenWindow) -> wire.Message | None:
        """
        Register as rank 0 of the trainer, unless told otherwise when connecting.
        """
        values: dict[str, object] = {
            "id": 1,
            "protocol": wire.PROTOCOL,
            "run": "run",
            "attempt": self.attempt,
            "node": ids.node(),
            "pid": self.pid,
            "process_start": ids.process_start(self.pid),
            "role": "trainer",
            "rank": 0,
            "tools": {"torch": ""},
            "open_windows": list(open_windows),
            **self._changes,
        }
        return self.answer(wire.Register(**values))  # type: ignore[arg-type]  # the values above have their types

    def open(self, step: int) -> wire.Grant:
        """
        Ask for the window of ``step`` and start to record.
        """
        grant = self.answer(wire.Open(id=2, step=step, param_version=step - 1))
        assert isinstance(grant, wire.Grant), grant
        self.send(
            wire.Started(
                window=grant.window,
                trace_id=TRACE,
                span_id=SPAN,
                opened_unix_ns=1_000_000_000,
                level=grant.level,
                stall={"open": 0.001, "start": 0.002},
            )
        )
        return grant

    def write(self, grant: wire.Grant) -> wire.Closed:
        """
        Leave a recording and its close record in the window's folder.
        """
        folder = Path(grant.folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "recording.json").write_text(json.dumps(RECORDING))
        record = wire.Closed(
            window=grant.window,
            reason="boundary",
            version_at_close=5,
            opened_unix_ns=1_000_000_000,
            closed_unix_ns=2_000_000_000,
            artifact="recording.json",
            trace_id=TRACE,
            span_id=SPAN,
            level=grant.level,
            stall={"stop": 0.003, "export": 0.004},
        )
        (folder / "closed.json").write_bytes(wire.encode(record))
        return record


RECORDING = {
    "schemaVersion": 1,
    "baseTimeNanoseconds": 0,
    "displayTimeUnit": "ms",
    "traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1_100_000.0, "dur": 5.0, "args": {}}
    ],
}
"""The smallest Chrome trace of one operator within the window."""

SCRIPT = """
import sys
from pathlib import Path
from tests.integration.agent import Agent
agent = Agent(Path(sys.argv[1]))
agent.register()
grant = agent.open(5)
if "write" in sys.argv:
    agent.write(grant)
print(grant.window, flush=True)
sys.stdin.read()
"""


def agent_process(path: Path, *arguments: str) -> "tuple[subprocess.Popen[str], str]":
    """
    A process that registers, opens the window of step 5 and waits to be killed; it, and the window's id.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(path), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()
