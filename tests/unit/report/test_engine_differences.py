"""Where two reports of one run differ."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from failback.analytics.report.compare import OWN, differences
from tests.support.analytics.sample_report import sample_report


def test_a_report_equals_itself_whoever_made_it_and_when() -> None:
    report = sample_report()
    other = copy.deepcopy(report)
    for path in OWN:
        *above, name = path.split(".")
        place: Any = other
        for part in above:
            place = place[part]
        place[name] = "another"
    assert other != report
    assert differences(report, other) == []


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (("totals", "dup"), -1, "totals.dup: "),
        (("groups", 0, "causes"), {}, "groups.0.causes."),
        (("checks",), [], "checks: "),
        (("notes",), {"more": "text"}, "notes.more: None, 'text'"),
        (("run",), None, "run: "),
    ],
)
def test_what_differs_is_named_with_both_values(
    path: tuple[Any, ...], value: Any, told: str
) -> None:
    report = sample_report()
    other = copy.deepcopy(report)
    place: Any = other
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    found = differences(report, other)
    assert found
    assert all(line.startswith(told.split(":")[0].rstrip(".")) for line in found)
    assert any(told in line for line in found)
