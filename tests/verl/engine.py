"""
Stands in for vLLM: a package by that name that holds whatever is imported from it, and an engine without a model.

Import this before verl's server module. The server itself, ``vLLMHttpServer``, is verl's own then.
"""

import asyncio
import importlib.metadata
import sys
from collections.abc import AsyncIterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

VERSION = "0.32.0"

SETTINGS = {"logprobs": None, "prompt_logprobs": None}
"""What verl reads of sampling parameters beyond those that it sets."""


class _Named:
    """
    An object of a class that verl imports: what it was made with.
    """

    def __init__(self, *args: Any, **told: Any) -> None:
        self.__dict__.update(told)


class _Anything(ModuleType):
    """
    A module that has every name: an empty class for each.
    """

    __version__ = VERSION

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (_Named,), dict(SETTINGS))
        setattr(self, name, made)
        return made


class _Finder(MetaPathFinder, Loader):
    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if fullname.split(".")[0] == "vllm" else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Anything(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def install() -> None:
    """
    Put the package in place, and its version where verl looks for it.
    """
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, _Finder())
    real = importlib.metadata.version

    def version(distribution_name: str) -> str:
        return VERSION if distribution_name == "vllm" else real(distribution_name)

    importlib.metadata.version = version


class Engine:
    """
    Stands in for ``AsyncLLM``: a request is answered when it is told to, or by a pause.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.requests: list[str] = []
        self.arrived: asyncio.Queue[str] = asyncio.Queue()
        self.output_processor = SimpleNamespace(request_states={})
        self._answers: dict[str, asyncio.Future[str]] = {}
        self.prompt = False
        """Whether every request is answered at once."""

    async def generate(self, prompt: Any, sampling_params: Any, request_id: str, **rest: Any) -> AsyncIterator[Any]:
        """
        A first output at once, which verl takes for admission; then two tokens, when it is finished or aborted.
        """
        self.requests.append(request_id)
        self.arrived.put_nowait(request_id)
        answer = self._answers[request_id] = asyncio.get_running_loop().create_future()
        yield SimpleNamespace(outputs=[])
        if self.prompt:
            self.finish(request_id)
        reason = await answer
        logprobs = [{token: SimpleNamespace(logprob=0.0)} for token in (1, 2)]
        output = SimpleNamespace(token_ids=[1, 2], logprobs=logprobs, finish_reason=reason)
        yield SimpleNamespace(outputs=[output], num_cached_tokens=0, metrics=None)

    def finish(self, request_id: str, reason: str = "stop") -> None:
        """
        Answer a request.
        """
        self._answers.pop(request_id).set_result(reason)

    async def pause_generation(self, **told: Any) -> None:
        """
        Abort what runs.
        """
        self.asked.append("pause")
        for request_id in list(self._answers):
            self.finish(request_id, "abort")

    async def resume_generation(self) -> None:
        """
        Note it.
        """
        self.asked.append("resume")


def server(rank: int = 0) -> Any:
    """
    verl's server of replica ``rank``, as it is once its engine has been launched.
    """
    install()
    from verl.workers.rollout.replica import RolloutMode
    from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer

    made = vLLMHttpServer.__new__(vLLMHttpServer)
    furnish(made, rank=rank, mode=RolloutMode.STANDALONE)
    return made


def furnish(made: Any, *, rank: int, mode: Any) -> None:
    """
    Give a server what its constructor and its launch would, but for sockets and devices.
    """
    made.config = _Config(
        max_model_len=64,
        prompt_length=8,
        response_length=8,
        full_determinism=False,
        enable_rollout_routing_replay=False,
        free_cache_engine=False,
        mtp=None,
    )
    made.model_config = SimpleNamespace(lora_rank=0, lora={}, processor=None)
    made.replica_rank, made.node_rank = rank, 0
    made.rollout_mode = mode
    made.global_steps = None
    made.engine = Engine()
    made._disaggregation_role, made._pd_decode_peers = "null", []
    made._submission_paused, made._rejecting, made._admitting = False, False, 0
    made._resume_event = asyncio.Event()
    made._resume_event.set()


class _Config(SimpleNamespace):
    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self, name, default)
