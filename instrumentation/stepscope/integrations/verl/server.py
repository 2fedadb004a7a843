"""
The rollout server of a replica: an actor with an event loop, before an engine. Role ``rollouter``.

Owns how the boundary is seen there. ``set_global_steps(version)`` says that the weights have come, before generation
resumes; ``release_kv_cache()`` and ``sleep()`` that they are about to change or to go. A pause alone is none: verl
pauses replicas for other reasons too. Servers of reward and teacher models are never told a version: they stay out.
Which rank a replica has is said by :mod:`stepscope.integrations.verl.replicas`.
"""

import functools
import json
from typing import Any

from stepscope import names, sdk, settings
from stepscope.complaints import complaints
from stepscope.integrations.verl import loop, replicas, samples, validation
from stepscope.integrations.verl.phases import Function, Wrap, phase, whole
from stepscope.names import Bucket, Tool
from stepscope.propagation import Carrier

ROLE = "rollouter"
REQUEST, POSITION = "request_id", 2
"""The parameter of ``generate()`` that names a request, and how many stand before it."""

PROFILER = "profiler_config"
"""The engine's argument that its profiler depends on, since vLLM 0.13."""

LEAN = {
    "profiler": "torch",
    "torch_profiler_use_gzip": False,
    "torch_profiler_with_stack": False,
    "ignore_frontend": True,
}
"""Compression is the sidecar's work, stacks slow the stop down, and the front end only waits."""


class Load:
    """
    The span of weights that are on their way into this server's engine.
    """

    def __init__(self) -> None:
        self._span: Any = None
        self.again: int | None = None
        """The version that comes a second time next: no boundary."""

    def begin(self) -> None:
        """
        The replica stands still.
        """
        self._finish()
        self._span = sdk.start_span(names.WEIGHTS_LOAD, bucket=Bucket.OVERHEAD)

    def end(self) -> None:
        """
        They are there.
        """
        self.again = None
        self._finish()

    def _finish(self) -> None:
        span, self._span = self._span, None
        if span is not None:
            span.end()


load = Load()


def weights_come(original: Function) -> Function:
    """
    ``set_global_steps(global_steps)``: the replica is in the step after that version, from before it resumes.
    """

    @functools.wraps(original)
    async def wrapper(self: Any, global_steps: Any, *args: Any, **kwargs: Any) -> Any:
        result = await original(self, global_steps, *args, **kwargs)
        load.end()
        version = whole(global_steps)
        if version is None:
            return result
        if not loop.is_role(ROLE):
            _enrol(self, version)
        if sdk.current_version() != version:
            # Where nothing said that they would change, the window ends here, before generation resumes.
            await sdk.aweights_loading()
        if not validation.held.takes(version):
            await sdk.aweights_loaded(version)
        return result

    return wrapper


def weights_change(original: Function) -> Function:
    """
    ``release_kv_cache()``: the replica has been paused for an update, and its step ends before that.

    Unless it is brought the version that it has: that ends nothing.
    """

    @functools.wraps(original)
    async def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        if loop.is_role(ROLE):
            if load.again is None or load.again != sdk.current_version():
                await sdk.aweights_loading()
                loop.deliver()
            load.begin()
        return await original(self, *args, **kwargs)

    return wrapper


def weights_go(original: Function) -> Function:
    """
    ``sleep()``: the replica's device goes back to training, and its step ends before that.
    """

    @functools.wraps(original)
    async def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        if loop.is_role(ROLE):
            await sdk.aweights_loading()
        return await original(self, *args, **kwargs)

    return wrapper


def timed(name: str) -> Wrap:
    """
    Wraps what a replica does around an update in a span.
    """

    def wrap(original: Function) -> Function:
        @functools.wraps(original)
        async def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            with phase(name, bucket=Bucket.OVERHEAD):
                return await original(self, *args, **kwargs)

        return wrapper

    return wrap


def generates(original: Function) -> Function:
    """
    ``generate(prompt_ids, sampling_params, request_id, …)``: one turn of a sample, up to its end or to the update that
    interrupts it. The engine gets the request's id as verl made it.
    """

    @functools.wraps(original)
    async def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        args, kwargs, sample = _sample(args, kwargs)
        if not loop.is_role(ROLE):
            return await original(self, *args, **kwargs)
        held = validation.held.version
        kind = Bucket.PRODUCTIVE if held is None else Bucket.OVERHEAD
        below, after = (held, None) if sample else (None, held)
        with (
            sdk.attached(sample),
            samples.placed(below),
            sdk.span(names.ROLLOUT_GENERATE, bucket=kind, request=True, after_version=after) as span,
        ):
            result = await original(self, *args, **kwargs)
            _count(span, result)
            return result

    return wrapper


def engine_arguments(original: Function) -> Function:
    """
    ``vLLMHttpServer._preprocess_engine_kwargs(engine_kwargs)``: with the tool ``vllm``, the engine gets its profiler.
    """

    @functools.wraps(original)
    def wrapper(self: Any, engine_kwargs: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, engine_kwargs, *args, **kwargs)
        try:
            chosen = settings.read()
            if chosen.tool(ROLE) == Tool.VLLM and PROFILER not in engine_kwargs and chosen.attempt:
                folder = chosen.attempt_folder / "engines" / f"{ROLE}-{self.replica_rank}"
                folder.mkdir(parents=True, exist_ok=True)
                engine_kwargs[PROFILER] = json.dumps({**LEAN, "torch_profiler_dir": str(folder)})
        except Exception as error:  # noqa: BLE001 - the engine starts without its profiler
            complaints.fault("the engine's profiler", error)
        return result

    return wrapper


def _sample(args: tuple[Any, ...], given: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any], Carrier | None]:
    """
    The arguments of a request without what came with its id, and that: the context of its sample.
    """
    if REQUEST in given:
        request, carrier = samples.taken(given[REQUEST])
        return args, {**given, REQUEST: request}, carrier
    if len(args) > POSITION:
        request, carrier = samples.taken(args[POSITION])
        return (*args[:POSITION], request, *args[POSITION + 1 :]), given, carrier
    return args, given, None


def _enrol(server: Any, version: int) -> None:
    rank = replicas.rank_of(server)
    if rank is not None and loop.enrol(role=ROLE, rank=rank, version=version):
        _offer(getattr(server, "engine", None))


def _count(span: Any, result: Any) -> None:
    try:
        if (tokens := getattr(result, "token_ids", None)) is not None:
            span.set(names.TOKENS, len(tokens))
            span.set(names.WORK, float(len(tokens)))
    except Exception as error:  # noqa: BLE001 - an answer of another shape must not cost the request
        complaints.fault("the tokens of a request", error)


def again(server: object, version: int) -> None:  # noqa: ARG001 - Ray hands the actor over
    """
    In a server: the next update brings ``version``, which the run has already. It may be news to this replica.
    """
    load.again = version


def _offer(engine: Any) -> None:
    if engine is None or not hasattr(engine, "start_profile"):
        return
    from stepscope.profilers.vllm import VllmProfiler

    sdk.register_profiler(VllmProfiler(engine))
