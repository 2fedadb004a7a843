"""
What recordings hold, for pages: read one at a time, kept, and never waited for.
"""

import asyncio
import gzip
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from stepscope_sidecar import digests
from stepscope_sidecar.digest import MAX_NAME, NAMES, digest
from stepscope_sidecar.digests import KEPT, WAITING, BusyError, Digest, Digests, in_child
from stepscope_sidecar.pages import figures
from stepscope_sidecar.pages.html import text
from stepscope_sidecar.sheet import measures
from tests.unit.sidecar.stored import window
from tests.unit.sidecar.test_pages import Page
from tests.unit.sidecar.test_show import PACKED, Run
from tests.unit.sidecar.traces import BASE, trace


class Reading:
    """
    Stands in for the child: tells what it was asked for once it may.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.may = asyncio.Event()
        self.side_by_side = self.most = 0

    async def __call__(self, *arguments: str) -> Digest:
        """
        One child.
        """
        self.asked.append(arguments)
        self.side_by_side += 1
        self.most = max(self.most, self.side_by_side)
        await self.may.wait()
        self.side_by_side -= 1
        return {"of": arguments[-1]}


async def settle() -> None:
    """
    Let whatever can go on do so.
    """
    for _ in range(400):
        await asyncio.sleep(0)


def test_a_page_is_told_what_is_known_and_each_window_is_read_once() -> None:
    """
    None at first; later the digest, without another child; another recording of the window is read anew.
    """

    async def look() -> tuple[Any, ...]:
        reading = Reading()
        found = Digests(Path("s.db"), runner=reading)
        first = [found.get(window(5)), found.get(window(5)), found.get(window(6))]
        await settle()
        waiting = len(reading.asked)
        reading.may.set()
        await settle()
        later = [found.get(window(5)), found.get(window(6)), found.get(window(5, sha256="other"))]
        await settle()
        return first, waiting, later, reading.asked, reading.most

    first, waiting, later, asked, most = asyncio.run(look())

    assert [None] * 3 == first
    assert 1 == waiting
    assert [{"of": "w-5-ready"}, {"of": "w-6-ready"}, None] == later
    assert [("show", "s.db", f"w-{step}-ready") for step in (5, 6, 5)] == asked
    assert 1 == most


def test_few_wait_and_few_are_kept() -> None:
    """
    However many windows pages ask for.
    """

    async def look() -> tuple[int, int]:
        reading = Reading()
        found = Digests(Path("s.db"), runner=reading)
        for step in range(1, 200):
            found.get(window(step))
        reading.may.set()
        await settle()
        first = len(reading.asked)
        for step in range(200, 200 + KEPT + 1):
            found.get(window(step))
            await settle()
        return first, sum(found.get(window(step)) is not None for step in range(1, 201 + KEPT))

    read, kept = asyncio.run(look())

    assert WAITING == read
    assert KEPT == kept


def test_timelines_are_made_one_at_a_time_and_a_third_is_refused() -> None:
    """
    Whoever asks for one more is told so at once.
    """

    async def ask() -> tuple[Any, ...]:
        reading = Reading()
        found = Digests(Path("s.db"), runner=reading)
        tasks = [asyncio.create_task(found.merge(step, Path("t"))) for step in (5, 6)]
        await settle()
        with pytest.raises(BusyError):
            await found.merge(7, Path("t"))
        reading.may.set()
        made = await asyncio.gather(*tasks)
        return made, reading.most, await found.merge(7, Path("t"))

    made, most, last = asyncio.run(ask())

    assert ([{"of": "t"}] * 2, 1, {"of": "t"}) == (made, most, last)


def test_a_child_reads_a_recording_and_makes_a_timeline(run: Run) -> None:
    """
    The real child, in a process of its own; what cannot be read is an answer, too.
    """
    run.add(5, recording=PACKED)
    store, target = str(run.folder / "stepscope.db"), run.directory / "t.json.gz"

    async def ask() -> list[Digest]:
        return [
            await in_child("show", store, "w-5-ready"),
            await in_child("merge", store, "5", str(target)),
            await in_child("show", store, "nothing"),
        ]

    shown, merged, unknown = asyncio.run(ask())

    assert [2_000_000_000] == [one["wall_ns"] for one in shown["recordings"]]
    assert {"missing"} == merged.keys()
    assert b"\x1f\x8b" == target.read_bytes()[:2]
    assert "nothing" in unknown["error"]


def test_what_others_print_in_the_child_is_no_answer(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A program on the job's path may print in each Python; a child that leaves no answer is told of.
    """
    run.add(5, recording=PACKED)
    site = run.directory / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("print('{loaded}')\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(site), *sys.path)))
    store = str(run.folder / "stepscope.db")
    found = asyncio.run(in_child("show", store, "w-5-ready"))
    monkeypatch.setattr(sys, "executable", "/bin/true")
    silent = asyncio.run(in_child("show", store, "w-5-ready"))
    monkeypatch.setattr(sys, "executable", str(run.directory / "missing"))
    unmade = asyncio.run(in_child("show", store, "w-5-ready"))

    assert 1 == len(found["recordings"])
    assert {"error": "it cannot be read: its process ended without an answer"} == silent
    assert "it cannot be read: [Errno 2]" in unmade["error"]


def test_a_child_that_takes_too_long_is_ended(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The page says so.
    """
    endless = run.directory / "endless"
    endless.write_text("#!/bin/sh\nexec sleep 60\n")
    endless.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(endless))
    monkeypatch.setattr(digests, "SECONDS", 0.0)
    found = asyncio.run(in_child("show", str(run.folder / "stepscope.db"), "w"))

    assert {"error": "reading took longer than 0 s"} == found


def test_a_digest_is_short_whatever_the_recording_holds(run: Run) -> None:
    """
    The names that come first, cut; folders of this machine are not told.
    """
    data = trace(200).replace(b"aten::op0", b"aten::" + b"x" * 5000)
    run.add(5, recording=gzip.compress(data))
    run.add(6, "failed", reason="artifact_invalid", detail=f"{run.directory}/raw is cut off")
    recordings: Any = digest(run.show("w-5-ready"))["recordings"]
    found = recordings[0]
    failed = digest(run.show("w-6-failed"))

    assert NAMES >= len(found["operators"]["top"])
    assert MAX_NAME == max(len(row["name"]) for row in found["operators"]["top"])
    assert ["train.update_actor"] == [row["name"] for row in found["spans"]]
    assert str(run.directory) not in str(failed)


def test_the_page_of_a_window_says_what_show_says(run: Run) -> None:
    """
    Shares are of all names, not of those that are listed; what all kernels share is said, and what times are of.
    """
    for step, times in ((5, 1), (8, 3)):
        run.add(step, recording=_kernels(30, times=times))
    shown = run.show("w-8-ready")
    parts = [text(part) for part in figures.recordings(digest(shown))]
    page, rows = Page("".join(parts)).words(), re.findall('"share" class="number">([^<]*)</td>', "".join(parts))
    kernels = shown.summaries[0].kernels
    whole = sum(one.own_ns for one in kernels)

    assert 30 == len(kernels)
    assert [f"{one.own_ns / whole:.1%}" for one in kernels[:NAMES]] == rows
    assert all(share in run.text("w-8") for share in rows[:10])
    for words in measures(shown.against.differences[0]):
        assert words in page
    assert "all kernels took 3.00 times as long (median), which no line below repeats none beyond that" in page


def test_a_difference_on_a_page_says_what_its_times_are_of(run: Run) -> None:
    """
    The unit, the noise band, the side of each name; no time where the name is in one recording alone.
    """
    run.add(5, recording=_kernels(12))
    run.add(8, recording=_kernels(30))
    told: Any = digest(run.show("w-8-ready"))["difference"]
    page = Page("".join(text(part) for part in figures.recordings(digest(run.show("w-8-ready"))))).words()

    assert ["step"] == [one["unit"] for one in told["recordings"]]
    assert "noise is up to 1.5 times for kernels, or less than 1% of all" in page
    assert "then and now are the time of one step, disturbances left out; calls are of the whole recording" in page
    assert "kernel fe kernel added 3.00 ms 0 → 1" in page
    assert "and 3 more; stepscope show --json has all" in page


def _kernels(count: int, *, times: int = 1) -> bytes:
    """
    A recording of as many kernels, each of another name and length, and all ``times`` as long.
    """
    events = [
        {
            "ph": "X",
            "cat": "kernel",
            "name": f"kernel {chr(97 + number // 5)}{chr(97 + number % 5)}",
            "pid": 0,
            "tid": 7,
            "ts": 5_107_424_936_000.0 + 10_000 * number,
            "dur": 100.0 * (number + 1) * times,
        }
        for number in range(count)
    ]
    return gzip.compress(json.dumps({"baseTimeNanoseconds": BASE, "traceEvents": events}).encode())
