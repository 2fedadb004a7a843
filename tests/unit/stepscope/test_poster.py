"""
Who takes spans, as the standard settings say, and a connection that is kept.
"""

import functools

import pytest

from stepscope import export, poster
from stepscope.poster import Target
from tests.unit.stepscope.fake_sidecar import until
from tests.unit.stepscope.receiver import Receiver, finished, outbox, receiving


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A receiver that is late is not sent the same spans again.
    """
    monkeypatch.setattr(export, "Target", functools.partial(Target, timeout=60.0))


@pytest.mark.parametrize(
    ("expected", "environment"),
    [
        (None, {}),
        ("http://a:4318/v1/traces", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:4318/"}),
        (
            "http://b/x",
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://b/x"},
        ),
    ],
)
def test_the_upstream_is_read_as_the_specification_says(expected: str | None, environment: dict[str, str]) -> None:
    """
    The base gets the signal's path, the signal's own endpoint is taken as it is.
    """
    target = poster.upstream(environment)

    assert expected == (target.url if target else None)


def test_the_standard_settings_mean_what_the_sidecar_takes_them_for() -> None:
    """
    The timeout is in milliseconds, names of headers are small, and both ends of the escapes are undone.
    """
    target = poster.upstream(
        {
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://a",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "10000",
            "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20x, b%2Dc=d",
            "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION": "GZIP",
        }
    )

    assert target is not None
    assert (10.0, {"authorization": "Bearer x", "b-c": "d"}, True) == (target.timeout, target.headers, target.compress)


def test_a_connection_closed_by_the_other_end_is_made_anew() -> None:
    """
    A sidecar restarted on the same port, between two batches.
    """
    first = Receiver()
    with outbox(lambda: first.url) as box:
        one, two = finished(2)
        box(one)
        assert first.wait(1)
        # It notes spans before it answers, and without an answer they are sent again.
        until(lambda: box._waiting is None)
        first.close()
        with receiving(port=first.port) as second:
            box(two)

            assert second.wait(1)

    assert (["0"], ["1"]) == (first.names, second.names)
