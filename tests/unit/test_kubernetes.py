"""
The Kubernetes base: of the published schemas where there are some, and in step with the code and with itself.

``kubernetes-validate`` has the schemas of core Kubernetes, npm's ``@kubernetes-models/prometheus-operator`` those of
prometheus-operator. For KubeRay's wrapper and the kustomization there are none: names and references are checked.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from deploy.kubernetes import rules
from stepscope import names, settings
from stepscope.selection import Selection
from stepscope_sidecar.gate import OPEN_PATHS
from tests.linking import DEPLOY

BASE = DEPLOY / "kubernetes" / "base"
KUSTOMIZATION = yaml.safe_load((BASE / "kustomization.yaml").read_text(encoding="utf-8"))
RESOURCES: dict[str, dict[str, Any]] = {
    name: yaml.safe_load((BASE / name).read_text(encoding="utf-8")) for name in KUSTOMIZATION["resources"]
}
VERSIONS = ("1.29", "1.33", "1.37")
"""The first that starts native sidecars by default, the first where they are stable, the newest with a schema."""

CLUSTER = RESOURCES["raycluster.yaml"]
TEMPLATES = {
    "head": CLUSTER["spec"]["headGroupSpec"]["template"],
    "worker": CLUSTER["spec"]["workerGroupSpecs"][0]["template"],
}
SECRETS = {"stepscope-token": {"token"}}
"""What a person makes before, and its keys."""

OF_CORE = {"matchLabels", "key"}
"""Fields of types of core Kubernetes, which are declared elsewhere."""

KEY = re.compile(r'^\s*"?(\w+)"?\??:', re.MULTILINE)
"""A member in TypeScript's declarations."""


def sidecar(role: str) -> dict[str, Any]:
    """
    The sidecar's container of a pod.
    """
    (found,) = TEMPLATES[role]["spec"]["initContainers"]
    return dict(found)


def told(container: dict[str, Any]) -> dict[str, str]:
    """
    The environment of a container, as far as it is written down; a secret's value is made up.
    """
    found: dict[str, str] = {}
    for source in container["envFrom"]:
        found |= config(source["configMapRef"]["name"])
    for variable in container.get("env", []):
        found[variable["name"]] = variable.get("value", "secret")
    return found


def config(name: str) -> dict[str, str]:
    """
    What the ConfigMap ``name`` holds.
    """
    (found,) = [item for item in RESOURCES.values() if (item["kind"], item["metadata"]["name"]) == ("ConfigMap", name)]
    return dict(found["data"])


def operators() -> tuple[Path, str]:
    """
    npm's folder with the schemas of prometheus-operator, and node.
    """
    folder, node = os.environ.get("STEPSCOPE_TEST_DEPLOY_SCHEMAS", ""), shutil.which("node")
    if not folder or node is None:
        pytest.skip("STEPSCOPE_TEST_DEPLOY_SCHEMAS does not name npm's folder with prometheus-operator's, or no node")
    return Path(folder), node


def keys(value: Any) -> set[str]:
    """
    Every key in ``value``, but for labels' and annotations'.
    """
    if isinstance(value, list):
        return set().union(*map(keys, value))
    if not isinstance(value, dict):
        return set()
    inner = [keys(item) for key, item in value.items() if key not in {"labels", "annotations", "matchLabels"}]
    return set(value).union(*inner)


def test_the_kustomization_lists_every_file() -> None:
    """
    And names no resource twice.
    """
    there = {path.name for path in BASE.glob("*.yaml")} - {"kustomization.yaml"}
    ids = [(item["apiVersion"], item["kind"], item["metadata"]["name"]) for item in RESOURCES.values()]

    assert there == set(RESOURCES)
    assert ("kustomize.config.k8s.io/v1beta1", "Kustomization") == (KUSTOMIZATION["apiVersion"], KUSTOMIZATION["kind"])
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["settings.yaml", "steps.yaml", "service.yaml"])
def test_core_resources_are_of_the_published_schema(name: str, version: str) -> None:
    """
    Strictly: a field that Kubernetes does not know is an error.
    """
    kubernetes_validate.validate(RESOURCES[name], version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("role", TEMPLATES)
def test_pods_are_of_the_published_schema(role: str, version: str) -> None:
    """
    The templates in the RayCluster, as the pods that KubeRay makes of them.
    """
    template = TEMPLATES[role]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": role, **template["metadata"]},
        "spec": template["spec"],
    }

    kubernetes_validate.validate(pod, version, strict=True)
    pod["spec"] = {**template["spec"], "sharedProcessNamespace": True}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(pod, version, strict=True)


@pytest.mark.parametrize(
    ("name", "kind"), [("podmonitor.yaml", "PodMonitor"), ("prometheusrule.yaml", "PrometheusRule")]
)
def test_operators_resources_are_of_the_published_schema(name: str, kind: str) -> None:
    """
    Values by the schema, and names of fields, which it lets pass, by the declarations beside it.
    """
    folder, node = operators()
    group = "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1"
    program = f"""
    import {{ {kind} }} from {json.dumps(f"{group}/{kind}")};
    const {{ apiVersion, kind, ...given }} = {json.dumps(RESOURCES[name])};
    new {kind}(given).validate();
    let refused = 0;
    try {{ new {kind}({{ ...given, spec: 1 }}).validate(); }} catch {{ refused = 1; }}
    process.stdout.write(`${{new {kind}(given).apiVersion}} ${{refused}}`);
    """
    command = [node, "--input-type=module", "-"]
    done = subprocess.run(
        command, input=program, cwd=folder.parent, capture_output=True, text=True, timeout=60, check=False
    )
    declared = {
        key for path in (folder / group).glob("*.d.ts") for key in KEY.findall(path.read_text(encoding="utf-8"))
    }

    assert 0 == done.returncode, done.stderr
    assert f"{RESOURCES[name]['apiVersion']} 1" == done.stdout
    assert keys(RESOURCES[name]["spec"]) <= declared | OF_CORE


def test_alerts_are_those_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The resource is what the script makes of them; ``--check`` fails on another.
    """
    assert 0 == rules.main(["--check"])

    monkeypatch.setattr(rules, "RESOURCE", tmp_path / "rule.yaml")
    assert 1 == rules.main(["--check"])
    assert 0 == rules.main([])
    assert 0 == rules.main(["--check"])


def test_the_wrapper_of_the_cluster() -> None:
    """
    A head and workers of one cluster, as many workers as are said.
    """
    spec = CLUSTER["spec"]
    (group,) = spec["workerGroupSpecs"]

    assert ("ray.io/v1", "RayCluster") == (CLUSTER["apiVersion"], CLUSTER["kind"])
    assert {"rayVersion", "headGroupSpec", "workerGroupSpecs"} == set(spec)
    assert {"rayStartParams", "template"} == set(spec["headGroupSpec"])
    assert {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"} == set(group)
    assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    dockerfile = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    assert f"ray[default]=={spec['rayVersion']}" in dockerfile


@pytest.mark.parametrize("role", TEMPLATES)
def test_the_sidecar_is_a_native_one(role: str) -> None:
    """
    It starts before Ray, runs all the time, and Ray waits until it answers; the probes need no token.
    """
    container = sidecar(role)
    (port,) = [item["containerPort"] for item in container["ports"] if item["name"] == "stepscope"]

    assert ("Always", ["sidecar"]) == (container["restartPolicy"], container["args"])
    for probe in ("startupProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["path"] in OPEN_PATHS
        assert "stepscope" == container[probe]["httpGet"]["port"]
    assert port == settings.read(stepscopes(told(container))).http[1]
    assert TEMPLATES[role]["spec"]["shareProcessNamespace"] is True


def stepscopes(env: dict[str, str]) -> dict[str, str]:
    """
    The settings in ``env``.
    """
    return {name: value for name, value in env.items() if name.startswith("STEPSCOPE_")}


@pytest.mark.parametrize("role", TEMPLATES)
def test_agents_and_sidecar_are_told_alike(role: str) -> None:
    """
    What the code reads of the settings: one run, attempt, folder and socket, each in a volume that both mount.
    """
    (ray,) = TEMPLATES[role]["spec"]["containers"]
    ours, theirs = (settings.read(stepscopes(told(container))) for container in (sidecar(role), ray))

    assert ours.run
    assert ours.attempt
    for read in (ours, theirs):
        assert (ours.attempt_folder, ours.socket_path) == (read.attempt_folder, read.socket_path)
        assert (ours.steps_file, ours.token_file) == (read.steps_file, read.token_file)
    places = {ours.directory, *(path.parent for path in (ours.socket_path, ours.steps_file, ours.token_file) if path)}
    for container in (sidecar(role), ray):
        assert places == {Path(mount["mountPath"]) for mount in container["volumeMounts"]}


@pytest.mark.parametrize("role", TEMPLATES)
def test_volumes_are_there(role: str) -> None:
    """
    Every mount is of a volume, every volume is mounted, ConfigMaps and Secrets have what is read of them.
    """
    spec = TEMPLATES[role]["spec"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    read = settings.read(stepscopes(told(sidecar(role))))
    mounts = {mount["name"]: Path(mount["mountPath"]) for mount in sidecar(role)["volumeMounts"]}
    assert read.steps_file is not None
    assert read.token_file is not None

    for container in (*spec["initContainers"], *spec["containers"]):
        assert set(volumes) == {mount["name"] for mount in container["volumeMounts"]}
        assert not any("subPath" in mount for mount in container["volumeMounts"])
    assert read.steps_file.relative_to(mounts["steps"]).name in config(volumes["steps"]["configMap"]["name"])
    assert read.token_file.relative_to(mounts["token"]).name in SECRETS[volumes["token"]["secret"]["secretName"]]
    room = int(volumes["runs"]["emptyDir"]["sizeLimit"].removesuffix("Gi")) * 1024**3
    assert read.disk_budget < room


def test_the_steps_can_be_read() -> None:
    """
    What the mounted file says is a selection.
    """
    assert Selection.parse(config("stepscope-steps")["steps"].strip())


def test_spans_go_to_the_head() -> None:
    """
    Workers send them to the service, which selects the head, whose sidecar listens there; with the token.
    """
    service = RESOURCES["service.yaml"]
    ports = {port["name"]: port for port in service["spec"]["ports"]}
    worker, head = told(sidecar("worker")), settings.read(stepscopes(told(sidecar("head"))))
    containers = {item["name"]: item["containerPort"] for item in sidecar("head")["ports"]}

    expected = f"http://{service['metadata']['name']}:{ports['otlp-http']['port']}"
    assert expected == worker["OTEL_EXPORTER_OTLP_ENDPOINT"]
    assert "authorization=Bearer%20$(UPSTREAM_TOKEN)" == worker["OTEL_EXPORTER_OTLP_HEADERS"]
    assert {"ray.io/cluster": CLUSTER["metadata"]["name"], "ray.io/node-type": "head"} == service["spec"]["selector"]
    for port in ports.values():
        assert port["port"] == containers[port["targetPort"]]
    assert (head.http[1], head.otlp_http[1]) == (ports["http"]["port"], ports["otlp-http"]["port"])
    assert ("0.0.0.0", "0.0.0.0") == (head.http[0], head.otlp_http[0])
    named = [v["valueFrom"]["secretKeyRef"] for v in sidecar("worker")["env"] if "valueFrom" in v]
    assert all(reference["key"] in SECRETS[reference["name"]] for reference in named)


def test_every_sidecar_is_scraped() -> None:
    """
    At a port that both kinds of pod have, with the token, under the cluster's name.
    """
    spec = RESOURCES["podmonitor.yaml"]["spec"]
    (endpoint,) = spec["podMetricsEndpoints"]
    token = endpoint["authorization"]["credentials"]

    assert {"ray.io/cluster": CLUSTER["metadata"]["name"]} == spec["selector"]["matchLabels"]
    assert all(endpoint["port"] in {port["name"] for port in sidecar(role)["ports"]} for role in TEMPLATES)
    assert "/metrics" == endpoint["path"]
    assert token["key"] in SECRETS[token["name"]]
    assert "ray.io/cluster" == spec["jobLabel"]


def test_settings_are_ones_that_there_are() -> None:
    """
    Every name in every file of the base.
    """
    found = {name for path in BASE.glob("*.yaml") for name in re.findall(r"STEPSCOPE_[A-Z_]+", path.read_text())}

    assert found <= set(names.ENVIRONMENT)
