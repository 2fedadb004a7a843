"""
What is repeated of a setting that is refused: never a password.
"""

import pytest

from stepscope import endpoint, names, settings
from stepscope.errors import ConfigurationError
from stepscope.masking import masked

SECRET = "s3cr/e't p4ss"

GRAMMARS = {str(names.STEPS), str(names.RANKS)}
"""Nobody takes them for an address; what of them cannot be read is shown."""

URLS = (
    f"https://me:{SECRET}@host/x",
    f"me:{SECRET}@host:80",
    f"http://me:{SECRET}@host:80",
    f"//:{SECRET}@[",
    f"x={SECRET}@y",
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://h/x", "http://h/x"),
        ("HTTPS://me:a@b@h/x", "HTTPS://...@h/x"),
        ("me:a@h:80", "...@h:80"),
        ("role=http://me:a@h", "...@h"),
        ("//me\n:a@h", "//...@h"),
        ("", ""),
    ],
)
def test_what_stands_before_an_at_is_not_repeated(text: str, expected: str) -> None:
    """
    The scheme is, and the rest.
    """
    assert expected == masked(text)


@pytest.mark.parametrize("name", sorted({*map(str, names.ENVIRONMENT)} - GRAMMARS))
@pytest.mark.parametrize("url", URLS)
def test_no_setting_repeats_a_password(name: str, url: str) -> None:
    """
    Whichever it is, and whatever is wrong with it.
    """
    given = {name: url}
    if name.startswith("STEPSCOPE_HTTP_PROFILER_"):
        given = {names.HTTP_PROFILER_URL: "http://127.0.0.1:1", names.HTTP_PROFILER_DIR: "/x", **given}
    said = ""
    try:
        settings.read(given)
    except ConfigurationError as error:
        said = str(error)

    assert "p4ss" not in said


def test_the_upstreams_address_neither() -> None:
    """
    It may be refused as well.
    """
    with pytest.raises(ConfigurationError) as error:
        endpoint.url({"OTEL_EXPORTER_OTLP_ENDPOINT": f"ftp://me:{SECRET}@host"})

    assert "p4ss" not in str(error.value)
