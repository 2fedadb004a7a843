"""
The page of an artifact that is a folder: its files, each to be had by itself.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from stepscope_sidecar.pages.html import link, sandboxed, table, tag

MAX_FILES = 10_000
"""Files on the page: as many as an artifact may have."""


def folder_page(title: str, folder: Path) -> str:
    """
    The page of ``folder``. Links are relative to its own address, and what is no plain file is left out.
    """
    found = sorted(
        file.relative_to(folder)
        for top, _, names in os.walk(folder)
        for file in (Path(top, name) for name in names)
        if file.is_file() and not file.is_symlink()
    )
    named = [(file.as_posix(), f"{(folder / file).stat().st_size:,}") for file in found[:MAX_FILES]]
    return _page(title, folder.name, named, "bytes")


def listed_page(title: str, name: str, sums: Mapping[str, str]) -> str:
    """
    The page of a folder called ``name`` on another node, of which its list of files is here.
    """
    return _page(title, name, list(sums.items())[:MAX_FILES], "SHA-256")


def _page(title: str, name: str, files: Sequence[tuple[str, str]], column: str) -> str:
    rows = [
        # A name that is no text cannot be asked for.
        (link(quote(f"{name}/{file}"), file), told)
        for file, told in files
        if file.isprintable()
    ]
    numbers = frozenset({"bytes"} & {column})
    return sandboxed(title, [tag("h1", title), table(["file", column], rows, numbers=numbers)])
