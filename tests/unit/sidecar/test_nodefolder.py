"""
The folders and sockets of nodes that share a file system or a machine: none is another's.
"""

import errno
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from stepscope import settings
from stepscope.errors import ConfigurationError
from stepscope_sidecar import nodefolder


def test_nodes_that_share_a_folder_never_share_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The first has the attempt's folder, the others one each in it, and each finds its own again.
    """
    base = settings.read({"STEPSCOPE_DIR": str(tmp_path), "STEPSCOPE_RUN": "run", "STEPSCOPE_ATTEMPT": "a1"})
    found: dict[str, Path] = {}
    for node in ("one", "two", "three", "two", "one"):
        monkeypatch.setenv("STEPSCOPE_NODE", node)
        folder = nodefolder.settle(base).attempt_folder
        assert folder == found.setdefault(node, folder)

    attempt = tmp_path / "run-a1"
    assert {"one": attempt, "two": attempt / "nodes" / "two", "three": attempt / "nodes" / "three"} == found
    assert {tmp_path} == {nodefolder.directory(folder) for folder in found.values()}


def test_nodes_share_a_folder_where_there_are_no_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    One alone has it there too, and whoever comes while its name is being written waits for that.
    """
    attempt = tmp_path / "run-a1"
    base = settings.read({"STEPSCOPE_DIR": str(tmp_path), "STEPSCOPE_RUN": "run", "STEPSCOPE_ATTEMPT": "a1"})

    def no_link(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_link)
    found = []
    for node in ("one", "two", "one"):
        monkeypatch.setenv("STEPSCOPE_NODE", node)
        found.append(nodefolder.settle(base).attempt_folder)
    assert [attempt, attempt / "nodes" / "two", attempt] == found

    (attempt / nodefolder.OWNER).write_bytes(b"")
    monkeypatch.setattr(time, "sleep", lambda _: (attempt / nodefolder.OWNER).write_text("one\n"))
    assert attempt == nodefolder.settle(base).attempt_folder
    assert [nodefolder.OWNER] == [path.name for path in attempt.iterdir()]


@pytest.mark.parametrize("garbage", [b"\xff\xfe\x00", b"", b"\n"])
def test_a_folder_with_no_name_in_it_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, garbage: bytes
) -> None:
    """
    What lies there may be another node's; this one has a folder of its own below.
    """
    monkeypatch.setenv("STEPSCOPE_NODE", "one")
    monkeypatch.setattr(nodefolder, "PAUSE", 0.0)
    base = settings.read({"STEPSCOPE_DIR": str(tmp_path), "STEPSCOPE_RUN": "run", "STEPSCOPE_ATTEMPT": "a1"})
    attempt = tmp_path / "run-a1"
    attempt.mkdir()
    (attempt / nodefolder.OWNER).write_bytes(garbage)

    assert attempt / "nodes" / "one" == nodefolder.settle(base).attempt_folder
    assert garbage == (attempt / nodefolder.OWNER).read_bytes()


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    """
    With what the file system says of it, not of the links that it has not.
    """
    base = settings.read({"STEPSCOPE_DIR": str(tmp_path / "f"), "STEPSCOPE_RUN": "run", "STEPSCOPE_ATTEMPT": "a1"})
    (tmp_path / "f").write_text("")

    with pytest.raises(ConfigurationError, match=r"STEPSCOPE_DIR=.*/f: cannot write there \(Not a directory\)"):
        nodefolder.settle(base)


def test_nodes_on_one_machine_have_sockets_of_their_own() -> None:
    """
    With STEPSCOPE_NODE; without, the socket is where it always was.
    """
    base = settings.Settings(attempt="a1")
    sockets = {replace(base, node=node).socket_path.name for node in ("", "one", "two")}

    assert 3 == len(sockets)
    assert "a1.sock" in sockets
