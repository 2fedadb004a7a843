"""
Leaving on an engine's event loop, and where an engine's own spans go.
"""

import asyncio

import stepscope
from stepscope.testing import capture_spans


def test_leaving_on_an_event_loop_closes_what_is_open_once() -> None:
    """
    By the coroutine; what follows finds nothing open. Twice is once.
    """

    async def leave() -> None:
        await stepscope.aweights_loaded(0)
        await stepscope.ashutdown(timeout=1.0)
        await stepscope.ashutdown(timeout=1.0)

    with capture_spans(role="rollouter", selected={1}) as captured:
        asyncio.run(leave())
        closed = captured.agent.windows.of("close")
        steps = captured.named("rl.step.process")

    assert ["process_exit"] == [call["reason"] for call in closed]
    assert [1] == [span.step for span in steps]


def test_without_a_sidecar_an_engines_spans_go_nowhere() -> None:
    """
    Nor do they while stepscope is off.
    """
    asyncio.run(stepscope.ashutdown())

    assert "" == stepscope.otlp_endpoint()
    with capture_spans() as captured:
        assert captured.agent.otlp_endpoint() == stepscope.otlp_endpoint()
