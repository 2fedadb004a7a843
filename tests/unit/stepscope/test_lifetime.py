"""
How processes end, each in a process of its own: what is left on its streams, and its exit code.

The agent is the stand-in of ``stepscope.testing``; everything else is as in production.
"""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import stepscope

PRELUDE = """
import os, signal, sys, threading
import stepscope
from stepscope import agent, testing

class Agent(testing.FakeAgent):
    @classmethod
    def start(cls, settings, identity, **rest):
        return cls(selected={1})
    def close(self, timeout=5.0):
        super().close(timeout)
        print([(told["reason"], told["incomplete"]) for told in self.windows.of("close")], flush=True)

agent.Agent = Agent
"""


def inherited() -> dict[str, str]:
    """
    The environment of this process, where the package is found from any folder.
    """
    roots = [str(Path(stepscope.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, roots))}


def start(program: str, tmp_path: Path, **environment: str) -> "subprocess.Popen[str]":
    """
    Run ``program`` after the prelude.
    """
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**inherited(), "STEPSCOPE_DIR": str(tmp_path), **environment},
    )


def finish(process: "subprocess.Popen[str]") -> tuple[int, list[str]]:
    """
    Exit code and lines of output.
    """
    try:
        out, err = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    sys.stderr.write(err)
    return process.returncode, out.splitlines()


def test_leaving_by_the_end_of_the_program_closes_everything(tmp_path: Path) -> None:
    """
    Nobody has to call ``shutdown()``.
    """
    process = start(
        """
        stepscope.init(role="rollouter")
        stepscope.weights_loaded(0)
        """,
        tmp_path,
    )

    assert (0, ["[('process_exit', 'partial_step')]"]) == finish(process)


def test_an_exception_closes_everything_and_is_the_users(tmp_path: Path) -> None:
    """
    The exit code is Python's own.
    """
    process = start(
        """
        stepscope.init(role="trainer")
        with stepscope.step():
            raise ValueError("mine")
        """,
        tmp_path,
    )

    assert (1, ["[('exception', 'not_published')]"]) == finish(process)


@pytest.mark.parametrize(("number", "reason"), [(signal.SIGTERM, "process_exit"), (signal.SIGINT, "exception")])
def test_a_signal_closes_the_window_and_ends_the_process_as_ever(
    tmp_path: Path, number: signal.Signals, reason: str
) -> None:
    """
    Who waits for it sees that the signal ended it.
    """
    process = start(
        """
        stepscope.init(role="trainer")
        with stepscope.step():
            print("inside", flush=True)
            threading.Event().wait(30)
        """,
        tmp_path,
    )
    assert process.stdout is not None
    assert "inside\n" == process.stdout.readline()
    process.send_signal(number)

    assert (-number, [f"[('{reason}', 'not_published')]"]) == finish(process)


def test_sigterm_in_an_event_loop_closes_the_window(tmp_path: Path) -> None:
    """
    The task of the loop is cancelled by the exit.
    """
    process = start(
        """
        import asyncio
        async def main():
            stepscope.init(role="trainer")
            async with stepscope.step():
                print("inside", flush=True)
                await asyncio.Event().wait()
        asyncio.run(main())
        """,
        tmp_path,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.terminate()
    code, lines = finish(process)

    assert -signal.SIGTERM == code
    assert 1 == len(lines)
    assert "not_published" in lines[0]


def test_a_program_that_stands_in_the_way_of_sigterm_ends_all_the_same(tmp_path: Path) -> None:
    """
    The watchdog says the last words and ends it.
    """
    process = start(
        """
        from stepscope import lifetime
        lifetime.PATIENCE = 0.5
        stepscope.init(role="trainer")
        with stepscope.step():
            while True:
                try:
                    print("inside", flush=True)
                    threading.Event().wait(30)
                except SystemExit:
                    pass
        """,
        tmp_path,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.terminate()
    code, lines = finish(process)

    assert -signal.SIGTERM == code
    assert "[('process_exit', 'partial_step')]" in lines


def test_a_handler_of_the_program_is_left_alone(tmp_path: Path) -> None:
    """
    Who handles SIGTERM decides how to leave.
    """
    process = start(
        """
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
        stepscope.init(role="trainer")
        with stepscope.step():
            os.kill(os.getpid(), signal.SIGTERM)
        """,
        tmp_path,
    )

    assert (3, ["[('process_exit', 'not_published')]"]) == finish(process)


def test_a_forked_child_is_inert_however_it_leaves(tmp_path: Path) -> None:
    """
    It emits nothing, closes nothing of its parent's, and does not hang.
    """
    process = start(
        """
        stepscope.init(role="trainer")
        with stepscope.step():
            with stepscope.span("shared"):
                pid = os.fork()
                if pid == 0:
                    assert stepscope.current_step() == 0
                    with stepscope.span("of the child"):
                        stepscope.weights_published(1)
                    sys.exit(7)
                _, status = os.waitpid(pid, 0)
            print("child", os.waitstatus_to_exitcode(status), stepscope.current_step(), flush=True)
            stepscope.weights_published(1)
        """,
        tmp_path,
    )

    assert (0, ["child 7 1", "[('boundary', '')]"]) == finish(process)


def test_a_forked_child_dies_of_sigterm(tmp_path: Path) -> None:
    """
    The handler it inherited does what the default would.
    """
    process = start(
        """
        stepscope.init(role="trainer")
        pid = os.fork()
        if pid == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(1)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        """,
        tmp_path,
    )

    assert (0, ["-15", "[]"]) == finish(process)


def test_another_role_registers_anew_and_closes_what_is_open(tmp_path: Path) -> None:
    """
    Ray reuses its workers. The same again is nothing.
    """
    process = start(
        """
        stepscope.init(role="rollouter")
        stepscope.init(role="rollouter")
        stepscope.weights_loaded(0)
        stepscope.init(role="ref", rank=2, param_version=4)
        print(stepscope.current_step(), flush=True)
        stepscope.shutdown()
        stepscope.shutdown()
        print(threading.active_count(), signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, flush=True)
        """,
        tmp_path,
    )

    assert (0, ["[('reregistered', 'partial_step')]", "5", "[]", "1 True"]) == finish(process)


def test_whole_numbers_of_any_kind_register(tmp_path: Path) -> None:
    """
    Frameworks count with kinds of their own, which a message could not carry.
    """
    process = start(
        """
        class Number:
            def __init__(self, value): self.value = value
            def __index__(self): return self.value
            def __lt__(self, other): return self.value < other
            def __ge__(self, other): return self.value >= other

        n = Number
        stepscope.init(role="trainer", rank=n(1), world_size=n(2), param_version=n(3), resumed_from=n(3),
                       total_steps=n(9), device_ids=[n(0), "cuda:1"])
        identity = stepscope.registration.session.identity
        print([getattr(identity, name) for name in
               ("rank", "world_size", "param_version", "resumed_from", "total_steps", "device_ids")], flush=True)
        """,
        tmp_path,
    )

    assert (0, ["[1, 2, 3, 3, 9, ('0', 'cuda:1')]", "[]"]) == finish(process)


def test_disabled_starts_nothing(tmp_path: Path) -> None:
    """
    No thread, no SDK, no handler, not even a look at the other settings.
    """
    process = start(
        """
        stepscope.init(role="trainer")
        with stepscope.step():
            pass
        print(threading.active_count(), signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, flush=True)
        """,
        tmp_path,
        STEPSCOPE_DISABLED="1",
        STEPSCOPE_STEPS="nonsense",
    )

    assert (0, ["1 True"]) == finish(process)


@pytest.mark.parametrize(
    ("expected", "call", "environment"),
    [
        ("STEPSCOPE_STEPS", "init(role='trainer')", {"STEPSCOPE_STEPS": "3;4"}),
        ("did you mean STEPSCOPE_STEPS", "init(role='trainer')", {"STEPSCOPE_STEPZ": "3"}),
        ("OTEL_", "init(role='trainer')", {"OTEL_SPAN_EVENT_COUNT_LIMIT": "many"}),
        ("role='a/b'", "init(role='a/b')", {}),
        ("role=None", "init(role=None)", {}),
        ("rank=-1", "init(role='trainer', rank=-1)", {}),
        ("rank='3' is a str, not a whole number; write rank=int(...)", "init(role='trainer', rank='3')", {}),
        ("param_version=True is a bool", "init(role='trainer', param_version=True)", {}),
        ("world_size=2.0 is a float", "init(role='trainer', world_size=2.0)", {}),
        ("total_steps=25.0 is a float", "init(role='trainer', total_steps=100 / 4)", {}),
        ("resumed_from='4' is a str", "init(role='trainer', resumed_from='4')", {}),
        ("device_ids=0.0 is a float", "init(role='trainer', device_ids=[0.0])", {}),
        ("device_ids=0 is a int, not a list", "init(role='trainer', device_ids=0)", {}),
    ],
)
def test_what_cannot_be_used_stops_the_start_with_a_clear_message(
    tmp_path: Path, expected: str, call: str, environment: dict[str, str]
) -> None:
    """
    A ConfigurationError, the only thing that ``init()`` raises.
    """
    process = start(
        f"""
        try:
            stepscope.{call}
        except stepscope.ConfigurationError as error:
            print(error, threading.active_count(), flush=True)
        """,
        tmp_path,
        **environment,
    )
    code, lines = finish(process)

    assert 0 == code
    assert expected in lines[-1]
    assert lines[-1].endswith(" 1")


def test_the_run_is_passed_on_to_children(tmp_path: Path) -> None:
    """
    Run, attempt and folder are in the environment after ``init()``.
    """
    process = start(
        """
        stepscope.init(role="driver", register_only=True)
        print(os.environ["STEPSCOPE_RUN"], len(os.environ["STEPSCOPE_ATTEMPT"]) > 10,
              os.path.isabs(os.environ["STEPSCOPE_DIR"]), flush=True)
        """,
        tmp_path,
        STEPSCOPE_DIR="here",
    )

    assert (0, ["run True True", "[]"]) == finish(process)


def test_importing_stepscope_is_light(tmp_path: Path) -> None:
    """
    No SDK, no protobuf, nothing heavier; ``init()`` brings the SDK.
    """
    heavy = "torch ray vllm numpy grpc requests google.protobuf opentelemetry.sdk stepscope_sidecar"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, stepscope; print([m for m in {heavy.split()!r} if m in sys.modules])"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=inherited(),
    )

    assert "[]" == done.stdout.strip()


def test_a_forked_child_may_register_itself(tmp_path: Path) -> None:
    """
    A launcher that forks its workers: each is a process of the run, and ends in order.
    """
    process = start(
        """
        stepscope.init(role="driver", register_only=True)
        pid = os.fork()
        if pid == 0:
            stepscope.init(role="rollouter")
            stepscope.weights_loaded(0)
            os.kill(os.getpid(), signal.SIGTERM)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        """,
        tmp_path,
    )

    assert (0, ["[('process_exit', 'partial_step')]", "-15", "[]"]) == finish(process)
