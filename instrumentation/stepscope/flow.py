"""
A boundary call written once for both worlds: a generator that yields what is to be done to the window.

Profilers of engines start and stop in coroutines, those in the process do not. :func:`drive` does it here and now,
:func:`adrive` awaits it; the order of things is the generator's alone.
"""

from collections.abc import Generator
from dataclasses import dataclass

from stepscope.complaints import complaints
from stepscope.seam import WindowsSeam


@dataclass(frozen=True, kw_only=True, slots=True)
class Opening:
    """
    Ask for a window and start its profiler. The answer is whether it records.
    """

    step: int
    param_version: int
    forced: bool = False
    late: bool = False

    def now(self, windows: WindowsSeam) -> bool:
        """
        Do it on this thread.
        """
        return windows.open(step=self.step, param_version=self.param_version, forced=self.forced, late=self.late)

    async def later(self, windows: WindowsSeam) -> bool:
        """
        Await it.
        """
        return await windows.aopen(step=self.step, param_version=self.param_version, forced=self.forced, late=self.late)


@dataclass(frozen=True, kw_only=True, slots=True)
class Closing:
    """
    Stop what records. The answer means nothing.
    """

    version: int
    reason: str
    incomplete: str = ""

    def now(self, windows: WindowsSeam) -> bool:
        """
        Do it on this thread.
        """
        windows.close(version=self.version, reason=self.reason, incomplete=self.incomplete)
        return False

    async def later(self, windows: WindowsSeam) -> bool:
        """
        Await it.
        """
        await windows.aclose(version=self.version, reason=self.reason, incomplete=self.incomplete)
        return False


Flow = Generator[Opening | Closing, bool, None]


def drive(flow: Flow, windows: WindowsSeam) -> None:
    """
    Run ``flow`` on this thread. Raises nothing of ours; an interrupt passes through it and on.
    """
    try:
        effect = next(flow)
        while True:
            try:
                answer = effect.now(windows)
            except Exception as error:  # noqa: BLE001 - a profiler's trouble must not reach the training loop
                complaints.fault("window", error)
                answer = False
            except BaseException as interrupt:  # noqa: BLE001 - the flow puts things in order and raises it again
                effect = flow.throw(interrupt)
                continue
            effect = flow.send(answer)
    except StopIteration:
        return
    except Exception as error:  # noqa: BLE001 - an error of ours must not reach the training loop
        complaints.fault("boundary", error)


async def adrive(flow: Flow, windows: WindowsSeam) -> None:
    """
    Run ``flow``, awaiting what it asks for. A cancellation passes through it and on.
    """
    try:
        effect = next(flow)
        while True:
            try:
                answer = await effect.later(windows)
            except Exception as error:  # noqa: BLE001 - a profiler's trouble must not reach the training loop
                complaints.fault("window", error)
                answer = False
            except BaseException as interrupt:  # noqa: BLE001 - the flow puts things in order and raises it again
                effect = flow.throw(interrupt)
                continue
            effect = flow.send(answer)
    except StopIteration:
        return
    except Exception as error:  # noqa: BLE001 - an error of ours must not reach the training loop
        complaints.fault("boundary", error)
