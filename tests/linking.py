"""
What Jaeger's UI and Grafana make of the links under ``deploy/``, as far as their documentation and source say.

Stands in for both: neither is run here. Jaeger fills ``#{name}`` with a tag of the span, or a property of the trace
where the name begins with ``trace.`` or the pattern is of type ``traces``, and escapes it. Grafana fills ``${name}``
with a field of the span or what a regular expression finds in one; in provisioning files ``$$`` is a dollar.
"""

import json
import re
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"
JAEGER = DEPLOY / "jaeger" / "ui.json"
GRAFANA = DEPLOY / "grafana" / "provisioning" / "datasources" / "stepscope.yaml"

HOLE = re.compile(r"#\{([^{}]*)\}")
VARIABLE = re.compile(r"\$\{(\w+)\}")
ESCAPED = re.compile(r'"key":"([^"]*)"')
"""The attribute that a regular expression of ours looks for."""


def patterns() -> list[dict[str, str]]:
    """
    The link patterns for Jaeger's UI.
    """
    found: list[dict[str, str]] = json.loads(JAEGER.read_text())["linkPatterns"]
    return found


def sources() -> dict[str, dict[str, Any]]:
    """
    The data sources for Grafana by their uid, as it reads them: with dollars for pairs of them.
    """
    found: dict[str, Any] = yaml.safe_load(GRAFANA.read_text().replace("$$", "$"))
    return {source["uid"]: source for source in found["datasources"]}


def attributes() -> set[str]:
    """
    Every attribute of a span that a link is made of.
    """
    found = {pattern["key"] for pattern in patterns() if "key" in pattern}
    for pattern in patterns():
        if pattern["type"] != "traces":
            found |= {name for name in HOLE.findall(pattern["url"] + pattern["text"]) if not name.startswith("trace.")}
    for source in sources().values():
        for link in source.get("correlations", []):
            for change in link["config"].get("transformations", []):
                found |= {name.replace("\\.", ".") for name in ESCAPED.findall(change["expression"])}
    return found


def jaeger_links(trace: dict[str, Any]) -> dict[str, list[str]]:
    """
    The addresses that Jaeger's UI shows on the spans of ``trace``, by the span's name; those of the trace under "".
    """
    found: dict[str, list[str]] = {}
    own = {"traceID": trace["traceID"]}
    for pattern in patterns():
        if pattern["type"] == "traces":
            found.setdefault("", []).append(_filled(pattern["url"], own))
            continue
        for span in trace["spans"]:
            tags = {tag["key"]: tag["value"] for tag in span["tags"]}
            values = {**tags, "trace.traceID": trace["traceID"]}
            if pattern["key"] in tags and all(
                name in values for name in HOLE.findall(pattern["url"] + pattern["text"])
            ):
                found.setdefault(span["operationName"], []).append(_filled(pattern["url"], values))
    return found


def grafana_links(source: dict[str, Any], span: dict[str, Any]) -> list[str]:
    """
    The addresses that Grafana shows on ``span``, one of a trace of Jaeger's shape, from the data source ``source``.
    """
    fields: dict[str, Any] = {"traceID": span["traceID"], "spanID": span["spanID"], "tags": span["tags"]}
    found = []
    for link in source["correlations"]:
        config = link["config"]
        assert ("external", True) == (link["type"], config["field"] in fields)
        values = {name: value for name, value in fields.items() if isinstance(value, str)}
        for change in config.get("transformations", []):
            text = json.dumps(fields[change["field"]], separators=(",", ":"))
            for match in re.finditer(change["expression"], text, re.IGNORECASE):
                values[change["mapValue"]] = match[1]
        wanted = config["target"]["url"]
        if all(name in values for name in VARIABLE.findall(wanted)):
            found.append(VARIABLE.sub(partial(_field, values), wanted))
    return found


def _filled(template: str, values: dict[str, Any]) -> str:
    return HOLE.sub(lambda match: quote(str(values[match[1]]), safe="!'()*~"), template)


def _field(values: dict[str, str], match: re.Match[str]) -> str:
    return values[match[1]]
