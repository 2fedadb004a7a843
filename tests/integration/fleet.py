"""
Several nodes on this machine: a sidecar for each, which differs in its name alone, and one upstream of all.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import httpx

from stepscope_sidecar.reader import open_reader

from .agent import Agent
from .jobs import command_line, eventually
from .place import Place, placed

T = TypeVar("T")

DEADLINE = 120.0
"""Seconds for something to show upstream: finalising only gets the CPU that nobody else wants."""


@dataclass
class Upstream:
    """
    The sidecar that the others report to.
    """

    place: Place

    @property
    def url(self) -> str:
        """
        Its pages.
        """
        return str(self.place.announced()["http"])

    def get(self, path: str, **options: Any) -> httpx.Response:
        """
        Read from it.
        """
        return httpx.get(f"{self.url}{path}", trust_env=False, timeout=60, verify=False, **options)

    def windows(self) -> dict[str, dict[str, Any]]:
        """
        The windows that it lists, by node.
        """
        return {row["node"]: row for row in self.get("/api/windows").json()}

    def nodes(self) -> dict[str, dict[str, Any]]:
        """
        The nodes that it lists, by name.
        """
        return {row["node"]: row for row in self.get("/api/nodes").json()}

    def waits(self, **states: str) -> dict[str, dict[str, Any]]:
        """
        The windows once those of each node are in the state that is named for it.
        """

        def look() -> dict[str, dict[str, Any]] | None:
            found = self.windows()
            return found if all(found.get(node, {}).get("state") == state for node, state in states.items()) else None

        return shows(look)

    def printed(self) -> list[dict[str, Any]]:
        """
        What ``stepscope windows --json`` prints on its node.
        """
        found: list[dict[str, Any]] = json.loads(command_line(self.place.folder, "windows", "--json"))
        return found

    def spans(self, name: str) -> list[str]:
        """
        The windows that spans called ``name`` have arrived of.
        """
        with open_reader(self.place.attempt / "stepscope.db") as reader:
            return [str(row.attributes.get("profile.window.id")) for row in reader.spans(name=name)]


def shows(look: Callable[[], T | None]) -> T:
    """
    What ``look`` finds upstream, once it finds something. Each look takes CPU from what it waits for.
    """
    return eventually(look, deadline=DEADLINE, every=0.2)


def node(tmp_path: Path, name: str, **env: str) -> Place:
    """
    A node called ``name`` with a folder of its own; attempt a1 as all.
    """
    place = placed(tmp_path / name)
    return replace(place, env={**place.env, "STEPSCOPE_NODE": name, "STEPSCOPE_RANKS": "all", **env})


def agent(place: Place) -> Agent:
    """
    A process on that node, of the rank that is in its name.
    """
    name = place.env["STEPSCOPE_NODE"]
    found = Agent(place.socket, node=name, rank=int(name[-1]))
    found.register()
    return found


@contextmanager
def upstream(tmp_path: Path, **env: str) -> Iterator[Upstream]:
    """
    The upstream, listening.
    """
    place = node(tmp_path, "hub", **env)
    with place.sidecar():
        yield Upstream(place)


def below(hub: Upstream) -> dict[str, str]:
    """
    What makes a sidecar report to ``hub``.
    """
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": str(hub.place.announced()["otlp_http"])}


@contextmanager
def fleet(tmp_path: Path, hub: Upstream, *names: str, **env: str) -> Iterator[dict[str, Place]]:
    """
    Nodes of these names, each with a sidecar that reports to ``hub``.
    """
    with ExitStack() as stack:
        places = {name: node(tmp_path, name, **{**below(hub), **env}) for name in names}
        for place in places.values():
            stack.enter_context(place.sidecar())
        yield places
