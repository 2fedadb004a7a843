"""
What becomes of text on pages: nothing in it is a tag, and nothing in it works on a terminal or a reader.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepscope_sidecar.pages import AttemptShown, Shown, StepShown, run_page, runs_page, step_page, window_page
from stepscope_sidecar.pages.html import Live, document, escaped, link, sandboxed, table, tag
from stepscope_sidecar.steptable import table as step_table
from tests.unit.sidecar.stepped import span
from tests.unit.sidecar.stored import window
from tests.unit.sidecar.test_pages import Page

ESCAPE = "\x1b[31mred\x07"


@pytest.mark.parametrize(
    ("plain", "shown"),
    [
        ('<a href="x">&\'', "&lt;a href=&quot;x&quot;&gt;&amp;&#x27;"),
        (ESCAPE, "\ufffd[31mred\ufffd"),
        ("\x00\x7f\x9b", "\ufffd" * 3),
        ("abc\u202edef\u2069", "abc\ufffddef\ufffd"),
        ("half \ud83d", "half \ufffd"),
        ("a\tb\nc", "a\tb\nc"),
        ("模型 é 🙂", "模型 é 🙂"),
    ],
)
def test_text_becomes_html(plain: str, shown: str) -> None:
    """
    Tags are text; what would act on a terminal or turn writing around is replaced, other writing is kept.
    """
    assert shown == escaped(plain)


@settings(max_examples=80, deadline=None)
@given(hostile=st.text(min_size=1, max_size=20))
def test_no_page_carries_what_is_hidden(hostile: str) -> None:
    """
    Wherever a name is shown: in elements, in attributes and in titles. The page can be sent.
    """
    made = "".join(
        [
            tag("p", hostile, kind=hostile, title=hostile).text,
            link(hostile, hostile, title=hostile).text,
            table([hostile], [(hostile,)]).text,
            document(hostile, [hostile], top="", live=Live(seconds=1, pulse=hostile, mark=hostile)),
            sandboxed(hostile, [hostile]),
        ]
    )
    assert made.encode()
    assert not [character for character in made if not character.isprintable() and escaped(character) == "\ufffd"]


def test_hostile_names_of_a_run_are_harmless_on_all_pages() -> None:
    """
    Controls of a terminal in whatever an agent, an environment or another node can name.
    """
    told: dict[str, Any] = dict.fromkeys(("role", "tool", "level", "detail", "reason", "node"), ESCAPE)
    row = window(5, artifact=f"a/{ESCAPE}.json", sha256=ESCAPE, trace_id=ESCAPE, **told)
    steps = step_table([span("rl.step.process", 5)], windows=[row])
    shown = Shown(steps=steps, windows=[row], newest=5, oldest=5)
    digest = {"error": ESCAPE}
    step = StepShown(
        row=replace(steps[0], step=5),
        trace_id="1" * 32,
        windows=[(row, True)],
        expected=[(ESCAPE, 0, ESCAPE)],
        digests={row.window: digest},
    )
    pages = [
        run_page({"run": ESCAPE, "warnings": [ESCAPE], "missing": {ESCAPE: [ESCAPE]}}, shown=shown, estimates={}),
        step_page(step, live=None),
        window_page(row, here=True, digest=digest, viewer="https://viewer.example"),
        runs_page([AttemptShown(folder="f", run=ESCAPE, attempt=ESCAPE, live=True, own=False, trouble=ESCAPE)]),
    ]

    assert [False] * 4 == ["\x1b" in page or "\x07" in page for page in pages]
    assert [True] * 4 == ["\ufffd[31mred\ufffd" in page for page in pages]
    assert [[]] * 4 == [Page(page).open for page in pages]
