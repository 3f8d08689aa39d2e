"""The page of metrics is what the components export; their names follow Prometheus' rules."""

from __future__ import annotations

import re
from pathlib import Path

from tools.metrics_page import PAGE, components, render

from failback.analytics.collector.metrics import FAMILIES, CollectorMetrics
from failback.analytics.dashboard.http.metrics import FAMILIES as DASHBOARD
from failback.analytics.dashboard.serve import make_app
from failback.analytics.dashboard.settings import DashboardSettings
from failback.operator.metrics import Metrics

ALL = [family for name, part in components().items() if name != "known" for family in part]


def test_the_page_is_what_its_program_writes() -> None:
    assert PAGE.read_text() == render()


def test_names_and_units_follow_the_rules() -> None:
    for family in ALL:
        assert re.fullmatch(r"(failback|rocketmq)_[a-z0-9_]*", family.name)
        assert family.name.endswith("_total") == (family.kind == "counter"), family.name
        assert not re.search(r"_(ms|millis|minutes|mb|kb)(_|$)", family.name)
        assert all(re.fullmatch(r"[a-z_]+", label) for label in family.labels), family.name


def test_one_name_has_one_type_wherever_it_is_shown() -> None:
    kinds: dict[str, set[str]] = {}
    for family in ALL:
        kinds.setdefault(family.name, set()).add(family.kind)
    assert {name: found for name, found in kinds.items() if len(found) > 1} == {}


def test_the_dashboard_exports_what_its_table_says(tmp_path: Path) -> None:
    _, metrics = make_app(DashboardSettings(tmp_path), [], lambda _: None)
    shown = {(each.name, each.type) for each in metrics.registry.collect()}
    assert shown == {(each.name.removesuffix("_total"), each.kind) for each in DASHBOARD}


def test_collector_and_operator_export_what_their_tables_say() -> None:
    watched = {"failback_ingest_queue_bytes", "failback_ingest_uploads"}
    watched |= {"failback_ingest_stored_bytes", "failback_ingest_free_bytes"}
    watched.add("failback_shipper_backlog_bytes")  # once there is one
    shown = {metric.name for metric in CollectorMetrics().registry.collect()}
    assert shown == {each.name.removesuffix("_total") for each in FAMILIES} - watched
    operator = Metrics(version="1", kopf="1", kubernetes="1")
    assert {metric.name for metric in operator.registry.collect()} == {
        each.name.removesuffix("_total") for each in operator.families
    }
