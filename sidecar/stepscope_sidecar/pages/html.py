"""
Text to HTML: the only place that writes tags, so that the only place that has to escape.
"""

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Markup:
    """
    HTML that is safe as it is; everything else is text and gets escaped.
    """

    text: str


Content = Markup | str | int | float | None

STATIC = Path(__file__).with_name("static")
"""Where the style sheet, the scripts and the icon lie; the server gives out what is in it and nothing beside it."""

HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""
What no page carries, whoever has chosen the text: controls, which a terminal that prints the page would obey, what
turns writing around, and halves of characters, which cannot be sent. A tab and the end of a line are fine.
"""

SHOWN = "\N{REPLACEMENT CHARACTER}"
"""In place of each of them: something was there."""

INLINE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; padding: 1rem; max-width: 82rem; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: .3rem .6rem .3rem 0; border-bottom: 1px solid #8888; text-align: left; overflow-wrap: anywhere; }
td.number, th.number { text-align: right; }
"""
"""For a page in a sandbox, which may load nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Live:
    """
    How a page keeps itself up to date.
    """

    seconds: int
    """Between two looks."""
    pulse: str = ""
    """The address of a mark that changes when the page does; without one the page itself is asked for each time."""
    mark: str = ""
    """What it was when the page was made."""


def escaped(plain: str) -> str:
    """
    ``plain`` as HTML, in an element or in an attribute.
    """
    return html.escape(HIDDEN.sub(SHOWN, plain))


def text(content: Content) -> str:
    """
    ``content`` as HTML; None is nothing.
    """
    if isinstance(content, Markup):
        return content.text
    return "" if content is None else escaped(str(content))


def tag(name: str, content: Content, *, kind: str = "", title: str = "") -> Markup:
    """
    An element around ``content``, of class ``kind``, with ``title`` to be seen on pointing at it.
    """
    attribute = (f' class="{escaped(kind)}"' if kind else "") + (f' title="{escaped(title)}"' if title else "")
    return Markup(f"<{name}{attribute}>{text(content)}</{name}>")


def link(target: str, content: Content, *, title: str = "") -> Markup:
    """
    A link to ``target``, a path on this server.
    """
    hint = f' title="{escaped(title)}"' if title else ""
    return Markup(f'<a href="{escaped(target)}"{hint}>{text(content)}</a>')


def joined(parts: Iterable[Content], separator: str = " ") -> Markup:
    """
    All ``parts`` in a row.
    """
    return Markup(escaped(separator).join(text(part) for part in parts))


def table(
    heading: Sequence[str],
    rows: Iterable[Sequence[Content]],
    *,
    numbers: frozenset[str] = frozenset(),
    slim: bool = False,
) -> Markup:
    """
    A table whose cells carry their heading, for narrow screens, where each row becomes a list unless the table is
    ``slim``; columns in ``numbers`` are set to the right.
    """

    def attributes(name: str) -> str:
        return f' data-label="{escaped(name)}"' + (' class="number"' if name in numbers else "")

    head = "".join(f'<th scope="col"{attributes(name)}>{escaped(name)}</th>' for name in heading)
    body = "".join(
        "<tr>"
        + "".join(f"<td{attributes(name)}>{text(cell)}</td>" for name, cell in zip(heading, row, strict=True))
        + "</tr>\n"
        for row in rows
    )
    kind = ' class="slim"' if slim else ""
    return Markup(f"<table{kind}><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>")


def facts(pairs: Iterable[tuple[str, Content]]) -> Markup:
    """
    Names and what they are.
    """
    return Markup(
        "<dl>" + "".join(f"<dt>{escaped(name)}</dt><dd>{text(value)}</dd>\n" for name, value in pairs) + "</dl>"
    )


def ways(*targets: tuple[str, Content]) -> Markup:
    """
    Where the page leads, above everything.
    """
    return Markup(
        f'<nav aria-label="Pages">{joined((link(target, content) for target, content in targets)).text}</nav>'
    )


def part(name: str, contents: Iterable[Content]) -> Markup:
    """
    A section that a live page puts anew in its place, by ``name``.
    """
    return Markup(f'<section data-part="{escaped(name)}">{joined(contents, chr(10)).text}</section>')


def sandboxed(title: str, parts: Iterable[Content]) -> str:
    """
    A page that loads nothing at all, of names that others have chosen.
    """
    return _page(title, f"<style>{INLINE}</style>", "<body>", parts)


def document(title: str, parts: Iterable[Content], *, top: str, live: Live | None = None, script: str = "") -> str:
    """
    A whole page; ``top`` leads from it to the first page, ``script`` is one of ours that it needs.

    Where no script runs, a live page loads itself again.
    """
    head = (
        f'<link rel="icon" href="{escaped(top)}static/icon.svg" type="image/svg+xml">\n'
        f'<link rel="stylesheet" href="{escaped(top)}static/stepscope.css">\n'
    )
    scripts = [name for name in ("live.js" if live else "", script) if name]
    head += "".join(f'<script src="{escaped(top)}static/{name}" defer></script>\n' for name in scripts)
    body = "<body>"
    if live:
        head += f'<noscript><meta http-equiv="refresh" content="{live.seconds}"></noscript>\n'
        told = {"live": live.seconds, "pulse": live.pulse, "mark": live.mark}
        body = f"<body{''.join(_attribute(f'data-{key}', str(value)) for key, value in told.items() if value)}>"
    lost = '<p id="lost" class="note" role="status" hidden>The sidecar does not answer: what is shown may be old.</p>'
    return _page(title, head, body, [Markup(lost), *parts] if live else parts)


def _attribute(name: str, value: str) -> str:
    return f' {name}="{escaped(value)}"'


def _page(title: str, head: str, body: str, parts: Iterable[Content]) -> str:
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escaped(title)}</title>\n{head}</head>\n{body}\n<main>\n"
        + "\n".join(text(part) for part in parts)
        + "\n</main></body></html>\n"
    )
