"""
What the tests add to vLLM's workers: its profiler can be made to fail there, as it does for want of permissions, and
generation to take its time.
"""

import threading
from typing import Any


class Faults:
    """
    vLLM mixes this into its worker.
    """

    profiler: Any
    execute_model: Any

    def slow_down(self, seconds: float) -> None:
        """
        Every step of the model takes so much longer; nothing for 0.
        """
        vars(self).pop("execute_model", None)
        if seconds:
            execute = self.execute_model

            def slow(*args: Any, **kwargs: Any) -> Any:
                threading.Event().wait(seconds)
                return execute(*args, **kwargs)

            self.execute_model = slow

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
