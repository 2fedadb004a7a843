"""
The OTLP/HTTP receiver: what is taken, what is refused, and how that is said.
"""

import asyncio
import gzip
import resource
import sqlite3
import zlib
from collections.abc import AsyncIterator, Mapping

import httpx
import pytest
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from stepscope_sidecar import writer
from stepscope_sidecar.errors import IntakeError
from stepscope_sidecar.intake import MAX_SPANS, Inflater, Intake
from stepscope_sidecar.otlp import VIA, receiver
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.store import Store
from tests.unit.sidecar.bodies import batch, nested
from tests.unit.sidecar.stored import WAIT

PROTOBUF = {"content-type": "application/x-protobuf"}


def post(
    intake: Intake, content: bytes, headers: Mapping[str, str] = PROTOBUF, path: str = "/v1/traces"
) -> httpx.Response:
    """
    The receiver's answer to one request.
    """

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app=receiver(intake))
        async with httpx.AsyncClient(transport=transport, base_url="http://sidecar") as client:
            return await client.post(path, content=content, headers=dict(headers))

    return asyncio.run(send())


def said(response: httpx.Response) -> str:
    """
    The message of an OTLP error.
    """
    assert "application/x-protobuf" == response.headers["content-type"]
    return str(Status.FromString(response.content).message)


def stored(store: Store) -> int:
    """
    Spans in the store.
    """
    with open_reader(store.path) as reader:
        return len(reader.spans())


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [("", bytes), ("identity", bytes), ("gzip", gzip.compress), ("deflate", zlib.compress), ("GZIP", gzip.compress)],
)
def test_spans_are_taken(store: Store, encoding: str, compress: "type[bytes]") -> None:
    """
    Plain, gzip and deflate; the answer is an OTLP response without partial success.
    """
    headers = {**PROTOBUF, **({"content-encoding": encoding} if encoding else {})}
    response = post(Intake(store), compress(batch(3)), headers)

    assert 200 == response.status_code
    assert ExportTraceServiceResponse() == ExportTraceServiceResponse.FromString(response.content)
    assert 3 == stored(store)


def test_an_empty_request_is_fine(store: Store) -> None:
    """
    A request without spans is answered and not kept.
    """
    assert 200 == post(Intake(store), b"").status_code
    assert 0 == stored(store)


def test_what_is_not_protobuf_is_refused(store: Store) -> None:
    """
    400 with a google.rpc.Status that says so.
    """
    response = post(Intake(store), b"\xff\xffnot protobuf")

    assert 400 == response.status_code
    assert "not an OTLP" in said(response)


@pytest.mark.parametrize("content", [b"not gzip", gzip.compress(b"x" * 1000)[:-9]], ids=["garbage", "cut off"])
def test_what_is_not_compressed_as_it_says_is_refused(store: Store, content: bytes) -> None:
    """
    Garbage and a body that is cut off are 400.
    """
    assert 400 == post(Intake(store), content, {**PROTOBUF, "content-encoding": "gzip"}).status_code


@pytest.mark.parametrize(
    "headers",
    [{"content-type": "application/json"}, {"content-type": ""}, {**PROTOBUF, "content-encoding": "br"}],
)
def test_other_forms_are_refused_with_what_would_do(store: Store, headers: dict[str, str]) -> None:
    """
    415 for JSON, for no type, and for a compression that we have not.
    """
    response = post(Intake(store), batch(1), headers)

    assert 415 == response.status_code
    assert "is not understood" in said(response)


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_bodies_over_the_limit_are_refused(store: Store, encoding: str) -> None:
    """
    413, both for the bytes sent and for what they decompress to.
    """
    content = batch(100) if encoding == "identity" else gzip.compress(batch(100))
    response = post(Intake(store, max_bytes=5000), content, {**PROTOBUF, "content-encoding": encoding})

    assert 413 == response.status_code
    assert "limit of 5000 bytes" in said(response)


def test_a_bomb_costs_no_memory() -> None:
    """
    Hundreds of megabytes of zeros in a small body are given up at the limit.
    """
    compressor = zlib.compressobj(9, wbits=31)
    bomb = b"".join(compressor.compress(bytes(1024**2)) for _ in range(512)) + compressor.flush()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    inflater = Inflater("gzip", limit=1024**2)
    with pytest.raises(IntakeError, match="decompressed"):
        inflater.feed(bomb)

    assert 32 * 1024 > resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before


def test_members_and_pieces_are_put_together() -> None:
    """
    A gzip of two members, fed byte by byte, is one body.
    """
    inflater = Inflater("gzip")
    for byte in gzip.compress(b"ab") + gzip.compress(b"cd"):
        inflater.feed(bytes([byte]))

    assert b"abcd" == inflater.body()


@pytest.mark.parametrize("signal", ["metrics", "logs"])
def test_other_signals_are_told_where_to_go(store: Store, signal: str) -> None:
    """
    404 that names the variable which sends them elsewhere.
    """
    response = post(Intake(store), b"", path=f"/v1/{signal}")

    assert 404 == response.status_code
    assert f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT" in said(response)


def test_a_full_disk_is_said_and_passes(store: Store) -> None:
    """
    503 with Retry-After; once there is space the same request is taken.
    """
    store.submit(lambda connection: connection.execute("PRAGMA max_page_count=1").fetchone()).result(WAIT)
    response = post(Intake(store), batch(2000))

    assert 503 == response.status_code
    assert "5" == response.headers["retry-after"]
    assert "no space left" in said(response)
    store.submit(lambda connection: connection.execute("PRAGMA max_page_count=1000000").fetchone()).result(WAIT)
    assert 200 == post(Intake(store), batch(2000)).status_code
    assert 2000 == stored(store)


def test_a_full_queue_is_said(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    429 with Retry-After when more waits than may be held in memory.
    """
    monkeypatch.setattr(writer, "QUEUED_BYTES", 100)
    response = post(Intake(store), batch(10))

    assert 429 == response.status_code
    assert "1" == response.headers["retry-after"]


def test_a_token_is_demanded_where_one_is_set(store: Store) -> None:
    """
    401 without it, 200 with it.
    """
    intake = Intake(store, token="secret")

    assert 401 == post(intake, batch(1)).status_code
    assert 401 == post(intake, batch(1), {**PROTOBUF, "authorization": "Bearer other"}).status_code
    assert 200 == post(intake, batch(1), {**PROTOBUF, "authorization": "Bearer secret"}).status_code


def test_a_sidecar_that_is_its_own_upstream_notices(store: Store) -> None:
    """
    What our own forwarder sends is refused by our own receiver, so that it cannot go round.
    """
    response = post(Intake(store, instance="me"), batch(1), {**PROTOBUF, VIA: "me"})

    assert 400 == response.status_code
    assert "this sidecar itself" in said(response)


def test_an_answer_follows_the_commit(store: Store) -> None:
    """
    What was answered with 200 is in the file, for any other process to read.
    """
    assert 200 == post(Intake(store), batch(7)).status_code
    connection = sqlite3.connect(store.path)
    try:
        total = connection.execute("SELECT value FROM totals WHERE name LIKE '%received%'").fetchone()
    finally:
        connection.close()

    assert (7.0,) == total


def test_a_body_that_never_ends_is_given_up(store: Store) -> None:
    """
    A sender that stands still holds no connection for ever, and nothing of its body is kept.
    """

    async def pieces() -> AsyncIterator[bytes]:
        yield batch(1)[:10]
        await asyncio.Event().wait()

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app=receiver(Intake(store), patience=0.01))
        async with httpx.AsyncClient(transport=transport, base_url="http://sidecar") as client:
            return await client.post("/v1/traces", content=pieces(), headers=dict(PROTOBUF))

    response = asyncio.run(asyncio.wait_for(send(), WAIT))

    assert response.status_code == 408
    assert "nothing of it was taken" in said(response)
    assert stored(store) == 0


@pytest.mark.parametrize("number", [MAX_SPANS, 8_000_000])
def test_more_spans_than_a_request_may_have_are_refused(store: Store, number: int) -> None:
    """
    413 with the bound, unparsed: empty spans are next to nothing on the wire, and gigabytes in memory.
    """
    response = post(Intake(store), gzip.compress(nested(1, 1, number)), {**PROTOBUF, "content-encoding": "gzip"})

    assert 413 == response.status_code
    assert "over the limit of 50000 spans, resources and scopes; send smaller batches" in said(response)
    assert 0 == stored(store)
