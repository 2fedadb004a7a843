"""
The programs on Ray that everybody writes have nothing of ours but what the page on Ray shows, and say where.
"""

import re
from pathlib import Path

import pytest

from tests.unit.test_docs import ROOT, page

PROGRAMS = ("ray_parameter_server", "ray_queue", "ray_supervisor")
MARK = "  # stepscope"
"""How a line ends that was added, or changed from ``.remote(…)``."""

OURS = re.compile(r"\b(stepscope|stepscope_ray|traced|call)\b")
USED = re.compile(r"\b(?:stepscope|stepscope_ray)\.(\w+)|@(traced)\b|\b(call)\(")


def lines(name: str) -> list[str]:
    """
    The program, without its docstring.
    """
    source = Path(ROOT, "tests", "integration", f"{name}.py").read_text(encoding="utf-8")
    return source.split('"""\n', 2)[2].splitlines()


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_line_of_ours_is_marked(name: str) -> None:
    """
    Without them it is the program that it was.
    """
    assert [] == [line for line in lines(name) if OURS.search(line.removesuffix(MARK)) and not line.endswith(MARK)]
    assert [] == [line for line in lines(name) if line.endswith(MARK) and not OURS.search(line.removesuffix(MARK))]


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_used_that_the_page_does_not_show(name: str) -> None:
    """
    Boundary calls, spans and context as everywhere, and the three functions for Ray.
    """
    text = page("en", "ray.md")
    used = {word for line in lines(name) for found in USED.findall(line.removesuffix(MARK)) for word in found if word}

    assert {"runtime_env", "traced", "call", "init", "step", "weights_published"} <= used
    assert [] == [word for word in sorted(used) if not re.search(rf"\b{word}\b", text)]
