"""
Wrong ``OTEL_EXPORTER_OTLP_*`` settings stop the start, wherever it is; what is said names the variable and a fix.
"""

import asyncio
import os
from collections.abc import Mapping

import pytest

import stepscope
from stepscope import endpoint
from stepscope.errors import ConfigurationError
from stepscope.integrations import ray
from stepscope.settings import Settings
from stepscope_sidecar import peers, supervise
from stepscope_sidecar.uplink import HttpTransport, reachable
from stepscope_sidecar.upstream import Upstream

PREFIX = endpoint.PREFIX
HUB = {f"{PREFIX}ENDPOINT": "http://hub:4318"}

WRONG: list[tuple[str, Mapping[str, str]]] = [
    (r"ENDPOINT='http://c\.\.svc:4318'.*label.*for example http://", {f"{PREFIX}ENDPOINT": "http://c..svc:4318"}),
    (r"ENDPOINT='http://a+\.x:1'.*label.*for example", {f"{PREFIX}ENDPOINT": f"http://{'a' * 64}.x:1"}),
    (r"TRACES_ENDPOINT='http://hub:port'.*1 to 65535", {f"{PREFIX}TRACES_ENDPOINT": "http://hub:port"}),
    ("1 to 65535", {f"{PREFIX}ENDPOINT": "http://hub:99999"}),
    ("1 to 65535", {f"{PREFIX}ENDPOINT": "http://hub:0"}),
    ("not a URL", {f"{PREFIX}ENDPOINT": "http://[::1"}),
    ("not a URL", {f"{PREFIX}ENDPOINT": "collector:4317"}),
    ("no blanks", {f"{PREFIX}ENDPOINT": "http://h ub:4318"}),
    (r"//\.\.\.@hub:x", {f"{PREFIX}ENDPOINT": "http://me:secret@hub:x"}),
    ("the value of 'k' .*printable ASCII", {**HUB, f"{PREFIX}HEADERS": "k=ü"}),
    ("printable ASCII", {**HUB, f"{PREFIX}HEADERS": "k=a%0d%0aX: y"}),
    ("'ключ' is no name", {**HUB, f"{PREFIX}TRACES_HEADERS": "Ключ=1"}),
    ("KEY=VALUE", {**HUB, f"{PREFIX}HEADERS": "k"}),
    ("TIMEOUT='soon'", {**HUB, f"{PREFIX}TIMEOUT": "soon"}),
    ("CERTIFICATE='/nowhere/ca.pem': No such file", {**HUB, f"{PREFIX}CERTIFICATE": "/nowhere/ca.pem"}),
]


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """
    An environment without settings; what a start puts there is gone after the test.
    """
    for name in os.environ:
        if name.startswith(("OTEL_", "STEPSCOPE_")):
            monkeypatch.delenv(name)
    return monkeypatch


@pytest.mark.parametrize(("said", "environment"), WRONG)
def test_what_cannot_be_sent_stops_every_start(
    plain: pytest.MonkeyPatch, said: str, environment: Mapping[str, str]
) -> None:
    """
    Of a process, of ``stepscope run``, of Ray's driver and of the sidecar; a password is not shown.
    """
    for name, value in environment.items():
        plain.setenv(name, value)
    starts = (
        lambda: stepscope.init(role="trainer"),
        lambda: supervise.environment_for("run"),
        ray.runtime_env,
        lambda: Upstream.read(environment),
    )
    for start in starts:
        with pytest.raises(ConfigurationError, match=f"(?s){PREFIX}.*{said}") as raised:
            start()
        assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {f"{PREFIX}HEADERS": "k=ü"},
        {f"{PREFIX}ENDPOINT": "http://otel_collector:4318/"},
        {f"{PREFIX}ENDPOINT": "https://[::1]/x", f"{PREFIX}HEADERS": "authorization=Bearer%20a=="},
        {f"{PREFIX}ENDPOINT": "http://hub:port", f"{PREFIX}TRACES_ENDPOINT": "http://collector.svc.:4318/v1/traces"},
    ],
)
def test_what_can_be_sent_starts(environment: Mapping[str, str]) -> None:
    """
    Also what is not read: nobody's headers, or an endpoint behind the one for traces.
    """
    endpoint.check(environment)
    Upstream.read(environment)


def test_off_is_off(plain: pytest.MonkeyPatch) -> None:
    """
    With the kill switch nothing is looked at.
    """
    plain.setenv(f"{PREFIX}ENDPOINT", "http://hub:port")
    plain.setenv("STEPSCOPE_DISABLED", "1")

    stepscope.init(role="trainer")
    assert {"env_vars"} == set(ray.runtime_env())
    assert "http://hub:port" == supervise.environment_for("run")[f"{PREFIX}ENDPOINT"]


def test_a_name_that_is_none_ends_nothing_that_runs() -> None:
    """
    It is nobody's, cannot be reached and takes no report.
    """
    nobody = Upstream(url="http://c..svc:4318/v1/traces")

    async def sent() -> int:
        transport = HttpTransport(Upstream(url="http://127.0.0.1:99999/v1/traces"), via="i")
        status, _ = await transport.send(b"{}")
        await transport.close()
        return status

    assert not nobody.leads_to(("127.0.0.1", 4318))
    assert "" == reachable("http://127.0.0.1:1", bound="0.0.0.0", upstream=nobody)
    assert "" == reachable("http://127.0.0.1:1", bound="0.0.0.0", upstream=Upstream(url="http://hub:port/v1/traces"))
    assert 0 == asyncio.run(sent())


def test_a_failed_look_up_is_tried_again(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """
    Whatever it fails with: the sidecar lives.
    """
    found: list[object] = [RuntimeError("no resolver"), "http://n1:1"]

    def look(url: str, *, bound: str, upstream: Upstream) -> str:
        item = found.pop(0)
        if isinstance(item, RuntimeError):
            raise item
        return str(item)

    monkeypatch.setattr(peers, "reachable", look)
    monkeypatch.setattr(peers, "LOOKUP", 0.0)
    node = object.__new__(peers.Peers)
    node._http, node._url = "", lambda: "http://127.0.0.1:1"
    node._settings = Settings()

    async def run() -> None:
        upstream = Upstream(url="http://hub:1/v1/traces")
        await node._look_up(upstream, again=False)
        await node._look_up(upstream, again=True)

    asyncio.run(run())

    assert "http://n1:1" == node._http
    assert "no resolver" in caplog.text
