"""
Drives the profiler of a vLLM engine that this process holds: its workers, processes of their own, write the trace.

Owns what the engine is told and what it answers: it refuses a second start, also after its worker has stopped by
itself; it reports a failed start as a success; it names no file. Leaves to ``sessions`` whose a session is and that it
ends, and files to ``traces``; imports nothing of vLLM.
"""

from pathlib import Path
from typing import Any, Protocol

from stepscope.names import Level, Tool
from stepscope.profilers import Armed, ForeignProfilerError, LostError, Recording, Request, UnavailableError
from stepscope.profilers.sessions import (
    FILE_DEADLINE,
    START_DEADLINE,
    STOP_DEADLINE,
    Sessions,
    UnansweredError,
    prefix,
)
from stepscope.profilers.traces import Drop

ALREADY = "ProfilerAlreadyActiveError"
DEAD = "EngineDeadError"
"""Exceptions of vLLM, known by name: nothing of vLLM is imported here."""

EVERYTHING = ("torch_profiler_with_stack", "torch_profiler_record_shapes", "torch_profiler_with_memory")
"""Settings of its profiler beyond operators; the first is on by default."""


class Engine(Protocol):
    """
    What is called of vLLM's ``AsyncLLM``, on the event loop that it lives on.
    """

    async def start_profile(self, profile_prefix: str | None = None) -> None:
        """
        Have every worker record; traces are called ``profile_prefix`` and something.
        """

    async def stop_profile(self) -> None:
        """
        Returns when every worker has written.
        """


class VllmProfiler:
    """
    The tool ``vllm`` for one engine. Register it with ``stepscope.register_profiler``, after ``init()``.

    Windows are opened and closed by the async boundary calls, on the engine's event loop.
    """

    name = str(Tool.VLLM)

    def __init__(
        self,
        engine: Engine | None = None,
        *,
        folder: str | Path | None = None,
        start_deadline: float = START_DEADLINE,
        stop_deadline: float = STOP_DEADLINE,
        file_deadline: float = FILE_DEADLINE,
    ) -> None:
        """
        Without ``engine`` the tool is unavailable. ``folder`` is where its workers write, if it does not say so itself.
        """
        self._engine = engine
        self._folder = Path(folder) if folder else None
        # The engine takes a session for active until a stop was seen through.
        self._sessions = Sessions(
            "engine",
            stop=self._stop,
            undo=self._stop,
            file_deadline=file_deadline,
            start_deadline=start_deadline,
            stop_deadline=stop_deadline,
            again=True,
        )

    def unavailable(self) -> str | None:
        """
        Why it cannot be used here. Asks no engine.
        """
        if self._engine is None:
            return "no engine is registered: call stepscope.register_profiler(VllmProfiler(engine))"
        if self._folder is None and self._setting("profiler") != "torch":
            return (
                "the engine was started without its profiler: it takes "
                "profiler_config={'profiler': 'torch', 'torch_profiler_dir': FOLDER}"
            )
        if self._folder is None and "://" in str(self._setting("torch_profiler_dir")):
            return "the engine writes its traces to a remote address; name a local folder"
        return None

    async def start(self, request: Request) -> Armed:
        """
        Start a session of this window's own. One of another's is left alone; what is left over of ours is ended first.
        """
        engine = self._engine
        if engine is None or self.unavailable():
            raise UnavailableError(self.unavailable())
        return await self._sessions.begin(
            request,
            level=Level.FULL if any(map(self._setting, EVERYTHING)) else Level.OPS,
            drop=lambda: Drop(self._place(), prefix=prefix(request)),
            start=lambda drop: self._start(engine, drop.prefix),
        )

    async def stop(self, request: Request, *, keep: bool = True) -> Recording:
        """
        Stop the session, once, and fetch its traces.
        """
        return await self._sessions.end(request, keep=keep)

    async def _start(self, engine: Engine, name: str) -> None:
        try:
            await engine.start_profile(profile_prefix=name)
        except Exception as error:
            if type(error).__name__ == ALREADY:
                raise ForeignProfilerError("a profiling session is already on in this engine") from error
            if type(error).__name__ == DEAD:
                raise _judged(error) from error
            # Some of its workers may have begun.
            raise UnansweredError(f"the engine failed at the start: {type(error).__name__}: {error}") from error

    async def _stop(self) -> None:
        assert self._engine is not None
        try:
            await self._engine.stop_profile()
        except Exception as error:
            raise _judged(error) from error

    def _place(self) -> Path:
        return self._folder or Path(str(self._setting("torch_profiler_dir")))

    def _setting(self, name: str) -> Any:
        """
        What the engine's configuration says of its profiler.
        """
        config = getattr(getattr(self._engine, "vllm_config", None), "profiler_config", None)
        return getattr(config, name, None)


def _judged(error: Exception) -> Exception:
    """
    The same, or that the engine is no more.
    """
    return LostError(f"the engine is dead: {error}") if type(error).__name__ == DEAD else error
