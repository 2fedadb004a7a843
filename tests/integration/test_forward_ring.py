"""
Two sidecars, as processes, each of which is the other's upstream.
"""

from contextlib import ExitStack
from pathlib import Path

import grpc
import httpx

from stepscope_sidecar import inbox
from stepscope_sidecar.otlp import PROTOBUF, VIA
from stepscope_sidecar.otlp_grpc import SERVICE
from stepscope_sidecar.reader import open_reader
from tests.unit.sidecar.bodies import body, span
from tests.unit.sidecar.stored import WAIT

from .collector import free_port
from .fleet import node
from .jobs import eventually
from .place import Place


def at_rest(place: Place, *, spans: int) -> float | None:
    """
    How many spans its sidecar has passed over, once it keeps so many ``spans`` and has nothing left to forward.
    """
    with open_reader(place.attempt / "stepscope.db") as reader:
        if reader.pending() or len(reader.spans()) != spans:
            return None
        return reader.totals().value(inbox.DROPPED, reason="looped")


def test_two_that_forward_to_each_other_come_to_rest(tmp_path: Path) -> None:
    """
    Both keep what came to either; each span goes to the other and back once at most, which is counted, shown as a
    warning, and keeps neither from its end. One that comes back by gRPC is known too.
    """
    ports = {"n1": free_port(), "n2": free_port()}
    kept = {"n1": 3, "n2": 2}
    with ExitStack() as stack:
        places = {
            name: node(
                tmp_path,
                name,
                STEPSCOPE_OTLP_HTTP=f"127.0.0.1:{port}",
                OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{ports[other]}",
            )
            for (name, port), other in zip(ports.items(), reversed(ports), strict=True)
        }
        processes = [stack.enter_context(place.sidecar()) for place in places.values()]
        for number, place in enumerate(places.values(), start=1):
            address = f"{place.announced()['otlp_http']}/v1/traces"
            headers = {"content-type": PROTOBUF, VIA: ";\t,"}
            answer = httpx.post(address, content=body(span(number)), headers=headers, timeout=60, trust_env=False)
            answer.raise_for_status()
        with grpc.insecure_channel(places["n1"].announced()["otlp_grpc"]) as channel:
            call = channel.unary_unary(f"/{SERVICE}/Export", request_serializer=bytes, response_deserializer=bytes)
            own = f"a1/n1/{processes[0].pid}"
            call(body(span(3)), metadata=((VIA, f"elsewhere, {own}"), (VIA, "nearer,,")), timeout=WAIT)

        def rested() -> dict[str, float] | None:
            found = {name: at_rest(place, spans=kept[name]) for name, place in places.items()}
            looped = {name: count for name, count in found.items() if count is not None}
            return looped if len(looped) == len(places) and sum(looped.values()) == 3 else None

        looped = eventually(rested)
        for name, place in places.items():
            status = httpx.get(f"{place.announced()['http']}/api/status", timeout=60, trust_env=False).json()
            metrics = httpx.get(f"{place.announced()['http']}/metrics", timeout=60, trust_env=False).text
            told = any("leads round to this sidecar" in warning for warning in status["warnings"])
            assert bool(looped[name]) is told
            assert f'stepscope_spans_dropped_total{{reason="looped"}} {looped[name]}' in metrics
        for process in processes:
            process.terminate()
        assert [0, 0] == [process.wait(WAIT) for process in processes]
    assert looped == {name: at_rest(place, spans=kept[name]) for name, place in places.items()}
