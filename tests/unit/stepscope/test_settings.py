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
            "STEPSCOPE_DISK_BUDGET": "1T",
            "STEPSCOPE_REQUEST_SPANS": "10",
            "STEPSCOPE_OTLP_HTTP": "4318",
            "STEPSCOPE_OTLP_GRPC": "off",
            "STEPSCOPE_TOKEN_FILE": "/tmp/token",
        }
    )

    assert 11 in read.selection
    assert "ops" == read.level
    assert ("0.0.0.0", 8321) == read.http
    assert (500 * 1024**2, 2 * 1024**3, 1024**4, 10) == (
        read.cap_bytes,
        read.cap_memory,
        read.disk_budget,
        read.request_spans,
    )
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
        ("STEPSCOPE_HTTP", "host:port"),
        ("STEPSCOPE_HTTP", "127.0.0.1:99999"),
        ("STEPSCOPE_DISABLED", "maybe"),
        ("STEPSCOPE_RUN", "a/b"),
        ("STEPSCOPE_ATTEMPT", ".."),
        ("STEPSCOPE_SOCKET", "/" + "x" * 107),
        ("STEPSCOPE_CAP_SECONDS", "inf"),
        ("STEPSCOPE_CAP_BYTES", "1.5G"),
        ("STEPSCOPE_REQUEST_SPANS", "-1"),
    ],
)
def test_a_value_that_cannot_be_used_is_an_error_with_its_name(name: str, value: str) -> None:
    """
    At start, never later, and naming the setting.
    """
    with pytest.raises(ConfigurationError, match=name):
        settings.read({name: value})


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
