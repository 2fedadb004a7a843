"""
A session, and what its start and stop do to the file system.
"""

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ..signatures import FACTS, real  # noqa: TID252 - checked under one name, imported by another
from ._profiler_path_creator import ProfPathCreator
from .experimental_config import _ExperimentalConfig

made: list["profile"] = []
"""Every session that was made."""

faults: dict[str, Exception] = {}
"""What ``start`` or ``stop`` is to raise, in the place of CANN."""

_FILES = FACTS["files"]


@real("torch_npu.profiler.profiler.tensorboard_trace_handler")
def tensorboard_trace_handler(
    dir_name: str | None, worker_name: str | None, analyse_flag: bool, async_mode: bool
) -> Callable[[object], None]:
    """
    Names the folder at once, not when it is called.
    """
    ProfPathCreator().init(worker_name=worker_name, dir_name=dir_name)

    def handler(session: object) -> None:
        if analyse_flag:
            raise RuntimeError("the stand-in has nothing to analyse")

    return handler


class profile:  # noqa: N801 - the real one's name
    """
    One session.
    """

    @real("torch_npu.profiler.profiler.profile.__init__")
    def __init__(self, **given: Any) -> None:
        if not isinstance(given["experimental_config"], _ExperimentalConfig | None):
            raise TypeError("no _ExperimentalConfig")
        self.given = SimpleNamespace(**given)
        self.metadata: dict[str, object] = {}
        self.stopped = False
        self.begun = (0, 0)
        self.prof_if = SimpleNamespace(prof_path="")
        self.thread = 0
        made.append(self)

    def __del__(self) -> None:
        if not getattr(self, "stopped", True):
            self.stop()

    @real("torch_npu.profiler.profiler.profile.start")
    def start(self) -> None:
        """
        Make the folder, begin. Under msprof nothing happens, and nothing is said.
        """
        self.stopped = False
        if _under_msprof():
            return
        ProfPathCreator().create_prof_dir()
        self.prof_if.prof_path = ProfPathCreator().get_prof_dir()
        self.thread = threading.get_ident()
        self.begun = (time.monotonic_ns(), time.time_ns())
        if "start" in faults:
            raise faults["start"]

    @real("torch_npu.profiler.profiler.profile.stop")
    def stop(self) -> None:
        """
        Write what the real one writes. The real one ends the process where another thread calls it.
        """
        if not _under_msprof():
            if self.thread != threading.get_ident():
                raise RuntimeError("stopped by another thread than started it: here the real one would crash")
            if "stop" in faults:
                raise faults["stop"]
            _write(self, Path(self.prof_if.prof_path))
            ProfPathCreator().is_prof_inited = False
        if self.given.on_trace_ready:
            self.given.on_trace_ready(self)
        self.stopped = True

    @real("torch_npu.profiler.profiler._KinetoProfile.add_metadata")
    def add_metadata(self, key: str, value: str) -> None:
        """
        Keep a pair of strings, of at most 4096 characters each.
        """
        if max(len(key), len(value)) <= 4096:
            self.metadata[key] = value

    @real("torch_npu.profiler.profiler._KinetoProfile.add_metadata_json")
    def add_metadata_json(self, key: str, value: str) -> None:
        """
        The same for a value in JSON.
        """
        self.metadata[key] = json.loads(value)


def _under_msprof() -> bool:
    return any(os.environ.get(_FILES[name]) for name in ("MSPROF_DYNAMIC_ENV", "MSPROF_STATIC_ENV"))


def _write(session: Any, path: Path) -> None:
    given = session.given
    config = vars(given.experimental_config) if given.experimental_config else {}
    rank = os.environ.get("RANK")
    activities = given.activities or []
    info: dict[str, object] = {
        "config": {
            "common_config": {
                "activities": [str(activity) for activity in activities],
                "record_shapes": given.record_shapes,
                "profile_memory": given.profile_memory,
                "with_stack": given.with_stack,
            },
            "experimental_config": config,
        },
        "start_info": {
            "syscnt_enable": False,
            "freq": 100,
            "start_cnt": 0,
            "start_monotonic": session.begun[0],
        },
        "end_info": {"collectionTimeEnd": time.time_ns(), "MonotonicTimeEnd": time.monotonic_ns()},
        "torch_npu_version": "2.13.0+standin",
        "cann_version": "standin",
    }
    if rank is not None:
        info["rank_id"] = rank
    name = "profiler_info.json" if rank is None else f"profiler_info_{rank}.json"
    (path / name).write_text(json.dumps(info, indent=4))
    (path / _FILES["PROFILER_META_DATA"]).write_text(json.dumps({**session.metadata, "trace_id": "0" * 32}))
    if any(activity.name == "CPU" for activity in activities):
        framework = path / _FILES["FRAMEWORK_DIR"]
        framework.mkdir()
        (framework / "torch.op_range").write_bytes(b"stand-in, not data")
    device = path / "PROF_000001_20260101000000000_STANDIN" / "device_0" / "data"
    device.mkdir(parents=True)
    (device / "aicpu.data.0.slice_0").write_bytes(b"stand-in, not data")
