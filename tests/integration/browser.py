"""
A real Chromium without a screen, told what to do over a pair of pipes, as its own protocol for tools has it.

It resolves no names: what it shows is on this machine, and what it asks for is written down.
"""

import base64
import fcntl
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

DEADLINE = 240.0
"""Seconds that anything may take: a browser starts in seconds, and on crowded cores in a minute."""

OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
    "--enable-unsafe-swiftshader",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
    "--window-size=640,480",
)
"""No sandbox, because it may run as root: the pages are ours and the viewer's. Small, because processors draw it."""


STILL = """
(async () => {{
    const middle = () => {{
        const box = {found}?.getBoundingClientRect();
        return box && [box.x + box.width / 2, box.y + box.height / 2];
    }};
    const before = middle();
    await new Promise(done => setTimeout(done, 100));
    const after = middle();
    const hit = after && document.elementFromPoint(...after);
    return hit && String(before) === String(after) && ({found}.contains(hit) || hit.contains({found})) && after;
}})()
"""
"""The middle of an element in view that has not moved for a moment and that nothing else lies over; else nothing."""


class Browser:
    """
    One page.
    """

    def __init__(self, read: int, write: int) -> None:
        self._read = read
        self._write = write
        self._number = 0
        self._buffer = b""
        self._session = ""
        self._at = (0.0, 0.0)
        self.errors: list[str] = []
        """What the page has written to its console as errors, and exceptions that nobody caught."""
        self.requests: list[str] = []
        """The address of everything that a page has asked for."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: object) -> Mapping[str, Any]:
        """
        Call a method of the protocol.
        """
        told = self._answer(method, parameters)
        assert "error" not in told, told
        found: Mapping[str, Any] = told["result"]
        return found

    def _answer(self, method: str, parameters: Mapping[str, object]) -> dict[str, Any]:
        self._number += 1
        call = {"id": self._number, "method": method, "params": parameters}
        os.write(
            self._write, json.dumps(call | ({"sessionId": self._session} if self._session else {})).encode() + b"\0"
        )
        while True:
            told = self._next()
            if told.get("id") == self._number:
                return told
            self._note(told)

    def open(self, url: str) -> None:
        """
        Go to a page.
        """
        self.ask("Page.navigate", url=url)

    def evaluate(self, expression: str) -> Any:
        """
        The value of an expression of JavaScript in the page.
        """
        end = time.monotonic() + DEADLINE
        while "result" not in (told := self._evaluated(expression)):
            # One page goes and the next has not come.
            assert time.monotonic() < end, (expression, told)
            select.select([self._read], [], [], 0.1)
        assert "exceptionDetails" not in told["result"], told
        return told["result"]["result"].get("value")

    def until(self, expression: str) -> Any:
        """
        The value of an expression once there is one. It may be an error before: a page that comes has no body yet.
        """
        end = time.monotonic() + DEADLINE
        while not (found := (told := self._evaluated(expression)).get("result", {}).get("result", {}).get("value")):
            assert time.monotonic() < end, (told, self.errors, self.evaluate("document.documentElement?.innerText"))
            select.select([self._read], [], [], 0.1)
        return found

    def _evaluated(self, expression: str) -> dict[str, Any]:
        return self._answer("Runtime.evaluate", {"expression": expression, "returnByValue": True, "awaitPromise": True})

    def press(self, key: str) -> None:
        """
        Press a key that writes itself.
        """
        code = f"Digit{key}" if key.isdigit() else f"Key{key.upper()}"
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, text=key, code=code)

    def click(self, selector: str) -> None:
        """
        Click on the first element that ``selector`` names, where a person would see it, once it stays there.
        """
        end = time.monotonic() + DEADLINE
        while True:
            self.press_on(selector)
            self.release()
            # Before it has drawn a page for the first time, a browser lets clicks on it fall.
            if self.evaluate("document.clicked !== false"):
                return
            assert time.monotonic() < end, selector

    def press_on(self, selector: str) -> None:
        """
        Press the button of the mouse on the first element that ``selector`` names, once it stays where it is.
        """
        found = f"document.querySelector({json.dumps(selector)})"
        self.until(f"document.readyState === 'complete' && !!{found}")
        self.evaluate(f"void {found}.scrollIntoView({{block: 'center', inline: 'center', behavior: 'instant'}})")
        self._at = self.until(STILL.format(found=found))
        self.evaluate(
            "document.clicked = false; addEventListener('click', () => { document.clicked = true; }, {capture: true})"
        )
        self._mouse("mouseMoved", "mousePressed")

    def release(self) -> None:
        """
        Let go of the button of the mouse.
        """
        self._mouse("mouseReleased")

    def asked_for(self, url: str, times: int) -> None:
        """
        Wait until the page has asked for ``url`` so many times more.
        """
        before, end = self.requests.count(url), time.monotonic() + DEADLINE
        while self.requests.count(url) < before + times:
            assert time.monotonic() < end, (url, times)
            self.evaluate("0")
            select.select([self._read], [], [], 0.1)

    def downloaded(self, folder: Path, pattern: str) -> Path:
        """
        The file that is whole in ``folder`` (see :meth:`downloads`).
        """
        end = time.monotonic() + DEADLINE
        while not (found := [path for path in folder.glob(pattern) if not list(folder.glob("*.crdownload"))]):
            assert time.monotonic() < end, (
                *(f"{path.name}: {path.stat().st_size} bytes" for path in folder.iterdir()),
                self.errors,
                self.requests[-5:],
                self.evaluate("document.body.innerText"),
            )
            select.select([self._read], [], [], 0.1)
        return found[0]

    def shape(self, *, width: int, scheme: str) -> None:
        """
        Be so wide, and of that colour scheme.
        """
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.ask("Emulation.setScrollbarsHidden", hidden=True)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, path: Path) -> None:
        """
        Write what the whole page looks like.
        """
        told = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(told["data"]))

    def alone(self) -> None:
        """
        Close what the page has opened, and be in front again: a page behind another is not drawn.
        """
        own = self.ask("Target.getTargetInfo")["targetInfo"]["targetId"]
        for target in self.ask("Target.getTargets")["targetInfos"]:
            if target["type"] == "page" and target["targetId"] != own and target["url"].startswith("http"):
                self.ask("Target.closeTarget", targetId=target["targetId"])
        self.ask("Page.bringToFront")

    def downloads(self, folder: Path) -> None:
        """
        Keep what is downloaded from now on in ``folder``.
        """
        self.ask("Page.setDownloadBehavior", behavior="allow", downloadPath=str(folder))

    def _mouse(self, *kinds: str) -> None:
        x, y = self._at
        for kind in kinds:
            button = {"button": "none"} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + DEADLINE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            data = os.read(self._read, 1 << 20)
            assert data, "the browser has ended"
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(text)
        return found

    def _note(self, told: Mapping[str, Any]) -> None:
        method, parameters = told.get("method"), told.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(parameters["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in {"error", "assert"}:
            self.errors.append(json.dumps(parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.errors.append(parameters["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])


@contextmanager
def browser(executable: Path, directory: Path) -> Iterator[Browser]:
    """
    A browser that keeps what it has to in ``directory``, ended with the block.
    """
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    # It reads from 3 and writes to 4; the shell puts them there, and its own descriptors are moved out of the way.
    high_in, high_out = (_above(number) for number in (theirs_in, theirs_out))
    command = f'exec "$0" "$@" 3<&{high_in} 4>&{high_out} {high_in}<&- {high_out}>&-'
    process = subprocess.Popen(
        ["bash", "-c", command, str(executable), *OPTIONS, f"--user-data-dir={directory / 'profile'}"],
        pass_fds=(high_in, high_out),
        env={**os.environ, "HOME": str(directory)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    for number in (theirs_in, theirs_out, high_in, high_out):
        os.close(number)
    try:
        yield Browser(ours_in, ours_out)
    finally:
        os.close(ours_out)
        os.close(ours_in)
        try:
            # Its pipe is closed, which ends it.
            process.wait(DEADLINE / 4)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _above(number: int) -> int:
    """
    The same descriptor with a number from 20 on.
    """
    return fcntl.fcntl(number, fcntl.F_DUPFD, 20)
