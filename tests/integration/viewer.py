"""
A stand-in for a viewer of recordings that is a page of another origin: it takes what it is handed by ``postMessage``,
as Perfetto's page does, and tells its own server what that was. Nothing of Perfetto is in it.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LATE = 3
"""The page answers the so-manieth time that it is asked: a real one has to load first."""

PAGE = """<!doctype html><title>stand-in for a viewer</title><script>
let asked = 0;
window.addEventListener("message", async (event) => {
  if (event.data === "PING") {
    asked += 1;
    if (asked >= LATE) event.source.postMessage("PONG", event.origin);
    return;
  }
  const { buffer, title, fileName } = event.data.perfetto;
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", buffer));
  const sha256 = [...hash].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  const told = { sha256, bytes: buffer.byteLength, title, fileName, asked, origin: event.origin };
  await fetch("/told", { method: "POST", body: JSON.stringify(told) });
});
</script>""".replace("LATE", str(LATE))


@dataclass
class Viewer:
    """
    What the page was handed.
    """

    url: str = ""
    told: list[dict[str, Any]] = field(default_factory=list)


@contextmanager
def viewer() -> Iterator[Viewer]:
    """
    The page, on loopback, until the end of the block.
    """
    found = Viewer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(PAGE.encode(), "text/html")

        def do_POST(self) -> None:
            found.told.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self._answer(b"", "text/plain")

        def _answer(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()
