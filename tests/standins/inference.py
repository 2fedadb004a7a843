"""
Stand-ins for inference servers: the profiling endpoints of vLLM and of SGLang, and nothing else of them.

They follow what the real ones do, refusals and oddities included: vLLM 0.32 as read in its source and seen on a real
server, SGLang 0.5.23 as read in its source alone. The traces they write are small and true to form.
"""

import contextlib
import gzip
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

PATIENCE = 20.0
"""Seconds that a stand-in holds a request back at most."""

Reply = tuple[int, str]
"""Status and body."""


class Cut(Exception):  # noqa: N818 - what happens, not an error
    """
    The connection ends without an answer.
    """


class Listening:
    """
    Has a thread that listens while this is entered.
    """

    _thread: threading.Thread

    def __enter__(self) -> Self:
        """
        Start to listen.
        """
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """
        Go away.
        """
        self.go_away()

    def go_away(self) -> None:
        """
        Listen no more.
        """
        raise NotImplementedError


class StandIn(Listening):
    """
    Listens on loopback while entered. What was asked of it is kept in order.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.headers: list[Mapping[str, str]] = []
        self.instead: dict[str, Callable[[], Reply | None]] = {}
        """What a path does first; an answer from it is the answer."""
        self.extra_headers: dict[str, str] = {}
        self.released = threading.Event()
        self.held = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name="stand-in")

    @property
    def url(self) -> str:
        """
        Its base address.
        """
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def go_away(self) -> None:
        """
        Listen no more, and let go what is held back. Twice is once.
        """
        self.released.set()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(PATIENCE)
        self._server.server_close()

    def hold(self) -> Reply | None:
        """
        Answer nothing until :attr:`released`.
        """
        self.held.set()
        self.released.wait(PATIENCE)
        return None

    def paths(self) -> list[str]:
        """
        What was asked for, in order.
        """
        return [path for path, _ in self.asked]

    def start(self, body: dict[str, Any]) -> Reply:
        """
        POST /start_profile.
        """
        raise NotImplementedError

    def stop(self) -> Reply:
        """
        POST /stop_profile.
        """
        raise NotImplementedError

    def _answer(self, path: str, body: dict[str, Any]) -> Reply:
        first = self.instead.get(path)
        if first is not None and (reply := first()) is not None:
            return reply
        if path == "/start_profile":
            return self.start(body)
        return self.stop() if path == "/stop_profile" else (404, '{"detail":"Not Found"}')

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        standin = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                body = json.loads(data) if data else {}
                standin.asked.append((self.path, body))
                standin.headers.append(dict(self.headers))
                try:
                    status, text = standin._answer(self.path, body)
                    self.send_response(status)
                    for name, value in standin.extra_headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(text.encode())))
                    self.end_headers()
                    self.wfile.write(text.encode())
                except (Cut, OSError):
                    # Whoever asked has gone too.
                    self.close_connection = True

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it so
                return

        return Handler


class Raw(Listening):
    """
    Sends the same bytes to whoever asks, whatever they are, and ends the connection; where they promise more that does
    not come, it waits until the other side has.
    """

    def __init__(self, answer: bytes) -> None:
        self.asked: list[bytes] = []
        """First lines of what was asked."""
        self._answer = answer
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, name="stand-in")
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def go_away(self) -> None:
        """
        Listen no more.
        """
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENCE)
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(PATIENCE)
                head, _, body = connection.recv(65536).partition(b"\r\n\r\n")
                self.asked.append(head.partition(b"\r\n")[0])
                if not body:
                    connection.recv(65536)
                with contextlib.suppress(OSError):
                    connection.sendall(self._answer)
                    if b"Content-Length" in self._answer:
                        connection.recv(1)


class StandInVllm(StandIn):
    """
    vLLM's, writing into ``folder``. Settable: what fails, who names traces, how many ranks write.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.ranks = 1
        self.takes_names = True
        self.worker_fails = False
        """The workers cannot start their profiler: they log it, and the server reports success."""
        self.active = False
        self.stops = 0
        self._running = False
        self._prefix = ""

    def start(self, body: dict[str, Any]) -> Reply:
        """
        One session at a time.
        """
        if self.active:
            said = "A profiling session is already active. Call /stop_profile before starting another session."
            return 409, json.dumps({"error": {"message": said, "type": "Conflict", "param": None, "code": 409}})
        self.active, self._running = True, not self.worker_fails
        self._prefix = f"{body['profile_prefix']}_" if self.takes_names and "profile_prefix" in body else ""
        return 200, ""

    def stop(self) -> Reply:
        """
        Success, whether a session was on or not.
        """
        self.stops += 1
        if self._running:
            self.folder.mkdir(parents=True, exist_ok=True)
            for rank in range(self.ranks):
                write_trace(self.folder / f"{self._prefix}rank{rank}.{time.time_ns()}.pt.trace.json.gz")
                (self.folder / f"{self._prefix}rank{rank}.profiler_out.txt").write_text("Self CPU time total: 5us\n")
        self.active = self._running = False
        return 200, ""


class StandInSglang(StandIn):
    """
    SGLang's. ``forward`` is one batch; ranks beyond the first write when ``released``, after the answer.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ranks = 1
        self.forward_ct = 0
        self.in_progress = False
        self.writers: list[threading.Thread] = []
        self._profiler = False
        self._start_at: int | None = None
        self._stop_at: int | None = None
        self._folder = Path()
        self._id = ""

    def start(self, body: dict[str, Any]) -> Reply:
        """
        With ``start_step`` it is only armed. A second start is not refused: it fails, and costs the first its trace.
        """
        if not self.in_progress:
            self._folder, self._id = Path(body["output_dir"]), body.get("profile_id") or str(time.time())
            if body.get("start_step"):
                self._start_at = max(body["start_step"], self.forward_ct + 1)
            self._stop_at = None
            if body.get("num_steps"):
                self._stop_at = (self._start_at or self.forward_ct) + body["num_steps"]
        if not body.get("start_step"):
            if self._profiler:
                self._profiler = False
                return 500, "Internal Server Error"
            self._profiler = self.in_progress = True
        return 200, "Start profiling.\n"

    def stop(self) -> Reply:
        """
        Refused unless it is in progress; what is armed stays so.
        """
        if not self.in_progress:
            return 500, "Internal Server Error"
        self._finish()
        return 200, "Stop profiling. This will take some time.\n"

    def forward(self) -> None:
        """
        Run a batch: the counter has to *equal* the step that was asked for.
        """
        self.forward_ct += 1
        if self._stop_at is not None and self._stop_at <= self.forward_ct and self.in_progress:
            self._finish()
        if self._start_at == self.forward_ct:
            self._profiler = self.in_progress = True

    def go_away(self) -> None:
        """
        Also wait for the ranks that still write.
        """
        super().go_away()
        for writer in self.writers:
            writer.join(PATIENCE)

    def _finish(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        paths = [self._folder / f"{self._id}-TP-{rank}.trace.json.gz" for rank in range(self.ranks)]
        if self._profiler:
            write_trace(paths[0])
            for path in paths[1:]:
                writer = threading.Thread(target=self._late, args=(path,))
                self.writers.append(writer)
                writer.start()
        self._profiler = self.in_progress = False
        self._start_at = None

    def _late(self, path: Path) -> None:
        self.released.wait(PATIENCE)
        write_trace(path)


def write_trace(path: Path) -> None:
    """
    A Chrome trace as torch exports it, with one operator.
    """
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1000.0, "dur": 5.0}
    trace = {"schemaVersion": 1, "baseTimeNanoseconds": 1_700_000_000_000_000_000, "traceEvents": [event]}
    path.write_bytes(gzip.compress(json.dumps(trace).encode()))
