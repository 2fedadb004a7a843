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
from functools import partial

from stepscope import ids, names, wire
from stepscope.errors import ConfigurationError
from stepscope.selection import Selection
from stepscope.settings import Settings
from stepscope_sidecar import lifecycle, listen, nodefolder, receivers, schema
from stepscope_sidecar.api import Sources, create_app
from stepscope_sidecar.attach import companions, leftovers
from stepscope_sidecar.attach.attachments import Attachments
from stepscope_sidecar.attach.orders import Orders
from stepscope_sidecar.attach.tools import built_in
from stepscope_sidecar.backlog import Backlog
from stepscope_sidecar.control import Control
from stepscope_sidecar.controller import Controller
from stepscope_sidecar.costs import Costs
from stepscope_sidecar.finaliser import Finaliser
from stepscope_sidecar.health import Health
from stepscope_sidecar.jobs import Job, Result
from stepscope_sidecar.ledger import StoreLedger
from stepscope_sidecar.live import Live
from stepscope_sidecar.metrics import Exposition
from stepscope_sidecar.overhead import Estimate
from stepscope_sidecar.peers import Peers
from stepscope_sidecar.plan import STOP_FILE, Plan
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.removal import Removal
from stepscope_sidecar.seams import World
from stepscope_sidecar.serve import inner as serve_ended
from stepscope_sidecar.steady import Steady
from stepscope_sidecar.stepsfile import StepsFile
from stepscope_sidecar.store import Store
from stepscope_sidecar.surroundings import Disk, alive, read_record
from stepscope_sidecar.takeover import inherit
from stepscope_sidecar.token import demanded
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

STEPS_LOOK = 0.5
"""Seconds between looks at the watched file of steps; two of them have to agree."""

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
        self._received: receivers.Receivers | None = None
        self._estimates: Mapping[str, Estimate] = {}
        self._began = time.monotonic()
        self._steady = Steady()
        self._idle_since: float | None = None
        self._steps_file = StepsFile(settings.steps_file) if settings.steps_file is not None else None
        node = ids.node()
        self.disk = Disk(settings)
        self.costs = Costs(store.path)
        self.backlog = Backlog(store)
        self.finaliser = Finaliser(done=self._finalised, training=lambda: bool(self.controller.processes.alive()))
        queues = {"store": lambda: store.queued, "finalise": lambda: self.finaliser.pending}
        self.health = Health(store=store.path, queues=queues)
        self.peers = Peers(
            settings,
            store,
            upstream=upstream,
            token=demanded(settings),
            instance=receivers.instance(settings),
            url=lambda: self._endpoints[1],
            obey=lambda order: self.live.obey(order),
        )
        self.ledger = StoreLedger(
            store,
            settings,
            url=lambda: self._endpoints[1],
            unix_ns=time.time_ns,
            changed=self.peers.changed,
            lacking=self.peers.lacking,
        )
        leftovers.sweep(settings.attempt_folder)
        self.attachments = Attachments(
            tools=built_in(),
            companions=companions.Companions(settings.attempt_folder / companions.NAME),
            directory=settings.directory.absolute(),
            unix_ns=time.time_ns,
            disk_left=lambda: self.disk.left,
            submit=self._submit,
        )
        world = World(
            unix_ns=time.time_ns,
            monotonic=time.monotonic,
            record=self._record,
            alive=alive,
            disk_left=lambda: self.disk.left,
            written=lambda window: lifecycle.folder_bytes(settings.directory.absolute() / window.folder),
            overhead=self._overhead,
            finalise=self._finalise,
            otlp=lambda: self._endpoints[0],
            troubles=self._troubles,
            attached=self.attachments,
            alone=lambda: self.peers.alone,
        )
        found = inherit(store.path, settings, Plan.of(settings, environment=environment), node=node)
        if found.fresh:
            self.ledger.plan(found.plan)
        self.controller = Controller(settings, found.plan, ledger=self.ledger, world=world, node=node)
        self.attachments.serve(self.controller.recordings)
        self.controller.resume(found.processes, found.windows)
        self.control = Control(self.controller)
        self._orders = Orders(self.controller, self.attachments)
        self.live = Live(
            self.controller,
            node=node,
            pending=self.backlog.pending,
            unsaved=lambda: self.ledger.unsaved,
            estimates=lambda: self._estimates,
            attached=self._orders.attached,
            peers=self.peers.status,
            order=self.peers.order,
            more=[self.backlog.gauges, self.health.gauges],
        )
        self.removal = Removal(
            settings, store.path, busy=self.controller.busy, note=self.ledger.row, unix_ns=time.time_ns
        )

    async def run(self) -> None:
        """
        Serve until a signal, or until nothing is left to do.

        Raises:
            ConfigurationError: an address cannot be had.
        """
        settings, folder = self.settings, self.settings.attempt_folder
        token = demanded(settings)
        http = listen.tcp(names.HTTP, settings.http, former=lifecycle.former_port(folder, "http", settings.http[0]))
        try:
            received = await receivers.start(
                settings, self.store, self._upstream, token=token, folder=folder, routes=[self.peers.route()]
            )
        except ConfigurationError:
            http.close()
            raise
        self._received = received
        self._endpoints = (received.local, f"http://{listen.shown(http)}")
        web = Web(create_app(self._sources(), token=token), http)
        # Before anybody registers: a file that an earlier run left has to be told of.
        self._heed_file()
        if self._steps_file is not None:
            self._follow(self._steps_file.first(since_unix_ns=self.controller.plan.ordered_unix_ns))
        await self.control.start(settings.socket_path)
        for process in self.controller.processes.alive():
            self.control.watch(process)
        if not settings.below:
            lifecycle.lead(folder)
        lifecycle.announce(
            folder,
            {
                "pid": os.getpid(),
                "http": self._endpoints[1],
                "otlp_http": received.http,
                "otlp_grpc": received.grpc,
                receivers.LOCAL: received.local,
                "socket": str(settings.socket_path),
                "started_unix_ns": time.time_ns(),
            },
        )
        otlp = " and ".join(filter(None, (received.http, received.grpc)))
        LOG.info("sidecar of %s: pages %s, OTLP %s", folder.name, self._endpoints[1], otlp)
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
            asyncio.create_task(self.peers.work(), name="peers"),
            asyncio.create_task(self._watch_steps(), name="steps file"),
            asyncio.create_task(self.stopping.wait(), name="stop"),
            *(task for _, task in received.webs),
        }
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        # Receivers first, then the outbox, then (in serve) the store.
        await received.stop_receiving()
        await self.control.close()
        await self.attachments.close()
        if not any(task.exception() for task in done):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.finaliser.drained(), LAST_JOBS)
        await web.stop(serving)
        await asyncio.gather(received.stop_forwarding(flush=LAST_SPANS), self.peers.leave())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.health.close()
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
            attach=self._orders.order,
            remote=self.peers.remote,
            trace_view=self.settings.trace_view,
            viewer=self.settings.viewer,
            beside=lambda store: serve_ended(store, self.settings, self.peers.remote),
        )

    # What the controller asks ----------------------------------------------------------------------------------

    def _record(self, window: Window) -> wire.Closed | None:
        return read_record(self.settings.directory.absolute() / window.folder / wire.RECORD, window=window.window)

    def _overhead(self, role: str) -> float | None:
        found = self._estimates.get(role)
        return found.least if found else None

    def _finalise(self, window: Window, record: wire.Closed) -> None:
        if not self.attachments.finish(window, record):
            self._submit(window, record)

    def _submit(self, window: Window, record: wire.Closed) -> None:
        world = self.controller.processes.world()
        folder = self.settings.directory.absolute() / window.folder
        job = Job(folder=folder, closed=record, pid=window.pid, tool=window.tool, world_size=world.get(window.role))
        self.finaliser.submit(job)

    def _finalised(self, result: Result) -> None:
        self.controller.finalised(result)

    # What goes on ----------------------------------------------------------------------------------------------

    async def _tick(self, received: receivers.Receivers) -> None:
        while not self.stopping.is_set():
            await asyncio.sleep(TICK)
            for failure in (self.store.failure, received.failure):
                if failure is not None:
                    raise failure
            for act in (self.controller.tick, self.peers.tick, self.ledger.retry, self._heed_file):
                self._steady.do(act)
            self._steady.do(lambda: self.live.measure(disk=self.disk))
            await self._steady.wait(self.backlog.look)
            if not self._attended() and self._finished():
                LOG.info("the run is over; ending")
                return

    def _heed_file(self) -> None:
        plan, directory = self.controller.plan, self.settings.directory.absolute()
        if not plan.stopped and lifecycle.stop_asked(directory, since_unix_ns=plan.ordered_unix_ns):
            by = STOP_FILE.format(directory / lifecycle.STOP_FILE)
            LOG.warning("all recording is stopped by the %s", by)
            self.controller.stop(by)

    async def _watch_steps(self) -> None:
        while self._steps_file is not None:
            await asyncio.sleep(STEPS_LOOK)
            found = await self._steady.aside(self._steps_file.look)
            self._steady.do(partial(self._follow, found))
        await asyncio.get_running_loop().create_future()

    def _follow(self, selection: Selection | None) -> None:
        if selection is not None and self.settings.steps_file is not None:
            self.controller.follow(selection, self.settings.steps_file)

    def _troubles(self) -> list[str]:
        file = [self._steps_file.trouble] if self._steps_file is not None and self._steps_file.trouble else []
        received = self._received.troubles if self._received is not None else []
        return file + self.peers.troubles + received

    async def _look(self) -> None:
        while True:
            await self._steady.wait(self.removal.look)
            await self._steady.aside(self.disk.look)
            found = await self._steady.aside(self.costs.refresh)
            self._estimates = self._estimates if found is None else found
            await asyncio.sleep(LOOK)

    def _totals(self) -> Totals:
        with open_reader(self.store.path) as reader:
            return reader.totals()

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
        clean = not (self.backlog.pending() or self.ledger.unsaved or self.peers.unsent)
        return waited >= FLUSH or (waited >= IDLE and clean)


def serve(settings: Settings, *, attended: Callable[[], bool], environment: Mapping[str, str]) -> int:
    """
    Be the sidecar of the attempt that ``settings`` names, until it is over; the process's exit code.

    Raises:
        ConfigurationError: a setting cannot be used.
        StoreError: the store cannot be opened.
    """
    upstream = Upstream.read(environment)
    if upstream is not None and upstream.leads_to(settings.otlp_http):
        LOG.info("the upstream is this sidecar itself: it keeps what it gets")
        upstream = None
    demanded(settings)
    lock = lifecycle.acquire(settings.socket_path, sweep=settings.socket is None)
    if lock is None:
        LOG.info("another sidecar serves %s", settings.socket_path)
        return 0
    try:
        settings = nodefolder.settle(settings)
        lifecycle.prepare(settings)
        store = Store.open(
            settings.attempt_folder / schema.FILE,
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
