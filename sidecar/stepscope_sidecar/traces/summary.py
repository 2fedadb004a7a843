"""
A recording in numbers: what devices did, what ran most, what was launched, what each span cost, what held it up.

Pure: put together of what its neighbours measure. How it is shown is left to ``show``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import reduce
from operator import add

from stepscope_sidecar.traces import bound as bounds
from stepscope_sidecar.traces import collectives, devices, intervals
from stepscope_sidecar.traces.attribution import Attribution, attribute
from stepscope_sidecar.traces.bound import Bound
from stepscope_sidecar.traces.collectives import Exchange
from stepscope_sidecar.traces.devices import DeviceTime
from stepscope_sidecar.traces.launches import Launches, asked, launches
from stepscope_sidecar.traces.operators import Operators, operators
from stepscope_sidecar.traces.ties import How
from stepscope_sidecar.traces.totals import Total, by_name
from stepscope_sidecar.traces.trace import NONE, Clock, Header, Kind, Trace

NO_DEVICE = "the recording holds no work of a device"
NO_OPERATORS = "the recording holds no operators"
NO_SPANS = "the recording holds no mirrored spans"

TOP = 100
"""Names that a table of JSON has; what is below the hundredth is noise, and generated kernels have thousands."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SpanTime:
    """
    A mirrored span: its part in the recording, and what ran or was launched in it and in no span inside it.
    """

    name: str
    span_id: str
    start_ns: int
    duration_ns: int
    operator_ns: int
    operators: int
    device_ns: int
    """Work of devices, added up: kernels, copies, fills and collectives."""
    device_work: int
    """Pieces of it."""
    device_inside_ns: int
    """With what was launched in spans inside it."""
    device_busy_ns: int
    """How long devices were busy with that."""

    def json(self) -> dict[str, str | int]:
        """
        As ``stepscope show --json`` prints it.
        """
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Extent:
    """
    From when to when a recording is looked at, and what says so.
    """

    begin_ns: int
    end_ns: int
    by: str

    @property
    def wall_ns(self) -> int:
        """
        Its length.
        """
        return self.end_ns - self.begin_ns


@dataclass(frozen=True, kw_only=True)
class Summary:
    """
    One recording. Where a part is empty, a reason beside it says why.
    """

    header: Header
    extent: Extent
    events: int
    devices: Mapping[int, DeviceTime]
    kernels: Sequence[Total]
    operators: Sequence[Total]
    operator_ns: int
    """How long operators ran on the host, added up over threads."""
    host_busy_ns: int
    """How long any thread was in an operator."""
    collectives: Sequence[Exchange]
    launches: Launches | None
    others_on_device: int
    """Events on a device that are no work, or of a kind that is not known."""
    spans: Sequence[SpanTime]
    unattributed_operator_ns: int
    """Of ``operator_ns``, what ran in no span."""
    device_work_ns: int
    """Work of devices, added up."""
    unattributed_device_ns: int
    """Of it, what no span can be told of."""
    attributed: Mapping[How, tuple[int, int]]
    """Pieces of work, and their time, by how their span was found, or why it was not."""
    bound: Bound

    @property
    def device_time(self) -> DeviceTime | None:
        """
        All devices together.
        """
        return reduce(add, self.devices.values()) if self.devices else None

    @property
    def absent(self) -> Mapping[str, str]:
        """
        The parts that are not there, and why.
        """
        broken = "; ".join(flag.reason for flag in self.header.flags) if not self.events else ""
        others = f"; {self.others_on_device} events on devices are of other kinds" if self.others_on_device else ""
        parts = {
            "devices": (self.devices, NO_DEVICE + others),
            "operators": (self.operators, NO_OPERATORS),
            "spans": (self.spans, NO_SPANS),
        }
        return {part: broken or reason for part, (found, reason) in parts.items() if not found}

    def json(self) -> dict[str, object]:
        """
        As ``stepscope show --json`` prints it.
        """
        total, header = self.device_time, self.header
        return {
            "file": header.path.name,
            "format": header.format,
            "era": header.era,
            "rank": header.rank,
            "clock": header.clock.value,
            "clock_reason": header.clock_reason,
            "flags": [{"fault": flag.fault.value, "reason": flag.reason} for flag in header.flags],
            "guesses": list(header.guesses),
            "absent": dict(self.absent),
            "events": self.events,
            "begin_ns": self.extent.begin_ns,
            "end_ns": self.extent.end_ns,
            "wall_ns": self.extent.wall_ns,
            "wall_by": self.extent.by,
            "device": total.json() if total else None,
            "devices": {str(device): time.json() for device, time in self.devices.items()},
            "kernels": _table(self.kernels),
            "operators": {
                **_table(self.operators),
                "own_ns": self.operator_ns,
                "unattributed_ns": self.unattributed_operator_ns,
                "host_busy_ns": self.host_busy_ns,
            },
            "collectives": [one.json() for one in self.collectives],
            "launches": self.launches.json() if self.launches else None,
            "spans": [span.json() for span in self.spans],
            "attribution": {
                "device_ns": self.device_work_ns,
                "unattributed_ns": self.unattributed_device_ns,
                "by": {
                    how.name.lower(): {"work": count, "time_ns": time} for how, (count, time) in self.attributed.items()
                },
            },
            "bound": self.bound.json(),
        }


def summarise(
    trace: Trace, *, window: tuple[int, int] | None = None, parents: Mapping[str, str] | None = None
) -> Summary:
    """
    The summary of ``trace``.

    Args:
        trace: the recording.
        window: from when to when it was to be, in nanoseconds since the epoch.
        parents: the parent of each span, by id; see ``operators``.
    """
    extent = _extent(trace, window)
    work = devices.work(trace)
    when = asked(trace, work)
    times = devices.times(trace, extent.begin_ns, extent.end_ns)
    launched = launches(trace, work, when) if len(work) else None
    idles = {
        which: bounds.idle(trace, work[here], when.of(here), extent.begin_ns, extent.end_ns)
        for which in times
        for here in [trace.device[work] == which]
    }
    ran = operators(trace, parents)
    given = attribute(trace, parents=parents)
    kernels = work[(trace.kind[work] == Kind.KERNEL) | (trace.kind[work] == Kind.COMMUNICATION)]
    return Summary(
        header=trace.header,
        extent=extent,
        events=len(trace),
        devices=times,
        kernels=by_name(trace, kernels),
        operators=by_name(trace, ran.rows, own_ns=ran.own_ns),
        operator_ns=ran.total_ns,
        host_busy_ns=intervals.of(trace, ran.rows).total,
        collectives=collectives.collectives(trace),
        launches=launched,
        others_on_device=int(trace.on_device.sum()) - len(work),
        spans=_spans(ran, given),
        unattributed_operator_ns=int(ran.own_ns[ran.owner == NONE].sum()),
        device_work_ns=given.total_ns,
        unattributed_device_ns=given.unattributed_ns,
        attributed=given.by_reason(),
        bound=bounds.judge(times, idles, launched),
    )


def _extent(trace: Trace, window: tuple[int, int] | None) -> Extent:
    if window is not None and window[1] > window[0] and trace.header.clock is Clock.EPOCH:
        return Extent(begin_ns=window[0], end_ns=window[1], by="the window")
    if not len(trace):
        return Extent(begin_ns=0, end_ns=0, by="nothing was recorded")
    return Extent(begin_ns=int(trace.start_ns.min()), end_ns=int(trace.end_ns.max()), by="the first and the last event")


def _spans(ran: Operators, given: Attribution) -> Sequence[SpanTime]:
    """
    The mirrored spans by start.
    """
    own, count = ran.by_owner()
    return [
        SpanTime(
            name=one.mark.name,
            span_id=one.mark.span_id,
            start_ns=one.mark.start_ns,
            duration_ns=one.mark.end_ns - one.mark.start_ns,
            operator_ns=own.get(one.mark.row, 0),
            operators=count.get(one.mark.row, 0),
            device_ns=one.own_ns,
            device_work=one.own_count,
            device_inside_ns=one.total_ns,
            device_busy_ns=one.busy_ns,
        )
        for one in given.spans()
    ]


def _table(totals: Sequence[Total]) -> dict[str, object]:
    return {
        "names": len(totals),
        "count": sum(one.count for one in totals),
        "total_ns": sum(one.total_ns for one in totals),
        "top": [one.json() for one in totals[:TOP]],
    }
