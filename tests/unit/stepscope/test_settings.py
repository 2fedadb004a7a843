"""
The ``STEPSCOPE_*`` environment.
"""

import re
from pathlib import Path

import pytest

from stepscope import names, settings
from stepscope.errors import ConfigurationError


def test_an_empty_environment_selects_nothing_and_does_no_harm() -> None:
    """
    The defaults: level spans, rank 0, no step, loopback.
    """
    read = settings.read({})

    assert not read.selection
    assert ("spans", "0", "torch") == (read.level, read.ranks.text, read.tool("trainer"))
    assert ("127.0.0.1", 0) == read.http
    assert not read.disabled


def test_everything_can_be_said() -> None:
    """
    Each setting reaches its field.
    """
    read = settings.read(
        {
            "STEPSCOPE_STEPS": "3,10-12",
            "STEPSCOPE_TOOLS": "trainer=torch",
            "STEPSCOPE_LEVEL": "OPS",
            "STEPSCOPE_RANKS": "all",
            "STEPSCOPE_DIR": "/tmp/x",
            "STEPSCOPE_MAX_OVERHEAD": "0.05",
            "STEPSCOPE_HTTP": "0.0.0.0:8321",
            "STEPSCOPE_DISABLED": "no",
            "STEPSCOPE_RUN": "night",
            "STEPSCOPE_ATTEMPT": "a1",
            "STEPSCOPE_SOCKET": "/tmp/s.sock",
            "STEPSCOPE_CAP_SECONDS": "1.5",
            "STEPSCOPE_CAP_BYTES": "500M",
            "STEPSCOPE_CAP_MEMORY": "2GiB",
            "STEPSCOPE_BOUNDARY_SECONDS": "2.5",
            "STEPSCOPE_DISK_BUDGET": "1T",
            "STEPSCOPE_KEEP_SECONDS": "3600",
            "STEPSCOPE_KEEP_BYTES": "20G",
            "STEPSCOPE_REQUEST_SPANS": "10",
            "STEPSCOPE_OTLP_HTTP": "4318",
            "STEPSCOPE_OTLP_GRPC": "off",
            "STEPSCOPE_TOKEN_FILE": "/tmp/token",
            "STEPSCOPE_TRACE_VIEW": "http://127.0.0.1:16686/trace/{trace_id}",
            "STEPSCOPE_VIEWER": "https://ui.perfetto.dev",
        }
    )

    assert 11 in read.selection
    assert "ops" == read.level
    assert ("0.0.0.0", 8321) == read.http
    assert ("http://127.0.0.1:16686/trace/{trace_id}", "https://ui.perfetto.dev") == (read.trace_view, read.viewer)
    assert (500 * 1024**2, 2 * 1024**3, 1024**4, 10) == (
        read.cap_bytes,
        read.cap_memory,
        read.disk_budget,
        read.request_spans,
    )
    assert (3600.0, 20 * 1024**3) == (read.keep_seconds, read.keep_bytes)
    assert (1.5, 0.05) == (read.cap_seconds, read.max_overhead)
    assert ("127.0.0.1", 4318) == read.otlp_http
    assert read.otlp_grpc is None
    assert Path("/tmp/x/night-a1") == read.attempt_folder
    assert Path("/tmp/s.sock") == read.socket_path
    assert Path("/tmp/token") == read.token_file


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("STEPSCOPE_STEPS", "3;4"),
        ("STEPSCOPE_TOOLS", "tortch"),
        ("STEPSCOPE_TOOLS", "trainer="),
        ("STEPSCOPE_LEVEL", "deep"),
        ("STEPSCOPE_RANKS", "x"),
        ("STEPSCOPE_MAX_OVERHEAD", "nan"),
        ("STEPSCOPE_MAX_OVERHEAD", "-1"),
        ("STEPSCOPE_MAX_OVERHEAD", "5%"),
        ("STEPSCOPE_MAX_OVERHEAD", "5"),
        ("STEPSCOPE_HTTP", "host:port"),
        ("STEPSCOPE_HTTP", "127.0.0.1:99999"),
        ("STEPSCOPE_DISABLED", "maybe"),
        ("STEPSCOPE_RUN", "a/b"),
        ("STEPSCOPE_ATTEMPT", ".."),
        ("STEPSCOPE_SOCKET", "/" + "x" * 107),
        ("STEPSCOPE_CAP_SECONDS", "inf"),
        ("STEPSCOPE_BOUNDARY_SECONDS", "0"),
        ("STEPSCOPE_BOUNDARY_SECONDS", "61"),
        ("STEPSCOPE_CAP_BYTES", "1.5G"),
        ("STEPSCOPE_REQUEST_SPANS", "-1"),
        ("STEPSCOPE_KEEP_SECONDS", "a day"),
        ("STEPSCOPE_KEEP_BYTES", "-1"),
        ("STEPSCOPE_KEEP_BYTES", "many"),
        ("STEPSCOPE_TRACE_VIEW", "http://127.0.0.1:16686/trace/"),
        ("STEPSCOPE_TRACE_VIEW", "127.0.0.1:16686/trace/{trace_id}"),
        ("STEPSCOPE_TRACE_VIEW", "http://me:secret@127.0.0.1/{trace_id}"),
        ("STEPSCOPE_VIEWER", "javascript:alert(1)"),
        ("STEPSCOPE_VIEWER", "ui.perfetto.dev"),
        ("STEPSCOPE_VIEWER", 'https://x/"onclick='),
        ("STEPSCOPE_REQUEST_SPANS", "9" * 5000),
        ("STEPSCOPE_HTTP", "127.0.0.1:" + "9" * 5000),
        ("STEPSCOPE_HTTP_PROFILER_KIND", "vllm"),
        ("STEPSCOPE_HTTP_PROFILER_ANY_HOST", "1"),
    ],
)
def test_a_value_that_cannot_be_used_is_an_error_with_its_name(name: str, value: str) -> None:
    """
    At start, never later, and naming the setting.
    """
    with pytest.raises(ConfigurationError, match=name):
        settings.read({name: value})


@pytest.mark.parametrize("value", ["5", "1.01", "5%", "-1"])
def test_a_ratio_that_is_a_percentage_says_how_it_is_written(value: str) -> None:
    """
    Five would be 500%, which no run reaches.
    """
    with pytest.raises(ConfigurationError, match=r"STEPSCOPE_MAX_OVERHEAD=.*; 0\.05 is 5%$"):
        settings.read({"STEPSCOPE_MAX_OVERHEAD": value})


@pytest.mark.parametrize("value", ["0", "0.5", "1"])
def test_a_ratio_up_to_1_is_taken(value: str) -> None:
    """
    With 0 the first window that is known to have cost something is the last.
    """
    assert float(value) == settings.read({"STEPSCOPE_MAX_OVERHEAD": value}).max_overhead


@pytest.mark.parametrize("name", ["STEPSCOPE_KEEP_SECONDS", "STEPSCOPE_KEEP_BYTES"])
@pytest.mark.parametrize("value", ["0", "-1"])
def test_keeping_nothing_is_no_way_to_keep_all(name: str, value: str) -> None:
    """
    What has no limit is not set.
    """
    with pytest.raises(ConfigurationError, match=f"{name}='{value}' would keep nothing; leave it unset to keep all"):
        settings.read({name: value})


def test_an_unknown_tool_is_an_error_that_names_the_known_ones() -> None:
    """
    And says how a profiler of one's own is named.
    """
    with pytest.raises(ConfigurationError, match=r"'tortch' is unknown; known are .*\btorch\b.*x-NAME"):
        settings.read({"STEPSCOPE_TOOLS": "tortch"})


@pytest.mark.parametrize("tool", sorted(settings.NOT_DRIVEN))
def test_a_tool_without_a_driver_stops_the_start_with_the_reason(tool: str) -> None:
    """
    Also where one role alone is to use it.
    """
    with pytest.raises(ConfigurationError, match=f"STEPSCOPE_TOOLS.*{tool}.*{re.escape(settings.NOT_DRIVEN[tool])}"):
        settings.read({"STEPSCOPE_TOOLS": f"trainer=torch,rollouter={tool}"})


def test_every_tool_has_a_driver_or_a_reason() -> None:
    """
    The literal names; those that are not driven are among them.
    """
    known = {"torch", "torch_npu", "vllm", "http", "msprof", "py-spy", "nsys", "cuda_range", "torch_memory"}

    assert known == settings.KNOWN_TOOLS
    assert known > settings.NOT_DRIVEN.keys()
    for tool in known - settings.NOT_DRIVEN.keys():
        assert tool == settings.read({"STEPSCOPE_TOOLS": tool}).tool("trainer")


def test_a_profiler_that_a_program_registers_can_be_chosen() -> None:
    """
    Its name begins with x- and fits a folder's name.
    """
    assert "x-mine" == settings.read({"STEPSCOPE_TOOLS": "rollouter=x-mine"}).tool("rollouter")
    with pytest.raises(ConfigurationError, match="unknown"):
        settings.read({"STEPSCOPE_TOOLS": "x-../up"})


def test_an_unknown_name_is_an_error_with_a_guess() -> None:
    """
    A typo would otherwise record nothing, silently.
    """
    with pytest.raises(ConfigurationError, match="did you mean STEPSCOPE_STEPS"):
        settings.read({"STEPSCOPE_STEP": "3"})


def test_what_is_empty_is_not_set() -> None:
    """
    Compose files and manifests set empty values where nothing is meant.
    """
    assert settings.read({str(name): " " for name in names.ENVIRONMENT}) == settings.read({})


def test_the_control_socket_of_an_attempt_is_short_enough() -> None:
    """
    The longest attempt in the default folder stays under the kernel's limit.
    """
    read = settings.read({"STEPSCOPE_ATTEMPT": "a" * 40})

    assert settings.MAX_SOCKET_PATH >= len(str(read.socket_path))


@pytest.mark.parametrize("name", [names.TOOLS, names.RANKS, names.LEVEL_ENV])
def test_the_examples_in_a_help_text_can_be_used(name: names.Name) -> None:
    """
    Each value that it names, as it is written there.
    """
    examples = re.split(r",? or (?:by role: )?|, ", name.help.partition(": ")[2])

    assert len(examples) > 1
    for example in examples:
        settings.read({name: example})
