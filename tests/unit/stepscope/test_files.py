"""
Tests of replacing files.
"""

from pathlib import Path

import pytest

from stepscope import files


def test_a_file_is_replaced(tmp_path: Path) -> None:
    """
    The new content is there, and nothing else is in the folder.
    """
    path = tmp_path / "record.json"
    path.write_bytes(b"old")

    files.replace(path, b"new")

    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_content(tmp_path: Path) -> None:
    """
    Where writing fails half way, the file is as it was and no half of the new one stays.
    """
    path = tmp_path / "record.json"
    path.write_bytes(b"old")

    def half(partial: Path) -> None:
        partial.write_bytes(b"ne")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"), files.replacing(path) as partial:
        half(partial)

    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_gone_is_an_error(tmp_path: Path) -> None:
    """
    The caller learns that nothing was written.
    """
    with pytest.raises(FileNotFoundError):
        files.replace(tmp_path / "gone" / "record.json", b"new")
