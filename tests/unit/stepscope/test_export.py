"""
Finished spans on their way out, against real HTTP servers on loopback.
"""

import functools
import socket
import time
from collections.abc import Mapping

import pytest

from stepscope import export, poster
from stepscope.export import Outbox
from stepscope.poster import Target
from tests.unit.stepscope.fake_sidecar import until
from tests.unit.stepscope.receiver import finished, outbox, receiving


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A receiver that is late is not sent the same spans again.
    """
    monkeypatch.setattr(export, "Target", functools.partial(Target, timeout=60.0))


def test_spans_arrive_in_order_at_the_endpoint_of_the_moment() -> None:
    """
    As protobuf, at the standard path.
    """
    with receiving() as receiver, outbox(lambda: receiver.url) as box:
        for span in finished(3):
            box(span)

        assert receiver.wait(3)

    assert ["0", "1", "2"] == receiver.names
    assert {"/v1/traces"} == set(receiver.paths)
    assert "application/x-protobuf" == receiver.headers[0]["Content-Type"]


def test_more_than_a_batch_goes_in_several_requests() -> None:
    """
    A body stays small however many spans wait.
    """
    spans = finished(1200)
    with receiving() as receiver, outbox(lambda: receiver.url, delay=60.0) as box:
        for span in spans:
            box(span)
        box.shutdown(10.0)

    assert [span.name for span in spans] == receiver.names
    assert 3 <= len(receiver.paths)


def test_spans_wait_for_a_sidecar_that_comes_back_elsewhere() -> None:
    """
    While there is none, and while the address named does not answer.
    """
    with receiving() as gone:
        dead = gone.url
    addresses = [""]
    with receiving() as receiver, outbox(lambda: addresses[0]) as box:
        box(finished(1)[0])
        addresses[0] = dead
        box(finished(2)[1])
        addresses[0] = receiver.url

        assert receiver.wait(2)

    assert ["0", "1"] == receiver.names


def test_in_a_hurry_spans_do_not_wait_for_company() -> None:
    """
    Each time that it is asked for; nothing is sent where nothing waits.
    """
    with receiving() as receiver, outbox(lambda: receiver.url, delay=3600.0) as box:
        box.hurry()
        for count, span in enumerate(finished(3), start=1):
            box(span)
            box.hurry()

            assert receiver.wait(count)

    assert 3 == len(receiver.paths)


def test_a_hurry_does_not_press_a_receiver_that_is_away() -> None:
    """
    It is tried at its pace, and once it takes spans again a hurry is heeded.
    """
    with receiving(answers=[503]) as receiver, outbox(lambda: receiver.url, delay=3600.0, retry=3600.0) as box:
        first, second = finished(2)
        box(first)
        box.hurry()
        with receiver.got:
            assert receiver.got.wait_for(lambda: receiver.paths, timeout=10)
        until(lambda: not box._delivers)
        box(second)
        box.hurry()

        assert not box._hurried
        box.shutdown(10.0)

    assert ["0", "1"] == receiver.names


@pytest.mark.parametrize("status", sorted(export.RETRYABLE))
def test_a_busy_receiver_is_asked_again(status: int) -> None:
    """
    With the same spans, once each.
    """
    with receiving(answers=[status, status]) as receiver, outbox(lambda: receiver.url) as box:
        box(finished(1)[0])

        assert receiver.wait(1)

    assert ["0"] == receiver.names
    assert 3 == len(receiver.paths)


def test_what_a_receiver_refuses_is_counted_and_the_rest_goes_on() -> None:
    """
    A 400 never becomes right by repeating.
    """
    drops: dict[str, int] = {}
    with receiving(answers=[400]) as receiver, outbox(lambda: receiver.url, drops=drops) as box:
        first, second = finished(2)
        box(first)
        with receiver.got:
            receiver.got.wait_for(lambda: receiver.paths, timeout=10)
        box(second)

        assert receiver.wait(1)

    assert ["1"] == receiver.names
    assert {"rejected": 1} == drops


def test_the_buffer_is_bounded_and_counts_what_it_drops() -> None:
    """
    The oldest are kept: they are the ones that belong to finished steps.
    """
    drops: dict[str, int] = {}
    with outbox(lambda: "", drops=drops, capacity=4, delay=60.0) as box:
        for span in finished(10):
            box(span)
        box.shutdown(5.0)
        box(finished(1)[0])

    assert {"buffer_full": 6, "undelivered_at_exit": 4} == drops


def test_leaving_keeps_its_deadline_with_a_receiver_that_never_answers() -> None:
    """
    The request itself is cut short.
    """
    silent = socket.create_server(("127.0.0.1", 0))
    drops: dict[str, int] = {}
    with outbox(lambda: f"http://127.0.0.1:{silent.getsockname()[1]}", drops=drops, delay=60.0) as box:
        box(finished(1)[0])
        begin = time.monotonic()
        box.shutdown(0.3)
        took = time.monotonic() - begin
    silent.close()

    assert took < 5, "the SDK's own shutdown takes 7 s here"


def test_who_leaves_asks_a_busy_receiver_again() -> None:
    """
    For as long as leaving may take.
    """
    drops: dict[str, int] = {}
    with receiving(answers=[503, 503]) as receiver, outbox(lambda: receiver.url, drops=drops, delay=60.0) as box:
        box(finished(1)[0])
        box.shutdown(60.0)

    assert (["0"], {}) == (receiver.names, drops)


def test_a_dead_endpoint_costs_nothing_at_exit() -> None:
    """
    A refused connection is no reason to wait.
    """
    with receiving() as gone:
        dead = gone.url
    drops: dict[str, int] = {}
    with outbox(lambda: dead, drops=drops, delay=60.0) as box:
        box(finished(1)[0])
        box.shutdown(60.0)

    assert {"undelivered_at_exit": 1} == drops


def test_without_a_sidecar_spans_go_straight_upstream() -> None:
    """
    With the standard headers and compression.
    """
    with receiving() as receiver:
        target = poster.upstream(
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
                "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20x, a=b",
                "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
            }
        )
        with outbox(lambda: "", upstream=target) as box:
            box(finished(1)[0])

            assert receiver.wait(1)

    headers = receiver.headers[0]
    assert ("Bearer x", "b", "gzip") == (headers["authorization"], headers["a"], headers["Content-Encoding"])


def test_with_a_sidecar_nothing_goes_upstream() -> None:
    """
    The sidecar forwards; twice would be double.
    """
    with (
        receiving() as sidecar,
        receiving() as upstream,
        outbox(lambda: sidecar.url, upstream=Target(url=f"{upstream.url}/v1/traces")) as box,
    ):
        box(finished(1)[0])

        assert sidecar.wait(1)

    assert [] == upstream.paths


def test_a_sidecar_gone_at_exit_is_bypassed() -> None:
    """
    The spans that waited for it are not lost where an upstream is configured.
    """
    with receiving() as gone:
        dead = gone.url
    with (
        receiving() as upstream,
        outbox(lambda: dead, upstream=Target(url=f"{upstream.url}/v1/traces"), delay=60.0) as box,
    ):
        box(finished(1)[0])
        box.shutdown(10.0)

    assert ["0"] == upstream.names


def test_the_standard_pace_is_honoured() -> None:
    """
    Nonsense falls back to ours.
    """
    assert (export.DELAY, export.CAPACITY) == export.pace({})
    assert (0.2, 10) == export.pace({"OTEL_BSP_SCHEDULE_DELAY": "200", "OTEL_BSP_MAX_QUEUE_SIZE": "10"})
    assert (export.DELAY, export.CAPACITY) == export.pace({"OTEL_BSP_SCHEDULE_DELAY": "soon"})


def test_trouble_in_telling_drops_does_not_end_the_export() -> None:
    """
    The thread outlives it.
    """

    def fail(counts: Mapping[str, int]) -> None:
        raise RuntimeError("no agent")

    with receiving(answers=[400]) as receiver:
        box = Outbox(endpoint=lambda: receiver.url, dropped=fail, delay=0.01, retry=0.01)
        first, second = finished(2)
        box(first)
        with receiver.got:
            receiver.got.wait_for(lambda: receiver.paths, timeout=10)
        box(second)
        arrived = receiver.wait(1)
        box.shutdown(5.0)

    assert arrived
