"""
What a captured process told: its spans, and what its windows heard.
"""

from stepscope.testing import Captured, SpanData


def only(captured: Captured, name: str) -> SpanData:
    """
    The one finished span called ``name``.
    """
    (span,) = captured.named(name)
    return span


def order(captured: Captured) -> list[str]:
    """
    What happened to windows and the process's span, in order.
    """
    told = captured.agent.windows.calls
    return [
        name if name not in {"span_started", "span_ended"} else f"{name} {detail.get('name', '')}".strip()
        for name, detail in told
    ]


def closes(captured: Captured) -> list[tuple[object, object, object]]:
    """
    Version, reason and flaw of each window that was closed.
    """
    return [(told["version"], told["reason"], told["incomplete"]) for told in captured.agent.windows.of("close")]
