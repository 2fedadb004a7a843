"""
What pages load: from the package, by name, and from nowhere else.
"""

from importlib.resources import files

import pytest

from stepscope_sidecar.static import FILES
from tests.unit.sidecar.calling import Caller


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("stepscope.css", "text/css; charset=utf-8"),
        ("live.js", "text/javascript; charset=utf-8"),
        ("viewer.js", "text/javascript; charset=utf-8"),
        ("icon.svg", "image/svg+xml"),
    ],
)
def test_each_file_is_in_the_package_and_served_as_what_it_is(caller: Caller, name: str, kind: str) -> None:
    """
    An installed package has it, the browser is told its type and asks again after an upgrade.
    """
    packed = files("stepscope_sidecar.pages").joinpath("static", name).read_bytes()
    answer = caller.get(f"/static/{name}")

    assert (200, kind, "no-cache") == (
        answer.status_code,
        answer.headers["content-type"],
        answer.headers["cache-control"],
    )
    assert packed == answer.content
    assert name in FILES


@pytest.mark.parametrize(
    "name", ["nothing.js", "..%2fhtml.py", "%2e%2e/html.py", ".", "stepscope.css/", "STEPSCOPE.CSS"]
)
def test_nothing_else_is_served(caller: Caller, name: str) -> None:
    """
    No other name, and no way out of the folder.
    """
    assert caller.get(f"/static/{name}").status_code in {404, 405, 307}
    assert "def " not in caller.get(f"/static/{name}").text
