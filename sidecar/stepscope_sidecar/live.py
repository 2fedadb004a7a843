"""
The run as the HTTP side and the metrics see it, and the orders that come from there.
"""

import os
from collections.abc import Callable, Iterable, Mapping

from stepscope_sidecar.controller import Controller
from stepscope_sidecar.metrics import Gauge
from stepscope_sidecar.overhead import Estimate


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
    ) -> None:
        """
        Tell of ``controller``; ``pending`` spans are not forwarded, ``unsaved`` changes not in the store.
        """
        self._controller = controller
        self._node = node
        self._pending = pending
        self._unsaved = unsaved
        self._estimates = estimates
        self._gauges: list[Gauge] = []

    def gauges(self) -> Iterable[Gauge]:
        """
        The gauges as of the last :meth:`measure`; callable on any thread.
        """
        return self._gauges

    def measure(self, *, disk_bytes: int) -> None:
        """
        Take the gauges now.
        """
        controller = self._controller
        found = [
            Gauge(name="stepscope_artifact_disk_bytes", value=disk_bytes),
            Gauge(name="stepscope_spans_pending", value=self._pending()),
        ]
        for name, values in (
            ("stepscope_windows_open", controller.open),
            ("stepscope_processes", controller.processes.counts()),
            ("stepscope_missing_ranks", controller.census.by_role),
        ):
            found += [Gauge(name=name, value=value, labels={"role": role}) for role, value in values.items()]
        for role, item in self._estimates().items():
            for name, ratio in (
                ("stepscope_profiling_overhead_ratio", item.ratio),
                ("stepscope_profiling_wall_overhead_ratio", item.wall_ratio),
            ):
                if ratio is not None:
                    found.append(Gauge(name=name, value=ratio, labels={"role": role}))
        self._gauges = found

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
            "stopped_by": controller.plan.stopped_by,
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
            "windows": states,
            "windows_open": sum(controller.open.values()),
            # A final window whose row is still on its way to the store is work left, too.
            "windows_unfinished": controller.unfinished or min(1, self._unsaved()),
            "spans_pending": self._pending(),
            "missing": self._missing(),
            "overhead": {role: item.ratio for role, item in self._estimates().items()},
            "ignored": dict(controller.recordings.windows.ignored),
        }

    def set_selection(self, text: str) -> dict[str, object]:
        """
        Record the steps that ``text`` names from now on.

        Raises:
            SelectionError: ``text`` does not follow the grammar.
        """
        plan = self._controller.set_selection(text, "api")
        return {"selection": plan.selection.text, "revision": plan.revision, "stopped": plan.stopped}

    def stop(self) -> dict[str, object]:
        """
        Close what is open and open nothing more.
        """
        told = self._controller.stop("api")
        return {"windows_open": told, "revision": self._controller.plan.revision, "stopped": True}

    def _missing(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for step, items in self._controller.census.missing.items():
            for item in items:
                found.setdefault(item.role, []).append(f"step {step} rank {item.rank}: {item.reason}")
        return found
