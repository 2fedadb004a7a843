"""
This sidecar among the others of a run: it tells one of them, is told by those, and copies to the object store.

Wires ``reporter``, ``nodes``, ``dispatch``, ``objects`` and ``remote``, and owns the one HTTP route that they need.
Nothing of it is in the way of a process of the run.
"""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Iterable

from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from stepscope import ids
from stepscope.names import State
from stepscope.settings import Settings
from stepscope_sidecar import absences, report, rows
from stepscope_sidecar.dispatch import Dispatch
from stepscope_sidecar.errors import IntakeError, StoreError
from stepscope_sidecar.intake import Intake
from stepscope_sidecar.nodes import Nodes
from stepscope_sidecar.objects import STORED, Objects, Uploads
from stepscope_sidecar.otlp import VIA
from stepscope_sidecar.plan import ordered
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.remote import Remote
from stepscope_sidecar.report import Order, Reply, ReportError
from stepscope_sidecar.reporter import Reporter, Teller
from stepscope_sidecar.rows import MissingRow, WindowRow
from stepscope_sidecar.store import Store
from stepscope_sidecar.uplink import TRACES, HttpTransport, reachable
from stepscope_sidecar.upstream import Upstream

LOG = logging.getLogger(__name__)

PATIENCE = 10.0
"""Seconds for a report to come whole."""

LOOKUP = 60.0
"""Seconds until a name that could not be looked up is tried again."""

FAREWELL = 2.0
"""Seconds that the last report may take."""


class Peers:
    """
    Everything about other nodes. Use it in the event loop alone.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        *,
        upstream: Upstream | None,
        token: str,
        instance: str,
        url: Callable[[], str],
        obey: Callable[[Order], bool],
    ) -> None:
        """
        Take part as the sidecar ``instance`` whose pages are at ``url``; report to ``upstream`` where it can be one,
        and ``obey`` its orders.

        Raises:
            ConfigurationError: the object store cannot be used.
        """
        own = Teller(node=ids.node(), run=settings.run, attempt=settings.attempt)
        self._settings, self._store, self._url = settings, store, url
        self._upstream, self._instance = upstream, instance
        self._node = own.node
        self._loop = asyncio.get_running_loop()
        self._gate = Intake(store, token=token)
        self._http = ""
        self._dispatch = Dispatch(store, (own.run, own.attempt), unix_ns=time.time_ns)
        self.nodes = Nodes(store, own, unix_ns=time.time_ns, monotonic=time.monotonic, forgotten=self._dispatch.forget)
        objects = Objects.open(settings.artifacts) if settings.artifacts else None
        self.remote = Remote(token=token, objects=objects)
        self._uploads = None
        if objects is not None:
            self._uploads = Uploads(objects, directory=settings.directory.absolute(), told=self._copied)
        self._reporter = None
        if upstream is not None and upstream.url.endswith(TRACES):
            self._reporter = Reporter(
                own,
                transport=HttpTransport(upstream, via=instance),
                everything=self._own_windows,
                missing=self._own_missing,
                http=lambda: self._http,
                unix_ns=time.time_ns,
                monotonic_ns=time.monotonic_ns,
                obey=obey,
                obeys=self._obeyed(),
            )

    @property
    def unsent(self) -> int:
        """
        What the upstream or the object store still has to be given.
        """
        reports = self._reporter.unsent if self._reporter is not None else 0
        return reports + (self._uploads.pending if self._uploads is not None else 0)

    @property
    def alone(self) -> bool:
        """
        Whether no other sidecar of the run is known: none takes this one's reports, and none reports to it.
        """
        return self.nodes.alone and not (self._reporter is not None and self._reporter.taken)

    def status(self) -> dict[str, object]:
        """
        How it stands.
        """
        found: dict[str, object] = {}
        if self._reporter is not None:
            found["reports"] = dict(self._reporter.status())
        if self._uploads is not None:
            found["artifacts_to_copy"] = self._uploads.pending
        if self.nodes.present:
            found["ordered"] = self._dispatch.status(self.nodes.present)
        return found

    @property
    def troubles(self) -> list[str]:
        """
        What is wrong, for the warnings.
        """
        return [
            *self.nodes.troubles,
            *(self._reporter.troubles if self._reporter is not None else []),
            *(self._uploads.troubles if self._uploads is not None else []),
        ]

    def order(self, steps: str, stopped: bool) -> list[str]:
        """
        Have the nodes that report here record ``steps``, or nothing; names them.
        """
        present = self.nodes.present
        self._dispatch.give(steps, stopped=stopped, runs={(teller.run, teller.attempt) for teller in present})
        return sorted(map(self._dispatch.name, present))

    def changed(self, row: WindowRow) -> None:
        """
        A window of this node is new, or another than it was.
        """
        if self._uploads is not None and row.state == State.READY and row.artifact:
            row = self._uploads.submit(row, first=self._keep)
        if self._reporter is not None:
            self._reporter.changed(row)

    def lacking(self, found: Iterable[MissingRow]) -> None:
        """
        Recordings of this node have been ``found`` to be missing.
        """
        if self._reporter is not None and (told := absences.own(found)):
            self._reporter.lacking(told)

    def route(self) -> Route:
        """
        Where other nodes report.
        """
        return Route(report.PATH, self._take, methods=["POST"])

    def tick(self) -> None:
        """
        Time has passed. Called a few times a second.
        """
        self.nodes.tick()

    async def work(self) -> None:
        """
        Report and copy until cancelled.
        """
        if self._uploads is not None:
            try:
                found = await asyncio.to_thread(self._own_windows)
            except StoreError as error:
                LOG.error("what a former sidecar did not copy stays where it is: %s", error)
                found = []
            for row in found:
                if row.state == State.READY and row.artifact and row.stored != STORED:
                    self._uploads.submit(row)
            self._uploads.start()
        if self._reporter is None or self._upstream is None:
            await self._loop.create_future()
            return
        await self._look_up(self._upstream, again=False)
        await asyncio.gather(self._reporter.work(), self._look_up(self._upstream, again=True))

    async def leave(self) -> None:
        """
        Tell the upstream what it has not been told, and end.
        """
        if self._uploads is not None:
            await asyncio.to_thread(self._uploads.close)
        if self._reporter is not None:
            await self._reporter.leave(FAREWELL)

    async def _look_up(self, upstream: Upstream, *, again: bool) -> None:
        while not self._http:
            if again:
                await asyncio.sleep(LOOKUP)
            bound = self._settings.http[0]
            try:
                self._http = await asyncio.to_thread(reachable, self._url(), bound=bound, upstream=upstream)
            except Exception as error:  # noqa: BLE001 - reports go on without an address; the sidecar must not end
                LOG.warning("the way to the upstream could not be looked up: %r", error)
            if not again:
                return

    def _own_windows(self) -> list[WindowRow]:
        with open_reader(self._store.path) as reader:
            return [row for row in reader.windows() if row.node == self._node]

    def _own_missing(self) -> list[MissingRow]:
        with open_reader(self._store.path) as reader:
            return absences.own(reader.missing())

    def _obeyed(self) -> int:
        with open_reader(self._store.path) as reader:
            return max((ordered(row.source) for row in reader.selections()), default=0)

    def _copied(self, row: WindowRow) -> None:
        # On the thread that copies.
        self._keep(row)
        if self._reporter is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._reporter.changed, row)

    def _keep(self, row: WindowRow) -> None:
        # Only what is said of the copy: all else of a final window stays.
        other = rows.values(row)[rows.SHAPES[WindowRow].columns.index("other")]

        def work(connection: sqlite3.Connection) -> None:
            connection.execute('UPDATE windows SET other = ? WHERE "window" = ?', (other, row.window))

        self._store.submit(work)

    async def _take(self, request: Request) -> Response:
        try:
            if request.headers.get(VIA) == self._instance:
                return PlainTextResponse("this sidecar is its own upstream\n", 409)
            self._gate.admit(authorization=request.headers.get("authorization", ""))
            if refusal := _of_no_sidecar(request):
                return refusal
            async with asyncio.timeout(PATIENCE):
                body = await _body(request)
            began = time.monotonic_ns()
            told = report.decode(body)
            taken = await self.nodes.take(told, peer=request.client.host if request.client else "")
        except TimeoutError:
            return PlainTextResponse("the report did not come whole\n", 408)
        except ReportError as error:
            return PlainTextResponse(f"{error}\n", 400)
        except IntakeError as error:
            return PlainTextResponse(f"{error}\n", error.status)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody is there to read it
        teller = Teller(node=told.node, run=told.run, attempt=told.attempt)
        reply = Reply(
            keeper=taken.keeper,
            known=taken.known,
            refused=taken.refused,
            unix_ns=time.time_ns(),
            held_ns=time.monotonic_ns() - began,
            order=None if taken.late else self._dispatch.answer(teller, obeys=told.obeys),
        )
        return Response(report.encode_reply(reply), media_type="application/json")


def _of_no_sidecar(request: Request) -> Response | None:
    """
    The answer to a page of some site that a browser of this machine shows: it can reach loopback, and has no token to
    show where none is set.
    """
    if "origin" in request.headers:
        return PlainTextResponse("no browser reports here\n", 403)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return None if kind == "application/json" else PlainTextResponse("send application/json\n", 415)


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > report.MAX_BYTES:
            raise ReportError(f"more than {report.MAX_BYTES} bytes")
    return bytes(body)
