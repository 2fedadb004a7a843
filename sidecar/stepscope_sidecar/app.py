"""
The sidecar, put together. Read in this order: ``app`` (what there is and how it starts and ends), ``control`` (the
socket), ``controller`` (what is answered), ``recordings`` and ``windows`` (what becomes of a window), ``finalise``,
``ledger`` and ``store`` (what is kept), ``api`` and ``metrics`` (what is shown).

Owns the order of starting and ending, the tasks, and when an unattended sidecar ends by itself.
"""

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping

from stepscope import ids, names, wire
from stepscope.errors import ConfigurationError
from stepscope.settings import Settings
from stepscope_sidecar import lifecycle, listen, receivers
from stepscope_sidecar.api import Sources, create_app
from stepscope_sidecar.control import Control
from stepscope_sidecar.controller import Controller
from stepscope_sidecar.costs import Costs
from stepscope_sidecar.errors import StoreError
from stepscope_sidecar.finalise import Finaliser, Job, Result
from stepscope_sidecar.ledger import StoreLedger
from stepscope_sidecar.live import Live
from stepscope_sidecar.metrics import Exposition
from stepscope_sidecar.overhead import Estimate
from stepscope_sidecar.plan import STOP_FILE, Plan
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.seams import World
from stepscope_sidecar.store import Store
from stepscope_sidecar.surroundings import RECORD, Disk, alive, read_record
from stepscope_sidecar.takeover import inherit
from stepscope_sidecar.totals import Totals
from stepscope_sidecar.upstream import Upstream
from stepscope_sidecar.web import Web
from stepscope_sidecar.windows import Window

LOG = logging.getLogger(__name__)

TICK = 0.2
"""Seconds between looks at deadlines, the STOP file and whether all is done; a stop has to reach all within 1 s."""

LOOK = 2.0
"""Seconds between looks at the disk and estimates of the overhead."""

IDLE = 10.0
"""Seconds that an unattended sidecar stays after its last process has gone: another may be about to start."""

NEVER = 60.0
"""Seconds that an unattended sidecar waits for its first process."""

FLUSH = 30.0
"""Seconds that an unattended sidecar waits for an upstream that does not take what it has."""

LAST_JOBS = 3.0
"""Seconds that finalising may go on after a signal; what is not done then, the next start does."""

LAST_SPANS = 2.0
"""Seconds that forwarding may go on after a signal; what is left, the next start does."""


class Sidecar:
    """
    Everything that runs in this process. Made and used in the event loop.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        *,
        attended: Callable[[], bool],
        environment: Mapping[str, str],
        upstream: Upstream | None,
    ) -> None:
        """
        Put it together, and take over what a former sidecar of this attempt left.
        """
        self.settings = settings
        self.store = store
        self.stopping = asyncio.Event()
        self._attended = attended
        self._upstream = upstream
        self._endpoints = ("", "")
        self._estimates: Mapping[str, Estimate] = {}
        self._pending, self._dirty = 0, True
        self._began = time.monotonic()
        self._idle_since: float | None = None
        node = ids.node()
        self.disk = Disk(settings)
        self.costs = Costs(store.path)
        self.finaliser = Finaliser(done=self._finalised, training=lambda: bool(self.controller.processes.alive()))
        self.ledger = StoreLedger(store, settings, url=lambda: self._endpoints[1], unix_ns=time.time_ns)
        world = World(
            unix_ns=time.time_ns,
            monotonic=time.monotonic,
            record=self._record,
            alive=alive,
            disk_left=lambda: self.disk.left,
            overhead=self._overhead,
            finalise=self._finalise,
            endpoints=lambda: self._endpoints,
        )
        found = inherit(store.path, settings, Plan.of(settings, environment=environment), node=node)
        self.controller = Controller(settings, found.plan, ledger=self.ledger, world=world, node=node)
        self.controller.resume(found.processes, found.windows)
        self.control = Control(self.controller)
        self.live = Live(
            self.controller,
            node=node,
            pending=self.pending,
            unsaved=lambda: self.ledger.unsaved,
            estimates=lambda: self._estimates,
        )
        store.watch(self._committed)

    async def run(self) -> None:
        """
        Serve until a signal, or until nothing is left to do.

        Raises:
            ConfigurationError: an address cannot be had.
        """
        settings, folder = self.settings, self.settings.attempt_folder
        token = _token(settings)
        http = listen.tcp(names.HTTP, settings.http, former=lifecycle.former_port(folder, "http", settings.http[0]))
        try:
            received = await receivers.start(settings, self.store, self._upstream, token=token, folder=folder)
        except ConfigurationError:
            http.close()
            raise
        self._endpoints = (received.http, f"http://{listen.shown(http)}")
        web = Web(create_app(self._sources(), token=token), http)
        # Before anybody registers: a file that an earlier run left has to be told of.
        self._heed_file()
        await self.control.start(settings.socket_path)
        for process in self.controller.processes.alive():
            self.control.watch(process)
        lifecycle.lead(folder)
        lifecycle.announce(
            folder,
            {
                "pid": os.getpid(),
                "http": self._endpoints[1],
                "otlp_http": received.http,
                "otlp_grpc": received.grpc,
                "socket": str(settings.socket_path),
                "started_unix_ns": time.time_ns(),
            },
        )
        LOG.info(
            "sidecar of %s: pages %s, OTLP %s and %s", folder.name, self._endpoints[1], received.http, received.grpc
        )
        await self._until_over(web, received)

    async def _until_over(self, web: Web, received: receivers.Receivers) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stopping.set)
        serving = asyncio.create_task(web.work(), name="pages")
        tasks = {
            serving,
            asyncio.create_task(self.finaliser.work(), name="finaliser"),
            asyncio.create_task(self._tick(received), name="tick"),
            asyncio.create_task(self._look(), name="look"),
            asyncio.create_task(self.stopping.wait(), name="stop"),
            received.task,
        }
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        # Receivers first, then the outbox, then (in serve) the store.
        await received.stop_receiving()
        await self.control.close()
        if not any(task.exception() for task in done):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.finaliser.drained(), LAST_JOBS)
        await web.stop(serving)
        await received.stop_forwarding(flush=LAST_SPANS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise RuntimeError(f"the sidecar's {task.get_name()} ended: {error}") from error

    def _sources(self) -> Sources:
        return Sources(
            live=self.live,
            store=self.store.path,
            directory=self.settings.directory.absolute(),
            metrics=Exposition(totals=self._totals, live=self.live).render,
            estimates=lambda: self._estimates,
        )

    def pending(self) -> int:
        """
        Spans not forwarded; at least 1 while that is not known for what was just received.
        """
        return self._pending or int(self._dirty and self.store.outbox)

    # What the controller asks ----------------------------------------------------------------------------------

    def _record(self, window: Window) -> wire.Closed | None:
        return read_record(self.settings.directory.absolute() / window.folder / RECORD, window=window.window)

    def _overhead(self, role: str) -> float | None:
        found = self._estimates.get(role)
        return found.ratio if found else None

    def _finalise(self, window: Window, record: wire.Closed) -> None:
        world = self.controller.processes.world()
        folder = self.settings.directory.absolute() / window.folder
        self.finaliser.submit(Job(folder=folder, closed=record, pid=window.pid, world_size=world.get(window.role)))

    def _finalised(self, result: Result) -> None:
        self.controller.finalised(result)

    def _committed(self) -> None:
        # On the writer's thread; only ever set here.
        self._dirty = True

    # What goes on ----------------------------------------------------------------------------------------------

    async def _tick(self, received: receivers.Receivers) -> None:
        while not self.stopping.is_set():
            await asyncio.sleep(TICK)
            for failure in (self.store.failure, received.failure):
                if failure is not None:
                    raise failure
            self.controller.tick()
            self.ledger.retry()
            self.live.measure(disk_bytes=self.disk.used)
            self._heed_file()
            if self._dirty and self.store.outbox:
                self._dirty = False
                self._pending = await asyncio.to_thread(self._count_pending)
            if not self._attended() and self._finished():
                LOG.info("the run is over; ending")
                return

    def _heed_file(self) -> None:
        plan, directory = self.controller.plan, self.settings.directory.absolute()
        if not plan.stopped and lifecycle.stop_asked(directory, since_unix_ns=plan.ordered_unix_ns):
            by = STOP_FILE.format(directory / lifecycle.STOP_FILE)
            LOG.warning("all recording is stopped by the %s", by)
            self.controller.stop(by)

    async def _look(self) -> None:
        while True:
            await asyncio.to_thread(self.disk.look)
            try:
                self._estimates = await asyncio.to_thread(self.costs.refresh)
            except StoreError as error:
                LOG.warning("no estimate of the overhead: %s", error)
            await asyncio.sleep(LOOK)

    def _totals(self) -> Totals:
        with open_reader(self.store.path) as reader:
            return reader.totals()

    def _count_pending(self) -> int:
        try:
            with open_reader(self.store.path) as reader:
                return reader.pending()
        except StoreError:
            return self._pending

    def _finished(self) -> bool:
        now = time.monotonic()
        busy = self.controller.processes.alive() or self.controller.unfinished or self.finaliser.pending
        if busy:
            self._idle_since = None
            return False
        if self._idle_since is None:
            self._idle_since = now
        if not list(self.controller.processes):
            return now - self._began >= NEVER
        waited = now - self._idle_since
        clean = not self.pending() and not self.ledger.unsaved
        return waited >= FLUSH or (waited >= IDLE and clean)


def serve(settings: Settings, *, attended: Callable[[], bool], environment: Mapping[str, str]) -> int:
    """
    Be the sidecar of the attempt that ``settings`` names, until it is over; the process's exit code.

    Raises:
        ConfigurationError: a setting cannot be used.
        StoreError: the store cannot be opened.
    """
    upstream = Upstream.read(environment)
    _token(settings)
    lock = lifecycle.acquire(settings.socket_path, sweep=settings.socket is None)
    if lock is None:
        LOG.info("another sidecar serves %s", settings.socket_path)
        return 0
    try:
        lifecycle.prepare(settings)
        store = Store.open(
            settings.attempt_folder / "stepscope.db",
            run=settings.run,
            attempt=settings.attempt,
            outbox=upstream is not None,
        )

        async def run() -> None:
            await Sidecar(settings, store, attended=attended, environment=environment, upstream=upstream).run()

        try:
            asyncio.run(run())
        finally:
            store.close()
    finally:
        lock.release()
    return 0


def _token(settings: Settings) -> str:
    """
    The token, without which nothing but loopback may be bound.
    """
    token = ""
    if settings.token_file is not None:
        try:
            token = settings.token_file.read_text().strip()
        except OSError as error:
            raise ConfigurationError(f"{names.TOKEN_FILE}={settings.token_file}: {error.strerror}") from None
        if not token:
            raise ConfigurationError(f"{names.TOKEN_FILE}={settings.token_file} is empty")
    addresses = {names.HTTP: settings.http, names.OTLP_HTTP: settings.otlp_http}
    if settings.otlp_grpc is not None:
        addresses[names.OTLP_GRPC] = settings.otlp_grpc
    for setting, (host, _) in addresses.items():
        if not listen.is_loopback(host) and not token:
            raise ConfigurationError(
                f"{setting}: {host} is open to other machines; set {names.TOKEN_FILE}, or use 127.0.0.1"
            )
    return token
