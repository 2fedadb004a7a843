"""
Grafana's dashboards: made by their script, of Grafana's own types, and about series and variables that there are.
"""

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as model

from deploy.grafana import dashboards
from deploy.grafana.panels import WIDTH
from stepscope import names
from tests import grafana, linking

PAGES = grafana.dashboards()
SERIES = re.compile(r"\b(stepscope_\w+)\b")
SUFFIX = re.compile(r"_(bucket|count|sum)$")
BY = re.compile(r"by \(([^)]*)\)")
OF_TARGETS = {"job", "instance"}
"""Labels that Prometheus itself puts on every series."""


def metrics() -> dict[str, names.Metric]:
    """
    The registry by name.
    """
    return {metric.name: metric for metric in names.METRICS}


def family(series: str) -> names.Metric:
    """
    What in the registry a series is of.
    """
    return metrics().get(series) or metrics()[SUFFIX.sub("", series)]


def test_the_files_are_what_the_script_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    ``--check`` is content with the checked-in files, and names one that is not what the script makes.
    """
    assert 0 == dashboards.main(["--check"])

    monkeypatch.setattr(dashboards, "FOLDER", tmp_path / "dashboards")
    assert 0 == dashboards.main([])
    assert 0 == dashboards.main(["--check"])
    (tmp_path / "dashboards" / "run.json").write_text("{}", encoding="utf-8")
    (tmp_path / "dashboards" / "more.json").write_text("{}", encoding="utf-8")
    assert 1 == dashboards.main(["--check"])


def test_there_are_three_dashboards() -> None:
    """
    Of the run, of what profiling costs, of the sidecars.
    """
    assert {"run.json", "cost.json", "sidecars.json"} == set(PAGES)
    assert len(PAGES) == len({page["uid"] for page in PAGES.values()})


@pytest.mark.parametrize("name", PAGES)
def test_a_dashboard_is_of_the_types_of_grafana(name: str) -> None:
    """
    Read by the types of Grafana's own library and written again, nothing is lost and nothing is added.
    """
    read = model.Dashboard.from_json(PAGES[name])
    written = JSONEncoder(sort_keys=True, indent=2).encode(read) + "\n"

    assert (grafana.folder() / name).read_text(encoding="utf-8") == written


@pytest.mark.parametrize("name", PAGES)
def test_panels_lie_beside_each_other(name: str) -> None:
    """
    Each has an id and a title of its own and a word of explanation; none lies on another or beyond the grid.
    """
    panels: list[dict[str, Any]] = PAGES[name]["panels"]
    cells = [
        {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        for place in (panel["gridPos"] for panel in panels)
    ]

    assert len(panels) == len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels})
    assert all(panel["description"] for panel in panels)
    assert not any(first & second for first, second in itertools.combinations(cells, 2))
    assert {x for taken in cells for x, _ in taken} <= set(range(WIDTH))


@pytest.mark.parametrize("name", PAGES)
def test_variables_are_defined_and_used(name: str) -> None:
    """
    What an expression or a variable refers to is a variable of the dashboard, and none is idle.
    """
    page = PAGES[name]
    defined = grafana.variables(page)
    queries = [variable["query"] for variable in defined.values() if variable["type"] == "query"]
    texts = [target["expr"] for panel in page["panels"] for target in panel["targets"]] + queries

    assert set(defined) == {"datasource"} | set().union(*map(grafana.used, texts))
    assert {"${datasource}"} == {panel["datasource"]["uid"] for panel in page["panels"]}


@pytest.mark.parametrize("asked", grafana.asked(), ids=lambda asked: f"{asked.file}:{asked.panel}")
def test_expressions_are_about_series_that_there_are(asked: grafana.Asked) -> None:
    """
    Every series is in the registry with every label asked for; of counters the increase is shown, or the sum.
    """
    series = set(SERIES.findall(asked.expression))
    labels = {label.strip() for group in BY.findall(asked.expression) for label in group.split(",")}
    if 'role=~"$role"' in asked.expression:
        labels.add("role")

    assert series
    for found in series:
        known = {*family(found).labels, *OF_TARGETS} | ({"le"} if found.endswith("_bucket") else set())
        assert labels <= known
        assert not asked.exemplars or family(found).kind in {"counter", "histogram"}


def test_every_series_has_its_place() -> None:
    """
    What the sidecar exposes is on a dashboard, but for what only an alert reckons with.
    """
    shown = {family(found).name for asked in grafana.asked() for found in SERIES.findall(asked.expression)}

    assert {"stepscope_artifact_disk_free_bytes"} >= set(metrics()) - shown


def test_dashboards_lead_to_traces() -> None:
    """
    Some panel of a run and of its costs asks for exemplars, which the data source leads to the trace.
    """
    asking = {asked.file for asked in grafana.asked() if asked.exemplars}
    (lead,) = linking.sources()["prometheus"]["jsonData"]["exemplarTraceIdDestinations"]

    assert {"run.json", "cost.json"} == asking
    assert "stepscope" == lead["datasourceUid"]


def test_dashboards_are_provisioned() -> None:
    """
    The provider takes files from one folder, and nobody changes them there.
    """
    path = linking.DEPLOY / "grafana" / "provisioning" / "dashboards" / "stepscope.yaml"
    (provider,) = yaml.safe_load(path.read_text(encoding="utf-8"))["providers"]

    assert "file" == provider["type"]
    assert provider["allowUiUpdates"] is False
    assert Path(provider["options"]["path"]).is_absolute()


def test_variables_are_filled_in_as_grafana_does() -> None:
    """
    One value stands as it is, several are alternatives, special characters are escaped, all is everything.
    """
    page = PAGES["run.json"]
    text = 'x{job=~"$job",role=~"${role}"}[$__rate_interval]'

    assert 'x{job=~".*",role=~".*"}[60s]' == grafana.substituted(text, page)
    one = grafana.substituted(text, page, {"job": ["a.b"], "role": ["trainer", "rollouter"]})
    assert 'x{job=~"a\\\\.b",role=~"(trainer|rollouter)"}[60s]' == one
