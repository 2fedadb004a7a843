"""
The pages' routes: all runs, a run, a step, a window, the recordings of a trace; and the mark by which a page sees that
it is out of date.

Reads the store through a reader of its own on a worker thread, of the steps that a page shows alone. What recordings
hold is asked of ``digests`` and never waited for. How anything looks is left to ``pages``.
"""

import hashlib
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import orjson
from anyio import CapacityLimiter, to_thread
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route

from stepscope import ids, names
from stepscope.names import State
from stepscope_sidecar import converters, nodefolder, orphans, places
from stepscope_sidecar.digests import BusyError, Digests
from stepscope_sidecar.expected import accounted
from stepscope_sidecar.extent import steps_of
from stepscope_sidecar.jaeger.query import QueryError, trace_id
from stepscope_sidecar.lanes import Lanes
from stepscope_sidecar.overhead import Estimate
from stepscope_sidecar.pages import (
    Live,
    Others,
    Shown,
    StepShown,
    run_page,
    step_page,
    trace_page,
    window_page,
)
from stepscope_sidecar.pages.run import REFRESH, over, settled
from stepscope_sidecar.reader import Reader, open_reader
from stepscope_sidecar.reckoned import Reckoned
from stepscope_sidecar.roster import counted
from stepscope_sidecar.rows import WindowRow
from stepscope_sidecar.steptable import step_rows

PAGE_STEPS = 20
"""Columns on a run's page: what fits on a screen; earlier steps are a click away."""

SHARED_DIGITS = 16
"""Of a trace id: those that the traces of a step's requests share with the step's own."""

AT_ONCE = 2
"""Pages in the making: they share the interpreter with the spans that come in."""

WAITING = 40
"""Pages that wait to be made, of a screen each: who comes after would not wait so long anyway."""

LOOKED_AT = 3
"""Newest steps whose ends are looked for: the processes' steps differ by one or two."""

ENDS = (names.RL_STEP_PROCESS, names.TRAIN_UPDATE_ACTOR)
"""Spans whose coming changes the page: the end of a process's step, and of a mini-batch in the one that goes on."""

PULSE = "../api/pulse"
"""From a page below the first."""

TOLD = (
    *("run", "param_version", "selection", "stopped", "warnings", "processes", "windows", "windows_unfinished"),
    *("missing", "ordered", "overhead", "unattended"),
)
"""Of the status, what a page shows; the rest changes all the time."""

T = TypeVar("T")
Status = Mapping[str, object]
Placed = Sequence[tuple[WindowRow, bool]]
"""Windows, each with whether it is of this node."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """
    What pages are made of.
    """

    store: Path
    status: Callable[[], Status]
    """The run as it is now. Called on the event loop."""
    estimates: Callable[[], Mapping[str, Estimate] | None] | None = None
    """The overhead of each role as last estimated; None has it reckoned from the store, aside."""
    trace_view: str = ""
    """The address of a trace in another view, with ``{trace_id}`` in it; "" for none."""
    viewer: str = ""
    """The address of a viewer that recordings are handed to in the browser; "" for none."""
    runs: str = "runs"
    """From the first page to that of all runs."""


class Views:
    """
    One method per page.
    """

    def __init__(self, seen: Seen) -> None:
        """
        Show the run in ``seen``.
        """
        self._seen = seen
        self._lanes = Lanes()
        self._digests = Digests(seen.store)
        self._estimates = seen.estimates or Reckoned(seen.store).estimates
        self._limiter = CapacityLimiter(AT_ONCE)
        self._asked = 0

    def routes(self) -> list[Route]:
        """
        Where the pages are.
        """
        return [
            Route("/", self.run),
            Route("/api/pulse", self.pulse),
            Route(f"/steps/{{step:{converters.STEP}}}", self.step),
            Route(f"/steps/{{step:{converters.STEP}}}/timeline.json.gz", self.merged),
            Route("/windows/{window}", self.window),
            Route("/traces/{trace_id}", self.trace),
        ]

    async def run(self, request: Request) -> Response:
        """
        The first page; ``?before=STEP`` shows the steps before it.
        """
        before = request.query_params.get("before", "")
        if before and not re.fullmatch(r"\d{1,15}", before):
            raise HTTPException(400, f"before={before[:40]!r} is not a whole number")
        status = self._seen.status()
        return HTMLResponse(await self._aside(self._run, status, int(before) if before else None))

    async def pulse(self, _: Request) -> Response:
        """
        A mark that changes when a page has become out of date.
        """
        status = self._seen.status()
        mark = await self._aside(self._mark, status)
        return Response(orjson.dumps({"mark": mark}), media_type="application/json")

    async def step(self, request: Request) -> Response:
        """
        A step; what its recordings hold is added when it has been read.
        """
        status, number = self._seen.status(), request.path_params["step"]
        shown = await self._aside(self._step, number, status)
        ready = [row for row, here in shown.windows if row.state == State.READY and here and not row.removed]
        digests = {row.window: self._digests.get(row) for row in ready}
        digests |= {row.window: _AWAY for row, here in shown.windows if not here}
        live = self._live(status, shown.windows, reading=None in digests.values())
        return HTMLResponse(step_page(replace(shown, digests=digests), live=live))

    async def merged(self, request: Request) -> Response:
        """
        The merged timeline of a step, made now.
        """
        step = request.path_params["step"]
        if request.method == "HEAD":
            # Nothing is made that is not going to be sent; of a step that is not there it is said.
            await self._aside(self._step, step, self._seen.status())
            return Response(media_type="application/octet-stream")
        folder = tempfile.TemporaryDirectory(prefix="stepscope-")
        target = Path(folder.name) / "timeline.json.gz"
        try:
            told = await self._digests.merge(step, target)
            if "error" in told:
                raise HTTPException(404, told["error"])
        except BaseException as error:
            folder.cleanup()
            if isinstance(error, BusyError):
                raise HTTPException(503, "other timelines are being made; try again", {"retry-after": "10"}) from None
            raise
        name = f"{self._seen.store.parent.name}-step-{step}.json.gz"
        kind = "application/octet-stream"
        return FileResponse(target, media_type=kind, filename=name, background=BackgroundTask(folder.cleanup))

    async def window(self, request: Request) -> Response:
        """
        A window, and what its recording holds.
        """
        status = self._seen.status()
        row, here = await self._aside(self._window, request.path_params["window"], status)
        wanted = bool(row.artifact)
        digest = self._digests.get(row) if wanted and here else _AWAY
        page = window_page(
            row,
            here=here,
            digest=digest,
            live=self._live(status, [(row, here)], reading=digest is None),
            trace_view=self._trace_view(row.trace_id),
            viewer=self._seen.viewer,
        )
        return HTMLResponse(page)

    async def trace(self, request: Request) -> Response:
        """
        The recordings of a trace.
        """
        try:
            wanted = trace_id(request.path_params["trace_id"])
        except QueryError as error:
            raise HTTPException(400, str(error)) from None
        found = await self._aside(self._traced, wanted, self._seen.status())
        return HTMLResponse(trace_page(wanted, found), 200 if found else 404)

    async def _aside(self, work: Callable[..., T], *given: object) -> T:
        """
        What ``work`` finds, on a thread: few at a time, so that many who look cost the run no more than some do.
        """
        if self._asked >= AT_ONCE + WAITING:
            raise HTTPException(503, "too many pages are being made; try again", {"retry-after": "5"})
        self._asked += 1
        try:
            return await to_thread.run_sync(partial(work, *given), limiter=self._limiter)
        finally:
            self._asked -= 1

    def _traced(self, wanted: str, status: Status) -> Placed:
        with open_reader(self._seen.store) as reader:
            return [(row, here) for row, here in _all(reader, status) if _of(row, wanted)]

    def _run(self, status: Status, before: int | None) -> str:
        mark = self._mark(status)
        estimates = self._estimates()
        with open_reader(self._seen.store) as reader:
            everything = steps_of(reader, over=over(status))
            steps = [step for step in everything if before is None or step < before][-PAGE_STEPS:]
            newest = everything[-1] if everything else 0

            def listed(windows: list[WindowRow]) -> list[WindowRow]:
                return [row for row in windows if any(map(row.covers, steps)) or not State(row.state).final]

            elsewhere = reader.elsewhere()
            others = Others(nodes=reader.nodes(), windows=listed(elsewhere), counted=counted(elsewhere))
            shown = Shown(
                steps=step_rows(reader, estimates=estimates or {}, only=steps),
                lanes=self._lanes.read(reader, steps, newest=newest),
                windows=listed(_own(reader, status)),
                newest=newest,
                oldest=everything[0] if everything else 0,
            )
        return run_page(status, shown=shown, estimates=estimates, others=others, mark=mark, runs=self._seen.runs)

    def _step(self, step: int, status: Status) -> StepShown:
        ended = over(status)
        with open_reader(self._seen.store) as reader:
            steps = steps_of(reader, over=ended)
            windows = [(row, here) for row, here in _all(reader, status) if row.covers(step)]
            if step not in steps and not windows and step not in reader.steps():
                raise HTTPException(404, f"nothing is known of step {step}")
            (found,) = step_rows(reader, estimates=self._estimates() or {}, only=[step])
            after_all = ended and step > max(steps, default=0)
            missing = [*reader.missing(step=step), *reader.missing_elsewhere(step=step)]
            lanes = self._lanes.read(reader, [step], newest=max(steps, default=step)).get(step, {})
            trace = f"{ids.trace_id(reader.meta.get('attempt', ''), step):032x}"
        return StepShown(
            row=replace(found, partial=found.partial or after_all),
            trace_id=trace,
            lanes=lanes,
            windows=windows,
            away=[row for row, here in windows if not here and self._alone_there(row)],
            expected=accounted((row for row, _ in windows), missing),
            before=max((one for one in steps if one < step), default=None),
            after=min((one for one in steps if one > step), default=None),
            trace_view=self._trace_view(trace),
        )

    def _alone_there(self, row: WindowRow) -> bool:
        """
        Whether the recording of ``row``, of another node, lies there alone: nodes may share a folder.
        """
        if row.state != State.READY or row.removed:
            return False
        return places.enclosed(nodefolder.directory(self._seen.store.parent), row.artifact) is None

    def _window(self, window: str, status: Status) -> tuple[WindowRow, bool]:
        with open_reader(self._seen.store) as reader:
            for row, here in _all(reader, status):
                if row.window == window:
                    return row, here
        raise HTTPException(404, "no such window")

    def _mark(self, status: Status) -> str:
        told: list[Any] = [{key: status.get(key) for key in TOLD}]
        with open_reader(self._seen.store) as reader:
            steps = reader.steps()[-LOOKED_AT:]
            told += [steps, [len(reader.spans(step=step, name=name)) for step in steps for name in ENDS]]
            told += [(row.window, row.state, row.sha256, row.stored) for row, _ in _all(reader, status)]
            told += [len(reader.missing()), len(reader.missing_elsewhere())]
            told += [(row.node, row.vanished_unix_ns, row.ended_unix_ns) for row in reader.nodes()]
        option = orjson.OPT_NON_STR_KEYS | orjson.OPT_SORT_KEYS
        return hashlib.blake2b(orjson.dumps(told, option=option), digest_size=8).hexdigest()

    def _live(self, status: Status, windows: Placed, *, reading: bool) -> Live | None:
        if reading:
            return Live(seconds=1)
        return None if settled(status, [row for row, _ in windows]) else Live(seconds=REFRESH, pulse=PULSE)

    def _trace_view(self, trace: str) -> str:
        return self._seen.trace_view.replace("{trace_id}", trace) if trace else ""


_AWAY: Mapping[str, Any] = {"error": "the recording lies on another node; its page there shows it"}


def _own(reader: Reader, status: Status) -> list[WindowRow]:
    """
    The windows of this node, as they stand: those that nobody will end say so.
    """
    return orphans.shown(reader.windows(), attended=not status.get("unattended"))


def _all(reader: Reader, status: Status) -> list[tuple[WindowRow, bool]]:
    """
    All windows, each with whether it is of this node.
    """
    return [*((row, True) for row in _own(reader, status)), *((row, False) for row in reader.elsewhere())]


def _of(row: WindowRow, wanted: str) -> bool:
    """
    Whether a window is of the trace, or of the step that the trace is of a request of.
    """
    heads = (f"{ids.trace_id(row.attempt, step):032x}" for step in range(row.step, row.last_step + 1))
    return row.trace_id == wanted or any(head[:SHARED_DIGITS] == wanted[:SHARED_DIGITS] for head in heads)
