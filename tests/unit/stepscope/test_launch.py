"""
Starting a sidecar: only when there is none and one is installed, detached, with the run spelled out.
"""

import json
import os
import socket
from pathlib import Path

import psutil
import pytest

from stepscope import launch
from stepscope.settings import Settings
from tests.unit.stepscope.fake_sidecar import until

RECORDER = """
import os, sys, json
found = [int(name) for name in os.listdir("/proc/self/fd")]
held = [os.readlink(f"/proc/self/fd/{number}") for number in found if os.path.lexists(f"/proc/self/fd/{number}")]
said = [sys.argv[1:], dict(os.environ), os.getsid(0), os.getpid(), held]
json.dump(said, open(os.environ["STEPSCOPE_TEST_OUT"], "w"))
"""

STAYING = """
import os, sys
open(os.environ["STEPSCOPE_TEST_OUT"], "w").write(str(os.getpid()))
open(os.environ["STEPSCOPE_TEST_END"]).read()
"""


def _reaped() -> bool:
    launch.reap()
    return not launch._started


def _heard(said: list[str], settings: Settings) -> str:
    said.append(launch.failed(settings))
    return said[-1]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """
    A run of its own, with its sockets in the test's folder.
    """
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return Settings(run="run", attempt="a1", directory=tmp_path / "runs")


def test_a_sidecar_that_listens_is_left_alone(settings: Settings) -> None:
    """
    Nothing is started when somebody answers, whatever is installed.
    """
    settings.socket_path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(settings.socket_path))
        server.listen()

        assert launch.ensure(settings, module="nothing_of_this_name") == ""


def test_without_the_module_it_says_what_to_install(settings: Settings) -> None:
    """
    The run is unaffected; the reason names the package.
    """
    assert "pip install" in launch.ensure(settings, module="nothing_of_this_name")


def test_a_named_socket_is_somebody_elses_to_serve(tmp_path: Path) -> None:
    """
    A container beside this one starts its own sidecar.
    """
    assert launch.ensure(Settings(run="r", attempt="a", socket=tmp_path / "s"), module="nothing_of_this_name") == ""


def test_what_is_started_is_detached_and_told_of_the_run(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A session of its own, run, attempt and folder in its environment, its output in the attempt's folder; it holds
    nothing of ours open.
    """
    package = tmp_path / "stepscope_test_sidecar"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(RECORDER + "print('said')\n")
    out = tmp_path / "out.json"
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("STEPSCOPE_TEST_OUT", str(out))

    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    pipe = str(Path(f"/proc/self/fd/{writer}").readlink())
    missing = launch.ensure(settings, module=package.name)
    os.close(reader)
    os.close(writer)
    log = settings.attempt_folder / launch.LOG
    until(lambda: log.exists() and "said" in log.read_text())
    until(_reaped)
    arguments, environment, session, pid, held = json.loads(out.read_text())

    assert "" == missing
    assert ["--attended", "no"] == arguments
    assert os.getsid(0) != session != pid
    assert pipe not in held
    assert ("run", "a1") == (environment["STEPSCOPE_RUN"], environment["STEPSCOPE_ATTEMPT"])
    assert environment["STEPSCOPE_DIR"] == str(settings.directory.absolute())


def test_one_that_stays_is_nobodys_child(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Ray kills the children of a worker that ends, and the sidecar is there for the other workers too.
    """
    package = tmp_path / "stepscope_test_staying_sidecar"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(STAYING)
    out, end = tmp_path / "out", tmp_path / "end"
    os.mkfifo(end)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("STEPSCOPE_TEST_OUT", str(out))
    monkeypatch.setenv("STEPSCOPE_TEST_END", str(end))

    launch.ensure(settings, module=package.name)
    until(lambda: out.exists() and out.read_text() != "")
    process = psutil.Process(int(out.read_text()))
    before = [parent.pid for parent in process.parents()]
    launch.release()
    until(lambda: os.getpid() not in [parent.pid for parent in process.parents()])
    running = process.is_running()
    end.write_text("")

    assert os.getpid() in before[1:]
    assert running
    assert not psutil.Process().children()
    assert process.wait(30) is None


def test_one_that_cannot_stay_says_why(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Its exit code and the last line of its output are what init() needs in order not to wait for it.
    """
    package = tmp_path / "stepscope_test_failing_sidecar"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text("print('first'); raise SystemExit('no room here')\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    missing = launch.ensure(settings, module=package.name)
    said: list[str] = []
    until(lambda: _heard(said, settings) != "")

    assert "" == missing
    assert "it ended at once: no room here" in said[-1]
    assert str(settings.attempt_folder / launch.LOG) in said[-1]


def test_one_that_found_another_in_its_place_has_not_failed(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    It ends quietly, and the other one answers.
    """
    package = tmp_path / "stepscope_test_second_sidecar"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))

    missing = launch.ensure(settings, module=package.name)
    said: list[str] = []
    until(lambda: _heard(said, settings) == "" and not launch._started)

    assert "" == missing
    assert not any(said)
