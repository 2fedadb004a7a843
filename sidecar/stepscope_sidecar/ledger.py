"""
What the controller says, kept in the store: rows, counts and the sidecar's own spans.

A change and what is counted of it are one transaction, so that a sidecar that dies in between counts nothing twice.
Nothing here waits. What the store could not take (a full disk) is tried again later, see ``unsaved``.
"""

import logging
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence

from stepscope import wire
from stepscope.paths import without_folders
from stepscope.settings import Settings
from stepscope_sidecar import capture, counting, inbox, totals
from stepscope_sidecar.plan import Plan
from stepscope_sidecar.processes import Process
from stepscope_sidecar.recast import process_row, window_row
from stepscope_sidecar.rows import MissingRow, SampleRow, SelectionRow, WindowRow
from stepscope_sidecar.store import Store, add_samples, write
from stepscope_sidecar.unsaved import Unsaved
from stepscope_sidecar.windows import Window

LOG = logging.getLogger(__name__)

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
        self._unsaved = Unsaved(store)
        self._begun: set[tuple[str, str]] = set()

    @property
    def unsaved(self) -> int:
        """
        Changes that are not in the store yet.
        """
        return len(self._unsaved)

    def window(self, window: Window, *, before: Window | None) -> None:
        """
        Keep ``window``; with it go its spans, and what is counted when it starts to record and when it is final.
        """
        row = window_row(window, run=self._settings.run, attempt=self._settings.attempt)
        first = self._first(window.role, window.tool)
        newest = self._newest_of(window.window)
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
            if newest():
                write(connection, row)
            if spans:
                inbox.append(connection, body, spans=len(spans), unix_ns=now)
            if starts and window.opened_unix_ns:
                counting.start(connection, window)
            if ends:
                counting.end(connection, window)

        self._unsaved.put(work)
        self._changed(row)

    def row(self, row: WindowRow) -> None:
        """
        Keep ``row`` of a window that is final, and of which something has become of its recording.
        """
        newest = self._newest_of(row.window)

        def work(connection: sqlite3.Connection) -> None:
            if newest():
                write(connection, row)

        self._unsaved.put(work)
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

        self._unsaved.put(work, over=(row.node, row.pid, row.process_start))

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
        self._unsaved.put(lambda connection: write(connection, row))

    def samples(self, message: wire.Samples) -> None:
        """
        Keep which samples a mini-batch consumed. Rows of another shape are left out.
        """
        rows = [row for item in message.rows if (row := _sample(message, item)) is not None]
        if len(rows) < len(message.rows):
            LOG.warning("%d sample rows of step %d are malformed", len(message.rows) - len(rows), message.step)
        self._unsaved.put(lambda connection: add_samples(connection, rows), size=len(rows), spared=True)

    def dropped(self, spans: Mapping[str, int]) -> None:
        """
        Count spans that a process could not deliver.
        """
        for reason, count in spans.items():
            label = reason if LABEL.fullmatch(reason) else "other"
            self._unsaved.add(inbox.DROPPED, {"reason": label}, max(0, count))

    def tool(self, role: str, tool: str) -> None:
        """
        Windows of ``role`` will be by ``tool``: their counters begin at 0.
        """
        if self._first(role, tool):
            self._unsaved.put(lambda connection: counting.begin(connection, role, tool))

    def missing(self, by_role: Mapping[str, int], found: Sequence[MissingRow] = ()) -> None:
        """
        Keep how many recordings the last decided step lacks, and which have now been ``found`` to be missing.
        """
        values = dict(by_role)

        def keep(connection: sqlite3.Connection) -> None:
            for row in found:
                write(connection, row)

        def count(connection: sqlite3.Connection) -> None:
            for role, number in values.items():
                totals.put(connection, "stepscope_missing_ranks", {"role": role}, number)

        if found:
            self._unsaved.put(keep)
        self._unsaved.put(count, over=self.missing.__name__)
        self._lacking(found)

    def update_delayed(self, role: str, seconds: float) -> None:
        """
        Count ``seconds`` that profiling kept an update of a process of ``role`` waiting.
        """
        self._unsaved.add("stepscope_update_delay_seconds_total", {"role": role}, seconds)

    def finalise_cpu(self, seconds: float) -> None:
        """
        Count CPU time of finalising.
        """
        self._unsaved.add("stepscope_finalise_cpu_seconds_total", {}, seconds)

    def retry(self) -> None:
        """
        Try again what the store could not take. Called once in a while.
        """
        self._unsaved.retry()

    def _newest_of(self, window: str) -> Callable[[], bool]:
        """
        Whether the change of ``window`` that is about to be made is still its newest: one put off undoes no later one.
        """
        number = self._newest[window] = self._newest.get(window, 0) + 1
        return lambda: self._newest[window] == number

    def _first(self, role: str, tool: str) -> bool:
        known = (role, tool) in self._begun
        self._begun.add((role, tool))
        return not known


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
