"""
Recordings that have been kept long enough: which they are, and how they go.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stepscope.names import Reason, State
from stepscope.selection import Ranks, Selection
from stepscope.settings import read
from stepscope_sidecar import policy
from stepscope_sidecar.ledger import StoreLedger
from stepscope_sidecar.policy import Ask, Rules
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.recast import window_row
from stepscope_sidecar.removal import Removal
from stepscope_sidecar.retention import TOO_MUCH, TOO_OLD, Doomed, Kept, decide
from stepscope_sidecar.rows import WindowRow
from stepscope_sidecar.store import Store
from stepscope_sidecar.surroundings import Disk
from stepscope_sidecar.windows import Windows
from tests.unit.sidecar.ledgers import ENVIRONMENT, READY, kept
from tests.unit.sidecar.stored import put

NOW = 1000 * 10**9


def _kept(step: int, *, size: int = 10, closed: int = 900, last_step: int = 0, busy: bool = False) -> Kept:
    return Kept(
        step=step, last_step=max(step, last_step), bytes=size, closed_unix_ns=closed * 10**9 if closed else 0, busy=busy
    )


def _decide(*folders: Kept, seconds: float | None = None, size: int | None = None) -> list[Doomed]:
    return decide(folders, unix_ns=NOW, keep_seconds=seconds, keep_bytes=size)


def test_without_a_limit_all_is_kept() -> None:
    """
    However old, however much.
    """
    assert [] == _decide(_kept(1, closed=1), _kept(2, size=10**15))


def test_the_oldest_steps_go_until_the_rest_fits() -> None:
    """
    Never the newest that is whole: it may be too large by itself, and what is recorded now may come to nothing.
    """
    assert [] == _decide(_kept(1), _kept(2, busy=True), size=0)
    assert [Doomed(steps=(1,), why=TOO_MUCH)] == _decide(_kept(3), _kept(1), _kept(2), size=20)
    assert [Doomed(steps=(1,), why=TOO_MUCH)] == _decide(_kept(1), _kept(2, size=10**9), size=0)


def test_nothing_goes_for_recordings_that_are_not_final() -> None:
    """
    They are as their profiler wrote them, many times as large as they will be.
    """
    assert [] == _decide(_kept(1), _kept(2), _kept(3, size=10**9, busy=True), size=20)


def test_steps_go_when_the_last_of_their_windows_is_too_old() -> None:
    """
    The newest as well; what went counts no more among the bytes.
    """
    old, older, fresh = _kept(2, closed=939), _kept(1, closed=500), _kept(3, closed=941)

    assert [Doomed(steps=(1,), why=TOO_OLD), Doomed(steps=(2,), why=TOO_OLD)] == _decide(
        old, older, fresh, seconds=60, size=10
    )
    assert [Doomed(steps=(1,), why=TOO_OLD)] == _decide(older, seconds=60)


def test_what_is_not_final_stays_whole() -> None:
    """
    A step with one window that is open, or of which nothing is known, loses none of its recordings.
    """
    assert [3] == [
        step
        for doomed in _decide(_kept(1, busy=True), _kept(2, closed=0), _kept(3), seconds=60)
        for step in doomed.steps
    ]


def test_steps_that_share_a_window_go_together() -> None:
    """
    A recording of steps 5 to 7 lies in the folder of step 5, others of step 6 and 7 in theirs.
    """
    shared = (_kept(5, last_step=7), _kept(6), _kept(7))

    assert [Doomed(steps=(5, 6, 7), why=TOO_MUCH)] == _decide(*shared, _kept(8), size=35)
    assert [] == _decide(*shared[:2], replace(shared[2], busy=True), _kept(8), size=0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """
    The folder of an attempt.
    """
    (tmp_path / "run-a1").mkdir()
    return tmp_path / "run-a1"


@pytest.fixture
def store(folder: Path) -> Iterator[Store]:
    """
    Its store.
    """
    with kept(folder / "stepscope.db") as store:
        yield store


def _record(store: Store, folder: Path, step: int, *, rank: int = 0, state: State = State.READY) -> Path:
    """
    A window of ``step``, closed at its second, with a recording of ten bytes.
    """
    place = folder / f"step-{step:06d}" / f"trainer-{rank}-1" / "torch"
    place.mkdir(parents=True)
    (place / "recording.json.gz").write_bytes(b"0123456789")
    row = window_row(
        replace(
            READY,
            window=f"w{step}-{rank}",
            step=step,
            rank=rank,
            state=state,
            closed_unix_ns=step * 10**9,
            folder=str(place.relative_to(folder.parent)),
            artifact=str((place / "recording.json.gz").relative_to(folder.parent)) if state is State.READY else "",
        ),
        run="run",
        attempt="a1",
    )
    put(store, row)
    return place


class Kill(BaseException):
    """
    Stands in for the end of the process at some moment.
    """


class Keeper:
    """
    A removal over a real store; ``note`` may be put off to stand in for a sidecar that is killed before.
    """

    def __init__(self, store: Store, folder: Path, **settings: str) -> None:
        self.busy: set[int] = set()
        self.told: list[WindowRow] = []
        self.settings = read({**ENVIRONMENT, "STEPSCOPE_DIR": str(folder.parent), **settings})
        self._store = store
        self.ledger = StoreLedger(store, self.settings, url=str, unix_ns=lambda: 3)
        self.removal = self.make(self._note)

    def make(self, note: Callable[[WindowRow], None]) -> Removal:
        return Removal(self.settings, self._store.path, busy=lambda: self.busy, note=note, unix_ns=lambda: 100 * 10**9)

    def _note(self, row: WindowRow) -> None:
        self.told.append(row)
        self.ledger.row(row)

    def look(self) -> None:
        asyncio.run(self.removal.look())
        self._store.submit(lambda _: None).result(10)

    def details(self) -> dict[str, tuple[str, str]]:
        with open_reader(self._store.path) as reader:
            return {row.window: (row.artifact and "there", row.detail) for row in reader.windows()}


def test_a_step_goes_with_all_its_recordings_and_its_windows_say_so(store: Store, folder: Path) -> None:
    """
    Old ones of all ranks, failed ones too; the young one stays, and so does everything else in the folder.
    """
    for step, rank in ((5, 0), (5, 1), (99, 0)):
        _record(store, folder, step, rank=rank)
    _record(store, folder, 6, state=State.FAILED)
    keeper = Keeper(store, folder, STEPSCOPE_KEEP_SECONDS="60")
    keeper.look()
    keeper.look()

    why = "the recording was removed: older than STEPSCOPE_KEEP_SECONDS"
    assert ["step-000099", "stepscope.db"] == sorted(
        path.name for path in folder.iterdir() if not path.name.endswith(("-wal", "-shm"))
    )
    assert {"w5-0": ("", why), "w5-1": ("", why), "w6-0": ("", ""), "w99-0": ("there", "")} == keeper.details()


def test_a_step_with_an_open_window_stays(store: Store, folder: Path) -> None:
    """
    Also where only the controller knows of it yet, and where the row says that it is being finalised.
    """
    _record(store, folder, 5)
    _record(store, folder, 6)
    _record(store, folder, 6, rank=1, state=State.FINALISING)
    keeper = Keeper(store, folder, STEPSCOPE_KEEP_SECONDS="60")
    keeper.busy = {5}
    keeper.look()

    assert ["step-000005", "step-000006"] == sorted(path.name for path in folder.glob("step-*"))


def test_a_step_whose_recordings_are_not_copied_yet_stays(store: Store, folder: Path) -> None:
    """
    With an object store, the local recording goes only when its copy is there.
    """
    _record(store, folder, 5)
    keeper = Keeper(store, folder, STEPSCOPE_KEEP_SECONDS="60", STEPSCOPE_ARTIFACTS="file:///nowhere")
    keeper.look()

    assert [folder / "step-000005"] == list(folder.glob("step-*"))


def test_bytes_are_kept_to_by_removing_the_oldest(store: Store, folder: Path) -> None:
    """
    Three steps of ten bytes, of which 20 may stay.
    """
    for step in (5, 6, 7):
        _record(store, folder, step)
    keeper = Keeper(store, folder, STEPSCOPE_KEEP_BYTES="20")
    keeper.look()

    assert ["step-000006", "step-000007"] == sorted(path.name for path in folder.glob("step-*"))
    assert "the recording was removed: to keep within STEPSCOPE_KEEP_BYTES" == keeper.details()["w5-0"][1]


def test_the_disk_budget_is_lifted_once_recordings_are_removed(store: Store, folder: Path) -> None:
    """
    Two steps of ten bytes are more than a budget of 15; when the older has gone, windows are granted again.
    """
    for step in (5, 6):
        _record(store, folder, step)
    keeper = Keeper(store, folder, STEPSCOPE_KEEP_BYTES="10", STEPSCOPE_DISK_BUDGET="15")
    disk = Disk(keeper.settings)
    full = _denied(disk)
    keeper.look()
    disk.look()

    assert Reason.BUDGET_DISK == full
    assert (10, 5) == (disk.used, disk.left)
    assert _denied(disk) is None


def _denied(disk: Disk) -> Reason | None:
    ask = Ask(step=7, role="trainer", rank=0, process=(1, 2), tool="torch", tools={"torch": ""})
    rules = Rules(selection=Selection.parse("7"), ranks=Ranks.parse("0"), disk_left=disk.left)
    return policy.decide(ask, rules, Windows())


def test_other_runs_and_links_are_left_alone(store: Store, folder: Path) -> None:
    """
    Living or not: a sidecar removes recordings of its own attempt on its own node.
    """
    other = folder.parent / "run-a2" / "step-000001"
    other.mkdir(parents=True)
    node = folder / "nodes" / "b" / "step-000001"
    node.mkdir(parents=True)
    (folder / "step-000004").symlink_to(other)
    _record(store, folder, 5)
    keeper = Keeper(store, folder, STEPSCOPE_KEEP_SECONDS="0.001", STEPSCOPE_KEEP_BYTES="1")
    keeper.look()

    assert other.is_dir()
    assert node.is_dir()
    assert [folder / "step-000004"] == list(folder.glob("step-*"))


@pytest.mark.parametrize("moment", ["renaming", "telling"])
def test_a_kill_in_the_middle_leaves_no_half_of_a_step(store: Store, folder: Path, moment: str) -> None:
    """
    Killed when one of two steps that go together was renamed, or before the store knew: the next sidecar goes on, also
    with other settings. At no moment is a recording listed whose step is half there.
    """
    _record(store, folder, 5)
    _record(store, folder, 6)
    aside = folder / ".removed-5-6-old"
    aside.mkdir()
    (folder / "step-000005").rename(aside / "step-000005")
    if moment == "telling":
        (folder / "step-000006").rename(aside / "step-000006")
    keeper = Keeper(store, folder)
    for _ in range(2):
        keeper.look()

    why = "the recording was removed: older than STEPSCOPE_KEEP_SECONDS"
    assert [] == [path for path in folder.iterdir() if "step" in path.name and path.is_dir()]
    assert not aside.exists()
    assert {"w5-0": ("", why), "w6-0": ("", why)} == keeper.details()


def test_files_stay_until_the_store_says_that_they_are_gone(store: Store, folder: Path) -> None:
    """
    Killed between the two, the next sidecar finds what it has to tell of.
    """
    _record(store, folder, 5)
    keeper = Keeper(store, folder, STEPSCOPE_KEEP_SECONDS="60")

    def killed(row: WindowRow) -> None:
        raise Kill(row.window)

    with pytest.raises(Kill):
        asyncio.run(keeper.make(killed).look())

    assert [folder / ".removed-5-5-old" / "step-000005"] == list(folder.glob(".removed-*/*"))
    assert "there" == keeper.details()["w5-0"][0]
