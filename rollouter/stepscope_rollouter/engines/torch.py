"""
The embedded engine: batched sampling with torch, one token for every request in a slot, then the loop gets its turn.

Owns batching, pausing and the record of versions. It keeps no key-value cache: after an update the next token is
computed from its whole prefix under the new weights, so nothing of the old ones is left in a partial rollout.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from stepscope_rollouter.samples import Answer, Request


@dataclass(slots=True, eq=False)
class _Work:
    request: Request
    done: "asyncio.Future[tuple[Answer, ...]]"
    draw: torch.Generator
    tokens: Tensor
    log_probs: Tensor
    alive: Tensor
    versions: list[int] = field(default_factory=list)

    @property
    def length(self) -> int:
        return len(self.request.prompt) + len(self.versions)


class TorchEngine:
    """
    Samples from ``model`` on the thread of the running event loop; ``slots`` requests share a forward pass.
    """

    def __init__(
        self, model: nn.Module, *, slots: int, device: str = "cpu", clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """
        Nothing runs before the first request.
        """
        self._model = model.to(device).eval().requires_grad_(False)
        self._device = device
        self._slots = slots
        self._clock = clock
        self._version = 0
        self._pending: deque[_Work] = deque()
        self._active: list[_Work] = []
        self._paused = False
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.busy_seconds = 0.0

    @property
    def idle(self) -> bool:
        """
        Whether no request is in hand.
        """
        return not self._pending and not self._active

    async def start(self, *, rank: int, traces: str, carrier: Mapping[str, str]) -> None:
        """
        Nothing: it runs in the replica's own process and has no spans.
        """

    async def generate(self, request: Request) -> tuple[Answer, ...]:
        """
        The answers to ``request``, which joins the batch when a slot is free.
        """
        loop = asyncio.get_running_loop()
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._run())
        width = len(request.prompt) + request.limit
        tokens = torch.full((request.count, width), request.end)
        tokens[:, : len(request.prompt)] = torch.tensor(request.prompt)
        work = _Work(
            request=request,
            done=loop.create_future(),
            draw=torch.Generator().manual_seed(request.seed),
            tokens=tokens,
            log_probs=torch.zeros(request.count, request.limit),
            alive=torch.ones(request.count, dtype=torch.bool),
        )
        self._pending.append(work)
        self._wake.set()
        try:
            return await work.done
        finally:
            # A cancelled request leaves its slot at once.
            if work in self._active:
                self._active.remove(work)
            elif work in self._pending:
                self._pending.remove(work)

    async def pause(self) -> None:
        """
        No token is computed after this: tokens are computed on this thread, between its other work.
        """
        self._paused = True
        self._wake.clear()

    async def resume(self) -> None:
        """
        Go on with the requests in hand.
        """
        self._paused = False
        self._wake.set()

    async def load(self, weights: Mapping[str, Tensor], *, version: int) -> None:
        """
        Copy ``weights`` into the model.
        """
        self._model.load_state_dict(weights)
        self._version = version

    async def greedy(self, prompts: Sequence[Sequence[int]], *, limit: int, end: int) -> list[tuple[int, ...]]:
        """
        The likeliest answers, in one batch.
        """
        answers: list[list[int]] = [[] for _ in prompts]
        for _ in range(limit):
            logits = self._next_logits([[*prompt, *answer] for prompt, answer in zip(prompts, answers, strict=True)])
            for answer, token in zip(answers, logits.argmax(-1).tolist(), strict=True):
                if not answer or answer[-1] != end:
                    answer.append(token)
            await asyncio.sleep(0)
        return [tuple(answer) for answer in answers]

    async def log_probs(self, rows: Sequence[Sequence[int]]) -> list[list[float]]:
        """
        Log-probs under the weights in force.
        """
        logits = self._logits(rows).log_softmax(-1)
        return [[0.0, *(float(logits[i, t, token]) for t, token in enumerate(row[1:]))] for i, row in enumerate(rows)]

    async def close(self) -> None:
        """
        Stop; requests in hand are cancelled.
        """
        for work in [*self._active, *self._pending]:
            work.done.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            if self._paused or self.idle:
                self._wake.clear()
                continue
            begun = self._clock()
            try:
                self._tick()
            except Exception as error:  # noqa: BLE001 - whoever waits for a request must hear of it, or waits for ever
                for work in [*self._active, *self._pending]:
                    if not work.done.done():
                        work.done.set_exception(error)
                return
            self.busy_seconds += self._clock() - begun
            await asyncio.sleep(0)

    def _tick(self) -> None:
        """
        One token for every request in a slot.
        """
        while self._pending and len(self._active) < self._slots:
            self._active.append(self._pending.popleft())
        rows = [row for work in self._active for row in work.tokens[work.alive, : work.length].tolist()]
        log_probs = self._next_logits(rows).cpu()
        begin = 0
        for work in list(self._active):
            count = int(work.alive.sum())
            self._extend(work, log_probs[begin : begin + count])
            begin += count
            if len(work.versions) == work.request.limit or not bool(work.alive.any()):
                self._active.remove(work)
                if not work.done.done():
                    work.done.set_result(_answers(work))

    def _extend(self, work: _Work, logits: Tensor) -> None:
        scaled = (logits / work.request.temperature).log_softmax(-1)
        chosen = torch.multinomial(scaled.exp(), 1, generator=work.draw).squeeze(1)
        work.tokens[work.alive, work.length] = chosen
        work.log_probs[work.alive, len(work.versions)] = scaled.gather(1, chosen[:, None]).squeeze(1)
        work.alive[work.alive.clone()] = chosen != work.request.end
        work.versions.append(self._version)

    def _next_logits(self, rows: Sequence[Sequence[int]]) -> Tensor:
        last = torch.tensor([len(row) - 1 for row in rows], device=self._device)
        return self._logits(rows)[torch.arange(len(rows), device=self._device), last]

    @torch.inference_mode()
    def _logits(self, rows: Sequence[Sequence[int]]) -> Tensor:
        width = max(map(len, rows))
        padded = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], device=self._device)
        logits: Tensor = self._model(padded)
        return logits.float()


def _answers(work: _Work) -> tuple[Answer, ...]:
    begin, end = len(work.request.prompt), work.request.end
    answers = []
    for tokens, log_probs in zip(work.tokens[:, begin:].tolist(), work.log_probs.tolist(), strict=True):
        count = min(tokens.index(end) + 1 if end in tokens else len(tokens), len(work.versions))
        answers.append(
            Answer(
                tokens=tuple(tokens[:count]),
                log_probs=tuple(log_probs[:count]),
                versions=tuple(work.versions[:count]),
            )
        )
    return tuple(answers)
