"""
The page of an address that has nothing to show, for a person in a browser; programs get the same as JSON.

Pure.
"""

from stepscope_sidecar.pages.html import document, tag, ways


def refused_page(reason: str, *, top: str) -> str:
    """
    The page that says the ``reason`` and leads on; ``top`` leads to the first page.
    """
    said = f"{reason[:1].upper()}{reason[1:]}."
    return document(
        "nothing here - stepscope",
        [ways((top or "./", "the run"), (f"{top}runs", "all runs")), tag("h1", "Nothing to show"), tag("p", said)],
        top=top,
    )
