"""The dashboards of the chart: generated, and about metrics that exist."""

from __future__ import annotations

import json
import re

import pytest
from tools.dashboards import DASHBOARDS, FOLDER, render

from tests.support.processes import ROOT

pytestmark = pytest.mark.unit

METRIC = re.compile(r"\b(?:rocketmq|failback)_[a-z0-9_]+")
SOURCES = (
    ROOT / "broker-image" / "failback" / "broker" / "metrics.py",
    ROOT / "operator" / "failback" / "operator" / "metrics.py",
)
_SUFFIXES = ("_total", "_bucket", "")


def exported() -> set[str]:
    """Return the names in the collectors of broker and operator, as Prometheus shows them."""
    names = set()
    for path in SOURCES:
        for name in re.findall(r'"([a-z0-9_]+)"', path.read_text()):
            bare = name if name.startswith("rocketmq_") else f"failback_operator_{name}"
            names |= {bare + suffix for suffix in _SUFFIXES}
    return names


def test_the_files_are_what_the_generator_writes() -> None:
    found = {path.name: path.read_text() for path in FOLDER.iterdir()}
    assert found == {name: render(dashboard) for name, dashboard in DASHBOARDS.items()}


@pytest.mark.parametrize("name", sorted(DASHBOARDS))
def test_every_panel_asks_for_metrics_that_exist(name: str) -> None:
    dashboard = DASHBOARDS[name]
    asked = {metric for _, metric in dashboard.variables}
    for panel in dashboard.panels:
        for query, _ in panel.queries:
            found = set(METRIC.findall(query))
            assert found, f"{panel.title}: no metric in {query}"
            asked |= found
    assert asked <= exported()


@pytest.mark.parametrize("name", sorted(DASHBOARDS))
def test_a_dashboard_fits_any_grafana(name: str) -> None:
    page = json.loads(render(DASHBOARDS[name]))
    assert "id" not in page
    assert page["templating"]["list"][0]["type"] == "datasource"
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in page["panels"]]
    assert len(set(places)) == len(places)
    for panel in page["panels"]:
        assert panel["datasource"]["uid"] == "${datasource}"
        assert panel["description"]


def test_pages_have_names_of_their_own() -> None:
    assert len({each.uid for each in DASHBOARDS.values()}) == len(DASHBOARDS)
    assert len({each.title for each in DASHBOARDS.values()}) == len(DASHBOARDS)
