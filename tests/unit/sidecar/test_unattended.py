"""
A run whose sidecar was killed, as pages and the API serve it from its store: it stands as the commands say.
"""

import os
import time
from pathlib import Path

import pytest

from stepscope import ids
from stepscope_sidecar import lifecycle, render, schema
from stepscope_sidecar.pages.run import UNATTENDED
from stepscope_sidecar.rows import ProcessRow
from stepscope_sidecar.serve import application
from stepscope_sidecar.store import Store
from tests.unit.sidecar.calling import Caller
from tests.unit.sidecar.stored import holds, put, window
from tests.unit.sidecar.test_pages import Page

GONE = 2**22 + 1
"""A pid above all that a kernel gives."""


def run_of(tmp_path: Path, *, pid: int, node: str = "") -> Caller:
    """
    A caller of what serves a run with one process, in the midst of a window; its sidecar has left a note of itself.
    """
    folder, node = tmp_path / "demo-a1", node or ids.node()
    folder.mkdir()
    given = {"pid": pid, "process_start": ids.process_start(pid) or 5, "node": node, "run": "demo", "attempt": "a1"}
    store = Store.open(folder / schema.FILE, run="demo", attempt="a1")
    put(
        store,
        ProcessRow(role="trainer", rank=0, entered_step=3, param_version=2, **given),  # type: ignore[arg-type]
        window(3, "recording", opened_unix_ns=time.time_ns() - 10**9, **given),
    )
    store.close()
    lifecycle.announce(folder, {"http": "http://127.0.0.1:9", "socket": str(tmp_path / "s" / "a.sock")})
    return Caller(application(folder / schema.FILE, token=""), host="127.0.0.1")


def stays(page: Page) -> bool:
    """
    Whether a page does not load itself again.
    """
    return not any(attributes.get("http-equiv") == "refresh" for _, attributes in page.tags)


def run_page(caller: Caller) -> Page:
    """
    The run's page once what profiling cost has been reckoned: until then it loads itself again for that.
    """
    assert holds(lambda: caller.get("/api/status").json()["overhead_estimates"] is not None)
    return Page(caller.get("/").text)


def test_a_window_that_nobody_will_end_is_so_on_every_page(tmp_path: Path) -> None:
    """
    And in what programs are told, as in `stepscope windows`; the run has ended.
    """
    caller = run_of(tmp_path, pid=GONE)
    run, step = run_page(caller), Page(caller.get("/steps/3").text)
    own = Page(caller.get("/windows/w-3-recording").text)
    (told,) = caller.get("/api/windows").json()
    (row,) = caller.get("/api/steps").json()

    assert render.window_objects(tmp_path / "demo-a1") == [told]
    assert ("aborted", "sidecar_lost") == (told["state"], told["reason"])
    assert {"aborted": 1} == row["windows"]
    for page in (run, step, own):
        assert "sidecar_lost" in page.words()
        assert "recording open" not in page.words()
        assert stays(page)
    assert "state ended " in run.words()
    assert "demo a1 ended" in Page(caller.get("/runs").text).words()


def test_a_process_that_lives_without_a_sidecar_is_told_of(tmp_path: Path) -> None:
    """
    As by `stepscope status`: it is not over, and its window can still end.
    """
    caller = run_of(tmp_path, pid=os.getpid())
    run = run_page(caller)
    before = caller.get("/api/pulse").json()
    (told,) = caller.get("/api/windows").json()

    expected = f"no sidecar answers; this is from its store; still alive here: trainer 0 (pid {os.getpid()})"
    assert f"state {expected} last weights v2 " in run.words()
    assert not stays(run)
    assert "recording" == told["state"]
    assert f"demo a1 {UNATTENDED}" in Page(caller.get("/runs").text).words()
    assert before == caller.get("/api/pulse").json()


def test_of_another_nodes_process_no_end_is_told(tmp_path: Path) -> None:
    """
    The store was copied here, say: nothing is known of it, and nothing will change.
    """
    caller = run_of(tmp_path, pid=os.getpid(), node="elsewhere")
    run = run_page(caller)

    assert "state no sidecar answers; this is from its store last weights v2 " in run.words()
    assert stays(run)
    assert "demo a1 no sidecar answers " in Page(caller.get("/runs").text).words()


@pytest.mark.parametrize("pid", [os.getpid(), GONE], ids=["alive", "gone"])
def test_a_sidecar_that_is_there_will_end_what_is_open(tmp_path: Path, pid: int) -> None:
    """
    Whoever serves the store beside it leaves that to it.
    """
    caller = run_of(tmp_path, pid=pid)
    lock = lifecycle.acquire(tmp_path / "s" / "a.sock")
    assert lock is not None

    run, runs, (told,) = run_page(caller), Page(caller.get("/runs").text), caller.get("/api/windows").json()
    lock.release()

    assert "recording" == told["state"]
    assert "state running in force" in run.words()
    assert "demo a1 running" in runs.words()
