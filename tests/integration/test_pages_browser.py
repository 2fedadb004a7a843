"""
The pages in a real Chromium, beside a run that goes on: from the run to the recording, and nothing from outside.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.integration.browser import Browser, browser
from tests.integration.jobs import CLI, environment, eventually
from tests.integration.programs import PROGRAM_DEADLINE, ROOT
from tests.integration.viewer import LATE, Viewer, viewer

pytestmark = pytest.mark.pages

STEPS = 8
"""More than the tests begin: the run goes on as long as they look."""
RECORDED = 2

WIDTHS = (1280, 400)
SCHEMES = ("light", "dark")


@dataclass
class Going:
    """
    A run that goes on, and a browser; one for all tests, which come in any order.
    """

    url: str
    page: Browser
    folder: Path
    steps: Path
    viewer: Viewer
    begun: int = 3

    def begin(self) -> int:
        """
        Have the next step run.
        """
        self.begun += 1
        (self.steps / str(self.begun)).touch()
        return self.begun

    def get(self, path: str) -> Any:
        """
        The JSON at ``path``.
        """
        return httpx.get(f"{self.url}{path}", trust_env=False, timeout=30).json()


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Viewer]:
    """
    The stand-in for a viewer of recordings that the run's sidecar is told of.
    """
    with viewer() as found:
        yield found


@pytest.fixture(scope="module")
def going(tmp_path_factory: pytest.TempPathFactory, elsewhere: Viewer) -> Iterator[Going]:
    """
    Three steps are over, the second of them was recorded; the browser shows nothing yet.
    """
    executable = os.environ.get("STEPSCOPE_TEST_CHROMIUM", "")
    if not executable or not shutil.which(executable):
        pytest.skip("STEPSCOPE_TEST_CHROMIUM does not name a Chromium")
    folder = tmp_path_factory.mktemp("pages")
    steps = folder / "steps"
    steps.mkdir()
    for step in range(1, 4):
        (steps / str(step)).touch()
    process = subprocess.Popen(
        [*CLI, "run", "--", sys.executable, "-m", "tests.integration.paced_loop", str(steps), str(STEPS)],
        cwd=ROOT,
        env={
            **environment(folder / "runs", STEPSCOPE_STEPS=str(RECORDED), STEPSCOPE_VIEWER=elsewhere.url),
            "OMP_NUM_THREADS": "1",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        announced = folder / "runs" / "latest" / "sidecar.json"
        url = eventually(
            lambda: json.loads(announced.read_text())["http"] if announced.exists() else None,
            deadline=PROGRAM_DEADLINE,
        )

        def ready() -> bool:
            windows = httpx.get(f"{url}/api/windows", trust_env=False, timeout=30).json()
            table = httpx.get(f"{url}/api/steps", trust_env=False, timeout=30).json()
            return [row["state"] for row in windows] == ["ready"] and len(table) >= 3

        eventually(ready, deadline=PROGRAM_DEADLINE, every=0.5)
        with browser(Path(executable), folder / "browser") as page:
            found = Going(url=url, page=page, folder=folder, steps=steps, viewer=elsewhere)
            yield found
            while found.begun < STEPS:
                found.begin()
    finally:
        for step in range(1, STEPS + 1):
            (steps / str(step)).touch()
        process.wait(PROGRAM_DEADLINE)


@pytest.fixture
def page(going: Going) -> Iterator[Browser]:
    """
    The browser on the run's page; no test leaves an error in its console or has asked anything of another host.
    """
    going.page.shape(width=1280, scheme="light")
    going.page.open(f"{going.url}/")
    going.page.until("document.readyState === 'complete' && !!document.querySelector('.timeline a.window.ready')")
    yield going.page
    assert [] == going.page.errors
    assert {urlsplit(going.url).netloc, ""} >= {urlsplit(url).netloc for url in going.page.requests}


def test_two_clicks_lead_to_the_recorded_window_and_its_recording(going: Going, page: Browser) -> None:
    """
    From the run's page to the window by its mark in the timeline, from there to the file, whose hash is the window's.
    """
    target = going.folder / "downloads"
    target.mkdir(exist_ok=True)
    page.downloads(target)
    window = going.get("/api/windows")[0]

    page.click(".timeline a.window.ready")
    page.until(f"location.pathname === '/windows/{window['window']}'")
    page.until("document.body.innerText.includes('train.update_actor')")
    page.click("main a[href*='artifacts/']")
    file = page.downloaded(target, "*.json.gz")

    assert window["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert window["sha256"] in page.evaluate("document.body.innerText")


def test_a_step_appears_without_loading_the_page_again(going: Going, page: Browser) -> None:
    """
    The page that is there gets the new column; what a person has done on it stays.
    """
    page.evaluate("window.kept = true; document.querySelector('.timeline thead a').focus()")
    held = page.evaluate("document.activeElement.getAttribute('href')")
    step = going.begin()

    page.until(f"!!document.querySelector('.timeline a[href=\"steps/{step}\"]')")

    assert True is page.evaluate("window.kept")
    assert held == page.evaluate("document.activeElement.getAttribute('href')")


def test_what_a_person_has_in_hand_is_not_put_away(going: Going, page: Browser) -> None:
    """
    A link that is pressed while its part of the page becomes another is followed; text that is marked stays marked.
    """
    page.evaluate("getSelection().selectAllChildren(document.querySelector('.timeline thead'))")
    marked = page.evaluate("String(getSelection())")
    step = going.begin()
    page.asked_for(f"{going.url}/", 2)
    assert marked == page.evaluate("String(getSelection())")
    page.evaluate("getSelection().removeAllRanges()")
    page.until(f"!!document.querySelector('.timeline a[href=\"steps/{step}\"]')")

    page.press_on(f".timeline a[href='steps/{RECORDED}']")
    step = going.begin()
    page.asked_for(f"{going.url}/", 2)
    assert page.evaluate(f"!document.querySelector('.timeline a[href=\"steps/{step}\"]')")
    page.release()

    page.until(f"location.pathname === '/steps/{RECORDED}'")


def test_the_step_has_its_windows_its_timeline_and_the_time_in_spans(going: Going, page: Browser) -> None:
    """
    The merged timeline is downloaded as ``stepscope merge`` makes it.
    """
    page.click(f".timeline a[href='steps/{RECORDED}']")
    page.until(f"location.pathname === '/steps/{RECORDED}'")
    page.until("document.body.innerText.includes('train.update_actor')")
    text = page.evaluate("document.body.innerText")
    merged = httpx.get(f"{going.url}/steps/{RECORDED}/timeline.json.gz", trust_env=False, timeout=120)

    assert "step 2 (weights v1 in force, makes v2)" in text
    assert "1 of 1 recordings that were expected are there" in text
    assert (200, b"\x1f\x8b") == (merged.status_code, merged.content[:2])


def test_a_recording_is_handed_to_the_configured_viewer(going: Going, page: Browser) -> None:
    """
    In another window of the browser, by the protocol of Perfetto's page: asked until it answers, then given the bytes.
    """
    window = going.get("/api/windows")[0]
    page.open(f"{going.url}/windows/{window['window']}")
    # A click before the script is there does nothing.
    page.until("document.readyState === 'complete' && !!document.querySelector('button[data-viewer]')")
    page.click("button[data-viewer]")
    try:
        told = eventually(lambda: next(iter(going.viewer.told), None), deadline=120)
    finally:
        page.alone()

    assert (window["sha256"], window["bytes"]) == (told["sha256"], told["bytes"])
    assert ("step 2, trainer 0", Path(window["artifact"]).name) == (told["title"], told["fileName"])
    assert going.url == told["origin"]
    assert LATE <= told["asked"]


def test_private_attributes_of_spans_are_not_shown(going: Going, page: Browser) -> None:
    """
    Pages show times, names and figures that have a name here.
    """
    window = going.get("/api/windows")[0]["window"]
    for path in ("/", "/runs", f"/steps/{RECORDED}", f"/windows/{window}"):
        assert "hunter2" not in httpx.get(f"{going.url}{path}", trust_env=False, timeout=30).text


def test_every_page_fits_wide_and_narrow_light_and_dark(going: Going, page: Browser) -> None:
    """
    Nothing but the timeline is wider than the screen. Pictures are left in the test's folder: somebody looks at them.
    """
    folder = going.folder / "pictures"
    folder.mkdir()
    window = going.get("/api/windows")[0]
    paths = {
        "run": "/",
        "runs": "/runs",
        "step": f"/steps/{RECORDED}",
        "window": f"/windows/{window['window']}",
        "trace": f"/traces/{window['trace_id']}",
    }
    for name, path in paths.items():
        page.open(f"{going.url}{path}")
        page.until(f"document.readyState === 'complete' && location.pathname === '{path}'")
        page.until("!document.body.innerText.includes('is being read')")
        for width in WIDTHS:
            for scheme in SCHEMES:
                page.shape(width=width, scheme=scheme)
                wide = page.evaluate("document.documentElement.scrollWidth")
                page.picture(folder / f"{name}-{width}-{scheme}.png")
                assert (name, width) == (name, max(wide, width))
    assert len(paths) * 4 == len(list(folder.glob("*.png")))


def test_pages_can_be_walked_through_with_the_keyboard(page: Browser) -> None:
    """
    Tabs reach the step's page and the window's; every table has headings that say of what.
    """
    reached = []
    for _ in range(12 + 2 * STEPS):
        for kind in ("rawKeyDown", "keyUp"):
            page.ask("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
        reached.append(page.evaluate("document.activeElement.getAttribute('href') || ''"))

    assert any(target.startswith("steps/") for target in reached)
    assert any(target.startswith("windows/") for target in reached)
    assert 0 == page.evaluate("document.querySelectorAll('th:not([scope])').length")
    assert "en" == page.evaluate("document.documentElement.lang")
