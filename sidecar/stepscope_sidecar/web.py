"""
The HTTP server of pages, API and metrics: uvicorn, without its signal handlers.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

FAREWELL = 2
"""Seconds that requests in progress may take when the sidecar ends; a download that takes longer is cut off."""

KEEP_ALIVE = 30
"""Seconds an idle connection is kept: longer than Prometheus's usual 15 s between scrapes."""


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn would raise SIGTERM again once it has ended, before the store is closed. Signals are app's.
        yield


class Web:
    """
    Serves one application on one listener.
    """

    def __init__(self, app: ASGIApp, listener: socket.socket) -> None:
        """
        Serve ``app`` on ``listener``.
        """
        self._listener = listener
        self._server = _Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                timeout_graceful_shutdown=FAREWELL,
                timeout_keep_alive=KEEP_ALIVE,
            )
        )

    async def work(self) -> None:
        """
        Serve until :meth:`stop`.
        """
        await self._server.serve(sockets=[self._listener])

    async def stop(self, task: "asyncio.Task[None]") -> None:
        """
        End in order; ``task`` is the one that runs :meth:`work`.
        """
        self._server.should_exit = True
        await asyncio.wait([task], timeout=FAREWELL + 1)
