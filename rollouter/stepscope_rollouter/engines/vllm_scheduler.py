"""
Schedulers for vLLM's engine core in which a check can run while generation is paused.

``pause_generation(mode="keep")`` holds everything back, whoever asks. After an update the log-probs of a probe and the
validation have to run before the requests that were kept go on, so requests marked as checks are scheduled meanwhile,
alone. Runs in the engine's process; vLLM imports it there by name. Its interface is not public: vLLM 0.32.
"""

from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.scheduler import Scheduler

from stepscope_rollouter.engines.marks import is_check


class _Checks:
    """
    What both schedulers add: while all is paused, requests that are checks still run.
    """

    def schedule(self: Any, throttle_prefills: bool = False) -> Any:
        """
        The next batch; of a paused engine one of checks alone.
        """
        if self._pause_state is not PauseState.PAUSED_ALL or not self._checks():
            return super().schedule(throttle_prefills)  # type: ignore[misc]
        # Pausing has put every running request back among the waiting ones, so what runs now is a check.
        kept = [request for request in self.waiting if not is_check(request.request_id)]
        self.waiting.remove_requests(kept)
        self._pause_state = PauseState.UNPAUSED
        try:
            return super().schedule(throttle_prefills)  # type: ignore[misc]
        finally:
            self._pause_state = PauseState.PAUSED_ALL
            for request in kept:
                self.waiting.add_request(request)

    def get_num_unfinished_requests(self: Any) -> int:
        """
        How many requests there is work for: of a paused engine the checks.
        """
        unfinished: int = super().get_num_unfinished_requests()  # type: ignore[misc]
        return self._checks() if self._pause_state is PauseState.PAUSED_ALL else unfinished

    def _checks(self: Any) -> int:
        return sum(is_check(name) for name in self.requests)


class CheckScheduler(_Checks, Scheduler):  # type: ignore[misc]
    """
    For engines that schedule step by step, as on a CPU.
    """


class CheckAsyncScheduler(_Checks, AsyncScheduler):  # type: ignore[misc]
    """
    For engines that schedule the next step while one runs.
    """
