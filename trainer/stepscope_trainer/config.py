"""
The configuration of the reference job: one frozen object, checked whole before anything starts.
"""

from argparse import SUPPRESS, ArgumentParser, BooleanOptionalAction, Namespace
from dataclasses import dataclass, field, fields
from typing import Any

ENGINES = ("torch", "vllm")


class JobError(ValueError):
    """
    The job cannot start as configured; the message says which option, its value and the likely fix.
    """


def _option(default: Any, text: str, *, metavar: str | None = None, hidden: bool = False) -> Any:
    return field(default=default, metadata={"help": text, "metavar": metavar, "hidden": hidden})


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """
    What the reference job does. The defaults are the demo's.
    """

    steps: int = _option(12, "update weights up to this version", metavar="N")
    mini_batches_per_step: int = _option(4, "optimizer steps before the weights are published", metavar="N")
    trainer_ranks: int = _option(1, "trainer processes; gradients are summed over them", metavar="N")
    rollouters: int = _option(2, "rollouter replicas", metavar="N")
    staleness: int = _option(1, "versions that a sample may be older than the weights it trains", metavar="K")
    sync: bool = _option(False, "one rollouter, staleness 0: rewards depend on the seed alone")
    seed: int = _option(0, "seed of weights, problems and sampling", metavar="N")
    prompts: int = _option(64, "prompts per step", metavar="N")
    samples: int = _option(16, "samples per prompt", metavar="N")
    slots: int = _option(1, "prompts that a replica generates for at the same time", metavar="N")
    capacity: int = _option(0, "prompts that the sample queue holds; 0: as many as staleness allows", metavar="N")
    warmup_steps: int = _option(300, "supervised steps before step 1; none with --model", metavar="N")
    learning_rate: float = _option(5e-4, "learning rate of the policy updates", metavar="X")
    validate_every: int = _option(4, "validate after every Nth update; 0: never", metavar="N")
    checkpoint_every: int = _option(0, "save a checkpoint after every Nth update; 0: never", metavar="N")
    checkpoints: str = _option("", "folder of the checkpoints", metavar="DIR")
    resume: str = _option("", "go on from this version, or from the latest", metavar="VERSION|latest")
    model: str = _option("", "folder of a Hugging Face causal LM instead of the built-in model", metavar="PATH")
    engine: str = _option("torch", "what generates: torch, or vllm, which needs --model", metavar="torch|vllm")
    log_prob_tolerance: float = _option(
        0.1,
        "end the job where a log-prob of trainer and rollouter differs by more after an update; 0: never",
        metavar="X",
    )
    ack_deadline: float = _option(60.0, "seconds a replica has to take new weights in", metavar="SECONDS")
    stepscope: bool = _option(True, "instrument the loop")
    test_fail_at_step: int = _option(0, "test switch: raise in the trainer in this step", metavar="N", hidden=True)
    test_deaf_replica: int = _option(
        -1, "test switch: this replica never acknowledges an update", metavar="N", hidden=True
    )

    def __post_init__(self) -> None:
        """
        Refuse what cannot run.
        """
        for name in ("steps", "mini_batches_per_step", "trainer_ranks", "rollouters", "prompts", "slots"):
            if getattr(self, name) < 1:
                raise JobError(f"{_flag(name)} {getattr(self, name)}: at least 1 is needed")
        if self.samples < 2:
            raise JobError(f"--samples {self.samples}: a group needs at least 2 to have an advantage")
        for name in ("staleness", "capacity", "warmup_steps", "validate_every", "checkpoint_every"):
            if getattr(self, name) < 0:
                raise JobError(f"{_flag(name)} {getattr(self, name)}: it cannot be negative")
        share = self.mini_batches_per_step * self.trainer_ranks
        if self.prompts % share:
            raise JobError(
                f"--prompts {self.prompts} does not divide into {self.mini_batches_per_step} mini-batches over "
                f"{self.trainer_ranks} trainer ranks; a multiple of {share} does"
            )
        if (self.checkpoint_every or self.resume) and not self.checkpoints:
            raise JobError("--checkpoint-every and --resume need --checkpoints DIR")
        if self.resume and self.resume != "latest" and not self.resume.isdigit():
            raise JobError(f"--resume {self.resume!r}: give a version number, or latest")
        if self.engine not in ENGINES:
            raise JobError(f"--engine {self.engine!r}: there is {' and '.join(ENGINES)}")
        if self.engine == "vllm" and not self.model:
            raise JobError("--engine vllm needs --model PATH: it can't serve the built-in model")
        if self.log_prob_tolerance < 0:
            raise JobError(f"--log-prob-tolerance {self.log_prob_tolerance}: it cannot be negative")
        if self.ack_deadline <= 0:
            raise JobError(f"--ack-deadline {self.ack_deadline}: a positive number of seconds is needed")

    @property
    def replicas(self) -> int:
        """
        Rollouter replicas that run.
        """
        return 1 if self.sync else self.rollouters

    @property
    def allowed_staleness(self) -> int:
        """
        The staleness in force.
        """
        return 0 if self.sync else self.staleness

    @property
    def queue_capacity(self) -> int:
        """
        Prompts that the sample queue holds: at least one step's, or no step could start.
        """
        return max(self.prompts, self.capacity or self.prompts * (1 + self.allowed_staleness))

    @property
    def requests_per_replica(self) -> int:
        """
        Requests a replica has in hand: one waits for each that generates, so that no slot is empty while samples are
        handed over. With ``sync`` all of a step's: then batches don't depend on timing.
        """
        return self.prompts if self.sync else 2 * self.slots

    def due(self, every: int, version: int) -> bool:
        """
        Whether something that happens ``every`` so many updates happens after update ``version``.
        """
        return bool(every) and version % every == 0


def add_arguments(parser: ArgumentParser) -> None:
    """
    Give ``parser`` an option for each field of ``Config``; the test switches are taken, but not shown.
    """
    for item in fields(Config):
        options: dict[str, Any] = {
            "default": item.default,
            "help": SUPPRESS if item.metadata["hidden"] else item.metadata["help"],
        }
        if item.default is True:
            options["action"] = BooleanOptionalAction
        elif item.default is False:
            options["action"] = "store_true"
        else:
            options.update(type=type(item.default), metavar=item.metadata["metavar"])
        parser.add_argument(_flag(item.name), **options)


def from_arguments(arguments: Namespace) -> Config:
    """
    The configuration in parsed ``arguments``.

    Raises:
        JobError: it cannot run.
    """
    return Config(**{item.name: getattr(arguments, item.name) for item in fields(Config)})


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
