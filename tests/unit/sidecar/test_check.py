"""
What ``stepscope check`` says of tools, and of servers: whether somebody is there. It starts nothing.
"""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from stepscope import names, settings
from stepscope.profilers import BUILT_IN
from stepscope.profilers.attached import LEAVES
from stepscope_sidecar import check
from stepscope_sidecar.artifacts import HANDLERS
from stepscope_sidecar.attach.tools import built_in
from tests.standins.inference import StandInVllm


def tool(monkeypatch: pytest.MonkeyPatch, **env: str) -> tuple[bool, str]:
    """
    Whether the tool http is available, and why not.
    """
    # torch is asked for in a process of its own, which takes seconds and is not the matter here.
    monkeypatch.setattr(check, "_torch", lambda: {"error": "not asked"})
    found = check.capabilities(settings.read(env))["tools"]["http"]
    return found["available"], found["unavailable"].get("", "")


def test_servers_that_are_named_are_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """
    One that listens is there, one that does not is named, and nothing is asked of either.
    """
    with StandInVllm(tmp_path) as gone:
        pass
    with StandInVllm(tmp_path) as there:
        env = {"STEPSCOPE_HTTP_PROFILER_DIR": str(tmp_path)}

        assert (True, "") == tool(monkeypatch, STEPSCOPE_HTTP_PROFILER_URL=there.url, **env)
        available, why = tool(monkeypatch, STEPSCOPE_HTTP_PROFILER_URL=f"{there.url},{gone.url}", **env)
    assert not available
    assert why.startswith(f"nobody answers at {gone.url}")
    assert [] == there.asked


def test_without_a_server_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The setting, or the class to register.
    """
    available, why = tool(monkeypatch)

    assert not available
    assert "STEPSCOPE_HTTP_PROFILER_URL" in why


def test_every_tool_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    One that cannot be used says why, and so does one that needs a device.
    """
    monkeypatch.setattr(check, "_torch", lambda: {"version": "2.13.0", "devices": []})
    # What a driver says of itself depends on whether torch has been imported here.
    monkeypatch.setattr(check, "_registered", lambda tool: "")

    found = check.capabilities(settings.read({}))["tools"]

    assert [tool.value for tool in names.Tool] == list(found)
    assert all(entry["available"] or any(entry["unavailable"].values()) for entry in found.values())
    assert {"": "torch sees no CUDA device"} == found["cuda_range"]["unavailable"]


@pytest.mark.parametrize(
    ("printed", "found"),
    [
        ('print("welcome to torch")', {"version": "9.1", "devices": []}),
        (
            'import atexit; atexit.register(print, "good-bye")',
            {"error": "torch was asked for its devices and said 'good-bye'"},
        ),
    ],
)
def test_a_torch_that_prints_is_no_stack_trace(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, printed: str, found: dict[str, object]
) -> None:
    """
    The answer is the last line; where it is none, that is what is said of torch.
    """
    (tmp_path / "torch.py").write_text(f"{printed}\n__version__ = '9.1'\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)

    assert found == check._torch()


def test_all_that_lists_tools_agrees() -> None:
    """
    A tool has a name; it is driven, by the program or from outside, or refused with a reason; and what it leaves is
    read by a handler, or kept as it is.
    """
    driven, named = set(BUILT_IN), {tool.value for tool in names.Tool}

    assert named == driven | set(settings.NOT_DRIVEN)
    assert set() == driven & set(settings.NOT_DRIVEN)
    assert set(LEAVES) == set(built_in())
    assert driven > set(LEAVES)
    assert {"cuda_range", "torch_memory"} == driven - set(HANDLERS)
    assert driven > set(HANDLERS)


@pytest.mark.parametrize(
    ("free", "said"),
    [
        (27.25, "27.2 GiB, of which recordings may take 27.0 GiB"),
        (80, "80.0 GiB, of which recordings may take 50.0 GiB"),
        (0.125, "128.0 MiB, of which recordings may take 0 B"),
    ],
)
def test_recordings_may_take_no_more_than_is_free(monkeypatch: pytest.MonkeyPatch, free: float, said: str) -> None:
    """
    Less what they leave free for others.
    """
    monkeypatch.setattr(check, "_torch", lambda: {"error": "torch is not installed"})
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=int(free * 1024**3)))

    assert said == check.capabilities(settings.read({}))["environment"]["free"]
