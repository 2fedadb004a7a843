"""
A worker without a loop of its own, the calls that it gets, and what they did to it.
"""

from typing import Any

import stepscope
from stepscope import driven
from stepscope.integrations import ray
from stepscope.testing import Captured, SpanData, capture_spans


def carried(version: int, *, inside: bool = True) -> dict[str, str]:
    """
    What a trainer sends along with a call while ``version`` is in force.
    """
    with capture_spans(param_version=version):
        with stepscope.step():
            if inside:
                with stepscope.span("caller"):
                    return driven.carrier()
        return driven.carrier()


@ray.traced(loads="load", publishes="send")
class Worker:
    """
    Works when it is called.
    """

    def work(self) -> int:
        """
        Do something.
        """
        with stepscope.span("work"):
            return stepscope.current_step()

    def load(self) -> None:
        """
        Take the next weights in.
        """
        with stepscope.span("weights.load"):
            pass

    def send(self) -> None:
        """
        Hand the weights over.
        """
        with stepscope.span("weights.publish"):
            pass

    def fail(self) -> None:
        """
        Fail to do so.
        """
        raise ValueError("cannot")

    async def awaited(self) -> int:
        """
        Do something in a coroutine.
        """
        with stepscope.span("work"):
            return stepscope.current_step()


def windows(captured: Captured) -> tuple[list[tuple[object, object]], list[tuple[object, object, object]]]:
    """
    Step and version of each window that was opened; version, reason and flaw of each that was closed.
    """
    opened = [(call["step"], call["param_version"]) for call in captured.agent.windows.of("open")]
    closed = [(call["version"], call["reason"], call["incomplete"]) for call in captured.agent.windows.of("close")]
    return opened, closed


def parts(captured: Captured) -> list[SpanData]:
    """
    The process's parts of its steps.
    """
    return captured.named("rl.step.process")


def told(worker: Any, method: str, carrier: dict[str, str] | None) -> Any:
    """
    Call ``method`` as it arrives in the worker.
    """
    return getattr(worker, method)(**({ray.CARRIER: carrier} if carrier else {}))


def carried_after_publishing(version: int) -> dict[str, str]:
    """
    What a trainer sends along after the step that made ``version``.
    """
    with capture_spans(param_version=version - 1):
        with stepscope.step():
            stepscope.weights_published(version)
        return driven.carrier()
