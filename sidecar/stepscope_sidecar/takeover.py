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
from stepscope_sidecar.ledger import process_of, window_of
from stepscope_sidecar.plan import ENVIRONMENT, Plan
from stepscope_sidecar.processes import Process
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.surroundings import left_behind
from stepscope_sidecar.windows import Window


@dataclass(frozen=True, kw_only=True, slots=True)
class Inheritance:
    """
    What a former sidecar of this attempt left.
    """

    plan: Plan
    processes: list[Process]
    windows: list[Window]


def inherit(store: Path, settings: Settings, plan: Plan, *, node: str) -> Inheritance:
    """
    What there is of this node; ``plan`` is what our own environment says, and holds where nobody has changed it.
    """
    with open_reader(store) as reader:
        selections = reader.selections()
        processes = [process_of(row) for row in reader.processes() if not row.ended_unix_ns and row.node == node]
        rows = [row for row in reader.windows() if row.node == node]
    newest = max((row.step for row in rows), default=0)
    windows = [window_of(row) for row in rows]
    known = {window.window for window in windows}
    windows = [w for w in windows if not w.state.final or w.step >= newest - KEPT_STEPS]
    windows += left_behind(settings, known=known, node=node)
    if selections:
        last = selections[-1]
        try:
            selection = Selection.parse(last.text)
        except SelectionError:
            selection = plan.selection
        plan = replace(
            plan,
            selection=selection,
            revision=last.revision,
            stopped=last.stopped,
            source=last.source,
            ordered_unix_ns=0 if last.source == ENVIRONMENT else last.unix_ns,
        )
    return Inheritance(plan=plan, processes=processes, windows=windows)
