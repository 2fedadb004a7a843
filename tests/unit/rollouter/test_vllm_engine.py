"""
What of the engine vllm can be said without vLLM; the rest is in ``tests/vllm``.
"""

import importlib.util
import os

import pytest

from stepscope_rollouter.engines import vllm
from stepscope_rollouter.engines.marks import CHECK, is_check


def test_without_vllm_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Before anything starts.
    """
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)

    assert "pip install '/path/to/stepscope[vllm]'" in vllm.unusable("model")


def test_what_vllm_reads_from_the_environment_is_there_while_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Afterwards all is as it was: an endpoint that vLLM leaves there would reach whatever this process starts.
    """
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    with vllm._told_by_environment(rank=3, carrier={"traceparent": "00-1-2-01"}):
        inside = dict(os.environ)
        os.environ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] = "http://sidecar"

    assert "rl.role=rollouter,rl.rank=3" == inside["OTEL_RESOURCE_ATTRIBUTES"]
    assert "http/protobuf" == inside["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"]
    assert "00-1-2-01" == inside["TRACEPARENT"]
    assert "mine" == os.environ["OTEL_SERVICE_NAME"]
    assert not {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "TRACEPARENT", "OTEL_RESOURCE_ATTRIBUTES"} & set(os.environ)


def test_busy_seconds_leave_pauses_out() -> None:
    """
    However many requests are in hand.
    """
    now = [0.0]
    engine = vllm.VllmEngine("model", clock=lambda: now[0])
    seconds = []
    for more, paused, passes in ((0, None, 1.0), (1, None, 2.0), (1, None, 4.0), (0, True, 8.0), (0, False, 16.0)):
        engine._count(more, paused=paused)
        now[0] += passes
        seconds.append(engine.busy_seconds)
    engine._count(-2)
    now[0] += 32.0

    assert [0.0, 2.0, 6.0, 6.0, 22.0] == seconds
    assert 22.0 == engine.busy_seconds
    assert engine.idle


def test_a_check_is_told_by_the_beginning_of_its_name() -> None:
    """
    vLLM adds to the end.
    """
    assert is_check(f"{CHECK}-7-0a1b2c3d")
    assert not is_check("request-7-0a1b2c3d")
    assert not is_check(f"0_request-{CHECK}")
