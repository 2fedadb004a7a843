"""
The receivers, the forwarder and the exposition on real sockets, without the rest of the sidecar.
"""

import asyncio
import gc
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.routing import Mount

from stepscope_sidecar.forward import Forwarder
from stepscope_sidecar.intake import Intake
from stepscope_sidecar.metrics import Exposition, Gauge
from stepscope_sidecar.otlp import receiver
from stepscope_sidecar.otlp_grpc import serve
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.rows import SpanRow
from stepscope_sidecar.store import Store
from stepscope_sidecar.totals import Totals
from stepscope_sidecar.transport import HttpTransport
from stepscope_sidecar.upstream import Upstream
from tests.unit.sidecar.stored import WAIT


@dataclass(frozen=True)
class Receiver:
    """
    A receiver that listens. ``http`` is the base URL, ``grpc`` host and port.
    """

    store: Store
    http: str
    grpc: str
    forwarder: Forwarder | None

    def spans(self) -> list[SpanRow]:
        """
        What has arrived.
        """
        with open_reader(self.store.path) as reader:
            return reader.spans()

    def totals(self) -> Totals:
        """
        What has been counted.
        """
        with open_reader(self.store.path) as reader:
            return reader.totals()

    def gauges(self) -> list[Gauge]:
        """
        One gauge of the moment.
        """
        return [Gauge(name="stepscope_processes", value=2, labels={"role": "trainer"})]


class _Server(uvicorn.Server):
    """
    A server that says when it serves.
    """

    def __init__(self, config: uvicorn.Config, *, ready: threading.Event) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """
        Start, and say so.
        """
        await super().startup(sockets=sockets)
        self._ready.set()


@contextmanager
def receiving(path: Path, *, attempt: str, upstream: str = "", max_bytes: int = 16 * 1024**2) -> Iterator[Receiver]:
    """
    A receiver that keeps its spans at ``path`` and forwards to the OTLP/HTTP base URL ``upstream``, if any.
    """
    store = Store.open(path, attempt=attempt, outbox=bool(upstream))
    intake = Intake(store, max_bytes=max_bytes, instance=str(path))
    forwarder = None
    if upstream:
        forwarder = Forwarder(
            store=store, transport=HttpTransport(Upstream(url=f"{upstream}/v1/traces")), instance=str(path)
        )
    listener = socket.create_server(("127.0.0.1", 0))
    ready = threading.Event()
    ports: list[int] = []
    app = receiver(intake)
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off")
    server = _Server(config, ready=ready)

    async def work() -> None:
        grpc_server, port = await serve(intake, address="127.0.0.1:0")
        ports.append(port)
        await server.serve(sockets=[listener])
        await grpc_server.stop(1.0)

    thread = threading.Thread(target=lambda: asyncio.run(work()), name="receiving")
    thread.start()
    try:
        assert ready.wait(WAIT)
        found = Receiver(
            store=store,
            http=f"http://127.0.0.1:{listener.getsockname()[1]}",
            grpc=f"127.0.0.1:{ports[0]}",
            forwarder=forwarder,
        )
        app.router.routes.append(Mount("/", routes=[Exposition(totals=found.totals, live=found).route()]))
        if forwarder:
            forwarder.start()
        yield found
    finally:
        server.should_exit = True
        thread.join(WAIT)
        if forwarder:
            forwarder.close()
        listener.close()
        store.close()
        # grpc.aio's poller thread lives as long as any of its objects, and a refused call leaves some in a cycle.
        gc.collect()
