"""
What is to be recorded: selection, ranks, tools and level in force, their revision, and who said so.

Pure values. The environment of the first registration is only the initial value; a person's order (API, command line)
overrides it, and a later registration whose environment differs is answered with a warning.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from stepscope import names
from stepscope.errors import ConfigurationError
from stepscope.selection import Ranks, Selection
from stepscope.settings import SHARED, Settings, read

ENVIRONMENT = "environment"
"""The source of a selection that no person has changed."""

API = "api"
"""The source of what a person ordered here."""

STOP_FILE = "file {}"
"""The source of a stop that a file asked for; the file may have been left by an earlier run."""

UPSTREAM = "api of the upstream, order {}"
"""The source of what a person ordered there; the number tells a restarted sidecar which order it has obeyed."""

STEPS_FILE = "steps file {}"
"""The source of a selection that the watched file named."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """
    The plan in force. ``texts`` are the settings it was first made of, as they were written.
    """

    selection: Selection
    ranks: Ranks
    tools: Mapping[str, str]
    level: str
    continuous: bool = False
    """Consecutive selected steps share one window per process."""
    revision: int = 1
    stopped: bool = False
    source: str = ENVIRONMENT
    ordered_unix_ns: int = 0
    """When a person last changed it; 0 if nobody has."""
    texts: Mapping[str, str]
    settled: bool = False
    """A process has registered: what it brought along holds."""

    @classmethod
    def of(cls, settings: Settings, *, environment: Mapping[str, str]) -> "Plan":
        """
        The plan that the sidecar's own ``environment``, read as ``settings``, makes.
        """
        return cls(
            selection=settings.selection,
            ranks=settings.ranks,
            tools=settings.tools,
            level=settings.level,
            continuous=settings.continuous,
            texts={name: environment.get(name, "").strip() for name in SHARED},
        )

    @property
    def said_by(self) -> str:
        """
        What kind of thing changed it last: environment, api or file. Never a path: it goes into spans.
        """
        if ordered(self.source):
            return API
        return "file" if "file " in self.source else self.source

    @property
    def stopped_by(self) -> str:
        """
        Who stopped all recording, where somebody did: ``api``, or ``file`` and its path.
        """
        return self.source if self.stopped else ""

    def tool(self, role: str) -> str:
        """
        The profiler configured for ``role``.
        """
        return self.tools.get(role) or self.tools.get("") or "torch"

    def selected(self, *, step: int, role: str, rank: int) -> bool:
        """
        Whether this rank's part of ``step`` is to be recorded.
        """
        return not self.stopped and step in self.selection and self.ranks.holds(role=role, rank=rank)

    def registered(self, environment: Mapping[str, str]) -> tuple["Plan", list[str]]:
        """
        The plan after a process with ``environment`` registered, and what that process has to be warned of.
        """
        told = {name: environment.get(name, "").strip() for name in SHARED}
        if self.settled:
            return self, [
                f"{name}={told[name]!r} here differs from {self.texts[name]!r}, which the run began with and keeps"
                for name in SHARED
                if told[name] and told[name] != self.texts[name]
            ]
        try:
            found = read({name: text for name, text in told.items() if text})
        except ConfigurationError as error:
            return self, [f"{error}; the sidecar's own setting holds"]
        plan = replace(self, settled=True, texts={name: told[name] or self.texts[name] for name in SHARED})
        if told[names.STEPS] and self.source == ENVIRONMENT:
            plan = replace(plan, selection=found.selection)
        if told[names.RANKS]:
            plan = replace(plan, ranks=found.ranks)
        if told[names.TOOLS]:
            plan = replace(plan, tools=found.tools)
        if told[names.LEVEL_ENV]:
            plan = replace(plan, level=found.level)
        if told[names.CONTINUOUS]:
            plan = replace(plan, continuous=found.continuous)
        return plan, []

    def obstacles(self) -> list[str]:
        """
        What a process that registers has to be warned of: nobody may remember that the file is there.
        """
        if not self.stopped_by.startswith(STOP_FILE.format("")):
            return []
        remedy = "`stepscope profile --steps ...` overrides it for this run; remove it, or later runs are stopped too"
        return [f"recording is stopped by the {self.stopped_by}: {remedy}"]

    def ordered(self, selection: Selection, *, source: str, unix_ns: int) -> "Plan":
        """
        The plan after a person named new steps; that also takes a stop back.
        """
        return replace(
            self,
            selection=selection,
            revision=self.revision + 1,
            stopped=False,
            source=source,
            ordered_unix_ns=unix_ns,
        )

    def filed(self, selection: Selection, *, source: str) -> "Plan":
        """
        The plan after the watched file named new steps. It takes no stop back: a file that is written by a machine
        must not undo what a person switched off.
        """
        return replace(
            self,
            selection=selection,
            revision=self.revision + 1,
            source=self.source if self.stopped else source,
        )

    def halted(self, *, source: str, unix_ns: int) -> "Plan":
        """
        The plan after a person stopped everything.
        """
        return replace(self, revision=self.revision + 1, stopped=True, source=source, ordered_unix_ns=unix_ns)


def ordered(source: str) -> int:
    """
    The number of the upstream's order that ``source`` names; 0 if it names none.
    """
    before, _, number = source.rpartition(" ")
    return int(number) if f"{before} {{}}" == UPSTREAM and number.isdecimal() else 0
