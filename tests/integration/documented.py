"""
The program of the page on Ray: as the page has it, and what must be so when it has run.
"""

from collections import Counter
from pathlib import Path
from typing import Any

from tests.integration.jobs import Job
from tests.unit.test_docs import blocks, page

NAME = "program.py"
"""What the page's commands call it."""


def write(directory: Path) -> Path:
    """
    Put the program into ``directory``.
    """
    (source,) = blocks(page("en", "ray.md"), "python")
    program = directory / NAME
    program.write_text(source, encoding="utf-8")
    return program


def command(part: str) -> str:
    """
    The commands of the page that ``part`` is in.
    """
    (found,) = [body for body in blocks(page("en", "ray.md"), "sh") if part in body]
    return found


def lineage(job: Job, name: str) -> Counter[tuple[int, str]]:
    """
    Step and parent, by name, of each span ``name``; a parent that is not in the same trace does not count.
    """
    spans = {(span["trace_id"], span["span_id"]): span["name"] for span in job.spans}
    return Counter(
        (span["attributes"]["rl.step"], spans.get((span["trace_id"], span["parent_span_id"]), "nobody"))
        for span in job.named(name)
    )


def ended(job: Job) -> list[tuple[Any, ...]]:
    """
    How the windows ended that were not denied, as those of the other ranks are.
    """
    keys = ("role", "step", "state", "reason", "complete")
    return [tuple(window[key] for key in keys) for window in job.windows if window["state"] != "denied"]


def check(job: Job) -> None:
    """
    What the page says of the program is so.
    """
    both = (1, 2)
    assert Counter({(step, "round"): 2 for step in both}) == lineage(job, "worker.work")
    assert Counter({(step, "worker.work"): 2 for step in both}) == lineage(job, "store.add")
    assert Counter({(step, "round"): 2 for step in both}) == lineage(job, "worker.part")
    assert Counter({(step, "rl.step.process"): 1 for step in both}) == lineage(job, "round")
    parts = Counter(
        (span["attributes"]["rl.role"], span["attributes"]["rl.step"]) for span in job.named("rl.step.process")
    )
    assert parts == {
        (role, step): count for role, count in (("trainer", 1), ("store", 1), ("worker", 2)) for step in both
    }
    assert not any(span["attributes"].get("rl.step.partial") for span in job.spans)
