"""
Lets children of ``os.fork()`` leave by ``sys.exit`` although their parent has used torch's profiler.

After any start, even a stopped one, such a child hangs or aborts in the exit handlers of the C library, where it waits
for threads that only its parent has. Children that leave by ``os._exit`` (multiprocessing) never get there.
"""

# ruff: noqa: SLF001 - `_exit` is C's name

import ctypes
import os

_guarded = False


def guard() -> None:
    """
    From now on, forked children leave right after Python has ended in order, with the status they chose.
    """
    global _guarded
    if _guarded:
        return
    _guarded = True
    libc = ctypes.CDLL(None)
    on_exit, at_exit = getattr(libc, "on_exit", None), getattr(libc, "__cxa_atexit", None)
    if on_exit is None or at_exit is None:
        # Not glibc. There the child is as it would be without us.
        return
    leave = ctypes.cast(libc._exit, ctypes.c_void_p)
    flush = ctypes.cast(libc.fflush, ctypes.c_void_p)

    def in_child() -> None:
        # What is registered last runs first: C's buffers are flushed, then the process leaves.
        on_exit(leave, None)
        at_exit(flush, None, None)

    os.register_at_fork(after_in_child=in_child)
