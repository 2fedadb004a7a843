"""
Programs that look at what each level records, and at torches that lack a part of it; one per function.

Run as ``python -m tests.integration.torch_levels NAME LEVEL``: the exit code is the result.
"""

import os
import threading
from typing import Any

import torch

from stepscope import wire
from stepscope.names import Level
from stepscope.profilers import kineto
from stepscope_sidecar.artifacts import kineto as artifact
from stepscope_sidecar.jobs import Job
from tests.integration.torch_rig import Rig, run, train

_torch: Any = torch


def _one_window(rig: Rig) -> wire.Closed:
    assert rig.open()
    with rig.span():
        train()
    rig.close()
    return rig.fake.wait(wire.Closed)[0]


def _categories(events: list[dict[str, object]]) -> set[object]:
    return {event.get("cat") for event in events}


def content(rig: Rig, level: str) -> None:
    """
    Each level holds the marks of spans, and what is its own: operators, then shapes, stacks and memory too.
    """
    closed = _one_window(rig)
    events = rig.recording(closed)
    arguments = {name for event in events if isinstance(told := event.get("args"), dict) for name in told}

    assert level == closed.level
    assert any(str(event["name"]).startswith("train #") for event in events)
    assert (level != "spans") == ("cpu_op" in _categories(events))
    assert (level == "full") == ("Input Dims" in arguments)
    assert (level == "full") == ("python_function" in _categories(events))
    assert (level == "full") == any(event["name"] == "[memory]" for event in events)
    assert {"open", "start", "stop", "export"} == set(closed.stall)


def export(rig: Rig, level: str) -> None:
    """
    The raw file is text as torch writes it, not packed in this process, and complete when it is finalised.
    """
    closed = _one_window(rig)
    folder = rig.fake.folder / "window-1"
    raw = (folder / closed.artifact).read_bytes()
    made = artifact.make(Job(folder=folder, closed=closed, pid=os.getpid()))

    assert b"{" == raw.lstrip()[:1]
    assert not list(folder.glob("*.partial*"))
    assert (True, "") == (made.verdict.complete, made.verdict.reason)


def _options(rig: Rig, *, refused: str = "") -> dict[str, object]:
    """
    What the profiler of a window is configured with, by a torch that does not know the option ``refused``.
    """
    kind = _torch._C._profiler._ExperimentalConfig
    told: dict[str, object] = {}

    class Config:
        def __init__(self, **options: object) -> None:
            told.update(options)
            assert refused not in options, f"{refused} is not an argument"
            self.real = kind(**options)

    Config.__init__.__doc__ = (kind.__init__.__doc__ or "").replace(refused or "\0", "x")

    def session(*arguments: Any, experimental_config: Any, **rest: Any) -> Any:
        return profile(*arguments, experimental_config=experimental_config.real, **rest)

    profile = _torch.profiler._KinetoProfile
    _torch._C._profiler._ExperimentalConfig = Config
    _torch.profiler._KinetoProfile = session
    assert rig.recording(_one_window(rig))
    return told


def trace_only(rig: Rig, level: str) -> None:
    """
    Results that nobody reads are not made, but at the level that needs them.
    """
    assert (level != "full") == ("trace_only" in _options(rig))


def without_trace_only(rig: Rig, level: str) -> None:
    """
    A torch that does not know the option records all the same.
    """
    assert "trace_only" not in _options(rig, refused="trace_only")


def without_scopes(rig: Rig, level: str) -> None:
    """
    A torch that cannot record annotations alone records operators too, and the window says so.
    """
    enable = _torch.autograd._enable_profiler

    def older(config: object, activities: object) -> None:
        """
        _enable_profiler(config, activities) -> None
        """
        enable(config, activities)

    _torch.autograd._enable_profiler = older
    closed = _one_window(rig)
    started = rig.fake.wait(wire.Started)[0]

    assert ("ops", "spans", "ops") == (started.level, started.level_fallback, closed.level)
    assert {"cpu_op", "user_annotation"} <= _categories(rig.recording(closed))


def denied(rig: Rig, level: str) -> None:
    """
    Without an accelerator there is nothing to record at level ``device``: the window is denied, the process trains on.
    """
    assert not rig.open()
    train()
    rig.close()
    ended = rig.fake.wait(wire.Ended)[0]

    assert ("denied", "tool_unavailable") == (ended.state, ended.reason)
    assert "accelerator" in ended.detail
    assert not rig.windows.recording


def device(rig: Rig, level: str) -> None:
    """
    Spans are not marked; they are told with their times at the close, and put on the timeline when it is finalised.

    There is no accelerator here: a session on the CPU stands in for one of device activity.
    """
    session = kineto.session
    kineto.session = lambda level, *, all_threads: session(Level.OPS, all_threads=all_threads)
    elsewhere = threading.Thread(target=lambda: _span(rig, "other"))
    assert rig.open()
    with rig.span("outer"):
        with rig.span("inner"):
            train()
        elsewhere.start()
        elsewhere.join()
        rig.close()
    closed = rig.fake.wait(wire.Closed)[0]
    made = artifact.make(Job(folder=rig.fake.folder / "window-1", closed=closed, pid=os.getpid()))
    found = artifact.inspect(made.path, closed)

    assert (level, []) == (closed.level, closed.mirrored)
    assert {"outer", "inner", "other"} == {span.name for span in closed.continued}
    ended = {span.name: span.end_unix_ns for span in closed.continued}
    assert 0 == ended.pop("outer")
    assert all(closed.opened_unix_ns < end <= closed.closed_unix_ns for end in ended.values())
    assert (3, True) == (found.continued, made.verdict.complete)


def _span(rig: Rig, name: str) -> None:
    with rig.span(name):
        train()


def quiet(rig: Rig, level: str) -> None:
    """
    Ending a session of all threads warns of nothing, and afterwards torch warns as before.
    """
    for number in range(1, 4):
        assert rig.open()
        train()
        rig.close()
        rig.fake.wait(wire.Closed, number)
    session = kineto.session(Level.OPS, all_threads=True)
    kineto.start(session, annotations_only=False)
    os.write(2, b"now\n")
    session.toggle_collection_dynamic(False, [torch.profiler.ProfilerActivity.CPU])
    session.stop_trace()


if __name__ == "__main__":
    run(globals())
