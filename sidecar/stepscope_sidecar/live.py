"""
The run as the HTTP side and the metrics see it, and the orders that come from there.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from stepscope.errors import SelectionError
from stepscope.paths import without_folders
from stepscope_sidecar import gauges
from stepscope_sidecar.controller import Controller
from stepscope_sidecar.metrics import Gauge
from stepscope_sidecar.overhead import Estimate
from stepscope_sidecar.plan import API, UPSTREAM
from stepscope_sidecar.report import Order
from stepscope_sidecar.surroundings import Disk

LOG = logging.getLogger(__name__)


class Live:
    """
    The controller, dressed for the API. Called on the event loop; answers at once.
    """

    def __init__(
        self,
        controller: Controller,
        *,
        node: str,
        pending: Callable[[], int],
        unsaved: Callable[[], int],
        estimates: Callable[[], Mapping[str, Estimate]],
        attached: Callable[[], list[dict[str, object]]] = list,
        peers: Callable[[], Mapping[str, object]] = dict,
        order: Callable[[str, bool], list[str]] = lambda *_: [],
        more: Sequence[Callable[[], Iterable[Gauge]]] = (),
        unix_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """
        Tell of ``controller``; ``pending`` spans are not forwarded, ``unsaved`` changes not in the store,
        ``attached`` processes are recorded along with registered ones; ``peers`` tells of other sidecars. ``order`` has
        the nodes that report here obey as well, and names them. ``more`` have gauges of their own.
        """
        self._order = order
        self._peers = peers
        self._controller = controller
        self._node = node
        self._pending = pending
        self._unsaved = unsaved
        self._estimates = estimates
        self._attached = attached
        self._gauges: list[Gauge] = []
        self._more = more
        self._unix_ns = unix_ns

    def gauges(self) -> Iterable[Gauge]:
        """
        The gauges as of the last :meth:`measure`; callable on any thread.
        """
        return self._gauges

    def measure(self, *, disk: Disk) -> None:
        """
        Take the gauges now.
        """
        controller = self._controller
        windows, counts = list(controller.recordings.windows), controller.processes.counts()
        ages = gauges.open_ages(windows, roles=counts, unix_ns=self._unix_ns())
        found = [
            Gauge(name="stepscope_artifact_disk_bytes", value=disk.used),
            Gauge(name="stepscope_artifact_disk_budget_bytes", value=disk.budget),
            Gauge(name="stepscope_artifact_disk_left_bytes", value=disk.left),
            Gauge(name="stepscope_artifact_disk_free_bytes", value=disk.free),
            *gauges.by_role("stepscope_windows_open", controller.open),
            *gauges.by_role("stepscope_window_open_age_seconds", ages),
            *gauges.by_role("stepscope_window_start_skew_seconds", gauges.start_skews(windows)),
            *gauges.by_role("stepscope_processes", counts),
        ]
        for source in self._more:
            found += source()
        self._gauges = found + gauges.overheads(self._estimates())

    def status(self) -> dict[str, object]:
        """
        Everything about the run now that fits on a page.
        """
        controller = self._controller
        states: dict[str, int] = {}
        for window in controller.recordings.windows:
            states[window.state.value] = states.get(window.state.value, 0) + 1
        versions = controller.processes.versions()
        return {
            "run": controller.settings.run,
            "attempt": controller.settings.attempt,
            "node": self._node,
            "pid": os.getpid(),
            "param_version": max(versions.values(), default=0),
            "selection": controller.plan.selection.text,
            "revision": controller.plan.revision,
            "stopped": controller.plan.stopped,
            "stopped_by": without_folders(controller.plan.stopped_by),
            "processes": [
                {
                    "role": process.role,
                    "rank": process.rank,
                    "pid": process.pid,
                    "alive": process.alive,
                    "connected": process.link is not None,
                    "param_version": process.param_version,
                    "step": process.entered_step,
                }
                for process in controller.processes
            ],
            "attached": self._attached(),
            "windows": states,
            "windows_open": sum(controller.open.values()),
            "open": gauges.open_windows(controller.recordings.windows, unix_ns=self._unix_ns()),
            # A final window whose row is still on its way to the store is work left, too.
            "windows_unfinished": controller.unfinished or min(1, self._unsaved()),
            "spans_pending": self._pending(),
            "missing": self._missing(),
            "warnings": [without_folders(warning) for warning in controller.warnings],
            "overhead": {role: item.ratio for role, item in self._estimates().items()},
            "overhead_estimates": {role: item.json() for role, item in self._estimates().items()},
            "ignored": dict(controller.recordings.windows.ignored),
            **self._peers(),
        }

    def set_selection(self, text: str) -> dict[str, object]:
        """
        Record the steps that ``text`` names from now on.

        Raises:
            SelectionError: ``text`` does not follow the grammar.
        """
        plan = self._controller.set_selection(text, API)
        return {
            "node": self._node,
            "nodes": self._order(plan.selection.text, False),
            "selection": plan.selection.text,
            "revision": plan.revision,
            "stopped": plan.stopped,
            "warnings": self._controller.too_late(),
        }

    def stop(self) -> dict[str, object]:
        """
        Close what is open and open nothing more.
        """
        told = self._controller.stop(API)
        return {
            "node": self._node,
            "nodes": self._order("", True),
            "windows_open": told,
            "revision": self._controller.plan.revision,
            "stopped": True,
        }

    def obey(self, order: Order) -> bool:
        """
        Do what a person has ordered upstream; whether that could be done.
        """
        source = UPSTREAM.format(order.number)
        try:
            if order.stopped:
                self._controller.stop(source)
            else:
                self._controller.set_selection(order.steps, source)
        except SelectionError as error:
            LOG.error("an order of the upstream cannot be obeyed (%s); are both of one release of stepscope?", error)
            return False
        return True

    def _missing(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for step, items in self._controller.census.missing.items():
            for item in items:
                found.setdefault(item.role, []).append(f"step {step} rank {item.rank}: {item.reason}")
        return found
