"""
Serves a run whose sidecar has ended: its page, its API, its recordings and Jaeger's query API, from its store alone.

Nothing is written and nothing can be ordered. While the run goes on its own sidecar serves the same.
"""

import asyncio
import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from starlette.applications import Starlette

from stepscope import names
from stepscope.errors import StepscopeError
from stepscope.settings import Settings
from stepscope_sidecar import gauges, listen, nodefolder, orphans
from stepscope_sidecar.api import Sources, create_app
from stepscope_sidecar.metrics import Exposition, Gauge
from stepscope_sidecar.objects import Objects
from stepscope_sidecar.overhead import Estimate
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.reckoned import Reckoned
from stepscope_sidecar.remote import Remote
from stepscope_sidecar.token import demanded
from stepscope_sidecar.totals import Totals
from stepscope_sidecar.web import Web

ABOVE = "../../runs"
"""From the first page of a run that is served within another's, below ``/runs/{folder}/``."""


class EndedError(StepscopeError):
    """
    The run has ended: nothing can be ordered of it.
    """


class Ended:
    """
    Stands where the controller of a live run would.
    """

    def __init__(self, store: Path) -> None:
        """
        Tell of the run in ``store``.
        """
        self._store = store
        self._reckoned = Reckoned(store)

    def status(self) -> Mapping[str, object]:
        """
        What is known of it.
        """
        # Its own sidecar may still run: this one reads what that has written.
        attended = orphans.attended(self._store.parent)
        with open_reader(self._store) as reader:
            processes, revisions = reader.processes(), reader.selections()
        estimates = self._reckoned.estimates()
        return {
            "unattended": not attended,
            "processes": orphans.processes(processes, attended=attended),
            "run": reader.meta.get("run", ""),
            "attempt": reader.meta.get("attempt", ""),
            "param_version": max((row.param_version for row in processes), default=0),
            "selection": revisions[-1].text if revisions else "",
            # None while that is being reckoned.
            "overhead": _by_role(estimates, lambda item: item.ratio),
            "overhead_estimates": _by_role(estimates, Estimate.json),
        }

    def set_selection(self, text: str) -> Mapping[str, object]:
        """
        Refused.
        """
        raise EndedError(f"the run is served from its store: there is nothing to record {text!r} of")

    def stop(self) -> Mapping[str, object]:
        """
        Refused.
        """
        raise EndedError("the run is served from its store: there is nothing to stop")

    def gauges(self) -> Iterable[Gauge]:
        """
        What profiling cost, once that is reckoned; of the rest, nothing is now.
        """
        return gauges.overheads(self._reckoned.estimates() or {})

    def totals(self) -> Totals:
        """
        What was counted.
        """
        with open_reader(self._store) as reader:
            return reader.totals()


def _by_role(
    estimates: Mapping[str, Estimate] | None, told: Callable[[Estimate], object]
) -> Mapping[str, object] | None:
    return None if estimates is None else {role: told(item) for role, item in estimates.items()}


def application(
    store: Path, settings: Settings | None = None, *, token: str, remote: Remote | None = None
) -> Starlette:
    """
    What is served of the run in ``store``, and of the runs beside it; ``remote`` fetches recordings of other nodes.
    """
    settings = settings or Settings()
    sources = replace(_sources(store, settings, remote), beside=lambda other: inner(other, settings, remote))
    return create_app(sources, token=token)


def inner(store: Path, settings: Settings, remote: Remote | None) -> Starlette:
    """
    What is served of the run in ``store`` within another run's pages.
    """
    return create_app(replace(_sources(store, settings, remote), runs=ABOVE), gated=False)


def _sources(store: Path, settings: Settings, remote: Remote | None) -> Sources:
    ended = Ended(store)
    return Sources(
        live=ended,
        store=store,
        sidecar=False,
        directory=nodefolder.directory(store.parent).absolute(),
        metrics=Exposition(totals=ended.totals, live=ended).render,
        trace_view=settings.trace_view,
        viewer=settings.viewer,
        remote=remote,
    )


def serve(store: Path, settings: Settings, *, ready: Callable[[str], None]) -> None:
    """
    Serve the run in ``store`` at the address in ``settings`` until a signal; ``ready`` is told the address.

    Raises:
        StoreError: there is no such store.
        ConfigurationError: the address cannot be had, or demands a token that there is none of; or the object store
            cannot be used.
    """
    open_reader(store).close()
    token = demanded(settings)
    # Of other nodes a sidecar may still run, and an object store stays.
    remote = Remote(token=token, objects=Objects.open(settings.artifacts) if settings.artifacts else None)
    app = application(store, settings, token=token, remote=remote)
    listener = listen.tcp(names.HTTP, settings.http)
    asyncio.run(_until_told(Web(app, listener), lambda: ready(f"http://{listen.shown(listener)}")))


async def _until_told(web: Web, ready: Callable[[], None]) -> None:
    told = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    serving = asyncio.ensure_future(web.work())
    ready()
    waiting = asyncio.ensure_future(told.wait())
    await asyncio.wait([serving, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    await web.stop(serving)
