"""Metrics of reports as a file for Prometheus, read back with its own parser."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from failback.analytics.report.textfile import MAX_SERIES, render_textfile
from tests.support.analytics.sample_report import sample_report


def samples(*reports: dict[str, Any]) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    text = render_textfile(reports).decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def values(name: str, *reports: dict[str, Any], **labels: str) -> list[float]:
    wanted = set(labels.items())
    return [v for (n, found), v in samples(*reports).items() if n == name and wanted <= found]


def test_duplicates_are_counted_by_group_topic_broker_and_cause() -> None:
    name, report = "rocketmq_reconsumed_messages_total", sample_report()
    place = {"consumer_group": "billing", "topic": "orders", "broker": "demo-0"}
    assert values(name, report, cause="rollback", **place) == [40]
    assert values(name, report, cause="retry", **place) == [0]
    assert sum(values(name, report)) == report["totals"]["dup"]


def test_what_a_report_knows_has_the_names_of_the_live_metrics() -> None:
    report = sample_report()
    assert values("rocketmq_reconsume_wasted_seconds_total", report) == [0.4]
    assert values("rocketmq_offset_regressions_total", report, source="slave_sync") == [1]
    assert values("rocketmq_offset_regression_messages_total", report, node_role="slave") == [40]
    assert values("rocketmq_slave_offset_divergence_messages", report, direction="slave_ahead") == [
        40
    ]
    assert values("rocketmq_reconsume_exposure_messages", report) == [40]
    assert values("failback_run_verdict", report, verdict="Pass", arm="handover") == [1]
    assert values("failback_report_seconds_count", report, stage="total", engine="local") == [1]


def test_phases_are_a_histogram_that_adds_up() -> None:
    report = sample_report()
    report["rto"][0]["phases"]["kill"] = 30_000_000_000
    name = "rocketmq_failover_phase_seconds"
    assert values(f"{name}_sum", report, phase="accept") == [51]
    assert values(f"{name}_bucket", report, phase="accept", le="30.0") == [0]
    assert values(f"{name}_bucket", report, phase="accept", le="60.0") == [1]
    assert values(f"{name}_count", report, phase="accept") == [1]
    assert values(f"{name}_count", report, phase="first_fresh_slave_sync") == []


def test_two_runs_keep_their_samples_apart() -> None:
    other = sample_report() | {"run": "another"}
    assert len(values("failback_run_verdict", sample_report(), other)) == 2


def test_labels_are_bounded_and_hostile_names_stay_in_them() -> None:
    report = sample_report()
    (queue,) = report["queues"]
    report["queues"] = [
        {**queue, "group": f'g{n}"\n\\{{', "dup": n, "report_groups": {"rollback": 1}}
        for n in range(MAX_SERIES + 50)
    ]
    found = samples(report)
    name = "rocketmq_reconsumed_messages_total"
    groups = {dict(labels)["consumer_group"] for n, labels in found if n == name}
    assert len(groups) == MAX_SERIES + 1
    assert sum(v for (n, _), v in found.items() if n == name) == MAX_SERIES + 50
