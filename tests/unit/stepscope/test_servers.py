"""
The servers that the environment names: addresses, ranks and roles, and what is refused at start.
"""

from pathlib import Path

import pytest

from stepscope import settings
from stepscope.errors import ConfigurationError
from stepscope.profilers import Registry
from stepscope.seam import Identity
from stepscope.servers import Server, parse, server

URL = "STEPSCOPE_HTTP_PROFILER_URL"


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://localhost", "http://localhost:80"),
        ("https://localhost/api/", "https://localhost:443/api"),
        ("http://[::1]:30000", "http://[::1]:30000"),
        ("HTTP://127.8.9.1:1", "http://127.8.9.1:1"),
    ],
)
def test_addresses(url: str, base: str) -> None:
    """
    A base address in full.
    """
    assert base == server(url, kind="sglang").url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8000",
        "ftp://127.0.0.1",
        "http://",
        "http://127.0.0.1:99999",
        "http://user:password@127.0.0.1",
        "http://127.0.0.1/?a=b",
        "http://127.0.0.1/#a",
        "http://127.0.0.1/a b",
        "http://127.0.0.1/a\r\nEvil: 1",
        "http://127.0.0.1/ü",
        "http://[::1",
    ],
)
def test_what_is_no_address(url: str) -> None:
    """
    Refused, with an example or the fault.
    """
    with pytest.raises(ConfigurationError, match="no address of a server"):
        server(url, kind="sglang")


@pytest.mark.parametrize("host", ["10.0.0.7", "example.org", "0.0.0.0", "localhost.example.org", "127.0.0.1.example"])
def test_other_machines_have_to_be_allowed(host: str) -> None:
    """
    They are not reached by mistake.
    """
    with pytest.raises(ConfigurationError, match="STEPSCOPE_HTTP_PROFILER_ANY_HOST=1"):
        server(f"http://{host}:8000", kind="sglang")

    assert host == server(f"http://{host}:8000", kind="sglang", any_host=True).host


def test_a_vllm_server_needs_its_folder() -> None:
    """
    Its replies do not say where the trace is.
    """
    with pytest.raises(ConfigurationError, match="torch_profiler_dir"):
        server("http://127.0.0.1:8000")
    with pytest.raises(ConfigurationError, match="kinds are vllm, vllm-unnamed, sglang"):
        server("http://127.0.0.1:8000", kind="tgi")


def test_ranks_and_roles() -> None:
    """
    The first address of a role is its rank 0's; where a role has none, those of all roles hold; the rest have none.
    """
    found = parse(
        "http://127.0.0.1:1, rollouter=http://127.0.0.1:2,rollouter=http://127.0.0.1:3", folder="/t/{role}/{rank}"
    )

    def at(role: str, rank: int) -> tuple[int, Path | None] | None:
        one = found.of(role=role, rank=rank)
        return None if one is None else (one.port, one.folder)

    assert (2, Path("/t/rollouter/0")) == at("rollouter", 0)
    assert (3, Path("/t/rollouter/1")) == at("rollouter", 1)
    assert (1, Path("/t/ref/0")) == at("ref", 0)
    assert (None, None) == (at("rollouter", 2), at("ref", 1))


def test_the_environment_is_checked_at_start(tmp_path: Path) -> None:
    """
    A server that cannot be used stops the start, and the message names the setting.
    """
    env = {URL: "http://127.0.0.1:8000", "STEPSCOPE_HTTP_PROFILER_DIR": str(tmp_path)}
    found = settings.read({**env, "STEPSCOPE_TOOLS": "rollouter=http"})

    assert "http" == found.tool("rollouter")
    assert found.http_servers is not None
    assert Server(host="127.0.0.1", port=8000, folder=tmp_path) == found.http_servers.of(role="rollouter", rank=0)
    for wrong in (
        {URL: "nonsense"},
        {URL: "http://127.0.0.1:8000"},
        {**env, URL: "http://127.0.0.1:8000,http://gpu-7:8000"},
        {**env, "STEPSCOPE_HTTP_PROFILER_KIND": "tgi"},
        {**env, "STEPSCOPE_HTTP_PROFILER_DIR": "/t/{replica}"},
    ):
        with pytest.raises(ConfigurationError, match=URL):
            settings.read(wrong)
    with pytest.raises(ConfigurationError, match="ANY_HOST"):
        settings.read({**env, "STEPSCOPE_HTTP_PROFILER_ANY_HOST": "perhaps"})


def test_each_process_gets_its_own() -> None:
    """
    A rank that no server is named for has the tool, and why it is unavailable.
    """
    named = settings.read({URL: "http://127.0.0.1:8000", "STEPSCOPE_HTTP_PROFILER_KIND": "SGLang"})

    def why(rank: int) -> str:
        return Registry(settings=named, identity=Identity(role="rollouter", rank=rank)).tools()["http"]

    assert "" == why(0)
    assert why(1).startswith("no server is named for this process")
