"""
Artifacts of other nodes, fetched from there when somebody asks for them, or from the object store.

Owns what may be fetched (artifacts of windows that a node reported, from the address that it reported), how much at a
time, and what is made of it: a file to be saved, named and typed by us, or our own page of a folder. Whatever a node
sends, none of it is shown as a page. The check of what passes is ``relay``'s. Nothing is kept here.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import quote

import httpx
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response

from stepscope_sidecar import sums
from stepscope_sidecar.downloads import media_type
from stepscope_sidecar.gate import LISTING
from stepscope_sidecar.objects import STORED, Objects
from stepscope_sidecar.pages import listed_page
from stepscope_sidecar.places import plain
from stepscope_sidecar.reader import Reader
from stepscope_sidecar.relay import Relayed, verified, whole
from stepscope_sidecar.rows import NodeRow, WindowRow

LOG = logging.getLogger(__name__)

AT_ONCE = 4
"""Fetches at a time: each holds a connection and a piece or two, and people look at one recording at a time."""

PIECE = 256 * 1024
"""Bytes read at a time."""

CONNECT = 5.0
PAUSE = 30.0
"""Seconds to connect, and between two pieces: a node that is busy training answers late."""

Read = Callable[[str], AsyncIterator[bytes]]
"""
From a path to its bytes. Iterating raises ``IsADirectoryError`` for a folder, another ``OSError`` where it cannot be
had.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """
    An artifact of another node, or a file in one that is a folder; ``path`` is where it lies.
    """

    window: WindowRow
    node: NodeRow
    path: str

    @property
    def whole(self) -> bool:
        """
        Whether it is the artifact itself.
        """
        return self.path == self.window.artifact

    @property
    def name(self) -> str:
        """
        What it is saved as.
        """
        window = self.window
        return f"step-{window.step}-{window.role}-{window.rank}-{PurePosixPath(self.path).name}"


def find(reader: Reader, path: str, *, node: str | None = None) -> Found:
    """
    What ``path`` is on ``node``; without one, on the only node that has it.

    Raises:
        HTTPException: no artifact of a reported window is there, or several nodes have one.
    """
    windows = [
        row
        for row in (reader.elsewhere() if plain(path) else [])
        if row.artifact and node in {None, row.node} and PurePosixPath(path).is_relative_to(row.artifact)
    ]
    if not windows:
        raise HTTPException(404, "no such artifact")
    if len(windows) > 1:
        raise HTTPException(409, "several nodes have an artifact of that name; ask under /nodes/NODE/artifacts/")
    window = windows[0]
    teller = next(
        row for row in reader.nodes() if (row.node, row.run, row.attempt) == (window.node, window.run, window.attempt)
    )
    return Found(window=window, node=teller, path=path)


class Remote:
    """
    Fetches. Use it in one event loop.
    """

    def __init__(
        self, *, token: str = "", objects: Objects | None = None, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        """
        Show nodes the ``token`` that all sidecars of a run share; look into ``objects`` first.
        """
        self._transport = transport
        self._headers = {"accept-encoding": "identity", **({"authorization": f"Bearer {token}"} if token else {})}
        self._objects = objects
        self._free = AT_ONCE

    async def get(self, found: Found) -> Response:
        """
        The answer to somebody who asks for ``found``.

        Raises:
            HTTPException: it cannot be had, or too many are being fetched.
        """
        if not self._free:
            raise HTTPException(503, f"{AT_ONCE} artifacts are being fetched; try again", {"retry-after": "5"})
        self._free -= 1
        try:
            answer = await self._answer(found)
        except BaseException:
            self._over()
            raise
        if not isinstance(answer, Relayed):
            self._over()
        return answer

    async def _answer(self, found: Found) -> Response:
        window, node = found.window, found.node
        if self._objects is not None and window.stored == STORED:
            objects = self._objects
            try:
                return await self._made(found, lambda path: objects.read(window.node, path))
            except OSError as error:
                if not node.http or node.vanished_unix_ns:
                    raise _not_had(error) from None
                LOG.warning("artifact of window %s: not from the object store; asking its node", window.window)
        if not node.http:
            raise HTTPException(502, f"the sidecar of node {node.node} cannot be asked from here")
        try:
            return await self._made(found, lambda path: self._ask(node, path))
        except OSError as error:
            raise _not_had(error) from None

    async def _made(self, found: Found, read: Read) -> Response:
        """
        The answer of what ``read`` gives.

        Raises:
            OSError: it cannot be had, or is not what was reported.
        """
        window = found.window
        if not found.whole:
            digest = (await _sums(window, read)).get(found.path.removeprefix(f"{window.artifact}/"))
            if digest is None:
                raise HTTPException(404, "no such file in that recording")
            return await self._file(found, verified(read(found.path), sha256=digest, limit=window.bytes))
        try:
            pieces = verified(read(found.path), sha256=window.sha256, limit=window.bytes, size=window.bytes)
            return await self._file(found, pieces, size=window.bytes)
        except IsADirectoryError:
            listed = await _sums(window, read)
        page = listed_page(found.name, PurePosixPath(found.path).name, listed)
        return HTMLResponse(page, headers={"content-security-policy": LISTING})

    async def _file(self, found: Found, pieces: AsyncIterator[bytes], *, size: int | None = None) -> Response:
        # The first piece is awaited, so that a short file that is wrong is an error.
        first = await anext(pieces, b"")
        headers = {"content-disposition": f"attachment; filename*=utf-8''{quote(found.name)}"}
        if size is not None:
            headers["content-length"] = str(size)
        kind = media_type(PurePosixPath(found.path))
        return Relayed(first, pieces, over=self._over, headers=headers, media_type=kind)

    async def _ask(self, node: NodeRow, path: str) -> AsyncIterator[bytes]:
        client = httpx.AsyncClient(
            # Nodes are asked over plain HTTP alone; reading all authorities' certificates would hold the loop for that.
            verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            headers=self._headers,
            timeout=httpx.Timeout(PAUSE, connect=CONNECT),
            follow_redirects=False,
            trust_env=False,
            transport=self._transport,
        )
        answer: httpx.Response | None = None
        try:
            answer = await client.send(client.build_request("GET", f"{node.http}/artifacts/{quote(path)}"), stream=True)
            if answer.status_code != 200:
                raise OSError(f"node {node.node} answers {answer.status_code} for this artifact")
            if answer.headers.get("content-type", "").startswith("text/html"):
                # Its own page of a folder, which is of no use here: we make ours.
                raise IsADirectoryError(path)
            async for piece in answer.aiter_raw(PIECE):
                yield piece
        except httpx.HTTPError as error:
            doing = "cannot be asked" if answer is None else "stopped sending"
            raise OSError(f"node {node.node} {doing} ({type(error).__name__})") from None
        finally:
            # Whoever asked may have gone, and what waits is then cancelled over and over.
            if answer is not None:
                await asyncio.shield(answer.aclose())
            await asyncio.shield(client.aclose())

    def _over(self) -> None:
        self._free += 1


async def _sums(window: WindowRow, read: Read) -> dict[str, str]:
    """
    The files of a recording that is a folder.

    Raises:
        OSError: their list cannot be had, or is not the one whose hash was reported.
    """
    listed = await whole(read(window.artifact + sums.SUFFIX), limit=sums.MAX_BYTES)
    return sums.read(listed, sha256=window.sha256)


def _not_had(error: OSError) -> HTTPException:
    return HTTPException(502, f"the artifact cannot be had: {error}")
