"""
What stepscope was asked and which spans came, of one run in this process, as plain data.

The agent is the stand-in of ``stepscope.testing``, put where ``init()`` makes the real one: so registration, boundaries
and spans are the real ones, and no sidecar is needed.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from opentelemetry.sdk.trace import ReadableSpan

from stepscope import agent, export, names
from stepscope.selection import Selection
from stepscope.testing import FakeAgent, plain


@contextmanager
def captured(scenario: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """
    Inside, ``init()`` comes to a stand-in agent with the selection of the environment. Filled in on leaving.
    """
    found: dict[str, Any] = {}
    if scenario.get("agent") == "real":
        yield found
        return
    spans: list[dict[str, Any]] = []
    agents: list[FakeAgent] = []
    identities: list[dict[str, Any]] = []

    class Agent(FakeAgent):
        @classmethod
        def start(cls, settings: Any, identity: Any, **rest: Any) -> "Agent":
            chosen = Selection.parse(os.environ.get(names.STEPS, ""))
            made = cls(selected={step for step in range(1, 100) if step in chosen})
            made.windows.continuous = settings.continuous
            agents.append(made)
            identities.append(
                {
                    "role": identity.role,
                    "rank": identity.rank,
                    "param_version": identity.param_version,
                    "resumed_from": identity.resumed_from,
                    "total_steps": identity.total_steps,
                    "register_only": identity.register_only,
                }
            )
            return made

    class Outbox:
        def __init__(self, **rest: Any) -> None:
            pass

        def __call__(self, span: ReadableSpan) -> None:
            data = plain(span)
            spans.append(
                {
                    "name": data.name,
                    "parent": data.parent_span_id,
                    "id": data.span_id,
                    "trace": data.trace_id,
                    "start": data.start_unix_ns,
                    "end": data.end_unix_ns,
                    "status": data.status,
                    "links": [[link.trace_id, link.span_id] for link in data.links],
                    "attributes": dict(data.attributes),
                }
            )

        def shutdown(self, timeout: float) -> None:
            pass

        def again(self) -> None:
            """
            Nothing waits here.
            """

        def hurry(self, *args: Any) -> None:
            pass

    changed = {key: str(value) for key, value in scenario.get("environment", {}).items()}
    before = {key: value for key, value in os.environ.items() if key.startswith("STEPSCOPE_")}
    os.environ.update(changed)
    try:
        with mock.patch.object(agent, "Agent", Agent), mock.patch.object(export, "Outbox", Outbox):
            yield found
    finally:
        for key in [key for key in os.environ if key.startswith("STEPSCOPE_")]:
            del os.environ[key]
        os.environ.update(before)
    found["spans"] = spans
    found["identities"] = identities
    found["rows"] = [list(row) for each in agents for row in each.rows]
    found["calls"] = [[name, told] for each in agents for name, told in each.calls + each.windows.calls]
    found["windows"] = [
        [name, told] for each in agents for name, told in each.windows.calls if name in {"open", "close", "extend"}
    ]
