"""
Where a timeline is written: in place of a file, and of nothing else.
"""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stepscope_sidecar.errors import MergeError
from stepscope_sidecar.timeline.drawing import Drawing


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    """
    A device or a pipe keeps its place: ``-o /dev/null`` as root would end the device.
    """
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    with pytest.raises(MergeError, match="not a file"), Drawing(pipe, base_ns=0, keys={}):
        pass
    assert pipe.is_fifo()


def test_another_process_that_writes_the_same_file_is_not_disturbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Each writes a file of its own, and the last to finish is there.
    """
    target = tmp_path / "step.json"
    with Drawing(target, base_ns=0, keys={"who": "first"}):
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: -1)
            with Drawing(target, base_ns=0, keys={"who": "second"}):
                pass

        assert b"second" in target.read_bytes()

    assert b"first" in target.read_bytes()
    assert [target] == list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["step.json", "step.json.gz"])
def test_a_disk_without_room_is_one_error_and_leaves_no_file(tmp_path: Path, name: str) -> None:
    """
    What could not be written is in the file's buffer still, and fails again when the file is closed.
    """
    with _room(0), pytest.raises(MergeError, match="cannot write"):
        _draw(tmp_path / name)
    assert [] == list(tmp_path.iterdir())


@contextmanager
def _room(size: int) -> Iterator[None]:
    """
    No file of this process gets larger than ``size`` bytes.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _draw(target: Path) -> None:
    """
    More than a buffer: it fails while the head of the file is still to be written.
    """
    with Drawing(target, base_ns=0, keys={}) as drawing:
        for _ in range(100):
            drawing.event(f'"{os.urandom(20_000).hex()}"')
