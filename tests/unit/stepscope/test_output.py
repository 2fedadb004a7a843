"""
The last line of what a program has printed.
"""

from pathlib import Path

import pytest

from stepscope.output import MAX_SAID, last_line, last_said


@pytest.mark.parametrize(
    ("text", "last"),
    [("", ""), (" \n\n", ""), ("one", "one"), ("one\ntwo", "two"), ("one\ntwo\n\n \n", "two"), ("one\r\n", "one")],
)
def test_the_last_line_is_the_last_that_is_not_blank(text: str, last: str) -> None:
    """
    What follows it is no line.
    """
    assert last == last_line(text)


def test_of_a_log_only_the_end_is_read(tmp_path: Path) -> None:
    """
    A last line that is longer is cut off in front; a log that is not there has said nothing.
    """
    log = tmp_path / "log"
    log.write_bytes(b"early\n" + b"x" * 2 * MAX_SAID + b"\n\xfflast\n")
    short = last_said(log)
    log.write_bytes(b"early\n" + b"x" * 2 * MAX_SAID)

    assert "\ufffdlast" == short
    assert "x" * MAX_SAID == last_said(log)
    assert "" == last_said(tmp_path / "none")
