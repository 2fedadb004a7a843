"""
A real vLLM server with a small model that the tests build, on this machine's CPU.
"""

import contextlib
import http.client
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

ROOT = Path(__file__).resolve().parents[2]

START_DEADLINE = 400.0
"""Seconds until the server answers: it takes a minute by itself, three on a busy machine of two cores."""

END_DEADLINE = 60.0
"""Seconds until its processes have gone."""

MODEL = "tiny"

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}
"""What a small model on two cores needs: little memory, no threads bound to cores, nothing from the network."""


@dataclass
class Server:
    """
    One server, which may be killed and started anew. Its traces land in ``traces``.
    """

    folder: Path
    process: "subprocess.Popen[bytes] | None" = None
    url: str = ""

    @property
    def traces(self) -> Path:
        """
        Its ``torch_profiler_dir``.
        """
        return self.folder / "traces"

    def ensure(self) -> None:
        """
        Start it unless it runs.
        """
        if self.process is not None and self.process.poll() is None:
            return
        model = self.folder / "model"
        if not model.is_dir():
            code = "import sys, pathlib; from tests.vllm.tiny import build; build(pathlib.Path(sys.argv[1]))"
            subprocess.run([sys.executable, "-c", code, str(model)], check=True, cwd=ROOT, timeout=START_DEADLINE)
        with (self.folder / "server.log").open("ab") as log:
            self.process = self._start(model, log)
        self.url = self._wait_for_address(self.process)

    def post(self, path: str) -> int:
        """
        The status of the answer to an empty POST.
        """
        request = urllib.request.Request(f"{self.url}{path}", data=b"", method="POST")
        try:
            with urllib.request.urlopen(request, timeout=END_DEADLINE) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    def kill(self) -> None:
        """
        Have all its processes killed, and wait until they have gone.
        """
        self._end(signal.SIGKILL)

    def close(self) -> None:
        """
        End it in order.
        """
        self._end(signal.SIGTERM)

    def _start(self, model: Path, log: IO[bytes]) -> "subprocess.Popen[bytes]":
        # Not the command `vllm serve`: that asks for a distribution called vllm, and the build for the CPU has another
        # name. Workers alone are profiled: the front end, left out here, records its own threads, which is nothing.
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
                *("--model", str(model), "--served-model-name", MODEL),
                *("--host", "127.0.0.1", "--port", "0", "--max-model-len", "64", "--max-num-seqs", "4"),
                # In bfloat16 this build's worker dies at the first token on a processor with AMX (a virtual machine),
                # with and without a profiler.
                *("--dtype", "float32"),
                "--enforce-eager",
                *("--profiler-config.profiler", "torch"),
                *("--profiler-config.torch_profiler_dir", str(self.traces)),
                *("--profiler-config.ignore_frontend", "true"),
                *("--profiler-config.torch_profiler_with_stack", "false"),
            ],
            env={**os.environ, **ENVIRONMENT},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _wait_for_address(self, process: "subprocess.Popen[bytes]") -> str:
        """
        Where it listens: the one address at which its health is good.
        """
        until, pause = time.monotonic() + START_DEADLINE, threading.Event()
        while process.poll() is None and time.monotonic() < until:
            for port in _listening(process.pid):
                with (
                    contextlib.suppress(OSError, http.client.HTTPException),
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5.0),
                ):
                    return f"http://127.0.0.1:{port}"
            pause.wait(0.5)
        raise AssertionError((self.folder / "server.log").read_text()[-3000:])

    def _end(self, number: signal.Signals) -> None:
        if self.process is None:
            return
        everyone = [self.process.pid, *(child.pid for child in _children(self.process.pid))]
        for pid in everyone if number is signal.SIGKILL else everyone[:1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        try:
            self.process.wait(END_DEADLINE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(END_DEADLINE)
        left = []
        for pid in everyone[1:]:
            with contextlib.suppress(psutil.Error):
                left.append(psutil.Process(pid))
        psutil.wait_procs(left, timeout=END_DEADLINE)


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []


def _listening(pid: int) -> list[int]:
    try:
        connections = psutil.Process(pid).net_connections(kind="tcp")
    except psutil.Error:
        return []
    return [one.laddr.port for one in connections if one.status == psutil.CONN_LISTEN and one.laddr.ip == "127.0.0.1"]
