"""docs/compare.md: of the figures that are kept, and of sound runs alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tools import compare

from failback.analytics.report.make_report import report_many
from tests.support.analytics.foreign_run import kafka_run


def test_the_page_is_that_of_the_kept_figures() -> None:
    kept = json.loads(compare.KEPT.read_bytes())
    assert compare.PAGE.read_text() == compare.page(kept), "run: make compare ARGS=--page"
    assert {(row["engine"], row["setting"], row["group"]) for row in kept["compared"]} == set(
        compare.ROWS
    )
    assert kept["rocketmq"]


def test_a_run_without_a_proof_and_one_that_does_not_add_up_make_no_page(tmp_path: Path) -> None:
    builder = kafka_run()
    builder.rows.pop("fault")
    builder.rows["assign"][-1]["start_off"] -= 1
    for group in builder.run["groups"]:
        group["label"] = group["name"]
    report_many([builder.write(tmp_path / "run")], "local", pages=False)
    with pytest.raises(compare.NotUsable) as refused:
        compare.measured([tmp_path])
    said = str(refused.value)
    assert "1 of 1 faults were not injected" in said
    assert "the equation does not hold: back T/0: 7 repeats, 8 expected" in said
    assert "redis, defaults: no run" in said
