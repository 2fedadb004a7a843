"""
A merged timeline in a viewer that is not ours: speedscope, offline in a real Chromium.
"""

import base64
import json
import os
import re
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.browser import Browser, browser
from tests.unit.sidecar.merging import MS, Run, request
from tests.unit.sidecar.traces import EVENT, PID, trace

pytestmark = pytest.mark.viewer

TITLE = re.compile(
    r"(?P<process>.+) \(pid (?P<pid>\d+)\), (?P<thread>.+) \(tid (?P<tid>\d+)\) \((?P<n>\d+)/(?P<of>\d+)\)"
)
"""What speedscope calls a track: the names are the file's, the numbers are its own."""

SHOWN = "document.body?.innerText?.split('\\n')?.find(line => /\\(\\d+\\/\\d+\\)$/.test(line))"
"""The title that is shown, which is undefined until a file has been read."""

CELLS = "[...document.querySelectorAll('td')].map(cell => cell.innerText)"

FRAMES = CELLS + ".filter(text => /[a-z]{3}/.test(text) && !/\\(tid \\d+\\)$/.test(text))"
"""The frames in the table of the view called Sandwich, without the list of tracks that is there too."""


@pytest.fixture
def viewer() -> Path:
    """
    The page of speedscope's release.
    """
    folder = os.environ.get("STEPSCOPE_TEST_SPEEDSCOPE", "")
    page = Path(folder) / "dist" / "release" / "index.html"
    if not folder or not page.is_file():
        pytest.skip("STEPSCOPE_TEST_SPEEDSCOPE does not name the folder of npm's package speedscope")
    return page


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Browser]:
    """
    A browser.
    """
    executable = os.environ.get("STEPSCOPE_TEST_CHROMIUM", "")
    if not executable or not shutil.which(executable):
        pytest.skip("STEPSCOPE_TEST_CHROMIUM does not name a Chromium")
    with browser(Path(executable), tmp_path / "browser") as made:
        yield made


def titles(page: Browser) -> Iterator[re.Match[str]]:
    """
    All tracks, one after the other, as a person goes through them.
    """
    while True:
        found = TITLE.fullmatch(page.until(SHOWN).strip())
        assert found is not None
        yield found
        if found["n"] == found["of"]:
            return
        page.press("n")
        page.until(f"({SHOWN}).includes('({int(found['n']) + 1}/')")


def step(run: Run) -> None:
    """
    Step 5 of a trainer with a device, of a rollouter, and of a critic whose window was denied.
    """
    kernel = EVENT % ("kernel", "gemm<float, 4>", 0, 7, "5107424940010.125", "30.001", 1, 1)
    run.window(recording=trace(20, extra=(kernel,)))
    run.window(role="rollouter", recording=trace(5))
    run.window(role="critic", state="denied", reason="rank_not_selected")
    run.span(1, "rl.step.process", 0, 2000 * MS)
    run.span(2, "rl.step.process", 0, 2000 * MS, role="critic")
    for number, begin in enumerate((50, 60), 3):
        own = request(number, step=5)
        run.span(number, "rollout.generate", begin * MS, 400 * MS, role="rollouter", trace_id=own)
    links = ((request(3, step=5), f"{3:016x}"), (request(4, step=5), f"{4:016x}"))
    run.span(6, "train.update_actor", 500 * MS, 900 * MS, parent=1, links=links)


def test_every_track_is_shown_by_its_name_and_so_are_its_frames(viewer: Path, page: Browser, tmp_path: Path) -> None:
    """
    The viewer lists each track with slices on it, and no other, and names what is on it; no error in its console.
    """
    (tmp_path / "runs").mkdir()
    run = Run(tmp_path / "runs")
    step(run)
    _, timeline = run.merge(name="step.json.gz")
    run.store.close()
    names: dict[tuple[int, int], set[str]] = defaultdict(set)
    for one in timeline.slices:
        names[one.row].add(one.name)
    packed = base64.b64encode((run.directory / "step.json.gz").read_bytes()).decode()
    script = tmp_path / "step.js"
    script.write_text(f"speedscope.loadFileFromBase64('step.json.gz', {json.dumps(packed)})")

    page.open(f"{viewer.as_uri()}#localProfilePath={script}")
    page.until(SHOWN)
    page.press("3")
    found = {}
    for title in titles(page):
        row = (int(title["pid"]), int(title["tid"]))
        assert (timeline.processes[row[0]], timeline.threads[row]) == (title["process"], title["thread"])
        frames = page.until(f"{FRAMES}.length && {FRAMES}")
        found[row] = {frame.split(" {")[0] for frame in frames}

    assert names == found
    assert {"spans", "spans 2", "missing", f"thread {PID} of pid {PID}", "device 0 stream 7"} == {
        timeline.threads[row] for row in found
    }
    assert {"train.update_actor", "rollout.generate", "gemm<float, 4>", "aten::op3"} <= set().union(*found.values())
    assert [] == page.errors
