"""
Becomes another program that ends when the process which started it does: ``leash.py SIGNAL PARENT PROGRAM ...``.

Run by its path in an isolated interpreter, which takes about 20 ms: imports nothing of ours.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""Of Linux's prctl, which Python does not offer."""

CANNOT_RUN = 127
"""What a shell answers for a program that cannot be run."""


def _hold_output() -> None:
    """
    Keep a reader of our own output open: a tool that says something once its sidecar is gone must not die of it.
    """
    try:
        os.set_inheritable(os.open("/proc/self/fd/1", os.O_RDONLY | os.O_NONBLOCK), True)
    except OSError:
        pass  # Not a pipe: nobody can close it.


def main() -> int:
    """
    Ask for ``SIGNAL`` at the end of process ``PARENT``, then be ``PROGRAM``; returns only if that fails.
    """
    number, parent, *command = sys.argv[1:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(number))
    if os.getppid() != int(parent):
        return 1
    _hold_output()
    # A shell in the background ignores SIGINT, and that is inherited; a tool is ended by it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        os.execv(command[0], command)  # noqa: S606 - the program was found by the sidecar
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
    return CANNOT_RUN


if __name__ == "__main__":
    raise SystemExit(main())
