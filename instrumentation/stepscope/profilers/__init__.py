"""
What a profiler is to the window agent, and which of them this process has.

Owns the protocols and the data that cross them. Leaves when to start and stop to :mod:`stepscope.windows`; a driver
imports what it drives when it is used, never before.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeGuard
from urllib.parse import quote

from stepscope.errors import StepscopeError
from stepscope.seam import Identity
from stepscope.settings import Settings

BUILT_IN = {
    "cuda_range": "stepscope.profilers.cuda_range:CudaRange",
    "http": "stepscope.profilers.http:HttpProfiler",
    "msprof": "stepscope.profilers.attached:msprof",
    "py-spy": "stepscope.profilers.attached:py_spy",
    "torch": "stepscope.profilers.torch:TorchProfiler",
    "torch_memory": "stepscope.profilers.torch_memory:TorchMemory",
    "torch_npu": "stepscope.profilers.torch_npu:TorchNpuProfiler",
    "vllm": "stepscope.profilers.vllm:VllmProfiler",
}
"""Tools that come with this package: name, and where their driver is."""

MAX_NAME = 512
"""Characters of a span's name on a profiler's timeline; finalising cuts the names that it adds alike."""

MAX_VALUE = 1000
"""Characters of a metadata value."""

_PLAIN = "".join(chr(code) for code in range(32, 127) if chr(code) not in '"\\%')


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """
    The window to record. ``folder`` exists; the recording goes there.
    """

    window: str
    level: str
    folder: Path
    roaming: bool = False
    """The boundary may come on another thread than the one that starts the profiler."""
    rank: int = 0
    world_size: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Armed:
    """
    How the profiler runs. ``level`` is the one in use, ``fallback`` the one asked for where that is another.
    """

    level: str
    fallback: str = ""
    thread_bound: bool = False
    """Nobody but the thread that started it may stop it."""
    all_threads: bool = True
    """Marks of all threads are recorded; otherwise of the starting thread alone."""
    marks: bool = True
    """Spans can be put on its timeline."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recording:
    """
    What the profiler left: the raw file's name in the window's folder, and the seconds it took by phase.
    """

    artifact: str
    stall: Mapping[str, float] = field(default_factory=dict)


class UnavailableError(StepscopeError):
    """
    The tool cannot record here what was asked; the message says why.
    """


class ForeignProfilerError(StepscopeError):
    """
    Somebody else's profiler runs, or has taken ours over: it must be neither stopped nor exported.
    """


class NoArtifactError(StepscopeError):
    """
    The profiler stopped and left nothing.
    """


class LostError(StepscopeError):
    """
    What recorded has gone, and the recording with it: the server or engine ended within the window.
    """


class Profiler(Protocol):
    """
    A profiler in this process. The agent starts and stops it, one window at a time.

    ``start`` and ``stop`` may raise; what they raise ends the window, never the training loop.
    """

    @property
    def name(self) -> str:
        """
        The tool's name, as ``STEPSCOPE_TOOLS`` has it.
        """

    def unavailable(self) -> str | None:
        """
        Why it cannot be used here; ``None`` if it can. Cheap: imports nothing heavy.
        """

    def foreign(self) -> bool:
        """
        Whether somebody else's profiler runs now, so that a start would break both.
        """

    def prepare(self) -> None:
        """
        Pay what the first start costs, before training and on the thread that calls ``init()``.
        """

    def start(self, request: Request) -> Armed:
        """
        Begin to record, on this thread.
        """

    def describe(self, metadata: Mapping[str, str]) -> None:
        """
        Put ``metadata`` into the recording; while recording only.
        """

    def enter(self, label: str) -> object:
        """
        Begin a mark on the timeline of this thread. ``label`` is plain (see :func:`label`).
        """

    def exit(self, handle: object) -> None:
        """
        End a mark, on any thread.
        """

    def stop(self, request: Request, *, keep: bool = True) -> Recording:
        """
        Stop, and write the recording unless it is not to be kept.
        """

    def abandon(self) -> None:
        """
        Let go of a recording that nobody may stop any more; further windows stay possible.
        """


class AsyncProfiler(Protocol):
    """
    A profiler whose start and stop are coroutines (an engine's). It marks its own timeline, if it has any.

    One with an attribute ``anywhere`` that is true needs no event loop of its own: plain boundary calls drive it too.
    """

    @property
    def name(self) -> str:
        """
        The tool's name.
        """

    def unavailable(self) -> str | None:
        """
        Why it cannot be used here; ``None`` if it can.
        """

    async def start(self, request: Request) -> Armed:
        """
        Begin to record.
        """

    async def stop(self, request: Request, *, keep: bool = True) -> Recording:
        """
        Stop, and leave the recording in the window's folder.
        """


AnyProfiler = Profiler | AsyncProfiler


def is_sync(profiler: AnyProfiler) -> TypeGuard[Profiler]:
    """
    Whether ``profiler`` is driven by plain calls on the boundary's thread.
    """
    return hasattr(profiler, "foreign")


def anywhere(profiler: AnyProfiler) -> bool:
    """
    Whether the coroutines of ``profiler`` may run on any event loop, so that plain boundary calls can drive it.
    """
    return bool(getattr(profiler, "anywhere", False))


class Registry:
    """
    The profilers of this process by name: the built-in ones, made when first asked for, and those registered.
    """

    def __init__(
        self,
        profilers: Mapping[str, AnyProfiler] | None = None,
        *,
        settings: Settings | None = None,
        identity: Identity | None = None,
    ) -> None:
        """
        A driver with a classmethod ``configured`` is made by it, of ``settings`` and ``identity``.
        """
        self._made: dict[str, AnyProfiler] = dict(profilers or {})
        self._settings = settings
        self._identity = identity

    def add(self, profiler: AnyProfiler) -> None:
        """
        Take ``profiler`` in; it replaces one of the same name. One that nobody knows here must not hang the training,
        unless it says by ``thread_bound`` that the boundary's own thread has to drive it.
        """
        if profiler.name.startswith("x-") and is_sync(profiler) and not getattr(profiler, "thread_bound", False):
            from stepscope.profilers.guarded import Guarded

            profiler = Guarded(profiler)
        self._made[profiler.name] = profiler

    def find(self, name: str) -> AnyProfiler | None:
        """
        The profiler called ``name``; ``None`` if there is no such tool.
        """
        if name not in self._made and name in BUILT_IN:
            module, _, driver = BUILT_IN[name].partition(":")
            found = getattr(importlib.import_module(module), driver)
            configured = getattr(found, "configured", None)
            if configured is None or self._settings is None or self._identity is None:
                made = found()
            else:
                made = configured(self._settings, self._identity)
            # Two threads may ask at once, and a profiler that is used must be the one that is found later.
            self._made.setdefault(name, made)
        return self._made.get(name)

    def tools(self) -> dict[str, str]:
        """
        Each tool, and "" or why it is unavailable here.
        """
        return {name: self._trouble(name) for name in sorted({*BUILT_IN, *self._made})}

    def _trouble(self, name: str) -> str:
        """
        Why the tool of that name cannot be used here, "" if it can. One that cannot even say so must not keep the
        others, and this process, from the sidecar.
        """
        try:
            profiler = self.find(name)
            trouble = "" if profiler is None else profiler.unavailable() or ""
        except Exception as error:  # noqa: BLE001 - a registered profiler raises what it likes
            trouble = f"{type(error).__name__}: {error}"
        return str(trouble)[:MAX_VALUE]


def plain(text: str) -> str:
    """
    ``text`` in printable ASCII without ``"`` and ``\\``, the rest percent-encoded: anything else breaks the recording.
    """
    return quote(text, safe=_PLAIN)[:MAX_VALUE]


def label(name: str, span_id: int) -> str:
    """
    What a span is called on a profiler's timeline.
    """
    return f"{printable(name)} #{span_id:016x}"


def printable(name: object) -> str:
    """
    What a recording can hold of a span's name, which need not be text: somebody's member of an enumeration, say.
    """
    text = name if isinstance(name, str) else str(name)
    return "".join(letter for letter in text if " " <= letter <= "~" and letter not in '"\\')[:MAX_NAME]
