"""
How a window is told of in a cell of a table or a line of a page.

Pure.
"""

from urllib.parse import quote

from stepscope.names import Reason, State
from stepscope_sidecar.labels import process_name
from stepscope_sidecar.pages.html import Content, Markup, joined, link, tag
from stepscope_sidecar.rows import WindowRow

SHOWN_DIGITS = 8
"""Of a trace id; the whole one is in its title."""


LINE = 32
"""Characters of a tool's name that every page has a line for; a longer one is broken."""


def state(row: WindowRow) -> Markup:
    """
    How it stands, and why where that says more.
    """
    kind = {State.READY: "good", State.FAILED: "bad", State.ABORTED: "bad", State.EXPIRED: "bad", State.LOST: "bad"}
    why = None if row.reason in {"", Reason.BOUNDARY} else f": {row.reason}"
    detail = tag("span", row.detail, kind="dim") if row.detail else None
    shown = tag("span", row.state, kind=kind.get(State(row.state), "dim"))
    return joined([joined([shown, why], ""), detail])


def complete(row: WindowRow) -> Content:
    """
    Whether its recording holds all of its step; nothing where nobody knows.
    """
    if row.complete is None:
        return None
    if row.complete:
        return "yes"
    share = f" ({row.incomplete_share:.0%})" if row.incomplete_share is not None else ""
    return f"no: {row.incomplete_reason}{share}"


def process(row: WindowRow) -> Markup:
    """
    Which one it was, in one line.
    """
    return tag("span", process_name(row.role, row.rank, pid=row.pid), kind="name")


def tool(row: WindowRow) -> Content:
    """
    What recorded it, in one line if there is room for that.
    """
    return tag("span", row.tool, kind="name") if len(row.tool) <= LINE else row.tool


def worded(text: str) -> Content:
    """
    A sentence whose code stands between backticks; nothing of none.
    """
    parts = text.split("`")
    return joined([tag("code", part) if at % 2 else part for at, part in enumerate(parts)], "") if text else None


def recording(row: WindowRow, *, here: bool, top: str = "") -> Content:
    """
    Where its recording is to be had: on this node, or ``here`` not, through this one; ``top`` leads to the first page.
    """
    if row.removed:
        return tag("span", "removed", kind="dim")
    if not row.artifact:
        return None
    folder = "" if here else f"nodes/{quote(row.node)}/"
    found = link(f"{top}{folder}artifacts/{quote(row.artifact)}", "download", title=f"SHA-256 {row.sha256}")
    return (
        joined([found, tag("span", f"copy: {row.stored}", kind="dim", title=row.stored_reason or row.stored_url)])
        if row.stored
        else found
    )


def short_trace(row: WindowRow) -> Content:
    """
    The beginning of its trace id, and from the first page the way to what was recorded of it.
    """
    if not row.trace_id:
        return None
    shown = tag("code", f"{row.trace_id[:SHOWN_DIGITS]}…", kind="name")
    return link(f"traces/{row.trace_id}", shown, title=row.trace_id)
