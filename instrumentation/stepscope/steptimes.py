"""
What the last completed step of this process took: its seconds, by kind of time, and what profiling kept it waiting.

Owns the sums, from the spans that end in this process and from its windows. A flat dictionary, fit for what a trainer
logs anyway. Leaves when a step is complete to :mod:`stepscope.boundary`.
"""

from collections.abc import Callable, Mapping

from opentelemetry.sdk.trace import ReadableSpan

from stepscope import names
from stepscope.complaints import complaints
from stepscope.names import Bucket
from stepscope.tally import Tally
from stepscope.version import Moment

PREFIX = "stepscope/"

BUCKET = str(names.BUCKET)
PROCESS = str(names.RL_STEP_PROCESS)
BUCKETS = frozenset(bucket.value for bucket in Bucket)

PHASES = ("open", "start", "stop", "export")
"""Of the time that profiling keeps a process from its work, in their order."""


class Timings:
    """
    Sums up as spans end, and is read when the step is over. Thread-safe; costs a span a look at one attribute.
    """

    def __init__(self, *, stall: Callable[[], Mapping[str, float]]) -> None:
        """
        ``stall`` takes the seconds of the windows that have ended since it was asked last, by phase.
        """
        self._stall = stall
        self._spent = Tally()
        self._seconds = 0.0
        self._last: dict[str, float] = {}

    def last(self) -> dict[str, float]:
        """
        The figures of the last completed step; empty before the first.
        """
        return dict(self._last)

    def spent(self, span: ReadableSpan) -> None:
        """
        ``span`` has ended, on any thread, maybe in the handler of a signal.
        """
        # Through the SDK's views of it the look would take 1 us, on each span.
        held = getattr(getattr(span, "_attributes", None), "_dict", None)
        bucket = (span.attributes or {} if held is None else held).get(BUCKET)
        if bucket is None and span.name != PROCESS:
            return
        seconds = ((span.end_time or 0) - (span.start_time or 0)) / 1e9
        if span.name == PROCESS:
            self._seconds = seconds
        elif bucket in BUCKETS:
            self._spent.add(str(bucket), seconds)

    def completed(self, moment: Moment) -> None:
        """
        The step of ``moment`` is complete, and its window is closed.
        """
        try:
            spent = {**dict.fromkeys(BUCKETS, 0.0), **self._spent.take()}
            stall = self._stall()
            self._last = {
                f"{PREFIX}step": moment.step,
                f"{PREFIX}version": moment.param_version,
                f"{PREFIX}seconds": self._seconds,
                **{f"{PREFIX}bucket/{bucket}_seconds": spent[bucket] for bucket in sorted(spent)},
                f"{PREFIX}stall_seconds": sum(stall.values()),
                **{f"{PREFIX}stall/{phase}_seconds": stall.get(phase, 0.0) for phase in PHASES},
            }
        except Exception as error:  # noqa: BLE001 - must not reach the training loop
            complaints.fault("timings", error)
