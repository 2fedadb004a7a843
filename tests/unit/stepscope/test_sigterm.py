"""
What SIGTERM does where the main thread cannot be reached, or takes its time: each in a process of its own.
"""

import signal
import textwrap
from pathlib import Path

import pytest

from tests.unit.stepscope.test_lifetime import finish, start

LOCKED = """
import ctypes, sys
from stepscope import interrupts, lifetime
lifetime.REACH, lifetime.LAST_WORDS = 0.3, 30.0
libc = ctypes.CDLL(None)
mutex = ctypes.create_string_buffer(64)
libc.pthread_mutex_lock(mutex)

def lock(then=lambda: print("inside", flush=True)):
    begin = threading.Event()

    def tell():
        begin.wait()
        sys.setswitchinterval(0.005)
        then()

    threading.Thread(target=tell, daemon=True).start()
    # Nobody else runs until this thread lets go of the interpreter, which it does in the call.
    sys.setswitchinterval(1000.0)
    begin.set()
    libc.pthread_mutex_lock(mutex)
"""
"""Locked again it is a C call that waits without the interpreter's lock, as a collective does whose peer is gone."""

SLOW = """
from stepscope import interrupts, lifetime
lifetime.LAST_WORDS = 30.0
begun = threading.Event()

class Slow(Agent):
    def close(self, timeout=5.0):
        begun.set()
        threading.Event().wait(1.0)
        super().close(timeout)

agent.Agent = Slow
"""
"""Who does not wait for the end of this shutdown leaves without its line."""


def terminated(first: str, program: str, tmp_path: Path) -> tuple[int, list[str]]:
    """
    Exit code and further lines of ``program``, which is sent SIGTERM once it has written one.
    """
    process = start(first + textwrap.dedent(program), tmp_path)
    assert process.stdout is not None
    begun = process.stdout.readline()
    process.terminate()
    found = finish(process)
    assert "inside\n" == begun
    return found


def test_a_main_thread_in_a_c_call_ends_with_last_words(tmp_path: Path) -> None:
    """
    No handler in Python runs there, so the process would live on until it is killed.
    """
    program = """
        stepscope.init(role="trainer")
        with stepscope.step():
            lock()
        """

    assert (-signal.SIGTERM, ["[('process_exit', 'partial_step')]"]) == terminated(LOCKED, program, tmp_path)


def test_a_main_thread_in_a_c_call_of_a_profiler_ends_too(tmp_path: Path) -> None:
    """
    The signals are held back there: ours is ours all the same.
    """
    program = """
        lifetime.PATIENCE = 0.6
        stepscope.init(role="trainer")
        with interrupts.held():
            lock()
        """

    assert (-signal.SIGTERM, ["[]"]) == terminated(LOCKED, program, tmp_path)


def test_a_profiler_that_takes_its_time_to_stop_is_not_cut_off(tmp_path: Path) -> None:
    """
    It is given more than another C call: half a recording would be none.
    """
    program = """
        lifetime.REACH = 0.1
        stepscope.init(role="trainer")
        with interrupts.held():
            print("inside", flush=True)
            threading.Event().wait(1.0)
            print("stopped", flush=True)
        """

    assert (-signal.SIGTERM, ["stopped", "[]"]) == terminated(SLOW, program, tmp_path)


def test_a_handler_that_came_after_ours_decides(tmp_path: Path) -> None:
    """
    Also over how long it takes.
    """
    program = """
        lifetime.REACH = 0.1
        came = []
        stepscope.init(role="trainer")
        signal.signal(signal.SIGTERM, lambda *_: came.append("theirs"))
        print("inside", flush=True)
        while not came:
            threading.Event().wait(0.1)
        threading.Event().wait(1.0)
        print(came[0], flush=True)
        """

    assert (0, ["theirs", "[]"]) == terminated(SLOW, program, tmp_path)


def test_a_program_that_saves_a_checkpoint_on_its_way_out_has_time_for_it(tmp_path: Path) -> None:
    """
    What it does when it is told to leave is its own, and is not cut off after a few seconds.
    """
    program = """
        stepscope.init(role="trainer")
        try:
            print("inside", flush=True)
            threading.Event().wait(60)
        finally:
            threading.Event().wait(7.0)
            print("saved", flush=True)
        """

    assert (-signal.SIGTERM, ["saved", "[]"]) == terminated("", program, tmp_path)


def test_a_program_that_leaves_during_the_last_words_waits_for_them(tmp_path: Path) -> None:
    """
    They may be closing its recording.
    """
    program = """
        lifetime.PATIENCE = 0.6
        stepscope.init(role="trainer")
        with stepscope.step():
            try:
                print("inside", flush=True)
                threading.Event().wait(60)
            except SystemExit:
                begun.wait(60)
        """

    assert (-signal.SIGTERM, ["[('process_exit', 'partial_step')]"]) == terminated(SLOW, program, tmp_path)


def test_the_last_words_wait_for_a_program_that_is_leaving(tmp_path: Path) -> None:
    """
    Its own shutdown does what they would.
    """
    program = """
        lifetime.PATIENCE = 0.6
        stepscope.init(role="trainer")
        try:
            print("inside", flush=True)
            threading.Event().wait(60)
        finally:
            pass
        """

    assert (-signal.SIGTERM, ["[]"]) == terminated(SLOW, program, tmp_path)


def test_a_main_thread_that_comes_back_during_the_last_words_has_its_time(tmp_path: Path) -> None:
    """
    It has been told to leave then.
    """
    program = """
        class Unlocking(Slow):
            def close(self, timeout=5.0):
                libc.pthread_mutex_unlock(mutex)
                super().close(timeout)
                said.set()

        said = threading.Event()
        agent.Agent = Unlocking
        stepscope.init(role="trainer")
        try:
            lock()
        finally:
            said.wait(60)
            threading.Event().wait(0.5)
            print("saved", flush=True)
        """

    assert (-signal.SIGTERM, ["[]", "saved"]) == terminated(SLOW + LOCKED, program, tmp_path)


def test_asyncio_takes_the_place_of_our_pipe_and_both_work(tmp_path: Path) -> None:
    """
    It sets its own for the handlers of a loop, and resets it afterwards.
    """
    program = """
        import asyncio
        async def main():
            stepscope.init(role="trainer")
            heard = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, heard.set)
            os.kill(os.getpid(), signal.SIGUSR1)
            await asyncio.wait_for(heard.wait(), 30)
            async with stepscope.step():
                try:
                    print("inside", flush=True)
                    await asyncio.Event().wait()
                finally:
                    print("left", flush=True)
        asyncio.run(main())
        """
    code, lines = terminated("", program, tmp_path)

    assert (-signal.SIGTERM, "left") == (code, lines[0])


@pytest.mark.parametrize("theirs", [True, False])
def test_a_pipe_of_the_program_is_left_alone_and_ours_is_given_back(tmp_path: Path, *, theirs: bool) -> None:
    """
    After ``shutdown()`` there is neither thread nor file of ours.
    """
    process = start(
        f"""
        from pathlib import Path
        mine = -1
        if {theirs}:
            reading, mine = os.pipe()
            os.set_blocking(mine, False)
            signal.set_wakeup_fd(mine)
        stepscope.init(role="trainer")
        stepscope.shutdown()
        pipes = lambda: sorted(os.readlink(end) for end in Path("/proc/self/fd").iterdir() if end.exists())
        before = pipes()
        stepscope.init(role="trainer")
        stepscope.shutdown()
        print(signal.set_wakeup_fd(-1) == mine, threading.active_count(), pipes() == before, flush=True)
        """,
        tmp_path,
    )

    assert (0, ["[]", "[]", "True 1 True"]) == finish(process)


def test_a_child_that_is_terminated_at_once_does_not_end_its_parent(tmp_path: Path) -> None:
    """
    It has the parent's handler and pipe until our part in it has run: here it is ended before that.
    """
    process = start(
        """
        from stepscope import lifetime
        lifetime.REACH = 0.1
        os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGTERM))
        stepscope.init(role="trainer")
        pid = os.fork()
        if pid == 0:
            os._exit(1)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        threading.Event().wait(1.0)
        print(signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, []), flush=True)
        """,
        tmp_path,
    )

    assert (0, ["-15", "False", "[]"]) == finish(process)


def test_a_child_that_registers_ends_with_last_words_of_its_own(tmp_path: Path) -> None:
    """
    Its main thread is in a C call; its parent hears nothing of it.
    """
    process = start(
        LOCKED
        + textwrap.dedent(
            """
            stepscope.init(role="driver", register_only=True)
            pid = os.fork()
            if pid == 0:
                stepscope.init(role="rollouter")
                stepscope.weights_loaded(0)
                lock(lambda: os.kill(os.getpid(), signal.SIGTERM))
            # No child is left behind if it does not.
            late = threading.Timer(60.0, os.kill, (pid, signal.SIGKILL))
            late.start()
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
            late.cancel()
            threading.Event().wait(1.0)
            """
        ),
        tmp_path,
    )

    assert (0, ["[('process_exit', 'partial_step')]", "-15", "[]"]) == finish(process)
