"""
Copies of recordings that lie on other nodes, got through the run's own sidecar for as long as a command needs them.

Owns the copies and their folder. Leaves to the sidecar's ``remote`` which node is asked and whether it is trusted.
"""

import hashlib
import tempfile
from pathlib import Path, PurePosixPath
from urllib.parse import quote

import httpx

from stepscope_sidecar.closing import Closing
from stepscope_sidecar.rows import WindowRow

PAUSE = 30.0
"""Seconds between two pieces: a node that is busy training answers late."""


class Copies(Closing):
    """
    Copies by window; their folder goes with it.
    """

    def __init__(self, url: str, *, headers: dict[str, str], transport: httpx.BaseTransport | None = None) -> None:
        """
        ``url`` is the sidecar's, empty where none is known.
        """
        self._url = url
        self._client = httpx.Client(timeout=PAUSE, trust_env=False, headers=headers, transport=transport)
        self._folder = tempfile.TemporaryDirectory(prefix="stepscope-")

    def close(self) -> None:
        """
        Remove the copies.
        """
        self._client.close()
        self._folder.cleanup()

    def get(self, row: WindowRow) -> Path | str:
        """
        A copy of the recording of ``row``, or why there is none.
        """
        if not self._url:
            return "no sidecar of this run is known"
        path = Path(self._folder.name) / f"{row.window}-{PurePosixPath(row.artifact).name}"
        try:
            why = self._fetch(f"/nodes/{quote(row.node, safe='')}/artifacts/{quote(row.artifact)}", path, row.sha256)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            why = f"this run's sidecar does not answer ({type(error).__name__})"
        except OSError as error:
            why = f"the copy cannot be written: {error.strerror}"
        return why or path

    def _fetch(self, place: str, path: Path, sha256: str) -> str:
        told = hashlib.sha256()
        with self._client.stream("GET", f"{self._url}{place}") as answer:
            if answer.status_code == httpx.codes.MISDIRECTED_REQUEST:
                return "this run's sidecar does not answer: that of another run does, at its address"
            if answer.is_error:
                answer.read()
                return f"this run's sidecar says: {answer.text.strip() or answer.status_code}"
            if "html" in answer.headers.get("content-type", ""):
                return "it is a folder, which is not fetched"
            with path.open("wb") as file:
                for piece in answer.iter_bytes():
                    told.update(piece)
                    file.write(piece)
        return "" if not sha256 or told.hexdigest() == sha256 else "what came is not what its node had recorded"
