"""
Text to HTML: the only place that writes tags, so that the only place that has to escape.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, slots=True)
class Markup:
    """
    HTML that is safe as it is; everything else is text and gets escaped.
    """

    text: str


Content = Markup | str | int | float | None

STYLE = """
:root { color-scheme: light dark; --line: #d5d8dd; --dim: #5b6470; --good: #0a7d38; --bad: #b3261e; --soft: #f4f5f7;
  --link: #0b57d0; }
@media (prefers-color-scheme: dark) { :root { --line: #3a3f47; --dim: #a0a8b4; --good: #6fd18f; --bad: #ff8a80;
  --soft: #23272e; --link: #8ab4f8; } }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; padding: 1rem; max-width: 82rem; }
h1 { font-size: 1.3rem; margin: 0 0 .5rem; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 1.8rem 0 .5rem; }
a { color: var(--link); }
code { font: 13px/1.4 ui-monospace, monospace; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: 0; }
dt { color: var(--dim); } dd { margin: 0; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; }
th { text-align: left; font-weight: 600; color: var(--dim); }
th, td { padding: .3rem .6rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.good { color: var(--good); } .bad { color: var(--bad); } .dim { color: var(--dim); }
p.note { background: var(--soft); padding: .5rem .8rem; border-left: 3px solid var(--bad); }
@media (max-width: 50rem) {
  body { display: flex; flex-direction: column; }
  body > * { min-width: 0; }
  .steps { order: 1; }
  thead { position: absolute; left: -999rem; }
  tr { display: block; padding: .5rem 0; border-bottom: 1px solid var(--line); }
  td, td.number { display: block; position: relative; text-align: left; white-space: normal; border: 0;
    padding: .1rem 0 .1rem 7.5rem; overflow-wrap: anywhere; }
  td:empty { display: none; }
  td::before { content: attr(data-label); color: var(--dim); position: absolute; left: 0; }
}
"""


def text(content: Content) -> str:
    """
    ``content`` as HTML; None is nothing.
    """
    if isinstance(content, Markup):
        return content.text
    return "" if content is None else escape(str(content))


def tag(name: str, content: Content, *, kind: str = "", title: str = "") -> Markup:
    """
    An element around ``content``, of class ``kind``, with ``title`` to be seen on pointing at it.
    """
    attribute = (f' class="{escape(kind)}"' if kind else "") + (f' title="{escape(title)}"' if title else "")
    return Markup(f"<{name}{attribute}>{text(content)}</{name}>")


def link(target: str, content: Content, *, title: str = "") -> Markup:
    """
    A link to ``target``, a path on this server.
    """
    hint = f' title="{escape(title)}"' if title else ""
    return Markup(f'<a href="{escape(target)}"{hint}>{text(content)}</a>')


def joined(parts: Iterable[Content], separator: str = " ") -> Markup:
    """
    All ``parts`` in a row.
    """
    return Markup(escape(separator).join(text(part) for part in parts))


def table(
    heading: Sequence[str], rows: Iterable[Sequence[Content]], *, numbers: frozenset[str] = frozenset()
) -> Markup:
    """
    A table whose cells carry their heading, for narrow screens; columns in ``numbers`` are set to the right.
    """

    def attributes(name: str) -> str:
        return f' data-label="{escape(name)}"' + (' class="number"' if name in numbers else "")

    head = "".join(f"<th{attributes(name)}>{escape(name)}</th>" for name in heading)
    body = "".join(
        "<tr>"
        + "".join(f"<td{attributes(name)}>{text(cell)}</td>" for name, cell in zip(heading, row, strict=True))
        + "</tr>\n"
        for row in rows
    )
    return Markup(f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>")


def facts(pairs: Iterable[tuple[str, Content]]) -> Markup:
    """
    Names and what they are.
    """
    return Markup(
        "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{text(value)}</dd>\n" for name, value in pairs) + "</dl>"
    )


def document(title: str, parts: Iterable[Content], *, refresh: int = 0) -> str:
    """
    The whole page; with ``refresh`` it loads itself again after so many seconds.
    """
    again = f'<meta http-equiv="refresh" content="{refresh}">\n' if refresh else ""
    body = "\n".join(text(part) for part in parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"{again}<title>{escape(title)}</title>\n<style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )
