"""
What a node reports: its form and what is believed of it, the pace, the clock, and who is left alone.
"""

import asyncio
from dataclasses import asdict

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stepscope_sidecar import report
from stepscope_sidecar.clock import Clock, Estimate
from stepscope_sidecar.places import plain
from stepscope_sidecar.report import MAX_ROWS, Report, ReportError
from stepscope_sidecar.reporter import FIRST_BACKOFF, FOREIGN, GAP, PERIOD
from tests.unit.sidecar.reporting import SHA, TELLER, Clocks, Upstream, reporter, told

READY = told(5, "ready", artifact="r-a/step-000005/trainer-0-7/torch/recording.json.gz", sha256=SHA, bytes=3)


def changed(**changes: object) -> bytes:
    """
    A report with one window, which is not what it should be.
    """
    row = {**asdict(READY), **changes}
    return orjson.dumps({"node": "n2", "run": "r", "attempt": "a", "windows": [row]})


def test_a_report_comes_back_as_it_was() -> None:
    """
    Windows, clock and whether it is the last one.
    """
    sent = Report(
        node="n2",
        run="r",
        attempt="a",
        http="http://127.0.0.1:9",
        clock=Estimate(offset_ns=-5, error_ns=2),
        ending=True,
        windows=(READY, told(6, stall_seconds={"open": 0.5, "stop": 1}, other={"last_step": 7})),
    )

    assert sent == report.decode(report.encode(sent))


def test_of_what_else_a_node_keeps_only_what_is_shown_is_taken() -> None:
    """
    Its size is not for others to choose; and free text comes as one line that no terminal obeys.
    """
    other = {"also": [["a", "b"]] * 1000, "last_step": 6, "stored": "stored", "forced": True}
    row = report.decode(changed(other=other, detail="one\ntwo\x1b[31m")).windows[0]

    assert {"last_step": 6, "stored": "stored"} == row.other
    assert "one two [31m" == row.detail


def test_fields_of_a_newer_release_are_left_out() -> None:
    """
    And what an older one does not tell has its default.
    """
    row = {key: value for key, value in asdict(READY).items() if key != "other"}
    body = {"node": "n2", "run": "r", "attempt": "a", "windows": [{**row, "colour": "red"}], "mood": 3}

    assert (READY,) == report.decode(orjson.dumps(body)).windows


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"node": "n2", "run": "r", "attempt": "a", "windows": 3}',
        b'{"node": "../n2", "run": "r", "attempt": "a", "windows": []}',
        b'{"node": "n2", "run": "r", "attempt": "a/b", "windows": []}',
        b'{"node": "n2", "run": "r", "attempt": "a", "windows": [], "clock": 3}',
        b'{"node": "n2", "run": "r", "attempt": "a", "windows": [], "clock": {"offset_ns": 0.5, "error_ns": 1}}',
        b'{"node": "n2", "run": "r", "attempt": "a", "windows": [{}]}',
        changed(node="n1"),
        changed(attempt="b"),
        changed(artifact="/etc/passwd"),
        changed(artifact="r-a/../../secret"),
        changed(artifact="r-a/%2e%2e/secret"),
        changed(artifact="r-a/step?x=1"),
        changed(artifact="r-a//step"),
        changed(folder="../x"),
        changed(sha256="x"),
        changed(state="splendid"),
        changed(state="lost"),
        changed(step="5"),
        changed(step=True),
        changed(rank=2**63),
        changed(bytes=0.5),
        changed(complete="yes"),
        changed(detail="x" * 5000),
        changed(stall_seconds={"open": "x"}),
        changed(stall_seconds={"open": -1}),
        changed(stall_seconds={f"phase {number}": 1 for number in range(17)}),
        changed(role="trainer\x1b[2J"),
        changed(window="w5\nERROR all is lost"),
        changed(artifact="r-a/\nstep"),
        changed(bytes=-1),
        changed(step=-1),
        changed(other={"stored_url": "x" * 5000}),
        changed(other={"stored_url": "a\u202eb"}),
        changed(other={"last_step": 2**63}),
        changed(other={"last_step": 2**63 - 1}),
        changed(stall_seconds=[]),
        changed(window=None),
    ],
)
def test_what_is_no_report_is_refused(body: bytes) -> None:
    """
    With an error that says why, and nothing of it is taken.
    """
    with pytest.raises(ReportError):
        report.decode(body)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_a_report_or_an_error(body: bytes) -> None:
    """
    Never another exception.
    """
    try:
        assert report.decode(body)
    except ReportError:
        pass


@given(st.text(alphabet="ab./\\%~\0?# ", max_size=12))
@example("//")
def test_a_plain_path_never_leaves_where_it_begins(path: str) -> None:
    """
    However it is joined.
    """
    if plain(path):
        assert not path.startswith("/")
        assert ".." not in path.split("/")
        assert not set("\0\\%?#") & set(path)


def test_too_many_windows_are_no_report() -> None:
    """
    A report is bounded in rows as it is in bytes.
    """
    body = {"node": "n2", "run": "r", "attempt": "a", "windows": [asdict(READY)] * (MAX_ROWS + 1)}

    with pytest.raises(ReportError, match="at most"):
        report.decode(orjson.dumps(body))


def test_everything_is_told_once_and_then_what_changes() -> None:
    """
    After a start all windows in the store, later the changed ones alone, and a beat where nothing changes.
    """
    upstream = Upstream(Clocks())
    node = reporter(upstream, told(4, "ready"), told(5))

    async def run() -> list[float]:
        delays = [await node.round()]
        node.changed(told(5, "closing"))
        node.changed(told(5, "finalising"))
        delays.append(await node.round())
        delays.append(await node.round())
        return delays

    assert [PERIOD, PERIOD, PERIOD] == asyncio.run(run())
    assert ["w5:recording", "w4:ready", "w5:finalising"] == upstream.windows()
    assert 3 == len(upstream.reports)
    assert 0 == node.unsent
    assert node.taken
    assert "taken" == node.status()["state"]


def test_a_change_during_a_report_is_not_lost() -> None:
    """
    The answer is to what was sent, not to what came meanwhile.
    """
    upstream = Upstream(Clocks())
    node = reporter(upstream, told(5))
    send = upstream.send

    async def while_changing(body: bytes) -> tuple[int, bytes]:
        if len(upstream.reports) == 0:
            node.changed(told(5, "closing"))
        return await send(body)

    upstream.send = while_changing  # type: ignore[method-assign]

    async def run() -> float:
        first = await node.round()
        await node.round()
        return first

    assert GAP == asyncio.run(run())
    assert ["w5:recording", "w5:closing"] == upstream.windows()


def test_many_windows_go_in_several_reports_open_ones_first() -> None:
    """
    Should the node vanish meanwhile, what was open is known.
    """
    upstream = Upstream(Clocks())
    node = reporter(upstream, *(told(step, "ready") for step in range(1, MAX_ROWS + 2)), told(900))

    async def run() -> list[float]:
        return [await node.round(), await node.round()]

    assert [GAP, PERIOD] == asyncio.run(run())
    assert "w900:recording" == upstream.windows()[0]
    assert [MAX_ROWS, 2] == [len(item.windows) for item in upstream.reports]


def test_reports_of_a_sidecar_are_numbered() -> None:
    """
    Under a name that the next sidecar of the node has not.
    """
    upstream = Upstream(Clocks())
    node, restarted = reporter(upstream), reporter(upstream)

    async def run() -> None:
        await node.round()
        await node.round()
        await restarted.round()

    asyncio.run(run())
    first, second, third = upstream.reports

    assert [1, 2, 1] == [item.sequence for item in upstream.reports]
    assert first.instance == second.instance
    assert third.instance not in {first.instance, ""}


def test_an_upstream_that_is_away_is_told_later() -> None:
    """
    With growing pauses; nothing is forgotten, and what changed twice is told once.
    """
    upstream = Upstream(Clocks(), (0, b"ConnectError"), (503, b"busy"), (401, b"token"))
    node = reporter(upstream, told(5))

    async def run() -> list[float]:
        delays = [await node.round() for _ in range(3)]
        node.changed(told(5, "ready"))
        return [*delays, await node.round()]

    assert [FIRST_BACKOFF, FIRST_BACKOFF * 2, FIRST_BACKOFF * 4, PERIOD] == asyncio.run(run())
    assert ["w5:ready"] == upstream.windows()


@pytest.mark.parametrize("answer", [(404, b""), (405, b""), (409, b"this is you"), (200, b"\x08\x01"), (302, b"")])
def test_a_foreign_collector_is_left_alone_for_a_minute(answer: tuple[int, bytes]) -> None:
    """
    Nothing is kept for it, and once a sidecar stands there it is told everything.
    """
    upstream = Upstream(Clocks(), answer)
    node = reporter(upstream, told(5))

    async def run() -> float:
        delay = await node.round()
        node.changed(told(6))
        assert node.unsent == 0
        assert not node.taken
        upstream.reports.clear()
        await node.round()
        return delay

    assert FOREIGN == asyncio.run(run())
    assert ["w5:recording"] == upstream.windows()
    assert "taken" == node.status()["state"]


def test_a_node_whose_name_is_another_s_says_so() -> None:
    """
    Until it is taken again, as when the other has gone.
    """
    upstream = Upstream(Clocks(), (423, b"two sidecars report as node n2; set STEPSCOPE_NODE"))
    node = reporter(upstream, told(5))

    async def run() -> float:
        return await node.round()

    assert FOREIGN == asyncio.run(run())
    assert ["not taken upstream: two sidecars report as node n2; set STEPSCOPE_NODE"] == node.troubles
    asyncio.run(run())
    assert [] == node.troubles


def test_another_store_upstream_is_told_everything() -> None:
    """
    The former one may have been lost with its disk.
    """
    upstream = Upstream(Clocks())
    node = reporter(upstream, told(5))

    async def run() -> list[float]:
        delays = [await node.round()]
        upstream.keeper = "k2"
        return [*delays, await node.round(), await node.round()]

    assert [PERIOD, GAP, PERIOD] == asyncio.run(run())
    assert ["w5:recording", "w5:recording"] == upstream.windows()


def test_the_last_report_says_so() -> None:
    """
    After all else has been told; an upstream that is away does not keep the sidecar.
    """
    upstream = Upstream(Clocks())
    node = reporter(upstream, told(5, "ready"))

    async def run() -> None:
        await node.round()
        node.changed(told(6, "ready"))
        await node.leave(5.0)

    asyncio.run(run())

    assert [False, True] == [item.ending for item in upstream.reports]
    assert ["w5:ready", "w6:ready"] == upstream.windows()
    assert upstream.closed
    away = Upstream(Clocks(), *[(0, b"")] * 1000)
    asyncio.run(reporter(away).leave(0.05))
    assert away.closed


def test_the_clock_is_known_to_half_the_round_trip() -> None:
    """
    What the upstream held the report for is no part of it, and the node tells the estimate with the next report.
    """
    upstream = Upstream(Clocks(ahead=7_000_000_000))
    upstream.way, upstream.back = 3_000_000, 1_000_000
    node = reporter(upstream)

    async def run() -> None:
        await node.round()
        await node.round()

    asyncio.run(run())
    found = upstream.reports[1].clock

    assert None is upstream.reports[0].clock
    assert Estimate(offset_ns=7_001_000_000, error_ns=2_000_000) == found
    assert abs(found.offset_ns - upstream.clocks.ahead) <= found.error_ns
    assert TELLER.node == upstream.reports[1].node


@given(
    ahead=st.integers(-(10**12), 10**12),
    way=st.integers(0, 10**10),
    back=st.integers(0, 10**10),
    held=st.integers(0, 10**10),
)
def test_the_true_offset_is_always_within_the_error(ahead: int, way: int, back: int, held: int) -> None:
    """
    However lopsided the way is.
    """
    found = Estimate.of(
        sent_unix_ns=10**15, took_ns=way + held + back, answered_unix_ns=10**15 + way + held + ahead, held_ns=held
    )

    assert abs(found.offset_ns - ahead) <= found.error_ns + 1


def test_the_surest_estimate_holds_until_it_is_contradicted() -> None:
    """
    A slow exchange changes nothing; a clock that was set makes former ones void.
    """
    clock = Clock()
    for offset, error in ((10, 5), (30, 40), (12, 9)):
        clock.add(Estimate(offset_ns=offset, error_ns=error))

    assert Estimate(offset_ns=10, error_ns=5) == clock.best
    clock.add(Estimate(offset_ns=1000, error_ns=20))
    assert Estimate(offset_ns=1000, error_ns=20) == clock.best


def test_no_report_that_cannot_be_made_ends_the_reporting(caplog: pytest.LogCaptureFixture) -> None:
    """
    It is complained of once, and tried again.
    """
    upstream = Upstream(Clocks())
    row = told(5, detail="\udcff")
    node = reporter(upstream, row)

    async def rounds() -> list[float]:
        return [await node.round() for _ in range(3)]

    delays = asyncio.run(rounds())

    assert [1.0, 2.0, 4.0] == delays
    assert 1 == len([one for one in caplog.records if "upstream cannot be told" in one.getMessage()])
    assert [] == upstream.windows()
