"""
What the command line prints of names that others have chosen: none of them steers the terminal.
"""

import io
from pathlib import Path
from typing import Any

import pytest
from rich.markup import escape

from stepscope import names
from stepscope_sidecar import glance, render, windowlist
from stepscope_sidecar.screen import Screen, printable, say, warn
from tests.unit.sidecar.reporting import told

HOSTILE = "evil\x1b[2J\x1b]0;pwned\x07name\u202e\x9b31m[red]x[/nope]"


def span() -> dict[str, Any]:
    """
    A span whose sender has chosen all of it.
    """
    ids = dict.fromkeys(("span_id", "parent_span_id", "trace_id"), "ab" * 8)
    attributes = dict.fromkeys((names.ROLE, names.RANK, names.STEP, names.PARAM_VERSION, names.BUCKET), HOSTILE)
    return {"name": HOSTILE, "attributes": attributes, "start_unix_ns": 0, "end_unix_ns": 1, **ids}


def test_nothing_that_others_say_reaches_the_terminal(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """
    Of spans, windows, a status, lines and warnings.
    """
    hostile = {"role": HOSTILE, "level": HOSTILE, "detail": HOSTILE, "reason": HOSTILE, "tool": HOSTILE}
    status = {"live": True, "warnings": [HOSTILE], "processes": [{"role": HOSTILE, "rank": 0, "alive": True}]}

    render.print_spans([span()])
    windowlist.print_windows([told(5, "failed", **hostile, node="n2").json(directory=None)], tmp_path)
    say(glance.lines(status, name=HOSTILE))
    say([HOSTILE], err=True)
    warn(HOSTILE)
    printed = capsys.readouterr()

    assert "evil" in printed.out
    assert "[/nope]" in printed.out
    assert "evil" in printed.err
    assert not [one for one in printed.out + printed.err if not one.isprintable() and one != "\n"]


def test_the_terminals_own_colours_stay() -> None:
    """
    Those that a table has of ours, and those alone.
    """
    out = Screen(file=io.StringIO(), force_terminal=True, color_system="standard", width=80, highlight=False)
    out.print(f"[red]ours[/] {escape(HOSTILE)}")
    assert isinstance(out.file, io.StringIO)
    printed = out.file.getvalue()

    assert printed.startswith("\x1b[31mours\x1b[0m evil?[2J?]0;pwned")
    assert 2 == printed.count("\x1b")


def test_colours_in_what_a_job_prints_go_without_a_mark() -> None:
    """
    Ray's workers have them.
    """
    assert "(pid=1) step 5\t?[2K" == printable("\x1b[36m(pid=1)\x1b[0m step 5\t\x1b[2K")
