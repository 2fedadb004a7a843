"""
The two OTLP receivers and the forwarder: where spans come in, and where they go on to.

Owns their listeners, their start and their end. What is done with a request is ``intake``'s and ``forward``'s.
"""

import asyncio
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from grpc import aio
from starlette.routing import Route

from stepscope import ids, names
from stepscope.errors import ConfigurationError
from stepscope.hosts import is_loopback
from stepscope.settings import Settings
from stepscope_sidecar import chain, lifecycle, listen, otlp, otlp_grpc
from stepscope_sidecar.forward import CIRCLE, Forwarder
from stepscope_sidecar.intake import Intake
from stepscope_sidecar.store import Store
from stepscope_sidecar.transport import HttpTransport
from stepscope_sidecar.upstream import Upstream
from stepscope_sidecar.web import Web

LOCAL = "otlp_local"
"""In the sidecar's file: where the processes of this node send."""

GRPC_FAREWELL = 1.0
"""Seconds that gRPC calls in progress may take when the sidecar ends."""


@dataclass(kw_only=True)
class Receivers:
    """
    Running receivers and, where there is an upstream, the forwarder.
    """

    http: str
    """``http://host:port`` of the OTLP/HTTP receiver."""
    local: str
    """The same for the processes of this node, which do not have the token: on loopback."""
    grpc: str
    """``host:port`` of the OTLP/gRPC receiver; empty where it is off."""
    webs: list[tuple[Web, "asyncio.Task[None]"]]
    server: aio.Server | None
    forwarder: Forwarder | None

    @property
    def failure(self) -> BaseException | None:
        """
        What ended the forwarder, if anything did.
        """
        return self.forwarder.failure if self.forwarder is not None else None

    @property
    def troubles(self) -> list[str]:
        """
        What is wrong, for the warnings.
        """
        return [CIRCLE] if self.forwarder is not None and self.forwarder.circling else []

    async def stop_receiving(self) -> None:
        """
        Take no more; what was acknowledged is in the store.
        """
        await asyncio.gather(*(web.stop(task) for web, task in self.webs))
        if self.server is not None:
            await self.server.stop(GRPC_FAREWELL)

    async def stop_forwarding(self, *, flush: float) -> None:
        """
        Send what can be sent in ``flush`` seconds, and end. What is left stays in the store.
        """
        if self.forwarder is not None:
            await asyncio.to_thread(self.forwarder.flush, timeout=flush)
            await asyncio.to_thread(self.forwarder.close)


def instance(settings: Settings) -> str:
    """
    A name that this sidecar has alone, by which it knows what it has sent.
    """
    return chain.name(f"{settings.attempt}/{ids.node()}/{os.getpid()}")


async def start(
    settings: Settings,
    store: Store,
    upstream: Upstream | None,
    *,
    token: str,
    folder: Path,
    routes: Sequence[Route] = (),
) -> Receivers:
    """
    Listen where ``settings`` say; after a restart at the former ports. ``routes`` are served beside OTLP/HTTP.

    Raises:
        ConfigurationError: an address cannot be had.
    """
    name = instance(settings)
    host = settings.otlp_http[0]
    listener = listen.tcp(names.OTLP_HTTP, settings.otlp_http, former=lifecycle.former_port(folder, "otlp_http", host))
    try:
        server, address = await _grpc(settings, store, token=token, instance=name, folder=folder)
    except ConfigurationError:
        listener.close()
        raise
    webs = [Web(otlp.receiver(_intake(store, host, token=token, instance=name), routes=routes), listener)]
    local = listen.shown(listener)
    if not is_loopback(host):
        former = lifecycle.former_port(folder, LOCAL, "127.0.0.1")
        inside = listen.tcp(names.OTLP_HTTP, ("127.0.0.1", 0), former=former)
        webs.append(Web(otlp.receiver(_intake(store, "127.0.0.1", token="", instance=name)), inside))
        local = listen.shown(inside)
    forwarder = None
    if upstream is not None:
        forwarder = Forwarder(store=store, transport=HttpTransport(upstream), instance=name)
        forwarder.start()
    return Receivers(
        http=f"http://{listen.shown(listener)}",
        local=f"http://{local}",
        grpc=address,
        webs=[(web, asyncio.create_task(web.work(), name="OTLP/HTTP receiver")) for web in webs],
        server=server,
        forwarder=forwarder,
    )


async def _grpc(
    settings: Settings, store: Store, *, token: str, instance: str, folder: Path
) -> tuple[aio.Server | None, str]:
    if settings.otlp_grpc is None:
        return None, ""
    host, port = settings.otlp_grpc
    shown = f"[{host}]" if ":" in host else host
    intake = _intake(store, host, token=token, instance=instance)
    former = lifecycle.former_port(folder, "otlp_grpc", host)
    for candidate in [former, 0] if former and not port and _free(host, former) else [port]:
        try:
            server, bound = await otlp_grpc.serve(intake, address=f"{shown}:{candidate}")
        except OSError as error:
            if candidate == former and not port:
                continue
            raise ConfigurationError(f"{names.OTLP_GRPC}={host}:{port}: {error}; name another port, or off") from None
        return server, f"{shown}:{bound}"
    raise ConfigurationError(f"{names.OTLP_GRPC}={host}:{port}: no port is free; name another, or off")


def _free(host: str, port: int) -> bool:
    # gRPC prints to stderr about a port that it cannot have.
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _intake(store: Store, host: str, *, token: str, instance: str) -> Intake:
    # On loopback nobody is asked for the token: the processes of the run send there, and do not have it.
    return Intake(store, token="" if is_loopback(host) else token, instance=instance)
