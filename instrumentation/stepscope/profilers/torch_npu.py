"""
Drives ``torch_npu.profiler``, the profiler of Ascend devices, as the wheel of torch_npu 2.13 defines it.

Owns levels, thread rules, and what its habits need: it swallows what its methods raise, stops itself when it is
collected as garbage, and keeps its folder in one place for the whole process. Analysis is left to people: done in the
process it forks, and takes minutes. None of this has run on a device; see the page on Ascend.
"""

import importlib
import importlib.util
import inspect
import shutil
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepscope.names import Level
from stepscope.profilers import (
    Armed,
    ForeignProfilerError,
    NoArtifactError,
    Recording,
    Request,
    UnavailableError,
    cann,
    plain,
)
from stepscope.profilers.torch import TorchProfiler


@dataclass(frozen=True, kw_only=True, slots=True)
class Content:
    """
    What a level records, in torch_npu's words.
    """

    activities: tuple[str, ...]
    profiler_level: str
    aic_metrics: str = "AiCoreNone"
    marks: bool = True
    details: bool = False
    """Shapes and memory."""


CONTENTS = {
    Level.DEVICE: Content(activities=("NPU",), profiler_level="Level0", marks=False),
    Level.SPANS: Content(activities=("NPU",), profiler_level="Level0"),
    Level.OPS: Content(activities=("CPU", "NPU"), profiler_level="Level1"),
    Level.FULL: Content(
        activities=("CPU", "NPU"), profiler_level="Level2", aic_metrics="PipeUtilization", details=True
    ),
}
"""Each level's content. Device activity is in all of them; counters of the cores in the last alone."""


class TorchNpuProfiler:
    """
    The profiler ``torch_npu``. One session at a time in a process, on the thread that started it.
    """

    name = "torch_npu"

    def __init__(self, *, stacks: bool = False) -> None:
        """
        ``stacks`` adds Python stacks at level ``full``. Off, because stopping then crashes on devices in use today.
        """
        self._stacks = stacks
        self._session: Any = None
        self._home = 0
        self._thread = 0

    def unavailable(self) -> str | None:
        """
        Why it cannot be used here: not installed, no CANN, or the devices belong to another tool.
        """
        if "torch_npu" not in sys.modules:
            if importlib.util.find_spec("torch_npu") is None:
                return "torch_npu is not installed"
            if not cann.found():
                return f"torch_npu is installed, but not CANN ({cann.RUNTIME} is not found: source CANN's set_env.sh)"
        return cann.taken()

    def foreign(self) -> bool:
        """
        Whether a session of torch_npu's or of torch's profiler is on that is not ours.
        """
        return self._session is None and (_begun() or TorchProfiler().foreign())

    def prepare(self) -> None:
        """
        Import it. No session is started: that would take a device before the program has chosen its own.

        The thread that does this is the one that windows must open on. CANN ties its profiler to the thread that has
        set the device up, and a start on another ends the process.
        """
        self._home = threading.get_native_id()
        _profiler()

    def start(self, request: Request) -> Armed:
        """
        Begin to record, into a folder of torch_npu's own naming within the window's folder.
        """
        if request.roaming:
            raise UnavailableError("torch_npu's profiler must be stopped by the thread that started it")
        if self._home not in {0, threading.get_native_id()}:
            raise UnavailableError("torch_npu's profiler must be started by the thread that called init()")
        profiler = _profiler()
        if not _torch_npu().npu.is_available():
            raise UnavailableError("no NPU is available in this process")
        if not _owner.acquire(blocking=False):
            raise ForeignProfilerError("a recording by torch_npu is still on in this process")
        session = None
        try:
            if _begun() or TorchProfiler().foreign():
                raise ForeignProfilerError("a profiler of torch or torch_npu is already on in this process")
            content = CONTENTS[Level(request.level)]
            session = self._new(profiler, content, request)
            _call(session, "start")
            if _folder(session).parent != request.folder.resolve():
                raise NoArtifactError("torch_npu's profiler has started without a folder of ours to write to")
        except BaseException:
            _undo(session, request)
            raise
        self._session, self._thread = session, threading.get_native_id()
        return Armed(level=request.level, thread_bound=True, all_threads=True, marks=content.marks)

    def describe(self, metadata: Mapping[str, str]) -> None:
        """
        Add keys to ``profiler_metadata.json``, which is written at the stop.
        """
        session = self._session
        for key, value in metadata.items() if session is not None else ():
            session.add_metadata(plain(key), plain(value))

    def enter(self, label: str) -> object:
        """
        Begin a range of mstx on the host; it costs the device nothing.
        """
        return _torch_npu().npu.mstx.range_start(label) if self._session is not None else None

    def exit(self, handle: object) -> None:
        """
        End a range, on any thread. torch_npu answers 0 for one that it did not begin.
        """
        if handle:
            _torch_npu().npu.mstx.range_end(handle)

    def stop(self, request: Request, *, keep: bool = True) -> Recording:
        """
        Stop, which waits for the device, and leave the raw folder as it is.
        """
        session, self._session = self._session, None
        if session is None:
            raise NoArtifactError("the profiler was not started")
        folder = _folder(session)
        try:
            if threading.get_native_id() != self._thread:
                raise ForeignProfilerError("another thread started the profiler; stopping it here would crash")
            if _current() != str(folder):
                raise ForeignProfilerError("another torch_npu profiler was started inside the window")
            before = time.perf_counter()
            _call(session, "stop")
            stall = {"stop": time.perf_counter() - before}
        except BaseException:
            _forsake(session)
            raise
        _owner.release()
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
            return Recording(artifact="", stall=stall)
        if not any(folder.glob("profiler_info*.json")):
            raise NoArtifactError("torch_npu's profiler has left no profiler_info")
        return Recording(artifact=str(folder.relative_to(request.folder.resolve())), stall=stall)

    def abandon(self) -> None:
        """
        Leave the session on: no thread that is left may stop it. It was the last one of this process.
        """
        session, self._session = self._session, None
        if session is not None:
            _forsake(session)

    def _new(self, profiler: Any, content: Content, request: Request) -> Any:
        config = profiler._ExperimentalConfig(  # noqa: SLF001 - listed in its module's __all__
            profiler_level=getattr(profiler.ProfilerLevel, content.profiler_level),
            aic_metrics=getattr(profiler.AiCMetrics, content.aic_metrics),
            mstx=content.marks,
            # Of text, torch_npu writes the environment's settings into the metadata; what is analysed is chosen later.
            export_type=[profiler.ExportType.Db],
        )
        # Names the folder for the next start in this process, whoever makes it.
        ready = profiler.tensorboard_trace_handler(
            dir_name=str(request.folder), worker_name=f"rank{request.rank}", analyse_flag=False
        )
        return profiler.profile(
            activities=[getattr(profiler.ProfilerActivity, name) for name in content.activities],
            on_trace_ready=ready,
            record_shapes=content.details,
            profile_memory=content.details,
            with_stack=content.details and self._stacks,
            experimental_config=config,
        )


_owner = threading.Lock()
"""Held while a session of ours is on in this process; for ever, if one could not be stopped."""

_kept: list[object] = []
"""Sessions that must not be freed."""


def _torch_npu() -> Any:
    try:
        return importlib.import_module("torch_npu")
    except (ImportError, RuntimeError, OSError) as error:
        raise UnavailableError(f"torch_npu cannot be imported: {error}") from error


def _profiler() -> Any:
    _torch_npu()
    return importlib.import_module("torch_npu.profiler")


def _call(session: Any, method: str) -> None:
    """
    Call ``method`` without the wrapper that prints what it raises and goes on as if nothing had been.
    """
    inspect.unwrap(getattr(type(session), method))(session)


def _folder(session: Any) -> Path:
    """
    Where ``session`` writes; an empty path where torch_npu has taken no notice of the start.
    """
    return Path(session.prof_if.prof_path or "")


def _paths() -> Any:
    """
    torch_npu's one object for all sessions of the process; ``None`` where none can have begun.
    """
    module = sys.modules.get("torch_npu.profiler._profiler_path_creator")
    return None if module is None else module.ProfPathCreator()


def _begun() -> bool:
    return bool(getattr(_paths(), "is_prof_inited", False))


def _current() -> str:
    return str(_paths().get_prof_dir())


def _undo(session: Any, request: Request) -> None:
    """
    After a start that failed: end what has begun, and leave nothing.
    """
    if session is None:
        _owner.release()
        return
    session.stop()
    folder = _folder(session)
    if folder.parent == request.folder.resolve():
        shutil.rmtree(folder, ignore_errors=True)
    if _begun():
        _forsake(session)
    else:
        _owner.release()


def _forsake(session: Any) -> None:
    # It stops itself when it is freed, on whatever thread that happens, unless it believes that it has stopped.
    session.stopped = True
    _kept.append(session)
