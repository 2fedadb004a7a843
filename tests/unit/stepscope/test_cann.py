"""
Whether CANN is there and whose the devices are, told by files and variables alone.
"""

from pathlib import Path

import pytest

from stepscope.profilers import cann


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A machine without CANN and without another tool.
    """
    for name in (*cann.OTHERS, "LD_LIBRARY_PATH", "ASCEND_HOME_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cann, "LOADER_CACHE", Path("/nonexistent"))


def test_it_is_not_found_where_it_is_not() -> None:
    """
    Empty variables and a machine without a loader cache are no find.
    """
    assert not cann.found()


@pytest.mark.parametrize(("variable", "below"), [("LD_LIBRARY_PATH", "."), ("ASCEND_HOME_PATH", "lib64")])
def test_variables_lead_to_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, below: str) -> None:
    """
    The loader's path and the toolkit's home both do.
    """
    (tmp_path / below).mkdir(exist_ok=True)
    (tmp_path / below / cann.RUNTIME).touch()
    monkeypatch.setenv(variable, f"/nonexistent:{tmp_path}" if variable == "LD_LIBRARY_PATH" else str(tmp_path))

    assert cann.found()


def test_the_loaders_cache_knows_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """
    A library that is installed for the whole machine needs no variable.
    """
    cache = tmp_path / "ld.so.cache"
    cache.write_bytes(b"\0libascendcl.so\0/usr/lib/libascendcl.so\0")
    monkeypatch.setattr(cann, "LOADER_CACHE", cache)

    assert cann.found()


@pytest.mark.parametrize(
    ("name", "value", "tool"),
    [
        ("PROFILING_MODE", "dynamic", "msprof"),
        ("PROFILER_SAMPLECONFIG", "/etc/sample.json", "msprof"),
        ("MSMONITOR_USE_DAEMON", "1", "msMonitor"),
        ("KINETO_USE_DAEMON", "1", "msMonitor"),
    ],
)
def test_another_tools_variable_takes_the_devices(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, tool: str
) -> None:
    """
    Each of them is named together with its tool; one that is switched off takes nothing.
    """
    assert None is cann.taken()
    monkeypatch.setenv(name, "0")
    assert None is cann.taken()

    monkeypatch.setenv(name, value)

    assert f"{name} is set: this process is {tool}'s to profile" == cann.taken()
