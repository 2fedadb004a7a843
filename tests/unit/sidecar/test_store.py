"""
The store: what is acknowledged is durable, counted once, and readable at any time.
"""

import os
import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from stepscope_sidecar import inbox, index
from stepscope_sidecar.errors import StoreError, StoreVersionError
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.rows import ProcessRow, SampleRow, SelectionRow
from stepscope_sidecar.spans import build
from stepscope_sidecar.store import Store, add_samples
from tests.unit.sidecar.bodies import ATTEMPT, batch, body, foreign, span
from tests.unit.sidecar.stored import WAIT, WINDOW, count, holds, put


def test_appended_spans_are_there_as_soon_as_they_are_acknowledged(store: Store, path: Path) -> None:
    """
    A reader sees an acknowledged request at once, whether or not it has been read into rows.
    """
    store.append(batch(300), 300).result(WAIT)

    with open_reader(path) as reader:
        assert 300 == len(reader.spans())
        assert 300 == reader.totals().value(inbox.RECEIVED)


def test_rows_equal_what_a_reader_makes_of_the_inbox(path: Path) -> None:
    """
    A span reads the same before and after it was read into a row, links and resource included.
    """
    link = ("ab" * 16, "cd" * 8)
    content = body(span(1, links=(link,)), foreign(2))
    store = Store.open(path, attempt=ATTEMPT)
    store.append(content, 2).result(WAIT)
    assert store.close(timeout=WAIT)
    with open_reader(path) as reader:
        indexed = reader.spans()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("DELETE FROM spans")
    connection.execute("UPDATE cursor SET inbox_id = 0")
    connection.execute("INSERT INTO inbox (received_unix_ns, spans, body) VALUES (0, 2, ?)", (content,))
    connection.close()

    with open_reader(path) as reader:
        unread = reader.spans()

    assert indexed == unread
    assert 2 == len(unread)
    own = next(row for row in unread if row.name == "train.update_actor")
    assert [{"trace_id": link[0], "span_id": link[1], "attributes": {}}] == own.links
    assert "demo" == own.resource["rl.run"]


def test_the_inbox_empties_into_rows(store: Store, path: Path) -> None:
    """
    Without an upstream nothing stays in the inbox once it has been read.
    """
    slices = 3
    spans = index.SLICE * slices + 1
    store.append(batch(spans), spans).result(WAIT)

    assert holds(lambda: count(path, "inbox") == 0)
    assert spans == count(path, "spans")


def test_totals_are_counted_once_over_restarts(path: Path) -> None:
    """
    Seconds by bucket, steps and received spans go on after a restart, and a span sent twice counts once.
    """
    for _ in range(2):
        store = Store.open(path, attempt=ATTEMPT)
        content = body(span(1, name="rl.step.process", bucket=None, seconds=2.0), span(2, seconds=0.5))
        store.append(content, 2).result(WAIT)
        assert store.close(timeout=WAIT)

    with open_reader(path) as reader:
        found = reader.totals()
    steps = found.histogram("stepscope_step_seconds", role="trainer")

    assert 4.0 == found.value(inbox.RECEIVED)
    assert 0.5 == found.value("stepscope_bucket_seconds_total", role="trainer", bucket="productive")
    assert steps is not None
    assert (1, 2.0) == (sum(steps.counts), steps.sum)
    assert 1 == len([item for item in steps.exemplars if item])


def test_a_bucket_nobody_knows_is_no_label(store: Store, path: Path) -> None:
    """
    Whatever a foreign program writes into rl.bucket cannot make new series.
    """
    store.append(body(span(1, bucket="made-up")), 1).result(WAIT)

    assert holds(lambda: count(path, "spans") == 1)
    with open_reader(path) as reader:
        assert [inbox.RECEIVED] == [total.name for total in reader.totals().values]


def test_spans_of_others_get_the_step_of_their_trace(store: Store, path: Path) -> None:
    """
    A span without param_version, in the trace of a request of step 2, is found under step 2.
    """
    store.append(body(foreign(9, step=2)), 1).result(WAIT)

    with open_reader(path) as reader:
        found = reader.spans(step=2)

    assert [(2, 1)] == [(row.attributes["rl.step"], row.attributes["param_version"]) for row in found]


def test_a_rank_told_as_text_is_a_number(store: Store, path: Path) -> None:
    """
    OTEL_RESOURCE_ATTRIBUTES, by which another program learns whose it is, has no numbers.
    """
    told = {"rl.role": "rollouter", "rl.rank": "3"}
    store.append(build([foreign(9, step=2)], resource=told), 1).result(WAIT)
    with open_reader(path) as reader:
        (row,) = reader.spans()

    assert ("rollouter", 3, 3) == (row.role, row.rank, row.attributes["rl.rank"])


def test_spans_can_be_chosen(store: Store, path: Path) -> None:
    """
    By step, name and trace, with a limit, earliest first.
    """
    content = body(span(3, step=2), span(2), span(1), span(4, name="validate"))
    store.append(content, 4).result(WAIT)

    with open_reader(path) as reader:
        assert ["1", "2", "4"] == [row.span_id.lstrip("0") for row in reader.spans(step=1)]
        assert ["validate"] == [row.name for row in reader.spans(name="validate")]
        assert 3 == len(reader.spans(trace_id=reader.spans(step=1)[0].trace_id))
        assert ["1"] == [row.span_id.lstrip("0") for row in reader.spans(limit=1)]
        assert [1, 2] == reader.steps()


def test_rows_come_back_as_they_were_written(store: Store, path: Path) -> None:
    """
    Windows, processes, samples and revisions survive the file; a window is replaced by its later state.
    """
    process = ProcessRow(pid=1, process_start=2, node="n", role="trainer", rank=0, tools={"torch": ""})
    sample = SampleRow(step=1, mini_batch=0, param_version=3, sample_id="s", oldest_version=1, trace_id="t")
    revision = SelectionRow(revision=1, text="5,8-9", unix_ns=3, source="environment")
    put(store, WINDOW, replace(WINDOW, state="failed", complete=None), process, revision)
    unknown = SampleRow(step=1, mini_batch=0, param_version=3, sample_id="u")
    store.submit(partial(add_samples, samples=[sample, unknown])).result(WAIT)

    with open_reader(path) as reader:
        [window] = reader.windows(step=5)
        found = reader.totals()
        assert [process] == reader.processes()
        assert [revision] == reader.selections()
        assert sample == reader.samples()[0]
    staleness = found.histogram("stepscope_sample_staleness_versions")
    assert ("failed", None, {"start": 0.25}) == (window.state, window.complete, window.stall_seconds)
    assert staleness is not None
    assert 2.0 == staleness.sum
    assert 1.0 == found.value("stepscope_samples_unknown_version_total")


def test_windows_print_the_keys_that_users_parse(tmp_path: Path) -> None:
    """
    The JSON object has an absolute artifact and the agreed keys, in literal names.
    """
    printed = WINDOW.json(directory=tmp_path)

    assert [
        "window",
        "run",
        "attempt",
        "node",
        "step",
        "last_step",
        "param_version",
        "version_at_close",
        "role",
        "rank",
        "pid",
        "tool",
        "level",
        "state",
        "reason",
        "detail",
        "complete",
        "incomplete_reason",
        "incomplete_share",
        "artifact",
        "bytes",
        "sha256",
        "trace_id",
        "span_id",
        "opened_unix_ns",
        "closed_unix_ns",
        "stall_seconds",
        "stored",
        "stored_url",
        "stored_reason",
    ] == list(printed)
    assert str(tmp_path / "demo-1/step-000005/trace.json.gz") == printed["artifact"]


def test_a_request_that_cannot_be_read_blocks_nothing(store: Store, path: Path) -> None:
    """
    A body that only the indexer finds out about is set aside and counted; those behind it go on.
    """
    store.append(b"\xff\xff", 3)
    store.append(batch(1), 1).result(WAIT)

    assert holds(lambda: count(path, "spans") == 1)
    with open_reader(path) as reader:
        assert 3.0 == reader.totals().value(inbox.DROPPED, reason="unreadable")
    assert 1 == count(path, "refused")


def test_what_was_acknowledged_survives_kill_9(path: Path) -> None:
    """
    A writer killed right after an acknowledgement loses nothing; the next one reads it into rows.
    """
    code = (
        "import sys, pathlib; from stepscope_sidecar.store import Store;"
        "from tests.unit.sidecar.bodies import *;"
        f"store = Store.open(pathlib.Path({str(path)!r}), attempt=ATTEMPT);"
        "[store.append(batch(512, first=512*n+1), 512).result() for n in range(8)];"
        "print('acknowledged', flush=True); sys.stdin.read()"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert "acknowledged" == process.stdout.readline().strip()
        process.send_signal(signal.SIGKILL)
        assert -signal.SIGKILL == process.wait(WAIT)

    with open_reader(path) as reader:
        assert 4096 == len(reader.spans())
    store = Store.open(path, attempt=ATTEMPT)
    assert store.close(timeout=WAIT)
    assert 4096 == count(path, "spans")


def test_a_damaged_file_is_moved_aside(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """
    A file that is no database does not keep the sidecar from starting, and is not thrown away.
    """
    path.write_bytes(b"not a database at all" * 1000)
    store = Store.open(path, attempt=ATTEMPT)
    store.append(batch(1), 1).result(WAIT)
    store.close()

    assert 1 == len(list(path.parent.glob("stepscope.db.corrupt-*")))
    assert "moved aside" in caplog.text


def test_a_damaged_page_is_found(path: Path) -> None:
    """
    Damage in the middle of the file is found at start, not in the middle of the run.
    """
    store = Store.open(path, attempt=ATTEMPT)
    store.append(batch(2000), 2000).result(WAIT)
    store.close()
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 20_000] = os.urandom(20_000)
    path.write_bytes(data)

    Store.open(path, attempt=ATTEMPT).close()

    assert 1 == len(list(path.parent.glob("stepscope.db.corrupt-*")))


def test_a_store_of_a_newer_release_is_refused(path: Path) -> None:
    """
    It is neither read wrongly nor moved aside.
    """
    Store.open(path, attempt=ATTEMPT).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version=99")
    connection.close()

    with pytest.raises(StoreVersionError, match="schema 99"):
        Store.open(path)
    with pytest.raises(StoreVersionError, match="schema 99"):
        open_reader(path)


def test_no_store_is_an_error_with_a_hint(path: Path) -> None:
    """
    Reading where nothing was recorded says so.
    """
    with pytest.raises(StoreError, match="STEPSCOPE_DIR"):
        open_reader(path)
