"""
Reads from a real ``torch_npu`` wheel what its profiler may be called with: ``python signatures.py WHEEL > FACTS``.

Owns the form of ``torch_npu-2.13.0.json``, which the stand-in takes its signatures from. Only parses: nothing of the
wheel is imported or run, and nothing but names, kinds of parameters, defaults and constants is kept.
"""

import ast
import json
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

PROFILER = "torch_npu/profiler/profiler.py"
CONFIG = "torch_npu/profiler/experimental_config.py"
CONSTANT = "torch_npu/profiler/analysis/prof_common_func/_constant.py"
INTERFACE = "torch_npu/profiler/profiler_interface.py"
PATHS = "torch_npu/profiler/_profiler_path_creator.py"
WRAPPER = "torch_npu/profiler/analysis/prof_common_func/_utils.py"
MSTX = "torch_npu/npu/mstx.py"

WANTED = {
    PROFILER: (
        "_KinetoProfile.add_metadata",
        "_KinetoProfile.add_metadata_json",
        "analyse",
        "profile.__init__",
        "profile.start",
        "profile.step",
        "profile.stop",
        "tensorboard_trace_handler",
    ),
    CONFIG: ("_ExperimentalConfig.__init__",),
    PATHS: ("ProfPathCreator.get_prof_dir", "ProfPathCreator.init"),
    MSTX: ("mstx.mark", "mstx.range_end", "mstx.range_start"),
}
"""The callables whose signatures are kept, by the file that they are defined in."""

ATTRIBUTES = {
    INTERFACE: ("_ProfInterface.prof_path",),
    PATHS: ("ProfPathCreator.is_prof_inited",),
    PROFILER: ("profile.prof_if", "profile.stopped"),
}
"""Attributes of objects that the driver looks at, or sets, though they are not promised."""

CLASSES = ("AiCMetrics", "ExportType", "ProfilerLevel")
"""Classes of constants, each of which stands for one of ``Constant``."""

FILES = ("FRAMEWORK_DIR", "MSPROF_DYNAMIC_ENV", "MSPROF_STATIC_ENV", "OUTPUT_DIR", "PROFILER_META_DATA")
"""Names of files and variables, from ``Constant``."""


def facts(wheel: Path) -> dict[str, object]:
    """
    What is kept of ``wheel``.
    """
    with zipfile.ZipFile(wheel) as archive:
        trees = {name: ast.parse(archive.read(name)) for name in {*WANTED, *ATTRIBUTES, CONSTANT, WRAPPER}}
    constants = _assigned(_find(trees[CONSTANT], "Constant"))
    values = {f"Constant.{name}": value for name, value in constants.items() if value.isidentifier()}
    classes = {
        kind: {name: values[value] for name, value in _assigned(_find(trees[CONFIG], kind)).items()} for kind in CLASSES
    }
    for kind, members in classes.items():
        values |= {f"{kind}.{name}": value for name, value in members.items()}
    found = {
        f"{name.removesuffix('.py').replace('/', '.')}.{path}": _callable(_find(trees[name], path), values)
        for name, wanted in WANTED.items()
        for path in wanted
    }
    attributes = [path for name, paths in ATTRIBUTES.items() for path in paths if _sets(trees[name], path)]
    return {
        "attributes": sorted(attributes),
        "unwraps": "functools.wraps" in ast.unparse(_find(trees[WRAPPER], "no_exception_func")),
        "version": wheel.name.split("-")[1],
        "callables": found,
        "constants": classes,
        "files": {name: constants[name] for name in FILES},
    }


def _callable(function: ast.AST, constants: Mapping[str, str]) -> dict[str, object]:
    """
    The parameters of ``function`` as source without annotations, and whether it keeps what it raises to itself.
    """
    assert isinstance(function, ast.FunctionDef)
    arguments = function.args
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        argument.annotation = None
    arguments.defaults = [_literal(default, constants) for default in arguments.defaults]
    arguments.kw_defaults = [default and _literal(default, constants) for default in arguments.kw_defaults]
    swallows = any("no_exception_func" in ast.unparse(decorator) for decorator in function.decorator_list)
    return {"parameters": ast.unparse(arguments), "swallows": swallows}


def _literal(default: ast.expr, constants: Mapping[str, str]) -> ast.expr:
    """
    ``default`` with a named constant replaced by its value; what depends on the machine becomes an ellipsis.
    """
    try:
        ast.literal_eval(default)
    except ValueError:
        return ast.Constant(constants.get(ast.unparse(default), ...))
    return default


def _sets(tree: ast.AST, path: str) -> bool:
    """
    Whether the class in ``path`` sets the attribute in it on its objects.
    """
    kind, _, attribute = path.partition(".")
    return any(
        isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node) == f"self.{attribute}"
        for node in ast.walk(_find(tree, kind))
    )


def _find(tree: ast.AST, path: str) -> ast.AST:
    for part in path.split("."):
        bodies = getattr(tree, "body", [])
        tree = next(node for node in bodies if getattr(node, "name", None) == part)
    return tree


def _assigned(tree: ast.AST) -> dict[str, str]:
    """
    The plain assignments in a class: strings as they are, all else as source.
    """
    return {
        target.id: node.value.value
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        else ast.unparse(node.value)
        for node in getattr(tree, "body", [])
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def main(arguments: Sequence[str]) -> int:
    """
    Print the facts of the wheel that is named.
    """
    print(json.dumps(facts(Path(arguments[0])), indent=2, sort_keys=True))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
