"""
The command line as a person meets it: clear errors, exit codes, and jobs that have nothing to do with Ray or torch.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from stepscope import names
from tests.integration.jobs import CLI, environment, eventually

LOOP = """
import stepscope
stepscope.init(role="trainer", rank=0, total_steps=3)
for version in (1, 2, 3):
    with stepscope.step():
        with stepscope.span("train.update_actor", bucket="productive"):
            pass
        stepscope.weights_published(version)
"""


def call(directory: Path, *arguments: str, **settings: str) -> "subprocess.CompletedProcess[str]":
    """
    Run ``stepscope ARGUMENTS`` to its end.
    """
    return subprocess.run(
        [*CLI, *arguments],
        env=environment(directory, **settings),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def refused(done: "subprocess.CompletedProcess[str]") -> str:
    """
    The one line with which a command was refused.
    """
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("STEPSCOPE_STEPS", "5,,8", ("STEPSCOPE_STEPS", "5,,8", "every:K")),
        ("STEPSCOPE_STEPS", "9-5", ("9-5", "5-9")),
        ("STEPSCOPE_STEP", "5", ("STEPSCOPE_STEP", "did you mean STEPSCOPE_STEPS?")),
        ("STEPSCOPE_TOOLS", "perf", ("perf", "torch")),
        ("STEPSCOPE_LEVEL", "everything", ("everything", "spans")),
        ("STEPSCOPE_RANKS", "x", ("STEPSCOPE_RANKS", "'x'", "all")),
        ("STEPSCOPE_HTTP", "nowhere", ("STEPSCOPE_HTTP", "nowhere")),
        ("STEPSCOPE_HTTP", "0.0.0.0:0", ("STEPSCOPE_TOKEN_FILE",)),
        ("STEPSCOPE_MAX_OVERHEAD", "-1", ("STEPSCOPE_MAX_OVERHEAD", "-1")),
        ("STEPSCOPE_DIR", "/proc/nowhere", ("STEPSCOPE_DIR", "/proc/nowhere")),
    ],
)
def test_a_wrong_setting_stops_at_start(tmp_path: Path, setting: str, value: str, words: tuple[str, ...]) -> None:
    """
    The message is one line that names the setting, the value and the fix, and the command is not run.
    """
    marker = tmp_path / "ran"
    message = refused(call(tmp_path, "run", "--", "touch", str(marker), **{setting: value}))

    assert all(word in message for word in words), message
    assert not marker.exists()


def test_a_port_in_use_stops_at_start(tmp_path: Path) -> None:
    """
    A taken port is named with its setting.
    """
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        message = refused(call(tmp_path, "run", "--", "true", STEPSCOPE_HTTP=address))

    assert "STEPSCOPE_HTTP" in message
    assert address in message


def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    """
    `run` of a program that does not exist says so and leaves no sidecar.
    """
    message = refused(call(tmp_path, "run", "--", "no-such-program"))

    assert "no-such-program" in message


@pytest.mark.parametrize("arguments", [("windows",), ("spans",), ("status",), ("stop",), ("profile", "--steps", "1")])
def test_commands_about_a_run_that_is_not_there(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """
    Without a run, the message says where it looked.
    """
    message = refused(call(tmp_path, *arguments))

    assert str(tmp_path) in message


def test_run_returns_the_exit_code_of_the_command(tmp_path: Path) -> None:
    """
    Exit code and standard output are the command's.
    """
    done = call(tmp_path, "run", "--", sys.executable, "-c", "print('mine'); raise SystemExit(7)")

    assert 7 == done.returncode
    assert "mine\n" == done.stdout


def test_a_loop_of_five_lines_has_its_spans_and_a_trace_per_step(tmp_path: Path) -> None:
    """
    Under `run`, a plain program's steps arrive in the store, a trace each, and `latest` leads to them.
    """
    done = call(tmp_path, "run", "--", sys.executable, "-c", LOOP)
    spans = json.loads(call(tmp_path, "spans", "--json").stdout)
    roots = [span for span in spans if span["name"] == "rl.step"]

    assert (0, "") == (done.returncode, done.stdout)
    assert 2 == len(done.stderr.splitlines())
    assert "recording no step; its page is http://127.0.0.1:" in done.stderr
    assert "no window was asked for; see them with: stepscope windows --run run-" in done.stderr
    assert [1, 2, 3] == [span["attributes"]["rl.step"] for span in roots]
    assert 3 == len({span["trace_id"] for span in spans})
    assert {"trainer"} == {span["attributes"]["rl.role"] for span in spans}
    assert (
        "no sidecar answers; this is from its store; all processes of this node have ended"
        in call(tmp_path, "status").stdout
    )


def test_without_run_the_first_process_starts_the_sidecar(tmp_path: Path) -> None:
    """
    A program started plainly starts its own sidecar, which ends by itself when the program has gone.
    """
    done = subprocess.run(
        [sys.executable, "-c", LOOP], env=environment(tmp_path), capture_output=True, text=True, timeout=60, check=False
    )
    note = json.loads(next(tmp_path.glob("run-*/sidecar.json")).read_text())
    eventually(lambda: not psutil.pid_exists(note["pid"]), deadline=60)
    spans = json.loads(call(tmp_path, "spans", "--json").stdout)

    assert (0, "") == (done.returncode, done.stderr)
    assert [1, 2, 3] == [span["attributes"]["rl.step"] for span in spans if span["name"] == "rl.step"]


def test_a_second_node_of_an_attempt_runs_in_a_folder_of_its_own(tmp_path: Path) -> None:
    """
    Where nodes share STEPSCOPE_DIR, the first has the attempt's folder, and the next ones theirs below it.
    """
    program = "import sys; sys.exit(7)"
    shared = {"STEPSCOPE_RUN": "job", "STEPSCOPE_ATTEMPT": "x1"}
    codes = [
        call(tmp_path, "run", "--", sys.executable, "-c", program, STEPSCOPE_NODE=node, **shared).returncode
        for node in ("n1", "n2")
    ]

    assert [7, 7] == codes
    assert (tmp_path / "job-x1/sidecar.log").is_file()
    assert (tmp_path / "job-x1/nodes/n2/sidecar.log").is_file()


def test_disabled_runs_the_command_and_nothing_else(tmp_path: Path) -> None:
    """
    With STEPSCOPE_DISABLED=1 no sidecar is started and nothing is kept.
    """
    done = call(tmp_path, "run", "--", sys.executable, "-c", LOOP, STEPSCOPE_DISABLED="1")

    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)
    assert [] == list(tmp_path.rglob("stepscope.db"))


def test_disabled_wins_over_a_wrong_setting(tmp_path: Path) -> None:
    """
    The kill switch runs the command whatever else is set, and makes no folder.
    """
    folder = tmp_path / "runs"
    done = call(folder, "run", "--", "true", STEPSCOPE_DISABLED="1", STEPSCOPE_STEPS="nonsense")

    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)
    assert not folder.exists()


def test_a_command_that_is_not_there_leaves_nothing(tmp_path: Path) -> None:
    """
    No sidecar is started for it and `latest` is not moved.
    """
    refused(call(tmp_path, "run", "--", "no-such-program"))

    assert not (tmp_path / "latest").exists()
    assert [] == list(tmp_path.rglob("stepscope.db"))


def test_check_says_what_can_be_profiled(tmp_path: Path) -> None:
    """
    `check --json` lists each tool with its levels and the reasons for what is missing.
    """
    found = json.loads(call(tmp_path, "check", "--json").stdout)

    assert {"spans", "ops", "full"} <= set(found["tools"]["torch"]["levels"])
    assert [tool.value for tool in names.Tool] == list(found["tools"])
    assert all(entry["available"] or entry["unavailable"][""] for entry in found["tools"].values())
    assert found["tools"]["py-spy"]["available"]
    assert "CANN" in found["tools"]["msprof"]["unavailable"][""]
    assert found["environment"]["ptrace"]


def test_check_says_what_of_verl_would_be_instrumented(tmp_path: Path) -> None:
    """
    Here verl is not installed, and `check --verl` says so; with it installed, see ``tests/verl``.
    """
    assert not json.loads(call(tmp_path, "check", "--verl", "--json").stdout)["installed"]
    assert "verl is not installed" == call(tmp_path, "check", "--verl").stdout.strip()


def test_a_signal_to_run_reaches_the_command(tmp_path: Path) -> None:
    """
    SIGTERM ends the command, then the sidecar, and the exit code says which signal it was.
    """
    process = subprocess.Popen(
        [*CLI, "run", "--", sys.executable, "-c", "import signal; print('up', flush=True); signal.pause()"],
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "up\n"
        pid = json.loads(next(tmp_path.glob("run-*/sidecar.json")).read_text())["pid"]
        process.send_signal(signal.SIGTERM)
        code = process.wait(60)

    assert 128 + signal.SIGTERM == code
    assert not psutil.pid_exists(pid)


def test_a_killed_run_leaves_no_sidecar_for_long(tmp_path: Path) -> None:
    """
    kill -9 of `run` itself: its sidecar notices and ends by itself.
    """
    process = subprocess.Popen(
        [*CLI, "run", "--", sys.executable, "-c", LOOP + "print('done', flush=True)\nimport signal; signal.pause()"],
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "done\n"
        pid = json.loads(next(tmp_path.glob("run-*/sidecar.json")).read_text())["pid"]
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)

    eventually(lambda: not psutil.pid_exists(pid), deadline=60)
