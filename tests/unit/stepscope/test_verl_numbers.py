"""
What verl says beside its work may be of any shape: it costs what would have been made of it, never the work.
"""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from stepscope.complaints import Complaints
from stepscope.integrations.verl import minibatch, phases, server, trainer, worker
from stepscope.testing import capture_spans


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A process that has complained of nothing.
    """
    for module in (minibatch, server, worker):
        monkeypatch.setattr(module, "complaints", Complaints())


class Number:
    """
    Stands in for a tensor that is no number, or cannot be read.
    """

    def __int__(self) -> int:
        raise RuntimeError("a Tensor with 2 elements cannot be converted to Scalar")


class Nameless:
    """
    A key that cannot be written.
    """

    def __str__(self) -> str:
        raise RuntimeError("no name")


@pytest.mark.parametrize("value", [None, "x", float("nan"), float("inf"), -1, Number(), [1, 2]])
def test_what_is_no_version_is_none(value: object) -> None:
    """
    Whatever the error is that its conversion ends with.
    """
    assert phases.whole(value) is None


def test_a_tag_without_end_costs_its_version_alone() -> None:
    """
    The actor's update returns, and the other samples are in the table.
    """
    tags: list[dict[str, object]] = [
        {"min_global_steps": float("inf"), "max_global_steps": Number(), "seq_len": 3},
        {"min_global_steps": 1, "max_global_steps": 2, "seq_len": 4},
    ]
    batch = SimpleNamespace(keys=["u_0_0", "u_1_0"], tags=tags)
    update = minibatch.updates_actor(trainer.told)(lambda held, batch: "updated")

    with capture_spans() as captured:
        assert "updated" == update(None, batch)

    assert [("u_0_0", None, None), ("u_1_0", 1, 2)] == [row[:3] for row in captured.agent.rows]


@pytest.mark.parametrize(
    "rows", [[(Nameless(), 0, 1, None)], [("a", 0, 1)], [("a", 0, 1, None, None)]], ids=["key", "short", "long"]
)
def test_rows_of_another_shape_reach_no_table_and_stop_no_training(rows: Any, caplog: pytest.LogCaptureFixture) -> None:
    """
    The update is made, and the log says what was not.
    """
    update = minibatch.updates_actor(lambda batch: (rows, 7))(lambda held, batch: "updated")

    with capture_spans() as captured:
        assert "updated" == update(None, None)

    assert [] == captured.agent.rows
    assert "the samples of a mini-batch" in caplog.text


def test_an_answer_without_a_number_of_tokens_is_handed_on(caplog: pytest.LogCaptureFixture) -> None:
    """
    Its request has a span that says none.
    """

    async def original(held: object, *told: object) -> Any:
        return SimpleNamespace(token_ids=5)

    with capture_spans(role="rollouter") as captured:
        answer = asyncio.run(server.generates(original)(None, [1], {}, "r"))

    assert 5 == answer.token_ids
    assert [None] == [span.attributes.get("rl.tokens") for span in captured.named("rollout.generate")]
    assert "the tokens of a request" in caplog.text


def test_a_worker_without_a_rank_takes_its_weights(caplog: pytest.LogCaptureFixture) -> None:
    """
    In a verl that has renamed it, and stays out of the run.
    """

    async def original(held: object, version: int) -> str:
        return "taken"

    with capture_spans(role="another"):
        assert "taken" == asyncio.run(worker.updates(original)(SimpleNamespace(), 3))

    assert "the rank of a worker" in caplog.text
