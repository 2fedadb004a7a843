"""
What the tests add to vLLM's workers: its profiler can be made to fail there, as it does for want of permissions.
"""

from typing import Any


class Faults:
    """
    vLLM mixes this into its worker.
    """

    profiler: Any

    def break_profiler(self, how: str) -> None:
        """
        The next ``start`` or ``stop`` of the worker's profiler raises; what was there is put back by :meth:`mend`.
        """

        def fail() -> None:
            raise OSError(f"told to fail at {how}")

        setattr(self.profiler, f"_{how}", fail)

    def mend_profiler(self) -> None:
        """
        All is as it was.
        """
        for how in ("_start", "_stop"):
            vars(self.profiler).pop(how, None)

    def end_profiler(self) -> None:
        """
        Stop the torch profiler whose stop was made to fail.
        """
        self.profiler.profiler.stop()
