"""
Copies of other nodes' recordings, and why there is none.
"""

import hashlib
from pathlib import Path

import httpx
import pytest

from stepscope_sidecar.copies import Copies

from .stored import window

CONTENT = b"a recording"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def answered(
    answer: httpx.Response | Exception, *, url: str = "http://127.0.0.1:9", sha256: str = SHA256
) -> bytes | str:
    """
    What is got of a recording of node ``a b`` where the sidecar answers with that.
    """

    def handle(request: httpx.Request) -> httpx.Response:
        assert b"/nodes/a%20b/artifacts/run-a/step-000005/x%23.json.gz" == request.url.raw_path
        assert "secret" == request.headers["authorization"]
        if isinstance(answer, Exception):
            raise answer
        return answer

    row = window(5, node="a b", artifact="run-a/step-000005/x#.json.gz", sha256=sha256)
    with Copies(url, headers={"authorization": "secret"}, transport=httpx.MockTransport(handle)) as copies:
        found = copies.get(row)
        if isinstance(found, str):
            return found
        content = found.read_bytes()
    assert not found.exists()
    return content


@pytest.mark.parametrize("sha256", [SHA256, ""])
def test_a_recording_is_copied_until_the_end_of_the_block(sha256: str) -> None:
    """
    One that its node had no sum of, too.
    """
    assert CONTENT == answered(httpx.Response(200, content=CONTENT), sha256=sha256)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (httpx.Response(404, text="gone\n"), "this run's sidecar says: gone"),
        (httpx.Response(503), "this run's sidecar says: 503"),
        (httpx.Response(200, html="<p>files"), "it is a folder, which is not fetched"),
        (httpx.Response(200, content=b"another"), "what came is not what its node had recorded"),
        (httpx.ConnectError("refused"), "this run's sidecar does not answer (ConnectError)"),
    ],
    ids=["gone", "busy", "folder", "another", "ended"],
)
def test_where_there_is_none_it_is_said_why(answer: httpx.Response | Exception, why: str) -> None:
    """
    In words that end a sentence.
    """
    assert why == answered(answer)


def test_without_a_sidecar_nobody_is_asked(tmp_path: Path) -> None:
    """
    Nothing is sent anywhere.
    """
    assert "no sidecar of this run is known" == answered(AssertionError("asked"), url="")
