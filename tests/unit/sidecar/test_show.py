"""
``stepscope show``: a window and what its recording holds, whatever has become of it.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from stepscope import wire
from stepscope_sidecar import cli, sheet
from stepscope_sidecar.rows import WindowRow, upsert, values
from stepscope_sidecar.show import Shown, shown
from stepscope_sidecar.store import Store
from tests.unit.sidecar.bodies import span
from tests.unit.sidecar.stored import WAIT, put, receive, window
from tests.unit.sidecar.traces import CLOSED, OPENED, closed, trace

RUN = "demo-a"


def row(step: int, state: str = "ready", *, recording: bytes | None = None, **changes: Any) -> WindowRow:
    """
    A window of the run, with ``recording`` as its artifact where there is one.
    """
    folder = f"{RUN}/step-{step:06d}/trainer-0-7/torch"
    told: dict[str, Any] = {"opened_unix_ns": OPENED, "closed_unix_ns": CLOSED, "folder": folder, "complete": True}
    if recording is not None:
        told |= {"artifact": f"{folder}/recording.json.gz", "bytes": len(recording)}
    return window(step, state, **told | changes)


class Run:
    """
    A run in a folder, without a sidecar.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.folder = directory / RUN
        self.folder.mkdir()
        self.store = Store.open(self.folder / "stepscope.db", attempt="a")

    def add(self, step: int, state: str = "ready", *, recording: bytes | None = None, **changes: Any) -> WindowRow:
        """
        Put a window there.
        """
        made = row(step, state, recording=recording, **changes)
        (self.directory / made.folder).mkdir(parents=True)
        if recording is not None:
            (self.directory / made.artifact).write_bytes(recording)
        put(self.store, made)
        return made

    def show(self, wanted: str = "") -> Shown:
        """
        What is shown.
        """
        return shown(self.folder / "stepscope.db", wanted)

    def text(self, wanted: str = "") -> str:
        """
        What is printed.
        """
        return "\n".join(sheet.lines(self.show(wanted), near=self.directory))


PACKED = gzip.compress(trace(20))


def test_a_recording_is_shown_in_numbers(run: Run) -> None:
    """
    On the page: the step, the state, operators, and what is not there, with the reason.
    """
    run.add(5, recording=PACKED)
    text = run.text()

    assert text.startswith("step 5 (weights v4 in force, makes v5): trainer 0 (pid 7)\n")
    for words in (
        "w-5-ready, ready, complete",
        f"{RUN}/step-000005/trainer-0-7/torch/recording.json.gz",
        "wall        2.00 s (the window), 21 events",
        "device      the recording holds no work of a device",
        "operators   7 names, 20 calls, 150.00 us",
        "22.50 us  15.0%      3  aten::op0",
        "train.update_actor",
        "there is no earlier recording of this process with this tool and level",
    ):
        assert words in text


def test_the_json_has_the_window_and_all_numbers(run: Run) -> None:
    """
    The window as `stepscope windows --json` has it, and per recording all that the page is made of.
    """
    run.add(5, recording=PACKED)
    found = json.loads(json.dumps(run.show("w-5").json()))
    (recording,) = found["recordings"]

    assert ("w-5-ready", "", "") == (found["window"]["window"], found["reason"], found["difference"]["window"])
    assert (2_000_000_000, 21, None, None) == tuple(
        recording[key] for key in ("wall_ns", "events", "device", "launches")
    )
    assert (7, 20, 150_000) == tuple(recording["operators"][key] for key in ("names", "count", "own_ns"))
    assert {"devices": "the recording holds no work of a device"} == recording["absent"]
    assert {"by": "unknown", "evidence": ["no work of a device is in the recording"]} == recording["bound"]
    assert ["00f067aa0ba902b7"] == [one["span_id"] for one in recording["spans"]]


def test_the_difference_is_per_unit_of_work(run: Run) -> None:
    """
    To the recording before, by as many mini-batches as the spans of each tell.
    """
    run.add(5, recording=PACKED)
    run.add(8, recording=gzip.compress(trace(42)))
    receive(run.store, [span(number, step=5) for number in (1, 2)] + [span(number, step=8) for number in (3, 4)])
    text = run.text("w-8")
    found = run.show("w-8").against

    assert found.window is not None
    assert 5 == found.window.step
    assert {"more calls"} == {str(change.what) for change in found.differences[0].changes}
    assert "to step 5 (weights v4 in force, makes v5), window w-5-ready" in text
    assert "bound by    unknown\n" in text
    assert "then and now are the time of one mini-batch, disturbances left out" in text
    assert "per mini-batch: 2 then, 2 now\n            noise is up to 2 times for operators, or less than 1%" in text


def test_recordings_without_operators_are_not_compared(run: Run) -> None:
    """
    The reason is that of the level.
    """
    for step in (5, 8):
        run.add(step, recording=gzip.compress(trace(0)), level="spans")
    text = run.text()

    assert "operators   level spans records none; STEPSCOPE_LEVEL=ops does" in text
    assert "unknown; neither recording holds kernels or operators" in text


@pytest.mark.parametrize(
    ("state", "changes", "words"),
    [
        ("recording", {"complete": None}, "the window is recording; its recording can be shown once it is ready"),
        ("denied", {"reason": "budget_disk", "detail": "no room"}, "the window is denied: budget_disk (no room)"),
        (
            "ready",
            {"artifact": f"{RUN}/gone.json.gz", "other": {"stored_url": "s3://b/k"}},
            "moved or removed; a copy is at s3://b/k",
        ),
    ],
)
def test_a_window_without_a_recording_says_why(run: Run, state: str, changes: dict[str, Any], words: str) -> None:
    """
    One that is open, one that was denied, one whose file is gone.
    """
    run.add(5, state, **changes)
    found = run.show()

    assert words in run.text()
    assert words in str(found.json()["reason"])
    assert not found.summaries


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (PACKED[: len(PACKED) // 2], "truncated"),
        (gzip.compress(b"no JSON at all"), "unknown_format"),
        (b"", "empty"),
    ],
    ids=["cut off", "no JSON", "empty"],
)
def test_a_broken_recording_is_shown_with_what_is_wrong(run: Run, data: bytes, fault: str) -> None:
    """
    Never an exception, never an empty page.
    """
    run.add(5, recording=data)
    (summary,) = run.show().summaries

    assert summary.header.flags
    assert f"flag        {summary.header.flags[0].fault}: " in run.text()
    assert all(reason for reason in summary.absent.values())


def test_of_a_window_that_failed_what_was_left_is_shown(run: Run) -> None:
    """
    By the close record in its folder; the reason stands before it.
    """
    made = run.add(5, "failed", reason="artifact_invalid", detail="cut off", complete=None)
    folder = run.directory / made.folder
    (folder / "recording.json").write_bytes(trace(20)[:2000])
    (folder / wire.RECORD).write_bytes(wire.encode(closed(window=made.window)))
    text = run.text()

    assert "the window is failed: artifact_invalid (cut off); shown is what was left of it" in text
    assert "flag        truncated" in text
    assert "operators   5 names, 5 calls" in text


def test_each_worker_of_an_engine_has_numbers_of_its_own(run: Run) -> None:
    """
    Its recording is a folder of several; with as many it is compared, one with one, and else it is said why not.
    """
    for step, names in ((5, ("a", "b")), (8, ("a", "b")), (9, ("a",))):
        made = run.add(step, artifact=f"{RUN}/step-{step:06d}/trainer-0-7/torch/traces", tool="vllm")
        for name in names:
            path = run.directory / made.artifact / f"{name}.json.gz"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(PACKED)
    text = run.text("w-8")

    assert "recording 1 of 2: a.json.gz" in text
    assert "recording 2 of 2: b.json.gz" in text
    assert [(), ()] == [found.changes for found in run.show("w-8").against.differences]
    assert "step 8 (weights v7 in force, makes v8) has 2 recordings, this one 1" in run.text("w-9")


def test_a_recording_of_another_node_is_shown_there(run: Run) -> None:
    """
    Unless the file is here too, as where nodes share a folder.
    """
    made = row(5, recording=PACKED, node="far")
    statement = upsert(made, "node_windows")
    run.store.submit(lambda connection: connection.execute(statement, values(made))).result(WAIT)
    assert "the recording lies on node far; run `stepscope show w-5-ready` there" in run.text()
    assert "stepscope://far/" in str(run.show().json()["window"])

    path = run.directory / made.artifact
    path.parent.mkdir(parents=True)
    path.write_bytes(PACKED)
    assert "operators   7 names" in run.text()


def test_the_command_prints_it(run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """
    As text and as JSON; an unknown window is one line and exit code 2.
    """
    run.add(5, recording=PACKED)
    monkeypatch.setenv("STEPSCOPE_DIR", str(run.directory))
    for arguments in (["w-5", "--json"], ["w-5"], ["w-6"]):
        monkeypatch.setattr("sys.argv", ["stepscope", "show", *arguments, "--run", RUN])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        if arguments == ["w-6"]:
            assert (2, 1) == (ended.value.code, len(printed.err.splitlines()))
            assert "no window 'w-6'" in printed.err
        else:
            assert 0 == ended.value.code
            assert ("{" if "--json" in arguments else "step 5") == printed.out[: 1 if "--json" in arguments else 6]
