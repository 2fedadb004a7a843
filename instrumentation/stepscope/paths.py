"""
Paths of this machine in text that leaves it: spans, the store and the pages hold none.
"""

import re

from stepscope.codec import encodable

_FOLDERS = re.compile(
    r"(?P<address>\b(?!file:)[A-Za-z][A-Za-z0-9+.-]*://[^\s/'\"][^\s'\"]*)|(?:/+[^\s/'\":]+)+/",
)


def without_folders(text: str) -> str:
    """
    ``text`` with the last name of each path alone, which tells a person what is meant; addresses stay whole. What of a
    name is no text is written as escapes.
    """
    return _FOLDERS.sub(lambda found: found["address"] or "…/", encodable(text))
