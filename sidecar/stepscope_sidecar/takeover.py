"""
Taking over from a sidecar that ended: plan, processes and windows out of the store and the attempt's folder.

Blocking; done once, before anybody is answered.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from stepscope.errors import SelectionError
from stepscope.selection import Selection
from stepscope.settings import Settings
from stepscope_sidecar.controller import KEPT_STEPS
from stepscope_sidecar.plan import ENVIRONMENT, STEPS_FILE, Plan
from stepscope_sidecar.processes import Process
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.recast import process_of, window_of
from stepscope_sidecar.surroundings import left_behind
from stepscope_sidecar.windows import Window


@dataclass(frozen=True, kw_only=True, slots=True)
class Inheritance:
    """
    What a former sidecar of this attempt left.
    """

    plan: Plan
    fresh: bool
    """The plan is that of our environment, and not in the store yet."""
    processes: list[Process]
    windows: list[Window]


def inherit(store: Path, settings: Settings, plan: Plan, *, node: str) -> Inheritance:
    """
    What there is of this node; ``plan`` is what our own environment says, and holds where nobody has changed it.
    """
    with open_reader(store) as reader:
        selections = reader.selections()
        registered = reader.processes()
        rows = [row for row in reader.windows() if row.node == node]
    processes = [process_of(row) for row in registered if not row.ended_unix_ns and row.node == node]
    newest = max((row.step for row in rows), default=0)
    windows = [window_of(row) for row in rows]
    known = {window.window for window in windows}
    windows = [w for w in windows if not w.state.final or w.step >= newest - KEPT_STEPS]
    windows += left_behind(settings, known=known, node=node, processes=processes)
    # An environment that no process has come with may be another now.
    fresh = not selections or (selections[-1].source == ENVIRONMENT and not registered)
    if not fresh:
        last = selections[-1]
        try:
            selection = Selection.parse(last.text)
        except SelectionError:
            selection = plan.selection
        ordered = [row.unix_ns for row in selections if _ordered(row.source)]
        plan = replace(
            plan,
            selection=selection,
            revision=last.revision,
            stopped=last.stopped,
            source=last.source,
            ordered_unix_ns=ordered[-1] if ordered else 0,
        )
    return Inheritance(plan=plan, fresh=fresh, processes=processes, windows=windows)


def _ordered(source: str) -> bool:
    """
    Whether a person said it, and not the environment or a file that a machine may have written.
    """
    return source != ENVIRONMENT and not source.startswith(STEPS_FILE.format(""))
