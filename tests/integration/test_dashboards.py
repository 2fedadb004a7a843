"""
Every expression of every dashboard and every alert, asked of a real Prometheus that has scraped a run like the demo's.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import grafana
from tests.integration.prometheus import JOB, Prometheus, measured
from tests.unit.sidecar.stored import holds

pytestmark = [pytest.mark.prometheus, pytest.mark.slow]

PAGES = grafana.dashboards()

SILENT = {
    ("sidecars.json", "Since the last error"): "no error was logged",
    ("cost.json", "Updates kept waiting"): "its rollouter enters steps, and has no updates that could wait",
}
"""Panels that this run, which is well, leaves empty, and why."""


RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "stepscope.rules.yml"

EMPTY: dict[str, str] = {}
"""Alerts whose expression finds no series in a healthy run, and why that is right. There is none."""

COMPARISON = re.compile(r" (==|!=|>=|<=|>|<) ")


def alerts() -> list[dict[str, Any]]:
    """
    All alerts.
    """
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, str]]:
    """
    One that has scraped a run, and the run's address.
    """
    with measured(tmp_path_factory.mktemp("dashboards")) as (prometheus, run):
        yield prometheus, run.target


@pytest.mark.parametrize("asked", grafana.asked(), ids=lambda asked: f"{asked.file}:{asked.panel}")
def test_an_expression_has_data(found: tuple[Prometheus, str], asked: grafana.Asked) -> None:
    """
    With all chosen, and with the run, its node and both roles chosen, as the dashboards' own variables offer them.
    """
    prometheus, target = found
    page = PAGES[asked.file]
    chosen = {"job": [JOB], "instance": [target], "role": ["trainer", "rollouter"]}
    expressions = [grafana.substituted(asked.expression, page), grafana.substituted(asked.expression, page, chosen)]

    if (asked.file, asked.panel) in SILENT:
        assert [[], []] == [prometheus.query(expression) for expression in expressions]
        return
    for expression in expressions:
        assert holds(lambda wanted=expression: known(prometheus, wanted)), expression  # type: ignore[misc]


def known(prometheus: Prometheus, expression: str) -> bool:
    """
    Whether ``expression`` has a value that is a number.
    """
    return any(series["value"][1] != "NaN" for series in prometheus.query(expression))


@pytest.mark.parametrize("name", PAGES)
def test_variables_have_values(found: tuple[Prometheus, str], name: str) -> None:
    """
    Each offers the run, its node and its roles.
    """
    prometheus, target = found
    expected = {"job": {JOB}, "instance": {target}, "role": {"trainer", "rollouter"}}
    offered: dict[str, set[str]] = {}

    def right() -> bool:
        for variable in grafana.variables(PAGES[name]).values():
            if variable["type"] == "query":
                series, label = grafana.choices(variable["query"])
                answer = prometheus.query(f"count by ({label}) ({grafana.substituted(series, PAGES[name])})")
                offered[variable["name"]] = {item["metric"][label] for item in answer}
        return {key: expected[key] for key in offered} == offered

    # After a scrape that came late there is nothing until the next.
    assert holds(right), offered


def test_exemplars_are_there_where_they_are_asked_for(found: tuple[Prometheus, str]) -> None:
    """
    Every panel that asks for exemplars gets some, which name a trace.
    """
    prometheus, _ = found
    without = []
    for asked in grafana.asked():
        if asked.exemplars:
            exemplars = prometheus.exemplars(grafana.substituted(asked.expression, PAGES[asked.file]))
            if not any("trace_id" in exemplar["labels"] for exemplar in exemplars):
                without.append(f"{asked.file}: {asked.panel}")

    assert [] == without


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: str(rule["alert"]))
def test_the_expression_of_an_alert_finds_the_series_that_it_compares(
    found: tuple[Prometheus, str], rule: dict[str, Any]
) -> None:
    """
    It is valid, and with its comparisons asked for yes or no it answers: an alert that is silent has looked.
    """
    prometheus, _ = found
    prometheus.query(rule["expr"])
    asked = COMPARISON.sub(r" \1 bool ", rule["expr"])

    if rule["alert"] in EMPTY:
        assert [] == prometheus.query(asked)
    else:
        assert holds(lambda: bool(prometheus.query(asked)))
