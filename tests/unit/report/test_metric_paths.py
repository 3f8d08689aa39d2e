"""Which paths lead to a figure of a report, and what a wrong one was meant to be."""

from __future__ import annotations

from typing import Any

import pytest

from failback.analytics.report.checks import value_at
from failback.analytics.report.metric_paths import metric_problem
from failback.analytics.report.schema import report_schema
from tests.support.analytics.sample_report import sample_report


@pytest.mark.parametrize(
    "metric",
    [
        "totals.lost",
        "totals.dup",
        "totals.dup_ratio",
        "groups.0.dup",
        "groups.billing.causes.ROLLBACK_RESTART",
        "groups.billing.repeat_age_seconds.p99",
        "rto.f1.produce_ms",
        "rto.0.consume_ms.max",
        "queues.3.safe_offset",
        "compare.arms.0.dup.median",
        "loss.fates.LOST",
        "bounds.0.ratio",
        "resume_points.unknown",
    ],
)
def test_a_figure_of_the_report_is_accepted(metric: str) -> None:
    assert metric_problem(metric) == ""


@pytest.mark.parametrize("metric", ["dup", "totals.dup", "groups.dup", "causes.ROLLBACK_RESTART"])
def test_of_a_group_the_figure_is_looked_up_in_its_entry(metric: str) -> None:
    assert metric_problem(metric, of_group=True) == ""


@pytest.mark.parametrize(
    ("metric", "of_group", "told"),
    [
        ("totals.losst", False, 'did you mean "totals.lost"?'),
        ("total.lost", False, 'did you mean "totals.lost"?'),
        ("lost", False, 'did you mean "totals.lost"?'),
        ("totals.duplicates", False, '"totals.duplicates" is no figure'),
        ("totals.lost.x", False, 'did you mean "totals.lost"?'),
        ("totals..lost", False, 'did you mean "totals.lost"?'),
        ("", False, '"" is no figure'),
        ("totals", False, '"totals" is no number'),
        ("groups", False, '"groups" is no number'),
        ("verdict.value", False, '"verdict.value" is no number'),
        ("run", False, '"run" is no number'),
        ("rto.0.produce", False, '"rto.0.produce" is no figure that report.json has'),
        ("dupp", True, 'did you mean "dup"?'),
        ("totals.losst", True, 'did you mean "lost"?'),
    ],
)
def test_anything_else_is_refused_with_what_was_meant(
    metric: str, of_group: bool, told: str
) -> None:
    assert told in metric_problem(metric, of_group=of_group)


def numbers(value: Any, path: str = "") -> list[str]:
    """The paths of all numbers of a document."""
    if isinstance(value, dict):
        entries = list(value.items())
    elif isinstance(value, list):
        entries = [(str(place), each) for place, each in enumerate(value)]
    else:
        return [path] if isinstance(value, (int, float)) else []
    found = (numbers(each, f"{path}.{name}" if path else name) for name, each in entries)
    return [each for paths in found for each in paths]


def test_every_number_of_a_report_has_an_accepted_path() -> None:
    report = sample_report()
    paths = numbers(report)
    assert len(paths) > 100
    assert [each for each in paths if value_at(report, each) is None] == []
    assert [each for each in paths if metric_problem(each)] == []


def test_the_schema_is_not_touched() -> None:
    before = repr(report_schema())
    metric_problem("totals.losst")
    assert repr(report_schema()) == before
