"""
A trainer of few steps that goes on when it is told to, and a program that is merely busy: to be recorded from outside.

Run as ``python -m tests.integration.attached_loop STEPS`` (each line on stdin lets one step begin, the next end it), or
with ``busy`` as the only argument.
"""

import select
import sys


def say(text: str) -> None:
    """
    Print a line at once.
    """
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def marked_work(count: int) -> int:
    """
    Something whose name is found in a recording.
    """
    return sum(number * number for number in range(count))


def heard() -> bool:
    """
    Whether there is something on stdin, or it has ended; half busy meanwhile, so that others get the processor too.
    """
    marked_work(30_000)
    return bool(select.select([sys.stdin], [], [], 0.002)[0])


def busy() -> None:
    """
    Work until killed, or until whoever holds stdin has gone.
    """
    say("busy")
    while not heard():
        pass


def train(steps: int) -> None:
    """
    Train for ``steps`` steps, each of which begins and ends on a line.
    """
    import stepscope

    stepscope.init(role="trainer", total_steps=steps)
    say("registered")
    for step in range(1, steps + 1):
        if not sys.stdin.readline():
            return
        with stepscope.step():
            say(f"in step {step}")
            while not heard():
                pass
            if not sys.stdin.readline():
                return
            stepscope.weights_published(step)
        say(f"after step {step}")


if __name__ == "__main__":
    busy() if sys.argv[1] == "busy" else train(int(sys.argv[1]))
