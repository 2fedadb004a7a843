"""
The alerts as a resource of prometheus-operator.

``python -m deploy.kubernetes.rules`` makes ``base/prometheusrule.yaml``, ``--check`` says whether it is stale. Owns the
wrapping alone; the alerts are those of ``deploy/prometheus/stepscope.rules.yml``.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

RULES = Path(__file__).parents[1] / "prometheus" / "stepscope.rules.yml"
RESOURCE = Path(__file__).parent / "base" / "prometheusrule.yaml"

COMMENT = "# Made by deploy/kubernetes/rules.py of deploy/prometheus/stepscope.rules.yml: change those.\n"

WIDTH = 120
"""Lines are as long as elsewhere here."""


def made() -> str:
    """
    The resource's text.
    """
    resource = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "stepscope", "labels": {"app.kubernetes.io/part-of": "stepscope"}},
        "spec": {"groups": yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]},
    }
    return COMMENT + yaml.safe_dump(resource, sort_keys=False, allow_unicode=True, width=WIDTH)


def main(arguments: Sequence[str]) -> int:
    """
    Write the file, or with ``--check`` say whether it is stale.
    """
    if "--check" not in arguments:
        RESOURCE.write_text(made(), encoding="utf-8")
        return 0
    if RESOURCE.is_file() and RESOURCE.read_text(encoding="utf-8") == made():
        return 0
    sys.stderr.write(f"{RESOURCE.name} is stale: run python -m deploy.kubernetes.rules\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
