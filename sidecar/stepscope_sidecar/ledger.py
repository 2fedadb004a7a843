"""
What the controller says, kept in the store: rows, counts and the sidecar's own spans.

A change and what is counted of it are one transaction, so that a sidecar that dies in between counts nothing twice.
Nothing here waits. What the store could not take (a full disk) is tried again later, in order.
"""

import logging
import re
import sqlite3
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future

from stepscope import wire
from stepscope.names import State
from stepscope.paths import without_folders
from stepscope.settings import Settings
from stepscope_sidecar import capture, counting, inbox, totals
from stepscope_sidecar.errors import StoreBusyError, StoreFullError
from stepscope_sidecar.labels import in_phases
from stepscope_sidecar.plan import Plan
from stepscope_sidecar.processes import Process
from stepscope_sidecar.rows import MissingRow, ProcessRow, SampleRow, SelectionRow, WindowRow
from stepscope_sidecar.store import Store, write
from stepscope_sidecar.surroundings import alive
from stepscope_sidecar.windows import Window

LOG = logging.getLogger(__name__)

Work = Callable[[sqlite3.Connection], None]

MAX_RETRIES = 10_000
"""Writes that wait for a full disk; each takes about a kilobyte."""

LABEL = re.compile(r"[a-z_]{1,40}")
"""A reason for dropped spans, which becomes a label."""


class StoreLedger:
    """
    The ledger that writes to ``store``. The control loop owns it.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        url: Callable[[], str],
        unix_ns: Callable[[], int],
        changed: Callable[[WindowRow], None] = lambda _: None,
        lacking: Callable[[Sequence[MissingRow]], None] = lambda _: None,
    ) -> None:
        """
        Keep the attempt of ``settings``; ``url`` is the base address of the pages. ``changed`` is told of each window,
        ``lacking`` of each recording that is missing.
        """
        self._lacking = lacking
        self._changed = changed
        self._store = store
        self._settings = settings
        self._url = url
        self._unix_ns = unix_ns
        self._newest: dict[str, int] = {}
        self._retries: deque[Work] = deque(maxlen=MAX_RETRIES)
        self._sent = self._settled = 0
        self._begun: set[tuple[str, str]] = set()

    @property
    def unsaved(self) -> int:
        """
        Changes that are not in the store yet.
        """
        return self._sent - self._settled + len(self._retries)

    def window(self, window: Window, *, before: Window | None) -> None:
        """
        Keep ``window``; with it go its spans, and what is counted when it starts to record and when it is final.
        """
        row = window_row(window, run=self._settings.run, attempt=self._settings.attempt)
        first = self._first(window.role, window.tool)
        number = self._newest.get(window.window, 0) + 1
        self._newest[window.window] = number
        starts = capture.recorded(window) and not (before is not None and capture.recorded(before))
        ends = window.state.final and not (before is not None and before.state.final)
        spans = [capture.opened(window)] if starts else []
        if before is not None and len(window.also) > len(before.also) and capture.recorded(window):
            spans.append(capture.gone_on(window, unix_ns=self._unix_ns()))
        if ends and capture.recorded(window):
            spans.append(capture.capture(window, url=self._url()))
        body = self._store.encode(spans) if spans else b""
        now = self._unix_ns()

        def work(connection: sqlite3.Connection) -> None:
            if first:
                counting.begin(connection, window.role, window.tool)
            # A write that was put off must not undo a later one.
            if self._newest.get(window.window, number) == number:
                write(connection, row)
            if spans:
                inbox.append(connection, body, spans=len(spans), unix_ns=now)
            if starts and window.opened_unix_ns:
                counting.start(connection, window)
            if ends:
                counting.end(connection, window)

        self._submit(work)
        self._changed(row)

    def row(self, row: WindowRow) -> None:
        """
        Keep ``row`` of a window that is final, and of which something has become of its recording.
        """
        self._submit(lambda connection: write(connection, row))
        self._changed(row)

    def process(self, process: Process) -> None:
        """
        Keep ``process``, and the version that it has reached; one that enters no step reaches none.
        """
        self._store.steps.seen(process.entered_step)
        row = process_row(process, run=self._settings.run, attempt=self._settings.attempt)

        now = self._unix_ns()

        def work(connection: sqlite3.Connection) -> None:
            write(connection, row)
            if row.entered_step or row.closed_step:
                totals.reach(connection, row.role, row.param_version, unix_ns=now)

        self._submit(work)

    def plan(self, plan: Plan) -> None:
        """
        Keep a revision of the plan.
        """
        row = SelectionRow(
            revision=plan.revision,
            text=plan.selection.text,
            unix_ns=self._unix_ns(),
            source=without_folders(plan.source),
            stopped=plan.stopped,
        )
        self._submit(lambda connection: write(connection, row))

    def samples(self, message: wire.Samples) -> None:
        """
        Keep which samples a mini-batch consumed. Rows of another shape are left out.
        """
        rows = [row for item in message.rows if (row := _sample(message, item)) is not None]
        if len(rows) < len(message.rows):
            LOG.warning("%d sample rows of step %d are malformed", len(message.rows) - len(rows), message.step)
        self._store.add_samples(rows).add_done_callback(_noted)

    def dropped(self, spans: Mapping[str, int]) -> None:
        """
        Count spans that a process could not deliver.
        """
        for reason, count in spans.items():
            label = reason if LABEL.fullmatch(reason) else "other"
            self._count(inbox.DROPPED, {"reason": label}, max(0, count))

    def tool(self, role: str, tool: str) -> None:
        """
        Windows of ``role`` will be by ``tool``: their counters begin at 0.
        """
        if self._first(role, tool):
            self._submit(lambda connection: counting.begin(connection, role, tool))

    def missing(self, by_role: Mapping[str, int], found: Sequence[MissingRow] = ()) -> None:
        """
        Keep how many recordings the last decided step lacks, and which have now been ``found`` to be missing.
        """
        values = dict(by_role)

        def work(connection: sqlite3.Connection) -> None:
            for row in found:
                write(connection, row)
            for role, count in values.items():
                totals.put(connection, "stepscope_missing_ranks", {"role": role}, count)

        self._submit(work)
        self._lacking(found)

    def update_delayed(self, role: str, seconds: float) -> None:
        """
        Count ``seconds`` that profiling kept an update of a process of ``role`` waiting.
        """
        self._count("stepscope_update_delay_seconds_total", {"role": role}, seconds)

    def finalise_cpu(self, seconds: float) -> None:
        """
        Count CPU time of finalising.
        """
        self._count("stepscope_finalise_cpu_seconds_total", {}, seconds)

    def retry(self) -> None:
        """
        Try again what the store could not take. Called once in a while.
        """
        for _ in range(len(self._retries)):
            self._submit(self._retries.popleft())

    def _first(self, role: str, tool: str) -> bool:
        known = (role, tool) in self._begun
        self._begun.add((role, tool))
        return not known

    def _count(self, name: str, labels: Mapping[str, str], amount: float) -> None:
        self._submit(lambda connection: totals.add(connection, name, labels, amount))

    def _submit(self, work: Work) -> None:
        self._sent += 1

        def done(future: "Future[None]") -> None:
            # On the writer's thread, which is the only one to count here.
            self._settled += 1
            error = None if future.cancelled() else future.exception()
            if isinstance(error, (StoreFullError, StoreBusyError)):
                self._retries.append(work)
            elif error is not None:
                LOG.error("not kept: %s", error)

        self._store.submit(work).add_done_callback(done)


def window_row(window: Window, *, run: str, attempt: str) -> WindowRow:
    """
    ``window`` as the store has it.
    """
    return WindowRow(
        window=window.window,
        run=run,
        attempt=attempt,
        node=window.node,
        step=window.step,
        param_version=window.param_version,
        version_at_close=window.version_at_close,
        role=window.role,
        rank=window.rank,
        pid=window.pid,
        process_start=window.process_start,
        tool=window.tool,
        level=window.level,
        level_fallback=window.level_fallback,
        state=window.state.value,
        reason=str(window.reason),
        detail=window.detail,
        complete=window.complete,
        incomplete_reason=window.incomplete_reason,
        incomplete_share=window.incomplete_share,
        artifact=window.artifact,
        folder=window.folder,
        bytes=window.bytes,
        sha256=window.sha256,
        trace_id=window.trace_id,
        span_id=window.span_id,
        asked_unix_ns=window.asked_unix_ns,
        opened_unix_ns=window.opened_unix_ns,
        closed_unix_ns=window.closed_unix_ns,
        stall_seconds=in_phases(window.stall),
        other={
            "forced": window.forced,
            "devices": list(window.devices),
            "beside": window.beside,
            "last_step": window.last_step,
            "also": [list(ids) for ids in window.also],
        },
    )


def window_of(row: WindowRow) -> Window:
    """
    The window in ``row``, as a restarted sidecar takes it over.
    """
    devices, also = row.other.get("devices"), row.other.get("also")
    return Window(
        window=row.window,
        step=row.step,
        param_version=row.param_version,
        role=row.role,
        rank=row.rank,
        pid=row.pid,
        process_start=row.process_start,
        node=row.node,
        tool=row.tool,
        level=row.level,
        level_fallback=row.level_fallback,
        folder=row.folder,
        devices=tuple(str(device) for device in devices) if isinstance(devices, list) else (),
        forced=bool(row.other.get("forced")),
        last_step=row.last_step if row.last_step > row.step else 0,
        also=tuple((str(ids[0]), str(ids[1])) for ids in also if isinstance(ids, list) and len(ids) == 2)
        if isinstance(also, list)
        else (),
        beside=str(row.other.get("beside") or ""),
        state=State(row.state),
        reason=row.reason,
        detail=row.detail,
        asked_unix_ns=row.asked_unix_ns,
        opened_unix_ns=row.opened_unix_ns,
        closed_unix_ns=row.closed_unix_ns,
        version_at_close=row.version_at_close,
        trace_id=row.trace_id,
        span_id=row.span_id,
        stall=row.stall_seconds,
        complete=row.complete,
        incomplete_reason=row.incomplete_reason,
        incomplete_share=row.incomplete_share,
        artifact=row.artifact,
        bytes=row.bytes,
        sha256=row.sha256,
    )


def process_row(process: Process, *, run: str, attempt: str) -> ProcessRow:
    """
    ``process`` as the store has it.
    """
    return ProcessRow(
        pid=process.pid,
        process_start=process.process_start,
        node=process.node,
        role=process.role,
        rank=process.rank,
        run=run,
        attempt=attempt,
        world_size=process.world_size,
        param_version=process.param_version,
        resumed_from=process.resumed_from,
        total_steps=process.total_steps,
        entered_step=process.entered_step,
        closed_step=process.closed_step,
        device_ids=list(process.devices),
        tools=dict(process.tools),
        environment=dict(process.environment),
        registered_unix_ns=process.registered_unix_ns,
        ended_unix_ns=process.ended_unix_ns,
        end_reason=str(process.end_reason),
    )


def process_of(row: ProcessRow) -> Process:
    """
    The process in ``row``, as a restarted sidecar takes it over. Which steps it was expected to record is not kept.
    """
    return Process(
        pid=row.pid,
        process_start=row.process_start,
        node=row.node,
        role=row.role,
        rank=row.rank,
        watch_pid=row.pid if alive(row.pid, row.process_start) else 0,
        world_size=row.world_size,
        param_version=row.param_version,
        resumed_from=row.resumed_from,
        total_steps=row.total_steps,
        devices=tuple(row.device_ids),
        tools=dict(row.tools),
        environment=dict(row.environment),
        registered_unix_ns=row.registered_unix_ns,
        ended_unix_ns=row.ended_unix_ns,
        end_reason=row.end_reason,
        entered_step=row.entered_step,
        closed_step=row.closed_step,
    )


def _sample(message: wire.Samples, item: list[str | int | None]) -> SampleRow | None:
    if len(item) != 5:
        return None
    sample_id, oldest, newest, trace_id, span_id = item
    if not isinstance(sample_id, (str, int)) or isinstance(oldest, str) or isinstance(newest, str):
        return None
    return SampleRow(
        step=message.step,
        mini_batch=message.mini_batch,
        param_version=message.param_version,
        sample_id=str(sample_id),
        oldest_version=oldest,
        newest_version=newest,
        trace_id=str(trace_id or ""),
        span_id=str(span_id or ""),
    )


def _noted(future: "Future[None]") -> None:
    error = None if future.cancelled() else future.exception()
    if error is not None:
        LOG.error("samples not kept: %s", error)
