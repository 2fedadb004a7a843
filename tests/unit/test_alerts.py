"""
The alerts under ``deploy/prometheus``: rules that promtool accepts, cases for each, and a section that says what to do.
"""

import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from stepscope import names, settings
from stepscope_sidecar import inbox
from tests import linking
from tests.unit.test_docs import HEADING, anchor, blocks, page, prose

FOLDER = linking.DEPLOY / "prometheus"
RUNBOOK = "runbook.md"
PROMTOOL, AMTOOL = shutil.which("promtool"), shutil.which("amtool")

ALERTS = (
    "StepscopeProfilingOverheadHigh",
    "StepscopeWindowOpenTooLong",
    "StepscopeWindowsFailing",
    "StepscopeMissingRanks",
    "StepscopeIncompleteRecordings",
    "StepscopeArtifactDiskFilling",
    "StepscopeSpansLost",
    "StepscopeSpansNotForwarded",
    "StepscopeSidecarDown",
    "StepscopeVersionNotAdvancing",
    "StepscopeStalenessHigh",
    "StepscopeStartSkewHigh",
)


def load(name: str) -> Any:
    """
    The file of that name.
    """
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))


def rules() -> list[dict[str, Any]]:
    """
    All alerts.
    """
    return [rule for group in load("stepscope.rules.yml")["groups"] for rule in group["rules"]]


def exposed() -> set[str]:
    """
    The names of all series.
    """
    of_a_histogram = ("_bucket", "_sum", "_count")
    return {
        metric.name + suffix
        for metric in names.METRICS
        for suffix in (of_a_histogram if metric.kind == "histogram" else ("",))
    }


def test_the_alerts_are_what_they_were() -> None:
    """
    Routes and silences hold these names.
    """
    assert list(ALERTS) == [rule["alert"] for rule in rules()]


@pytest.mark.parametrize("rule", rules(), ids=ALERTS)
def test_an_alert_says_what_is_and_what_to_do(rule: dict[str, Any]) -> None:
    """
    A severity, a summary, a description and the section of the runbook; nothing is asked that no sidecar exposes.
    """
    told = rule["annotations"]

    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert {"summary", "description", "runbook_url"} == set(told)
    assert f"docs/en/{RUNBOOK}#{anchor(rule['alert'])}" == told["runbook_url"]
    assert set(re.findall(r"\bstepscope_\w+", rule["expr"])) <= exposed()
    assert set(re.findall(r"STEPSCOPE_[A-Z_]+", told["description"])) <= set(names.ENVIRONMENT)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_alert_has_its_section(language: str) -> None:
    """
    In the order of the rules, and there is no section of an alert that is gone.
    """
    headings = [heading for level, heading in HEADING.findall(prose(page(language, RUNBOOK))) if level == "##"]

    assert list(ALERTS) == headings


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_runbook_says_of_every_reason_for_dropped_spans_what_to_do(language: str) -> None:
    """
    Each heads a line of the alert's section.
    """
    text = page(language, RUNBOOK)
    section = text[text.index("## StepscopeSpansLost") : text.index("## StepscopeSpansNotForwarded")]
    heads = [re.split("[:\uff1a]", line)[0] for line in section.splitlines() if line.startswith("- ")]
    told = [reason for head in heads for reason in re.findall(r"`(\w+)`", head)]

    assert sorted(inbox.REASONS) == sorted(told)


def test_every_alert_has_a_case_that_fires_and_one_that_does_not() -> None:
    """
    Each case is of the alert that it is named for, and says what it is if there are several.
    """
    cases: set[tuple[str, str]] = set()
    for test in load("stepscope.rules.test.yml")["tests"]:
        for case in test["alert_rule_test"]:
            kind = "firing" if case["exp_alerts"] else "silent"
            assert re.match(f"{case['alertname']} {kind}( |$)", test["name"])
            cases.add((case["alertname"], kind))

    assert {(alert, kind) for alert in ALERTS for kind in ("firing", "silent")} == cases


@pytest.mark.prometheus
def test_promtool_agrees() -> None:
    """
    The commands of the runbook, as they stand there: the rules can be read, and every case comes out as it says.
    """
    if PROMTOOL is None:
        pytest.skip("promtool of Debian's prometheus is not installed")
    (commands,) = [block for block in blocks(page("en", RUNBOOK), "sh") if "promtool check" in block]
    done = subprocess.run(
        ["bash", "-euc", commands], cwd=linking.DEPLOY.parent, capture_output=True, text=True, timeout=60, check=False
    )

    assert 0 == done.returncode, done.stdout + done.stderr
    assert f"{len(ALERTS)} rules found" in done.stdout


@pytest.mark.prometheus
def test_the_samples_of_configurations_are_accepted() -> None:
    """
    By promtool and amtool.
    """
    if PROMTOOL is None or AMTOOL is None:
        pytest.skip("Debian's prometheus and prometheus-alertmanager are not installed")
    for command in ([PROMTOOL, "check", "config", "prometheus.yml"], [AMTOOL, "check-config", "alertmanager.yml"]):
        done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=60, check=False)

        assert 0 == done.returncode, done.stdout + done.stderr


def test_the_sample_scrapes_where_the_settings_listen() -> None:
    """
    Its one target is ``STEPSCOPE_HTTP`` in ``stepscope.env``.
    """
    lines = (linking.DEPLOY / "stepscope.env").read_text(encoding="utf-8").splitlines()
    given = dict(line.split("=", 1) for line in lines if line.startswith("STEPSCOPE_"))
    host, port = settings.read(given).http
    (job,) = load("prometheus.yml")["scrape_configs"]

    assert [{"targets": [f"{host}:{port}"]}] == job["static_configs"]
