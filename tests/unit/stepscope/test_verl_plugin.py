"""
The plugin of verl: what it does when it is loaded, and that it does nothing where nothing was configured.
"""

import importlib
import importlib.util
import sys
import types
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stepscope.integrations.verl import hooks, patching, plugin, targets
from tests.unit.stepscope import verl_standin

LOOK = """
import sys, threading
import verl.trainer.ppo.v1.trainer_base as trainer
from verl.trainer.constants_ppo import get_ppo_ray_runtime_env
print("wrapped", [hasattr(f, "__stepscope_wrapped__") for f in (trainer.PPOTrainer.fit, get_ppo_ray_runtime_env)])
print("finders", [type(finder).__module__ for finder in sys.meta_path if "stepscope" in type(finder).__module__])
print("threads", threading.active_count())
print("fitted", trainer.PPOTrainer("config").fit())
"""

UNTOUCHED = ["wrapped [False, False]", "finders []", "threads 1", "fitted fitted"]


@pytest.fixture(autouse=True)
def no_hooks() -> Iterator[None]:
    """
    What a test installs is gone after it.
    """
    before = dict(patching.found)
    yield
    hooks.remove()
    patching.found.clear()
    patching.found.update(before)


@pytest.mark.parametrize(
    "environment",
    [{}, {"STEPSCOPE_DISABLED": "1", "STEPSCOPE_STEPS": "3"}, {"STEPSCOPE_STEPS": " "}, {"STEPSCOPE_TEST_X": "1"}],
)
def test_without_settings_nothing_is_touched(tmp_path: Path, environment: dict[str, str]) -> None:
    """
    No wrapper, no place in the import system, no thread, no output.
    """
    verl_standin.make(tmp_path)

    assert verl_standin.run(tmp_path, LOOK, **environment) == UNTOUCHED


def test_with_settings_verl_is_wrapped_where_it_is_imported(tmp_path: Path) -> None:
    """
    By the time that anybody gets hold of a name, it is the wrapper's.
    """
    verl_standin.make(tmp_path)

    assert [
        "wrapped [True, True]",
        "finders ['stepscope.integrations.verl.hooks']",
        "threads 1",
        "fitted fitted",
    ] == verl_standin.run(tmp_path, LOOK, STEPSCOPE_DIR=str(tmp_path / "runs"))


def test_a_module_that_is_there_already_is_wrapped_too(tmp_path: Path) -> None:
    """
    verl's plugins are loaded after a part of it.
    """
    root = f"import {verl_standin.TRAINER_MODULE}\n" + verl_standin.ROOT
    verl_standin.make(tmp_path, root=root)

    assert "wrapped [True, True]" == verl_standin.run(tmp_path, LOOK, STEPSCOPE_DIR=str(tmp_path / "runs"))[0]


def test_what_another_verl_lacks_is_named_and_costs_that_alone(tmp_path: Path) -> None:
    """
    A missing method, one that is no function, one that takes other parameters.
    """
    verl_standin.make(tmp_path)
    program = f"""
import {verl_standin.TRAINER_MODULE}
from stepscope.integrations.verl import patching
for key in ("_validate", "step", "_update_actor", "fit"):
    print(key, "|", patching.found["{verl_standin.TRAINER_MODULE}:PPOTrainer." + key])
"""

    assert [
        "_validate | there is no _validate",
        "step | step is a property, not a function",
        "_update_actor | _update_actor does not take batch",
        "fit | ",
    ] == verl_standin.run(tmp_path, program, STEPSCOPE_DIR=str(tmp_path / "runs"))


def test_the_plugin_is_the_entry_point_that_verl_looks_for() -> None:
    """
    Importing it is all that verl does.
    """
    project = Path(__file__).parents[3] / "pyproject.toml"

    assert (
        '[project.entry-points."verl.plugins"]\nstepscope = "stepscope.integrations.verl.plugin"' in project.read_text()
    )
    assert plugin.__name__ == "stepscope.integrations.verl.plugin"


def test_a_failure_of_ours_is_said_and_the_import_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    verl would swallow it.
    """
    (tmp_path / "hooked_module.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)

    def fails(module: types.ModuleType, wanted: str) -> None:
        raise RuntimeError(wanted)

    hooks.install({"hooked_module": "of ours"}, fails)
    module = importlib.import_module("hooked_module")
    del sys.modules["hooked_module"]

    assert 1 == module.value
    assert "RuntimeError: of ours" in caplog.text


def test_a_module_runs_once_and_its_loader_is_pythons_own_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Nothing of ours stays in the import system of a module that has come; a reload is followed again.
    """
    (tmp_path / "hooked_twice.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    arrived: list[str] = []
    hooks.install({"hooked_twice": "x"}, lambda module, wanted: arrived.append(f"{module.__name__} {wanted}"))
    hooks.install({"hooked_twice": "y"}, lambda module, wanted: arrived.append(wanted))

    module = importlib.import_module("hooked_twice")
    loader = module.__loader__
    first = list(arrived)
    importlib.reload(module)
    del sys.modules["hooked_twice"]

    assert ["hooked_twice x"] == first
    assert ["hooked_twice x"] * 2 == arrived
    assert "exec_module" not in vars(loader)


def test_a_loader_that_serves_many_modules_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A package in a zip has one for all. Who only looks for a spec, as often as they like, changes nothing.
    """
    with zipfile.ZipFile(tmp_path / "hooked.zip", "w") as file:
        file.writestr("hooked_zip/__init__.py", "")
        file.writestr("hooked_zip/a.py", "import hooked_zip.b\n")
        file.writestr("hooked_zip/b.py", "loader = type(__spec__.loader).__name__\n")
    monkeypatch.syspath_prepend(tmp_path / "hooked.zip")
    arrived: list[str] = []
    wanted = {"hooked_zip.a": "x", "hooked_zip.b": "y"}
    hooks.install(wanted, lambda module, wanted: arrived.append(f"{module.__name__} {wanted}"))
    try:
        looks = [importlib.util.find_spec(name) for name in (*wanted, "hooked_zip.a")]
        shared = sys.modules["hooked_zip"].__loader__
        sources = [look.loader.get_source(look.name) for look in looks if look is not None]  # type: ignore[union-attr]
        module = importlib.import_module("hooked_zip.a")
        other = sys.modules["hooked_zip.b"]
    finally:
        for name in [name for name in sys.modules if name.startswith("hooked_zip")]:
            del sys.modules[name]

    assert ["hooked_zip.b y", "hooked_zip.a x"] == arrived
    assert "zipimporter" == other.loader
    assert module.__spec__ is not None
    assert type(shared) is type(module.__loader__) is type(module.__spec__.loader) is type(other.__loader__)
    assert "exec_module" not in vars(shared)
    assert "import hooked_zip.b\n" == sources[0]


def test_a_place_is_wrapped_once() -> None:
    """
    Two processes may have wrapped a class that was sent from one to the other.
    """
    module = types.ModuleType("verl.trainer.ppo.v1.trainer_base")
    exec(verl_standin.TRAINER, vars(module))
    rows = targets.by_module()[module.__name__]

    patching.instrument(module, rows)
    once = module.PPOTrainer.fit
    patching.instrument(module, rows)

    assert once is module.PPOTrainer.fit
    assert "fitted" == module.PPOTrainer("config").fit()


def test_an_actor_class_of_rays_is_wrapped_where_ray_takes_it_from() -> None:
    """
    The class behind the actor class, also in what it inherits.
    """

    class Modified:
        def fit(self) -> str:
            return "fitted"

    actor = types.SimpleNamespace(__ray_metadata__=types.SimpleNamespace(modified_class=Modified))
    holder = types.ModuleType("a_module")
    vars(holder)["Trainer"] = actor
    place = targets.Target(module="a_module", where="Trainer.fit", wrap=lambda original: lambda self: "wrapped")

    patching.instrument(holder, [place])

    assert "wrapped" == Modified().fit()
    assert {"a_module:Trainer.fit": ""} == {key: why for key, why in patching.found.items() if key.startswith("a_")}


def test_a_function_that_has_become_a_coroutine_is_left_alone() -> None:
    """
    Its callers would not await the wrapper, or would await a plain value.
    """
    module = types.ModuleType("b_module")
    exec("class A:\n    async def one(self): pass\n    def two(self): pass", vars(module))

    def awaited(original: Callable[..., Any]) -> Callable[..., Any]:
        async def wrapper(self: object) -> None:
            pass

        return wrapper

    places = [
        targets.Target(module="b_module", where="A.one", wrap=lambda original: lambda self: None),
        targets.Target(module="b_module", where="A.two", wrap=awaited),
    ]
    patching.instrument(module, places)

    assert {"b_module:A.one": "one is a coroutine here", "b_module:A.two": "two is no coroutine here"} == {
        key: why for key, why in patching.found.items() if key.startswith("b_")
    }


def test_each_process_says_once_what_it_found(caplog: pytest.LogCaptureFixture) -> None:
    """
    One line, a warning where something is missing.
    """
    patching.found.clear()
    patching.found["m:A.b"] = ""
    with caplog.at_level("INFO", logger="stepscope.verl"):
        patching.say("0.9.1")
        patching.found["m:A.c"] = "there is no c"
        patching.say("0.9.9")

    assert [
        ("INFO", "verl 0.9.1: instrumented 1 places of this process; nothing was missing"),
        ("WARNING", "verl 0.9.9: instrumented 1 places of this process; not found: m:A.c (there is no c)"),
    ] == [(record.levelname, record.getMessage()) for record in caplog.records]


def test_every_row_of_the_table_stands_once() -> None:
    """
    And none is of a package other than verl.
    """
    rows = [(target.module, target.where) for target in targets.TARGETS]

    assert len(rows) == len(set(rows))
    assert all(module.startswith("verl.") for module, _ in rows)
