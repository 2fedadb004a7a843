"""
The engine: its weights are the trainer's after each kind of update, and what was kept goes on under the new ones.
"""

import asyncio
from pathlib import Path

import pytest
from opentelemetry import trace

import stepscope
from stepscope.testing import capture_spans
from stepscope_rollouter.engines.vllm import number, unusable
from stepscope_rollouter.samples import ranges
from tests.vllm import tiny
from tests.vllm.conftest import END, PROMPT, Served, largest_gap

pytestmark = pytest.mark.filterwarnings("default")  # vLLM's own

SLOW = 0.1
"""Seconds for each token, where generation is to be met half-way."""

CLOSE = 1e-3
"""Two implementations of the same float32 model differ by about 1e-5; other weights by more than 1."""


def test_log_probs_are_the_trainers_after_the_initial_load(served: Served) -> None:
    """
    Both as vLLM has loaded the model itself, and after the load that the run begins with.
    """
    by_itself = served.run(served.gap())
    served.run(served.update())
    # The same again, as after a load that failed.
    served.run(served.update())
    loaded = served.run(served.gap())
    served.train()
    others = served.run(served.gap())

    assert by_itself < CLOSE
    assert loaded < CLOSE
    assert others > 0.1


def test_what_is_kept_over_an_update_goes_on_under_the_new_weights(served: Served) -> None:
    """
    A check runs meanwhile and leaves it alone; every token says its version, and has that version's log-prob.
    """

    async def work() -> None:
        served.train()
        await served.update()
        old = served.version
        await slow_down(served, SLOW)
        asked = [asyncio.create_task(served.generate(i, count=4, limit=40)) for i in range(4)]
        while not served.engine.busy_seconds or not _under_way(served):
            await asyncio.sleep(0)
        await served.engine.pause()
        await slow_down(served, 0.0)
        busy = served.engine.busy_seconds
        served.train()
        await served.update()
        gap = await served.gap()
        greedy = await served.engine.greedy([PROMPT, PROMPT], limit=4, end=END)
        kept, still = [task.done() for task in asked], served.engine.busy_seconds
        await served.engine.resume()
        answers = [answer for group in await asyncio.gather(*asked) for answer in group]
        rows = [[*PROMPT, *answer.tokens] for answer in answers]
        expected = [row[len(PROMPT) :] for row in served.learner.row_log_probs(rows)]
        newer = [[version == served.version for version in answer.versions] for answer in answers]

        assert gap < CLOSE
        assert greedy[0] == greedy[1]
        assert not any(kept)
        assert busy == still
        assert {old, served.version} == {version for answer in answers for version in answer.versions}
        assert any(set(answer.versions) == {old, served.version} for answer in answers), [
            ranges(answer.versions) for answer in answers
        ]
        # A log-prob of a token of the new version is that of the new weights, over a prefix of both.
        assert largest_gap(
            [
                [found for found, new in zip(answer.log_probs, flags, strict=True) if new]
                for answer, flags in zip(answers, newer, strict=True)
            ],
            [
                [found for found, new in zip(row, flags, strict=True) if new]
                for row, flags in zip(expected, newer, strict=True)
            ],
        ) < CLOSE  # fmt: skip

    served.run(work())


def test_a_cancelled_request_leaves_nothing_in_hand(served: Served) -> None:
    """
    What the job's end cancels does not occupy the engine.
    """

    async def work() -> int:
        await slow_down(served, SLOW)
        asked = asyncio.create_task(served.generate(count=4, limit=50))
        while not _under_way(served):
            await asyncio.sleep(0)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        await slow_down(served, 0.0)
        left: int = served.engine.llm.get_num_unfinished_requests()
        return left

    assert 0 == served.run(work())
    assert served.engine.idle


def test_the_label_of_unnamed_weights_is_version_zero() -> None:
    """
    Labels are text in vLLM and versions here.
    """
    assert [0, 0, 12] == [number("default"), number("0"), number("12")]


def test_a_model_with_tied_embeddings_is_refused(tmp_path: Path) -> None:
    """
    After a reload vLLM would silently generate wrong tokens with it.
    """
    assert "tied embeddings" in unusable(str(tiny.build(tmp_path / "tied", tied=True)))
    assert "" == unusable(str(tiny.build(tmp_path / "untied")))


def test_our_spans_keep_out_of_the_global_provider_that_vllm_sets(served: Served) -> None:
    """
    vLLM sends whatever is in the global one to where it was told; ours is private.
    """
    with capture_spans(role="rollouter") as captured:
        stepscope.weights_loaded(0)
        with stepscope.span("rollout.generate") as span:
            served.run(served.generate(count=2, carrier=span.carrier()))
    getattr(trace.get_tracer_provider(), "force_flush")()  # noqa: B009 - the API's type has none

    assert ["rollout.generate"] == [span.name for span in captured.spans if span.name == "rollout.generate"]
    assert any(b"llm_request" in body for body in served.received)
    assert not any(b"rollout.generate" in body for body in served.received)


async def slow_down(served: Served, seconds: float) -> None:
    """
    Have the engine, which is another process, take its time: the test may lose its core.
    """
    await served.engine.llm.collective_rpc("slow_down", args=(seconds,))


def _under_way(served: Served) -> bool:
    """
    Whether some request has its first tokens.
    """
    states = served.engine.llm.output_processor.request_states.values()
    return bool(states) and all(state.detokenizer.num_output_tokens() for state in states)
