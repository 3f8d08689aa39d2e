"""The dashboards of the chart: generated, and about metrics that exist."""

from __future__ import annotations

import json
import re

import pytest
from tools.dashboards import DASHBOARDS, FOLDER, render
from tools.metrics_page import components

METRIC = re.compile(r"\b(?:rocketmq|failback)_[a-z0-9_]+")


def exported() -> set[str]:
    """Return every name that a component shows, with what Prometheus makes of a histogram."""
    names = set()
    for component in components().values():
        for family in component:
            names.add(family.name)
            if family.kind == "histogram":
                names |= {f"{family.name}_{suffix}" for suffix in ("bucket", "sum", "count")}
    return names


def test_the_files_are_what_the_generator_writes() -> None:
    found = {path.name: path.read_text() for path in FOLDER.iterdir()}
    assert found == {name: render(dashboard) for name, dashboard in DASHBOARDS.items()}


@pytest.mark.parametrize("name", sorted(DASHBOARDS))
def test_every_panel_asks_for_metrics_that_exist(name: str) -> None:
    dashboard = DASHBOARDS[name]
    asked = {metric for _, metric, _ in dashboard.variables}
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


@pytest.mark.parametrize("name", sorted(DASHBOARDS))
def test_every_variable_is_defined_and_used(name: str) -> None:
    page = json.loads(render(DASHBOARDS[name]))
    variables = {each["name"] for each in page["templating"]["list"]} - {"datasource"}
    queries = [target["expr"] for panel in page["panels"] for target in panel["targets"]]
    used = {word for query in queries for word in re.findall(r"\$(\w+)", query)}
    assert used - {"__rate_interval"} <= variables
    if name in {"offset-health.json", "broker-pair.json", "reconsumption.json"}:
        assert variables == {"cluster", "pair", "topic", "consumer_group"}


@pytest.mark.parametrize("name", sorted(DASHBOARDS))
def test_faults_are_regions_over_every_page(name: str) -> None:
    (faults,) = json.loads(render(DASHBOARDS[name]))["annotations"]["list"]
    assert faults["expr"] == "failback_fault_active == 1"
    assert faults["datasource"]["uid"] == "${datasource}"
