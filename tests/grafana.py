"""
What Grafana makes of our dashboards before it asks Prometheus, as far as its documentation says.

Stands in for it: variables with one value, several, or all, and the intervals that it works out. Several
values become a group of alternatives, escaped for a regular expression; all of them the variable's ``allValue``.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.grafana.dashboards import FOLDER

SCRAPE = 15
"""Seconds between two scrapes where the data source does not say."""

VARIABLE = re.compile(r"\$\{(\w+)\}|\$(\w+)")
LABEL_VALUES = re.compile(r"label_values\((.+), (\w+)\)")
SPECIAL = re.compile(r"[\\^$*+?.()|{}\[\]]")


@dataclass(frozen=True)
class Asked:
    """
    One expression of a dashboard, as it is written there.
    """

    file: str
    panel: str
    expression: str
    exemplars: bool


def dashboards() -> dict[str, dict[str, Any]]:
    """
    The checked-in dashboards by their files' names.
    """
    return {path.name: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))}


def asked() -> list[Asked]:
    """
    Every expression of every panel.
    """
    return [
        Asked(name, panel["title"], target["expr"], target["exemplar"])
        for name, page in dashboards().items()
        for panel in page["panels"]
        for target in panel["targets"]
    ]


def variables(page: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """
    The variables of a dashboard by name.
    """
    return {variable["name"]: variable for variable in page["templating"]["list"]}


def used(text: str) -> set[str]:
    """
    The names of the variables in ``text``, Grafana's own left out.
    """
    found = {first or second for first, second in VARIABLE.findall(text)}
    return {name for name in found if not name.startswith("__")}


def substituted(text: str, page: Mapping[str, Any], chosen: Mapping[str, Sequence[str]] | None = None) -> str:
    """
    ``text`` with every variable filled in: by what is ``chosen``, else by all there is.
    """
    known = variables(page)
    values = chosen or {}

    def fill(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name == "__rate_interval":
            return f"{4 * SCRAPE}s"
        if name not in values:
            return str(known[name]["allValue"])
        escaped = [SPECIAL.sub(lambda special: "\\\\" + special[0], value) for value in values[name]]
        return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"

    return VARIABLE.sub(fill, text)


def choices(query: str) -> tuple[str, str]:
    """
    The series and the label that the query of a variable takes its values from.
    """
    match = LABEL_VALUES.fullmatch(query)
    assert match is not None, query
    return match[1], match[2]


def folder() -> Path:
    """
    Where the dashboards lie.
    """
    return FOLDER
