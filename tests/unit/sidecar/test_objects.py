"""
Copies of artifacts in an object store: whole, tried again, and visible.
"""

import asyncio
import threading
from pathlib import Path

import fsspec
import pytest

from stepscope.errors import ConfigurationError
from stepscope_sidecar.objects import FAILING, STORED, WAITING, Objects, Uploads
from stepscope_sidecar.rows import WindowRow
from tests.unit.sidecar.artefacts import ARTIFACT, DATA, Silent, local, ready
from tests.unit.sidecar.stored import WAIT, holds


@pytest.mark.parametrize("scheme", ["file", "memory"])
def test_an_artifact_is_copied_and_found_again(scheme: str, tmp_path: Path) -> None:
    """
    Below the name of its node; a folder with all its files.
    """
    url = f"memory://{tmp_path.name}" if scheme == "memory" else f"file://{tmp_path}/store"
    objects = Objects.open(url)
    local(tmp_path / "runs")
    folder = "r-a/step-000005/trainer-0-7/vllm/trace"
    local(tmp_path / "runs", f"{folder}/deep/b.json", b"b")
    objects.put(ready(), directory=tmp_path / "runs")
    objects.put(ready(artifact=folder), directory=tmp_path / "runs")

    async def read(path: str) -> bytes:
        return b"".join([piece async for piece in objects.read("n2", path)])

    assert DATA == asyncio.run(read(ARTIFACT))
    assert b"b" == asyncio.run(read(f"{folder}/deep/b.json"))
    assert f"{url}/n2/{ARTIFACT}" == objects.url("n2", ARTIFACT)
    with pytest.raises(OSError, match="FileNotFoundError"):
        asyncio.run(read("r-a/other"))
    fsspec.filesystem("memory").store.clear()


def test_a_store_that_cannot_be_used_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    With what is to be installed.
    """
    with pytest.raises(ConfigurationError, match="STEPSCOPE_ARTIFACTS"):
        Objects.open("nosuchstore://x")
    monkeypatch.setitem(__import__("sys").modules, "fsspec.core", None)
    with pytest.raises(ConfigurationError, match=r"stepscope\[objects\]"):
        Objects.open("file:///x")


def test_a_store_that_never_answers_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A read ends at its deadline, too many are refused at once, and the loop ends without them.
    """
    monkeypatch.setattr("stepscope_sidecar.objects.ANSWER", 0.01)
    monkeypatch.setattr("stepscope_sidecar.objects.READS", 2)
    let_go = threading.Event()
    silent = Silent(let_go)
    objects = Objects(silent, str(tmp_path), url=f"file://{tmp_path}")

    async def read() -> str:
        try:
            return str([piece async for piece in objects.read("n2", ARTIFACT)])
        except OSError as error:
            return str(error)

    async def run() -> list[str]:
        return [await read() for _ in range(4)]

    try:
        assert ["the object store does not answer"] * 4 == asyncio.run(run())
        assert (2, []) == (len(waiting()), silent.gave_up)
    finally:
        let_go.set()
    assert holds(lambda: not waiting())
    local(tmp_path / "n2", data=b"abc")
    objects._aside._seconds = WAIT
    assert "[b'abc']" == asyncio.run(read())


def waiting() -> list[str]:
    """
    Threads that read of a store.
    """
    return [thread.name for thread in threading.enumerate() if thread.name == "stepscope-store"]


class Flaky(Objects):
    """
    A store that fails as often as it was told.
    """

    failures = 0

    def put(self, row: WindowRow, *, directory: Path) -> None:
        """
        Copy, or fail.
        """
        if self.failures:
            self.failures -= 1
            raise RuntimeError("slow down")
        super().put(row, directory=directory)


def test_a_copy_is_tried_until_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    It waits, fails where one can see it, and is stored; one whose file somebody has removed is given up.
    """
    monkeypatch.setattr("stepscope_sidecar.objects.FIRST_BACKOFF", 0.01)
    objects = Flaky.open(f"file://{tmp_path}/store")
    assert isinstance(objects, Flaky)
    objects.failures = 3
    local(tmp_path / "runs")
    heard: list[WindowRow] = []
    copies = Uploads(objects, directory=tmp_path / "runs", told=heard.append)

    assert WAITING == copies.submit(ready()).stored
    copies.submit(ready(window="gone", artifact="r-a/gone.json.gz"))
    assert 2 == copies.pending
    copies.start()
    try:
        assert holds(lambda: not copies.pending)
    finally:
        copies.close()
    done = next(row for row in heard if row.stored == STORED)
    assert ("w5", f"file://{tmp_path}/store/n2/{ARTIFACT}") == (done.window, done.stored_url)
    assert {FAILING} == {row.stored for row in heard if row.window == "gone"}
    assert {"RuntimeError: slow down", "FileNotFoundError: gone.json.gz is gone"} >= {
        row.stored_reason for row in heard if row.stored == FAILING
    }
    assert "" == done.stored_reason
    assert DATA == (tmp_path / "store" / "n2" / ARTIFACT).read_bytes()


def test_whatever_goes_wrong_with_one_copy_the_others_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A path that cannot even be looked at, and a window that cannot be told of, are tried again; the thread lives.
    """
    monkeypatch.setattr("stepscope_sidecar.objects.FIRST_BACKOFF", 0.01)
    local(tmp_path / "runs")
    heard: list[str] = []

    def told(row: WindowRow) -> None:
        heard.append(f"{row.window} {row.stored} {row.stored_reason}".strip())
        if row.window == "odd":
            raise RuntimeError("no store")

    copies = Uploads(Objects.open(f"file://{tmp_path}/store"), directory=tmp_path / "runs", told=told)
    copies.submit(ready(window="odd", artifact="x" * 300))
    copies.submit(ready())
    copies.start()
    try:
        assert holds(lambda: "w5 stored" in heard and copies.pending == 1)
        assert [] == copies.troubles
    finally:
        copies.close()
    assert any(item.startswith("odd failing OSError: ") for item in heard)


def test_a_copier_that_has_died_is_a_warning(tmp_path: Path) -> None:
    """
    What ends the thread all the same is said.
    """

    class Deadly(Objects):
        def put(self, row: WindowRow, *, directory: Path) -> None:
            raise SystemExit("library")

    copies = Uploads(Deadly.open(f"file://{tmp_path}/store"), directory=tmp_path, told=lambda row: None)
    copies.submit(ready())
    copies.start()
    try:
        assert holds(lambda: bool(copies.troubles))
    finally:
        copies.close()

    assert [
        "recordings are not copied to the object store until the next start: SystemExit('library')"
    ] == copies.troubles
