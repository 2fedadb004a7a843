"""
What the table finds in a verl that is not imported: its source files are read.

Owns the answer of ``stepscope check --verl``, and the contract test's on released versions. Says nothing of a class
that is made at run time.
"""

import ast
import importlib.util
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from stepscope.integrations.verl.plugin import inert
from stepscope.integrations.verl.targets import TARGETS, Target

GROUP = "verl.plugins"
POLICY = "VERL_USE_EXTERNAL_PLUGINS"
"""verl's own setting: ``auto`` loads all plugins, ``none`` loads none, else those that it names."""

NAME = "stepscope"
"""Of our entry point in that group."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """
    A row of the table: "" where it is there, else why not.
    """

    module: str
    where: str
    why: str


def look(root: Path, targets: Iterable[Target] = TARGETS) -> list[Finding]:
    """
    Look for ``targets`` below ``root``, the folder that holds the package ``verl``.
    """
    trees: dict[str, ast.Module | None] = {}
    found = []
    for target in targets:
        if target.module not in trees:
            trees[target.module] = _parse(root, target.module)
        tree = trees[target.module]
        why = "there is no such module" if tree is None else _lacks(tree, target)
        if why and tree is not None and target.override:
            continue
        found.append(Finding(module=target.module, where=target.where, why=why))
    return found


def report(environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """
    Which verl is installed, whether it would load the plugin, and what the plugin would find in it.
    """
    environment = os.environ if environment is None else environment
    spec = importlib.util.find_spec("verl")
    if spec is None or not spec.submodule_search_locations:
        return {"installed": False, "version": "", "inactive": "verl is not installed", "found": 0, "missing": []}
    findings = look(Path(next(iter(spec.submodule_search_locations))).parent)
    lacking = [{"place": f"{item.module}:{item.where}", "reason": item.why} for item in findings if item.why]
    return {
        "installed": True,
        "version": _version(),
        "inactive": _not_loaded(environment) or inert(environment),
        "found": len(findings) - len(lacking),
        "missing": lacking,
    }


def _version() -> str:
    try:
        return metadata.version("verl")
    except metadata.PackageNotFoundError:
        return "?"


def _not_loaded(environment: Mapping[str, str]) -> str:
    policy = environment.get(POLICY, "auto").strip().lower()
    if policy != "auto" and NAME not in {name.strip() for name in policy.split(",")}:
        return f"{POLICY}={policy} keeps verl from loading it"
    if not any(point.name == NAME for point in metadata.entry_points(group=GROUP)):
        return f"stepscope is not installed as a distribution, so verl does not find its entry point in {GROUP}"
    return ""


def _parse(root: Path, module: str) -> ast.Module | None:
    place = root.joinpath(*module.split("."))
    for path in (place.with_suffix(".py"), place / "__init__.py"):
        if path.is_file():
            return ast.parse(path.read_text(encoding="utf-8"))
    return None


def _lacks(tree: ast.Module, target: Target) -> str:
    *holders, name = target.where.split(".")
    body: list[ast.stmt] = tree.body
    for holder in holders:
        kept = [item for item in body if isinstance(item, ast.ClassDef) and item.name == holder]
        if not kept:
            return f"there is no {holder}"
        body = kept[-1].body
    functions = [
        item for item in body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) and item.name == name
    ]
    if not functions:
        return f"there is no {name}"
    arguments = functions[-1].args
    taken = {argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    lacking = [needed for needed in target.needs if needed not in taken]
    return f"{name} does not take {', '.join(lacking)}" if lacking else ""
