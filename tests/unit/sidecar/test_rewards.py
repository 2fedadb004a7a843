"""
The reward that is exposed is that of the last step, in whatever order its spans come.
"""

import itertools
import math
from dataclasses import replace
from pathlib import Path

import pytest

from stepscope import names
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.rewards import REWARD
from stepscope_sidecar.rows import OwnSpan
from stepscope_sidecar.store import Store
from tests.unit.sidecar.bodies import ATTEMPT, body, span
from tests.unit.sidecar.stored import WAIT


def rewarded(number: int, reward: float, *, name: str = "train.update_actor", step: int = 1, **more: float) -> OwnSpan:
    """
    A span that tells a reward.
    """
    made = span(number, step=step, name=name)
    told = {names.REWARD: reward, **{f"rl.{key}": value for key, value in more.items()}}
    return replace(made, attributes={**made.attributes, **told})


def told(path: Path, *bodies: list[OwnSpan]) -> dict[str, float]:
    """
    The reward by role once a store at ``path`` has read these requests, one after the other.
    """
    store = Store.open(path / "stepscope.db", attempt=ATTEMPT)
    for spans in bodies:
        store.append(body(*spans), len(spans)).result(WAIT)
    assert store.close(timeout=WAIT)
    with open_reader(store.path) as reader:
        return {total.labels["role"]: total.value for total in reader.totals().values if total.name == REWARD}


def test_the_parts_of_a_step_count_by_their_samples(tmp_path: Path) -> None:
    """
    Over several requests; one that does not say how many samples it had counts as one.
    """
    assert {"trainer": pytest.approx(0.5)} == told(
        tmp_path, [rewarded(1, 0.25, samples=2)], [rewarded(2, 1.0), rewarded(3, 0.5, samples=1)]
    )


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_the_last_step_and_the_whole_of_it_count_first(tmp_path: Path, order: tuple[int, ...]) -> None:
    """
    An earlier step that comes late changes nothing, nor do parts of a step that has spoken for itself.
    """
    spans = [
        rewarded(1, -5.0, step=1),
        rewarded(2, -1.0, step=2),
        rewarded(3, 0.75, step=2, name="rl.step.process"),
    ]

    assert {"trainer": 0.75} == told(tmp_path, *([spans[number]] for number in order))


def test_what_is_no_reward_of_a_step_is_left_out(tmp_path: Path) -> None:
    """
    Validation, and what is no finite number.
    """
    odd = [rewarded(2, math.nan), rewarded(3, math.inf), rewarded(4, True)]

    assert {} == told(tmp_path, [rewarded(1, 1.0, name="validate"), *odd])


def test_a_number_of_samples_that_cannot_be_counts_as_one(tmp_path: Path) -> None:
    """
    None, or less.
    """
    spans = [rewarded(number, value, samples=samples) for number, value, samples in ((1, 1.0, 0), (2, 2.0, -3))]

    assert {"trainer": 1.5} == told(tmp_path, spans)
