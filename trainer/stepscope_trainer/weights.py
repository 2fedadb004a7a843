"""
The weight channel: weights go out to every replica, acknowledgements come back, and a silent replica is given up.

Owns the deadline and the list of live replicas. What a replica does with the weights is the rollouter's affair; how
calls travel comes in through the constructor (Ray, in the job).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

Rows = Sequence[Sequence[int]]


class NoReplicasError(RuntimeError):
    """
    Every rollouter replica is gone; nobody can generate.
    """


class AcknowledgementLike(Protocol):
    """
    A replica has new weights in force.
    """

    @property
    def busy_seconds(self) -> float:
        """
        Seconds spent generating since the update before.
        """

    @property
    def log_probs(self) -> list[list[float]]:
        """
        Of the probe's rows, under the new weights.
        """

    @property
    def validated(self) -> int:
        """
        Held-out problems answered.
        """

    @property
    def right(self) -> int:
        """
        Of these, answered right.
        """


class Transport(Protocol):
    """
    The three calls of Ray that the channel makes.
    """

    def put(self, value: Any) -> Any:
        """
        Make ``value`` readable by others, once.
        """

    def wait(self, refs: list[Any], *, num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        """
        Those of ``refs`` that are answered within ``timeout``, and those that are not.
        """

    def get(self, refs: Any) -> Any:
        """
        The answer; raises what the call raised.
        """


@dataclass(frozen=True, kw_only=True, slots=True)
class Publication:
    """
    What became of an update: who acknowledged, and why others were given up.
    """

    version: int
    acknowledged: dict[int, AcknowledgementLike] = field(default_factory=dict)
    given_up: dict[int, str] = field(default_factory=dict)

    @property
    def validation(self) -> float | None:
        """
        Share of the held-out problems answered right; None when none was asked.
        """
        asked = sum(answer.validated for answer in self.acknowledged.values())
        return sum(answer.right for answer in self.acknowledged.values()) / asked if asked else None

    @property
    def busy_seconds(self) -> float:
        """
        Seconds that a replica spent generating, mean over the replicas.
        """
        return sum(answer.busy_seconds for answer in self.acknowledged.values()) / len(self.acknowledged)

    def gap(self, expected: Sequence[Sequence[float]]) -> float:
        """
        The largest difference between the replicas' log-probs of the probe and the trainer's own, ``expected``.
        """
        return max(
            abs(mine - theirs)
            for answer in self.acknowledged.values()
            for row, answered in zip(expected, answer.log_probs, strict=True)
            for mine, theirs in zip(row, answered, strict=True)
        )


class WeightChannel:
    """
    Publishes versions to ``replicas`` (their ``update`` methods, as calls that return a reference).
    """

    def __init__(
        self,
        replicas: Mapping[int, Callable[..., Any]],
        *,
        transport: Transport,
        deadline: float,
        give_up: Callable[[int], None],
    ) -> None:
        """
        Wait ``deadline`` seconds for acknowledgements; ``give_up`` is told of each replica that is dropped.
        """
        self._replicas = dict(replicas)
        self._transport = transport
        self._deadline = deadline
        self._give_up = give_up
        self._sent: tuple[int, dict[int, Any]] = (0, {})

    @property
    def live(self) -> int:
        """
        Replicas not given up.
        """
        return len(self._replicas)

    def send(self, version: int, weights: Mapping[str, Tensor], *, probe: Rows, validate: bool) -> None:
        """
        Hand ``weights`` over to every live replica. Does not wait.
        """
        shared = self._transport.put(dict(weights))
        calls = {
            replica: update(version, shared, probe=probe, validate=validate)
            for replica, update in self._replicas.items()
        }
        self._sent = (version, calls)

    def wait(self) -> Publication:
        """
        Wait for the acknowledgements of what was sent.

        Raises:
            NoReplicasError: none is left.
        """
        version, calls = self._sent
        publication = Publication(version=version)
        answered, _ = self._transport.wait(list(calls.values()), num_returns=len(calls), timeout=self._deadline)
        for replica, call in calls.items():
            if call not in answered:
                publication.given_up[replica] = f"no acknowledgement within {self._deadline:g} s"
                continue
            try:
                publication.acknowledged[replica] = self._transport.get(call)
            except Exception as error:  # noqa: BLE001 - whatever ended a replica, the run goes on with the others
                publication.given_up[replica] = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        for replica in publication.given_up:
            del self._replicas[replica]
            self._give_up(replica)
        if not self._replicas:
            raise NoReplicasError(f"no rollouter is left after update {version}: {publication.given_up}")
        return publication
