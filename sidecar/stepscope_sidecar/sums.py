"""
The list of a folder's files with the SHA-256 of each: that whose own hash is the hash of the folder.

Owns its form, which is that of ``sha256sum``, and its name. It lies beside a recording that is a folder since that was
finalised (``artifacts.tree``), so that of each file, had by itself from another machine, one can tell whether it is the
right one without reading the others.
"""

import hashlib
import re

SUFFIX = ".sha256"
"""What its name has more than the folder's."""

MAX_BYTES = 4 * 1024**2
"""Of one list: 10,000 files, as many as a recording may have, with names of 350 characters."""

LINE = re.compile(r"([0-9a-f]{64})  (.+)", re.DOTALL)


def line(digest: str, name: bytes) -> bytes:
    """
    The line of one file.
    """
    return digest.encode() + b"  " + name + b"\n"


def read(listed: bytes, *, sha256: str) -> dict[str, str]:
    """
    The digest of each file by its name, of a list whose own hash is to be ``sha256``.

    Raises:
        OSError: it is another list, or none. Files whose names are no text are left out.
    """
    if hashlib.sha256(listed).hexdigest() != sha256:
        raise OSError("the SHA-256 of its list of files is not the one that was reported")
    found: dict[str, str] = {}
    for text in listed.decode(errors="surrogateescape").removesuffix("\n").split("\n"):
        match = LINE.fullmatch(text)
        if match is None:
            raise OSError("its list of files has a name over two lines, or is none")
        if match[2].isprintable():
            found[match[2]] = match[1]
    return found
