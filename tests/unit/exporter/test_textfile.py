"""Figures of reports as a file for Prometheus, read back with its own parser."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from failback.analytics.exporter.report_figures import write_textfile
from failback.analytics.exporter.runs import RunWatch
from failback.protocol.metric_families import MAX_SERIES
from tests.support.analytics.sample_report import sample_report
from tests.support.processes.child_process import ROOT

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
AGAIN = "rocketmq_reconsumed_messages_total"


def samples_of(families: list[Metric], run: str | None = None) -> Samples:
    """Name and labels to value; ``run`` is added to the labels."""
    also = {} if run is None else {"run": run}
    return {
        (sample.name, frozenset({**sample.labels, **also}.items())): sample.value
        for family in families
        for sample in family.samples
    }


def written(path: Path, *reports: dict[str, Any]) -> Samples:
    write_textfile(path, reports)
    return samples_of(list(text_string_to_metric_families(path.read_text())))


@pytest.fixture
def report() -> dict[str, Any]:
    found = sample_report()
    found["rto"][0]["phases"]["kill"] = 30_000_000_000
    return found


def test_it_is_what_the_exporter_shows_of_the_report_and_names_the_run(
    report: dict[str, Any], tmp_path: Path
) -> None:
    folder = tmp_path / "runs" / "r1" / "report"
    folder.mkdir(parents=True)
    (folder / "report.json").write_text(json.dumps(report))
    shown = samples_of(list(RunWatch(tmp_path / "runs").collect()), report["run"])
    found = written(tmp_path / "a.prom", report)
    assert found == shown
    rollback = {value for (name, labels), value in found.items()
                if name == AGAIN and ("cause", "rollback") in labels}  # fmt: skip
    assert rollback == {40}


def test_the_page_names_its_families(report: dict[str, Any], tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reference" / "report.md").read_text()
    section = page.partition("## Metrics")[2].partition("\n## ")[0]
    named = set(re.findall(r"`((?:failback|rocketmq)_\w+)`", section))
    written(tmp_path / "a.prom", report)
    families = text_string_to_metric_families((tmp_path / "a.prom").read_text())
    assert named == {
        family.name + ("_total" if family.type == "counter" else "") for family in families
    }


def test_runs_keep_their_samples_apart_in_one_file(report: dict[str, Any], tmp_path: Path) -> None:
    one = written(tmp_path / "a.prom", report)
    both = written(tmp_path / "a.prom", report, report | {"run": "another"})
    assert len(both) == 2 * len(one)
    assert both.items() >= one.items()


def test_labels_are_bounded_and_hostile_names_stay_in_them(
    report: dict[str, Any], tmp_path: Path
) -> None:
    (group,) = report["groups"]
    report["groups"] = [
        {**group, "group": f'g{n}"\n\\{{', "report_groups": {"rollback": 1}}
        for n in range(MAX_SERIES + 50)
    ]
    again = {dict(labels)["consumer_group"]: value
             for (name, labels), value in written(tmp_path / "a.prom", report).items()
             if name == AGAIN}  # fmt: skip
    assert len(again) == MAX_SERIES + 1
    assert again['g0"\n\\{'] == 1
    assert again["other"] == 50
