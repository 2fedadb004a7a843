"""
What one run of the loop is told: by which way it is profiled, which steps, and how it ends.
"""

import json
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path

from stepscope_trainer.config import Config


class Way(StrEnum):
    """
    How the loop is profiled.
    """

    NONE = "none"
    VERL = "verl"
    OPS = "ops"
    SPANS = "spans"

    @property
    def ours(self) -> bool:
        """
        Whether stepscope does it.
        """
        return self in (Way.OPS, Way.SPANS)


class Scenario(StrEnum):
    """
    How a run begins and ends: whole, or so that a profiler may be left on.
    """

    WHOLE = "whole"
    EXCEPTION = "exception"
    LAST_STEP = "last step"
    RESUME = "resume"


SELECTED = (3, 6, 7, 10)
"""Two alone and two in a row. Step 1 is none of them: it pays for what is made once."""

STEPS = 11
"""Leaves the updates 4, 8 and 11 with no selected step before or after them, for comparison (1 is not counted)."""

ENDING_STEPS = 3
"""Of the runs that are about how they end. The last two are selected: the training raises in the first of them, the
samples end before the second, and it is the version before the second that a run resumes from."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """
    One run. ``data_steps`` is for how many steps there are samples, where these end before ``steps``.
    """

    way: Way
    mini_batches: int
    folder: str
    scenario: Scenario = Scenario.WHOLE
    selected: tuple[int, ...] = SELECTED
    steps: int = STEPS
    data_steps: int = 0
    fail_at_step: int = 0
    resume: int = 0
    checkpoints: str = ""
    prompts: int = 32
    samples: int = 16
    layers: int = 8
    warmup_steps: int = 30

    @property
    def path(self) -> Path:
        """
        The run's folder.
        """
        return Path(self.folder)

    @property
    def supplied(self) -> int:
        """
        The last step that there are samples for.
        """
        return self.data_steps or self.steps

    @property
    def touched(self) -> frozenset[int]:
        """
        The updates that end or begin a selected step.
        """
        return frozenset(self.selected) | frozenset(step - 1 for step in self.selected)

    @property
    def completed(self) -> tuple[int, ...]:
        """
        The steps that this run completes.
        """
        last = min(self.supplied, self.fail_at_step - 1 if self.fail_at_step else self.steps)
        return tuple(range(self.resume + 1, last + 1))

    @property
    def config(self) -> Config:
        """
        The same for the job. Each update is followed by a validation and a checkpoint, so that every window has both
        before and behind it.
        """
        return Config(
            steps=self.steps,
            mini_batches_per_step=self.mini_batches,
            rollouters=1,
            prompts=self.prompts,
            samples=self.samples,
            warmup_steps=self.warmup_steps,
            validate_every=1,
            checkpoint_every=1,
            checkpoints=self.checkpoints or str(self.path / "checkpoints"),
            resume=str(self.resume) if self.resume else "",
            stepscope=self.way.ours,
            test_fail_at_step=self.fail_at_step,
        )

    def environment(self) -> dict[str, str]:
        """
        What a user would set for it.
        """
        if not self.way.ours:
            return {}
        return {
            "STEPSCOPE_DIR": str(self.path / "runs"),
            "STEPSCOPE_STEPS": ",".join(map(str, self.selected)),
            "STEPSCOPE_LEVEL": str(self.way),
            # A late answer on a crowded machine costs a window, and that is not what is compared.
            "STEPSCOPE_BOUNDARY_SECONDS": "20",
        }

    def ending(self, scenario: Scenario, *, folder: Path, checkpoints: str = "") -> "Setting":
        """
        The short run of the same kind that ends by ``scenario``; ``checkpoints`` are what it resumes from.
        """
        short = replace(
            self,
            scenario=scenario,
            folder=str(folder),
            steps=ENDING_STEPS,
            selected=(ENDING_STEPS - 1, ENDING_STEPS),
            prompts=2 * self.mini_batches,
            samples=4,
            layers=2,
            warmup_steps=1,
        )
        if scenario is Scenario.EXCEPTION:
            return replace(short, fail_at_step=ENDING_STEPS - 1)
        if scenario is Scenario.LAST_STEP:
            return replace(short, data_steps=ENDING_STEPS - 1)
        return replace(short, resume=ENDING_STEPS - 1, checkpoints=checkpoints)

    def dump(self) -> str:
        """
        As text, for ``load``.
        """
        return json.dumps(asdict(self))


def load(text: str) -> Setting:
    """
    The setting that ``text`` was dumped of.
    """
    fields = json.loads(text)
    fields.update(way=Way(fields["way"]), scenario=Scenario(fields["scenario"]), selected=tuple(fields["selected"]))
    return Setting(**fields)
