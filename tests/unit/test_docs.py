"""
The pages say what is so: both languages alike, reference up to date, examples that run, commands that exist.
"""

import ast
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from stepscope import names, settings
from stepscope.testing import capture_spans

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = (
    "ascend-profiling.md",
    "attaching.md",
    "choosing.md",
    "concepts.md",
    "deploy.md",
    "instrumenting.md",
    "limits.md",
    "nodes.md",
    "overhead.md",
    "pages.md",
    "profiling-servers.md",
    "quickstart.md",
    "ray.md",
    "recordings.md",
    "reference.md",
    "run-as-data.md",
    "runbook.md",
    "show.md",
    "timeline.md",
    "trace-views.md",
    "verl.md",
    "vllm.md",
)

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)#]*)(?:#([^)]*))?\)")
COMMAND = re.compile(r"\bstepscope (?!COMMAND\b)([a-z]+)")

LOOP = """
class Loop:
    # What the examples take for given: a user's own loop, engine and queue. It accepts every call.
    def __getattr__(self, name):
        return self
    def __call__(self, *arguments, **named):
        return self
    def __iter__(self):
        return iter(())
    def __bool__(self):
        return False
    def __len__(self):
        return 0
    def __await__(self):
        return iter(())
    def __getitem__(self, key):
        return None
    def __setitem__(self, key, value):
        pass

loop = engine = async_engine = batch = Loop()
rank, world_size, replica, updates, version = 0, 1, 0, 2, 1
"""
"""Names that the examples use and do not define."""

ENGINE = """
class Engine(Loop):
    # An engine that is given the versions 1 and 2, and then ends.
    versions = [1, 2]
    def running(self):
        return bool(self.versions)
    def new_version(self):
        return self.versions.pop(0)

engine = Engine()
"""
"""The same, with an engine that gets new weights twice."""


def reference() -> ModuleType:
    """
    The generator of the reference pages.
    """
    spec = importlib.util.spec_from_file_location("docs_reference", DOCS / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def page(language: str, name: str) -> str:
    """
    The text of a page.
    """
    return (DOCS / language / name).read_text(encoding="utf-8")


def prose(text: str) -> str:
    """
    ``text`` without its code blocks.
    """
    return FENCE.sub("", text)


def blocks(text: str, *languages: str) -> list[str]:
    """
    The code blocks in ``text`` in these languages, or all.
    """
    return [body for language, body in FENCE.findall(text) if not languages or language in languages]


def anchor(heading: str) -> str:
    """
    The fragment that a Markdown viewer gives to ``heading``.
    """
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_both_languages_have_the_same_pages() -> None:
    """
    Each page exists in English and in Chinese, and there is no other.
    """
    for language in ("en", "zh"):
        assert list(PAGES) == sorted(path.name for path in (DOCS / language).glob("*.md"))


@pytest.mark.parametrize("name", PAGES)
def test_languages_are_kept_in_step(name: str) -> None:
    """
    A page has the same headings, rows of tables and code blocks in both languages.
    """
    english, chinese = page("en", name), page("zh", name)
    rows = [
        [line.count("|") for line in prose(text).splitlines() if line.startswith("|")] for text in (english, chinese)
    ]

    assert [level for level, _ in HEADING.findall(prose(english))] == [
        level for level, _ in HEADING.findall(prose(chinese))
    ]
    assert FENCE.findall(english) == FENCE.findall(chinese)
    assert rows[0] == rows[1]
    assert english.count("\n- ") == chinese.count("\n- ")
    assert re.search(r"[\u4e00-\u9fff]", chinese)
    assert not re.search(r"[\u3000-\u9fff\uff00-\uffef]", english)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(language: str, name: str) -> None:
    """
    A link to a page leads to a page in the same language, and to a heading on it.
    """
    for target, fragment in LINK.findall(prose(page(language, name))):
        if "://" in target:
            continue
        text = page(language, target or name)
        assert not fragment or fragment in {anchor(heading) for _, heading in HEADING.findall(prose(text))}


def test_the_reference_is_what_the_code_says() -> None:
    """
    ``docs/reference.py --check`` finds nothing to complain about.
    """
    assert 0 == reference().main(["--check"])


def test_a_stale_reference_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Where a page is not what the code says, ``--check`` fails and names the page.
    """
    module = reference()
    for language in ("en", "zh"):
        folder = tmp_path / "docs" / language
        folder.mkdir(parents=True)
        (folder / "names.toml").write_text(
            (DOCS / language / "names.toml").read_text(encoding="utf-8"), encoding="utf-8"
        )
        (folder / "reference.md").write_text(page(language, "reference.md"), encoding="utf-8")
    (tmp_path / "docs" / "zh" / "reference.md").write_text("# 参考\n", encoding="utf-8")
    monkeypatch.setattr(module, "DOCS", tmp_path / "docs")

    assert 1 == module.main(["--check"])
    complaint = capsys.readouterr().err
    assert "docs/zh/reference.md is stale" in complaint
    assert "docs/en/reference.md" not in complaint


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        ('"rl.step.partial" =', '"rl.step.partly" =', "[attributes] has no text for rl.step.partial"),
        ("[spans]\n", '[spans]\n"rl.stop" = "x"\n', "[spans] has a text for rl.stop, which no code has"),
    ],
)
def test_a_translation_must_match_the_names(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    before: str,
    after: str,
    complaint: str,
) -> None:
    """
    A name without a translation, and a translation without a name, fail with the name.
    """
    module = reference()
    folder = tmp_path / "docs" / "zh"
    folder.mkdir(parents=True)
    text = (DOCS / "zh" / "names.toml").read_text(encoding="utf-8")
    assert before in text
    (folder / "names.toml").write_text(text.replace(before, after, 1), encoding="utf-8")
    monkeypatch.setattr(module, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(module, "LANGUAGES", ("zh",))

    assert 1 == module.main(["--check"])
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("name", PAGES)
def test_python_examples_compile(name: str) -> None:
    """
    Every Python block is valid Python.
    """
    for source in blocks(page("en", name), "python"):
        ast.parse(source)


@pytest.mark.parametrize("number", range(len(blocks(page("en", "instrumenting.md"), "python"))))
def test_examples_run_where_stepscope_is_disabled(number: int) -> None:
    """
    Every example of the page on instrumenting runs, against a loop that accepts everything, with nothing started.
    """
    source = blocks(page("en", "instrumenting.md"), "python")[number]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", LOOP + source],
        env={**os.environ, names.DISABLED: "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert 0 == done.returncode, done.stderr


@pytest.mark.parametrize(("number", "role"), [(0, "trainer"), (1, "rollouter")])
def test_the_first_examples_record_the_selected_steps(monkeypatch: pytest.MonkeyPatch, number: int, role: str) -> None:
    """
    The loops shown for trainer and rollouter, run as they are, open and close a window in each selected step.
    """
    source = blocks(page("en", "instrumenting.md"), "python")[number]
    given: dict[str, object] = {}
    exec(LOOP + ENGINE, given)
    monkeypatch.setattr("stepscope.init", lambda **_: None)
    monkeypatch.setattr("stepscope.shutdown", lambda: None)

    with capture_spans(role=role, selected={1, 2}, total_steps=2) as captured:
        exec(source, given)
        opened = [(call["step"], call["param_version"]) for call in captured.agent.windows.of("open")]
        closed = [(call["version"], call["reason"], call["incomplete"]) for call in captured.agent.windows.of("close")]

    assert [(1, 0), (2, 1)] == opened
    assert [(0, "boundary", ""), (1, "boundary", "")] == closed


@pytest.mark.parametrize("language", ["en", "zh"])
def test_commands_are_mentioned_and_exist(language: str) -> None:
    """
    The handwritten pages show every command of the command line, and none that does not exist.
    """
    known = set(reference().commands())
    texts = [page(language, name) for name in PAGES if name != "reference.md"]
    code = [body for text in texts for body in blocks(text, "sh", "text")]
    code += [inline for text in texts for inline in re.findall(r"`([^`\n]+)`", prose(text))]
    shown = {command for body in code for command in COMMAND.findall(body)}

    assert known == shown | ({"demo"} if any("make demo" in body for body in code) else set())


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_main_settings_are_mentioned(language: str) -> None:
    """
    The handwritten pages name every environment variable that people need, and none that does not exist.
    """
    text = "".join(page(language, name) for name in PAGES if name != "reference.md")
    found = set(re.findall(r"STEPSCOPE_[A-Z_]+", text))

    assert set(names.PEOPLE_NEED) <= found
    assert found <= set(names.ENVIRONMENT)
    assert set(names.ENVIRONMENT) <= set(re.findall(r"STEPSCOPE_[A-Z_]+", page(language, "reference.md")))


def test_every_default_is_what_an_empty_environment_gives() -> None:
    """
    The table of environment variables has a default for each, and they set what is set without them.
    """
    defaults = reference().defaults()
    given = {name: value for name, value in defaults.items() if value and name != names.RUN_ENV}

    assert set(names.ENVIRONMENT) == set(defaults)
    server: dict[str, str] = {names.HTTP_PROFILER_URL: "http://127.0.0.1:1", names.HTTP_PROFILER_DIR: "/traces"}
    assert settings.read(server) == settings.read({**given, **server})
