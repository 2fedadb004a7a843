"""
The files under ``deploy/``: they can be read, name what there is, and agree about addresses.
"""

from urllib.parse import urlsplit

from stepscope import names, settings
from tests import linking


def environment() -> dict[str, str]:
    """
    The settings that go with the files.
    """
    lines = (linking.DEPLOY / "stepscope.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def test_links_are_made_of_attributes_that_there_are() -> None:
    """
    Every name is in the registry; the one that leads to a recording is among them.
    """
    known = {str(name) for name in names.ATTRIBUTES}

    assert set() == linking.attributes() - known
    assert str(names.WINDOW_ID) in linking.attributes()


def test_addresses_are_those_of_the_settings() -> None:
    """
    Wherever the sidecar is named, it is where ``STEPSCOPE_HTTP`` in ``stepscope.env`` has it listen.
    """
    env = environment()
    host, port = settings.read({key: value for key, value in env.items() if key.startswith("STEPSCOPE_")}).http
    sources = linking.sources()
    urls = [pattern["url"] for pattern in linking.patterns()]
    urls += [sources["stepscope"]["url"]]
    urls += [link["config"]["target"]["url"] for uid in ("stepscope", "tempo") for link in sources[uid]["correlations"]]

    assert {f"{host}:{port}"} == {urlsplit(url).netloc for url in urls}
    assert {"http"} == {urlsplit(url).scheme for url in urls}
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in env


def test_data_sources_lead_to_each_other() -> None:
    """
    Exemplars lead to a source of traces that is there, by the label that ours have; both kinds of source have links.
    """
    sources = linking.sources()
    (lead,) = sources["prometheus"]["jsonData"]["exemplarTraceIdDestinations"]

    assert "trace_id" == lead["name"]
    assert lead["datasourceUid"] in sources
    assert ("jaeger", "tempo") == (sources["stepscope"]["type"], sources["tempo"]["type"])
    assert sources["stepscope"]["correlations"] == sources["tempo"]["correlations"]
