"""Runs side by side: arms, medians, ranges, and how sure a difference is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from failback.analytics.report.compare import compare_reports, difference
from tests.support.analytics.sample_report import sample_report


def run(arm: str, dup: int, number: int = 0, **changed: Any) -> dict[str, Any]:
    report = sample_report()
    report |= {"arm": arm, "run": f"{arm}-{number}", "repetition": number, **changed}
    report["totals"] = {**report["totals"], "dup": dup}
    return report


def arms(compare: dict[str, Any] | None) -> dict[str, Any]:
    assert compare is not None
    return {arm["name"]: arm for arm in compare["arms"]}


def of_dup(compare: dict[str, Any] | None) -> dict[str, Any]:
    assert compare is not None
    (row,) = [row for row in compare["difference"] if row["metric"] == "dup"]
    return dict(row)


def test_one_run_alone_is_compared_with_nothing() -> None:
    assert compare_reports([run("stay", 0)]) is None


def test_arms_have_median_range_verdicts_and_every_run() -> None:
    many = [run("stay", value, n) for n, value in enumerate((3, 1, 8))]
    many[2]["verdict"] = {**many[2]["verdict"], "value": "Fail"}
    found = arms(compare_reports(many, [run("handover", 50)]))
    assert found["stay"]["dup"] == {"median": 3, "min": 1, "max": 8}
    assert found["stay"]["verdicts"] == {"Fail": 1, "Pass": 2}
    assert [each["dup"] for each in found["stay"]["runs"]] == [3, 1, 8]
    assert found["handover"]["n"] == 1


def test_the_arm_of_the_first_run_is_the_baseline() -> None:
    compare = compare_reports([run("handover", 50)], [run("stay", 8)])
    assert compare is not None
    assert compare["baseline"] == "handover"
    assert of_dup(compare)["median"] == -42


@pytest.mark.parametrize(("runs", "significant"), [(4, None), (5, True)])
def test_fewer_than_five_runs_say_nothing_of_significance(
    runs: int, significant: bool | None
) -> None:
    stay = [run("stay", n, n) for n in range(runs)]
    handover = [run("handover", 100 + n, n) for n in range(runs)]
    row = of_dup(compare_reports([*stay, *handover]))
    assert row["significant"] is significant
    assert row["median"] == 100
    assert 90 < row["ci_low"] <= 100 <= row["ci_high"] < 110


def test_alike_arms_do_not_differ_significantly() -> None:
    values = [3, 9, 1, 7, 5, 4]
    row = of_dup(compare_reports([run(arm, v, n) for arm in ("a", "b")
                                  for n, v in enumerate(values)]))  # fmt: skip
    assert row["significant"] is False
    assert row["ci_low"] < 0 < row["ci_high"]


def test_the_interval_covers_the_true_difference_and_is_drawn_the_same_each_time() -> None:
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(100):
        found = difference(rng.normal(10, 3, 15), rng.normal(4, 3, 15))
        covered += found["ci_low"] <= 6 <= found["ci_high"]
    assert covered >= 85
    one, other = np.array([1.0, 5.0, 9.0]), np.array([2.0, 2.5, 30.0])
    assert difference(one, other) == difference(one, other)


def test_a_single_run_each_has_a_difference_and_no_interval() -> None:
    row = of_dup(compare_reports([run("a", 1), run("b", 5)]))
    assert (row["median"], row["ci_low"], row["significant"]) == (4, None, None)


def test_what_was_never_measured_is_null_not_zero() -> None:
    silent = run("b", 1)
    silent["rto"] = []
    found = arms(compare_reports([run("a", 1), silent]))
    assert found["b"]["produce_rto_ms"] == {"median": None, "min": None, "max": None}


def test_arms_of_two_engines_or_rules_are_kept_apart() -> None:
    apache = run("stay", 4)
    apache["system"] = {**apache["system"], "engine": "apache"}
    assert set(arms(compare_reports([run("stay", 2), apache]))) == {
        "stay (failback)",
        "stay (apache)",
    }


def test_runs_of_one_arm_before_and_after_are_two_arms() -> None:
    found = arms(compare_reports([run("stay", 2)], [run("stay", 40)]))
    assert {name: arm["dup"]["median"] for name, arm in found.items()} == {
        "stay": 2,
        "stay (compared)": 40,
    }
