"""
One engine for all the tests, because it takes most of a minute to start, on an event loop that lives as long.
"""

import asyncio
import gc
import threading
import warnings
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch

from stepscope_rollouter.engines.vllm import VllmEngine
from stepscope_rollouter.samples import Answer, Request
from stepscope_trainer import hugging_face, model
from stepscope_trainer.learner import Learner
from tests.vllm import tiny

T = TypeVar("T")

DEADLINE = 240.0
"""Seconds that anything may take on two busy cores."""

PROMPT = (0, 7, 10, 0, 5, 11)
"""``07+05=``"""

END = 12

PROBE = [[*PROMPT, 1, 2, END], [0, 1, 10, 0, 9, 11, 1, 0], [3, 3, 10, 4]]
"""Rows of different lengths."""


@dataclass
class Served:
    """
    An engine, the trainer whose weights it is given, and the loop that it lives on.
    """

    engine: VllmEngine
    learner: Learner
    loop: asyncio.AbstractEventLoop
    received: list[bytes]
    """Bodies of what vLLM has sent as OTLP."""
    version: int = 0

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """
        What ``work`` comes to.
        """
        return self.loop.run_until_complete(asyncio.wait_for(work, DEADLINE))

    def train(self) -> None:
        """
        Other weights than before, on the trainer's side.
        """
        self.version += 1
        torch.manual_seed(self.version)
        with torch.no_grad():
            for parameter in self.learner.model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1)

    async def update(self) -> None:
        """
        Take the trainer's weights in.
        """
        await self.engine.load(self.learner.weights(), version=self.version)

    async def gap(self, rows: Sequence[Sequence[int]] = PROBE) -> float:
        """
        The largest difference of a log-prob between engine and trainer.
        """
        return largest_gap(await self.engine.log_probs(rows), self.learner.row_log_probs(rows))

    async def generate(
        self, number: int = 0, *, count: int = 2, limit: int = 8, carrier: Mapping[str, str] | None = None
    ) -> tuple[Answer, ...]:
        """
        Answers to the prompt.
        """
        return await self.engine.generate(
            Request(number=number, prompt=PROMPT, count=count, seed=number, limit=limit, end=END, carrier=carrier or {})
        )


def largest_gap(found: Sequence[Sequence[float]], expected: Sequence[Sequence[float]]) -> float:
    """
    The largest difference between two tables of the same shape.
    """
    return max(abs(a - b) for one, other in zip(found, expected, strict=True) for a, b in zip(one, other, strict=True))


class _Receiver(ThreadingHTTPServer):
    """
    Takes whatever is posted to it.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[bytes] = []


class _Handler(BaseHTTPRequestHandler):
    server: _Receiver

    def do_POST(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - its name there
        """
        Nothing.
        """


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """
    The engine, with the weights in its model's folder still.
    """
    receiver = _Receiver()
    serving = threading.Thread(target=receiver.serve_forever)
    serving.start()
    loop = asyncio.new_event_loop()
    try:
        yield from _serve(tiny.build(tmp_path_factory.mktemp("model")), loop, receiver)
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        receiver.shutdown()
        receiver.server_close()
        serving.join()


@pytest.fixture(scope="session")
def second(tmp_path_factory: pytest.TempPathFactory, served: Served) -> Iterator[Served]:
    """
    Another engine, on the same loop.
    """
    yield from _serve(tiny.build(tmp_path_factory.mktemp("second")), served.loop, None)


def _serve(path: Path, loop: asyncio.AbstractEventLoop, receiver: _Receiver | None) -> Iterator[Served]:
    traces = f"http://127.0.0.1:{receiver.server_port}" if receiver else ""
    engine = VllmEngine(
        str(path),
        rename=hugging_face.checkpoint_name,
        options={"max_model_len": 64, "worker_extension_cls": "tests.vllm.faults.Faults"},
    )
    with warnings.catch_warnings():
        # Theirs, as they import.
        warnings.simplefilter("ignore")
        loop.run_until_complete(engine.start(rank=0, traces=traces, carrier={}))
        learner = Learner(model.build(str(path)), rate=1e-3, sum_over_ranks=lambda _: None)
    yield Served(engine=engine, learner=learner, loop=loop, received=receiver.bodies if receiver else [])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loop.run_until_complete(engine.close())
        gc.collect()
