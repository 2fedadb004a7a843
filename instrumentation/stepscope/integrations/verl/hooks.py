"""
Runs something right after a module was imported, whoever imports it and when.

Owns the place in ``sys.meta_path``. What loads a module stays what Python found, untouched, since one loader may serve
many modules: the spec has a loader of ours in front of it, which the module leaves behind when it runs.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Generic, TypeVar

from stepscope.complaints import complaints

T = TypeVar("T")


class Hooks(MetaPathFinder, Generic[T]):
    """
    Finds no module itself: asks the other finders, and has ``then`` called when the module has run.
    """

    def __init__(self, wanted: Mapping[str, T], then: Callable[[ModuleType, T], None]) -> None:
        self._wanted = dict(wanted)
        self._then = then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """
        The spec that the others find, with our call behind its loader's.
        """
        if fullname not in self._wanted:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                return self._follow(spec)
        return None

    def arrived(self, module: ModuleType) -> None:
        """
        ``module`` has run. What goes wrong here must not fail its import.
        """
        try:
            self._then(module, self._wanted[module.__name__])
        except Exception as error:  # noqa: BLE001 - an import of verl's must not fail because of us
            complaints.fault(f"instrumenting {module.__name__}", error)

    def wants(self) -> Sequence[str]:
        """
        The modules that are waited for.
        """
        return tuple(self._wanted)

    def _follow(self, spec: ModuleSpec) -> ModuleSpec:
        loader: Any = spec.loader
        if isinstance(loader, Follower):
            # A finder that gives out one spec again.
            return spec
        if hasattr(loader, "exec_module"):
            spec.loader = Follower(loader, self.arrived)
        elif loader is not None:
            complaints.warn(f"loader of {spec.name}", "%s is loaded by something that cannot be followed", spec.name)
        return spec


class Follower(Loader):
    """
    The loader of one spec: does what ``loader`` does, and tells ``arrived`` when the module has run.
    """

    def __init__(self, loader: Any, arrived: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._arrived = arrived

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """
        As ``loader`` makes it.
        """
        create = getattr(self._loader, "create_module", None)
        module: ModuleType | None = create(spec) if create is not None else None
        return module

    def exec_module(self, module: ModuleType) -> None:
        """
        Run it with its own loader in sight, as if nothing had stood before it.
        """
        spec = module.__spec__
        if spec is not None and spec.loader is self:
            spec.loader = self._loader
        if getattr(module, "__loader__", None) is self:
            module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._arrived(module)

    def __getattr__(self, name: str) -> Any:
        """
        Whatever else the loader can: its source, its resources, its file.
        """
        if name.startswith("__") or name in {"_loader", "_arrived"}:
            raise AttributeError(name)
        return getattr(self._loader, name)


def install(wanted: Mapping[str, T], then: Callable[[ModuleType, T], None]) -> None:
    """
    Call ``then`` with each module of ``wanted`` and what stands there for it, now or when it is imported. Once only.
    """
    if any(isinstance(finder, Hooks) for finder in sys.meta_path):
        return
    hooks = Hooks(wanted, then)
    sys.meta_path.insert(0, hooks)
    for name in hooks.wants():
        module = sys.modules.get(name)
        spec = getattr(module, "__spec__", None)
        if module is not None and not getattr(spec, "_initializing", False):
            hooks.arrived(module)


def remove() -> None:
    """
    Wait for nothing any more: for tests.
    """
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, Hooks)]
