"""
A command beside its sidecar, where the sidecar is slow to come.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stepscope_sidecar import render, supervise

SLOW = "import signal\n\nsignal.pause()\n"
"""Stands in for a sidecar whose node is so busy that it never listens."""


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """
    Of a run whose sidecar is the stand-in.
    """
    package = tmp_path / "path" / "stepscope_sidecar"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(SLOW)
    monkeypatch.setattr(supervise, "READY_DEADLINE", 0.2)
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(package.parent),
        "STEPSCOPE_DIR": str(tmp_path / "runs"),
        "STEPSCOPE_RUN": "demo",
        "STEPSCOPE_ATTEMPT": "a1",
    }


def test_a_sidecar_that_takes_its_time_keeps_no_run_waiting(environment: dict[str, str]) -> None:
    """
    A warning says so, and it is watched like any other.
    """
    warnings: list[str] = []
    sidecar = supervise.Sidecar(environment, warn=warnings.append)

    listens = sidecar.start()
    sidecar.stop()

    assert not listens
    assert ["the sidecar does not listen after 0.2 s; the run begins without it"] == [
        warning.split(", and what is selected")[0] for warning in warnings
    ]


def test_a_signal_that_comes_before_the_command_is_heeded(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """
    While the sidecar is started the command is not begun; while the command is, it is told once it is there.
    """
    begun = tmp_path / "begun"
    command = [sys.executable, "-c", f"import signal; open({str(begun)!r}, 'w').close(); signal.pause()"]
    real, started = subprocess.Popen, list[object]()

    def start(self: supervise.Sidecar) -> bool:
        os.kill(os.getpid(), signal.SIGTERM)
        return False

    def popen(*arguments: Any, **options: Any) -> Any:
        started.append(arguments[0])
        found = real(*arguments, **options)
        os.kill(os.getpid(), signal.SIGTERM)
        return found

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(subprocess, "Popen", popen)
    during = supervise.run_beside(command, env={**environment, "STEPSCOPE_DISABLED": "1"}, warn=print)
    monkeypatch.setattr(supervise.Sidecar, "start", start)
    first = supervise.run_beside(command, env=environment, warn=print)

    assert (128 + signal.SIGTERM, 128 + signal.SIGTERM) == (first, during)
    assert [command] == started
    assert before is signal.getsignal(signal.SIGTERM)


def test_a_run_whose_sidecar_never_came_is_concluded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """
    Nothing is known of it, and that is no error: the command's own exit code is what counts.
    """
    render.conclude(tmp_path)

    assert "nothing is known of the run" in capsys.readouterr().err
