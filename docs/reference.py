"""
The reference pages, made from the code: ``python docs/reference.py`` writes them, ``--check`` compares them.

Owns the form of ``docs/en/reference.md`` and ``docs/zh/reference.md``. What they say comes from elsewhere: names from
``stepscope.names``, defaults from ``stepscope.settings``, commands from the command line itself, and the words of a
language from ``names.toml`` beside the page, which must cover exactly the names that the code has.
"""

import importlib
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from stepscope import names, selection, servers, settings
from stepscope_sidecar import reasons

DOCS = Path(__file__).parent
LANGUAGES = ("en", "zh")
PAGE = "reference.md"

COMMAND_LINE = "stepscope_sidecar.cli"
"""The module whose ``app`` is the command line."""

REFERENCE_JOB = "stepscope_trainer.config"
"""The module whose ``Config`` holds the options of the reference job."""

EXAMPLES = ("3", "3,10-12", "every:5", "every:5@1", "v3", "")
"""Selections shown with the steps they name."""

EXAMPLE_STEPS = 20
"""Steps of the run that the examples are spelled out for: enough to show a stride."""

ENUMS: dict[str, type[StrEnum]] = {
    "buckets": names.Bucket,
    "levels": names.Level,
    "tools": names.Tool,
    "states": names.State,
    "reasons": names.Reason,
    "incomplete": names.Incomplete,
}
"""Closed lists of values; their texts are in ``names.toml`` in every language, English too."""

TEXTS: dict[str, dict[str, str]] = {
    "spans": {name: name.help for name in (*names.SPANS, *names.INTEGRATION_SPANS)},
    "attributes": {name: name.help for name in names.ATTRIBUTES},
    "events": {name: name.help for name in (*names.EVENTS, *names.EVENT_ATTRIBUTES)},
    "metrics": {metric.name: metric.help for metric in names.METRICS},
    "environment": {name: name.help for name in names.ENVIRONMENT},
    "reasons": {str(name): text for name, text in reasons.REASONS.items()},
    "incomplete": {str(name): text for name, text in reasons.INCOMPLETE.items()},
}
"""Names that carry their English text in the code; ``names.toml`` of every other language translates them."""


class WordsError(Exception):
    """
    ``names.toml`` lacks a text, or has one for a name that is not in the code.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Words:
    """
    The texts of one language: ``page`` for headings and paragraphs, ``lists`` for names by section.
    """

    page: Mapping[str, str]
    lists: Mapping[str, Mapping[str, str]]

    @classmethod
    def load(cls, language: str) -> "Words":
        """
        The texts of ``language``.

        Raises:
            WordsError: they don't cover exactly the names in the code.
        """
        path = DOCS / language / "names.toml"
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        page = found.pop("page")
        lists = dict(found)
        if language == "en":
            lists |= TEXTS
        wanted = {section: set(texts) for section, texts in TEXTS.items()}
        wanted |= {section: {str(value) for value in values} for section, values in ENUMS.items()}
        problems = []
        for section in sorted(wanted.keys() | lists.keys()):
            have, want = set(lists.get(section, {})), wanted.get(section, set())
            problems += [f"[{section}] has no text for {name}" for name in sorted(want - have)]
            problems += [f"[{section}] has a text for {name}, which no code has" for name in sorted(have - want)]
        if problems:
            raise WordsError(f"{path.relative_to(DOCS.parent)}: {'; '.join(problems)}")
        return cls(page=page, lists=lists)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """
    A Markdown table; bars in cells are escaped.
    """

    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"

    return [line(header), line(["---"] * len(header)), *map(line, rows), ""]


def code(text: object) -> str:
    """
    ``text`` in code font; nothing where there is nothing.
    """
    return f"`{text}`" if str(text) else ""


def defaults() -> dict[str, str]:
    """
    The default of every environment variable, as a person would write it.
    """
    base = settings.Settings()

    def address(value: tuple[str, int] | None) -> str:
        return "off" if value is None else f"{value[0]}:{value[1]}"

    def size(value: int) -> str:
        return f"{value // 1024**3}G" if value % 1024**3 == 0 else str(value)

    return {
        names.STEPS: base.selection.text,
        names.TOOLS: ",".join(f"{role}={tool}" if role else tool for role, tool in base.tools.items()),
        names.LEVEL_ENV: str(base.level),
        names.RANKS: base.ranks.text,
        names.DIR: str(base.directory),
        names.MAX_OVERHEAD: "" if base.max_overhead is None else str(base.max_overhead),
        names.HTTP: address(base.http),
        names.DISABLED: "1" if base.disabled else "0",
        names.RUN_ENV: base.run or "run",
        names.ATTEMPT_ENV: base.attempt,
        names.NODE: base.node,
        names.SOCKET: "" if base.socket is None else str(base.socket),
        names.STEPS_FILE: "" if base.steps_file is None else str(base.steps_file),
        names.CONTINUOUS: "1" if base.continuous else "0",
        names.REPLICA_STOP: "after" if base.stop_after else "before",
        names.CAP_SECONDS: f"{base.cap_seconds:g}",
        names.CAP_BYTES: size(base.cap_bytes),
        names.CAP_MEMORY: size(base.cap_memory),
        names.BOUNDARY_SECONDS: f"{base.boundary_seconds:g}",
        names.DISK_BUDGET: size(base.disk_budget),
        names.KEEP_SECONDS: "",
        names.KEEP_BYTES: "",
        names.REQUEST_SPANS: str(base.request_spans),
        names.OTLP_HTTP: address(base.otlp_http),
        names.OTLP_GRPC: address(base.otlp_grpc),
        names.ARTIFACTS: base.artifacts,
        names.TOKEN_FILE: "" if base.token_file is None else str(base.token_file),
        names.TRACE_VIEW: base.trace_view,
        names.VIEWER: base.viewer,
        names.HTTP_PROFILER_URL: "",
        names.HTTP_PROFILER_KIND: str(servers.Kind.VLLM),
        names.HTTP_PROFILER_DIR: "",
        names.HTTP_PROFILER_ANY_HOST: "0",
        names.HTTP_PROFILER_TOKEN_FILE: "",
    }


def steps_named(text: str) -> str:
    """
    The steps among the first :data:`EXAMPLE_STEPS` that the selection ``text`` names.
    """
    chosen = selection.Selection.parse(text)
    return ", ".join(str(step) for step in range(1, EXAMPLE_STEPS + 1) if step in chosen)


def command_line() -> Any:
    """
    The command line as a click command. Only here is its library needed.
    """
    import typer.main

    return typer.main.get_command(importlib.import_module(COMMAND_LINE).app)


def commands() -> dict[str, Any]:
    """
    The commands of the command line that are not hidden, by name.
    """
    return {name: command for name, command in command_line().commands.items() if not command.hidden}


def parameters(command: Any) -> list[tuple[str, str, str]]:
    """
    Rows of (spelling, default, help) of a command's arguments and options.
    """
    rows = []
    for item in command.params:
        if item.hidden or "--help" in item.opts:
            continue
        if item.param_type_name == "argument":
            spelling = str(item.metavar or item.name).upper()
        else:
            spelling = " / ".join([*item.opts, *item.secondary_opts])
            spelling += "" if item.is_flag else f" {item.metavar or str(item.name).upper()}"
        plain = item.default if isinstance(item.default, str | int | float | Path) else ""
        rows.append((code(spelling), code(plain) if plain is not False else "", " ".join((item.help or "").split())))
    return rows


def command_section(words: Words) -> list[str]:
    """
    The command line: each command with its help, arguments and options.
    """
    lines = [f"## {words.page['commands']}", "", words.page["commands_intro"], ""]
    for name, command in commands().items():
        lines += [f"### stepscope {name}", "", *paragraphs(command.help or ""), ""]
        rows = parameters(command)
        if rows:
            lines += table([words.page["option"], words.page["default"], words.page["meaning"]], rows)
    return lines


def job_section(words: Words) -> list[str]:
    """
    The options of the reference job.
    """
    rows = []
    for item in fields(importlib.import_module(REFERENCE_JOB).Config):
        if item.metadata["hidden"]:
            continue
        spelling = f"--{item.name.replace('_', '-')}"
        if item.default is True:
            spelling += f" / --no-{spelling[2:]}"
        elif item.default is not False:
            spelling += f" {item.metadata['metavar']}"
        default = "" if isinstance(item.default, bool) else code(item.default)
        rows.append((code(spelling), default, item.metadata["help"]))
    lines = [f"## {words.page['job']}", "", words.page["job_intro"], ""]
    return lines + table([words.page["option"], words.page["default"], words.page["meaning"]], rows)


def paragraphs(text: str) -> list[str]:
    """
    Help text as Markdown: form feeds, which end a help text for click, and what follows them are left out.
    """
    return [line.strip() for line in text.split("\f")[0].strip().splitlines()]


def render(language: str) -> str:
    """
    The whole page in ``language``.
    """
    words = Words.load(language)
    page, lists = words.page, words.lists
    lines = [f"# {page['title']}", "", page["intro"], ""]

    lines += [f"## {page['environment']}", "", page["environment_intro"], ""]
    default = defaults()
    for heading, group in ((page["people_need"], names.PEOPLE_NEED), (page["advanced"], names.ADVANCED)):
        lines += [f"### {heading}", ""]
        rows = [(code(name), code(default[name]), lists["environment"][name]) for name in group]
        lines += table([page["name"], page["default"], page["meaning"]], rows)

    lines += [f"## {page['selection']}", "", page["selection_intro"].format(steps=EXAMPLE_STEPS), ""]
    lines += ["```text", f"steps  {selection.GRAMMAR}", f"ranks  {selection.RANK_GRAMMAR}", "```", ""]
    rows2 = [(code(f"{names.STEPS}={text}"), steps_named(text) or page["nothing"]) for text in EXAMPLES]
    lines += table([page["example"], page["steps"]], rows2)

    for section in ("spans", "attributes", "events"):
        lines += [f"## {page[section]}", "", page[f"{section}_intro"], ""]
        lines += table([page["name"], page["meaning"]], [(code(n), text) for n, text in ordered(lists, section)])

    lines += [f"## {page['metrics']}", "", page["metrics_intro"], ""]
    kinds = {metric.name: metric for metric in names.METRICS}
    metric_rows = [
        (code(name), kinds[name].kind, ", ".join(map(code, kinds[name].labels)), text)
        for name, text in ordered(lists, "metrics")
    ]
    lines += table([page["name"], page["kind"], page["labels"], page["meaning"]], metric_rows)

    lines += [f"## {page['values']}", ""]
    for section in ENUMS:
        lines += [f"### {page[section]}", "", page[f"{section}_intro"], ""]
        lines += table([page["value"], page["meaning"]], [(code(n), text) for n, text in ordered(lists, section)])

    lines += command_section(words) + job_section(words)
    return "\n".join(lines).rstrip() + "\n"


def ordered(lists: Mapping[str, Mapping[str, str]], section: str) -> list[tuple[str, str]]:
    """
    Names and texts of ``section``, in the order of the code.
    """
    order = TEXTS[section] if section in TEXTS else [str(value) for value in ENUMS[section]]
    return [(name, lists[section][name]) for name in order]


def main(arguments: Sequence[str]) -> int:
    """
    Write the pages, or with ``--check`` say which of them is stale; returns the exit code.
    """
    check = "--check" in arguments
    code_ = 0
    for language in LANGUAGES:
        path = DOCS / language / PAGE
        shown = path.relative_to(DOCS.parent)
        try:
            text = render(language)
        except WordsError as error:
            print(f"{error}", file=sys.stderr)
            return 1
        if check and (not path.exists() or path.read_text(encoding="utf-8") != text):
            print(f"{shown} is stale; run `python docs/reference.py`", file=sys.stderr)
            code_ = 1
        elif not check:
            path.write_text(text, encoding="utf-8")
    return code_


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
