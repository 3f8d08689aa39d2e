"""Reports of Kafka and Redis: reasons, the one equation, and what they leave out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from failback.analytics.report.make_report import report_many
from failback.common.files import read_object
from tests.support.analytics.foreign_run import (
    KAFKA_CAUSES,
    REDIS_CAUSES,
    again_by_brute_force,
    kafka_run,
    redis_run,
)
from tests.support.analytics.run_builder import RunBuilder


def reported(builder: RunBuilder, folder: Path, *, pages: bool = False) -> dict[str, Any]:
    (made,) = report_many([builder.write(folder)], "local", pages=pages)
    return read_object(made.json)


def check(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in document["checks"] if each["id"] == name)
    return found


def test_each_reason_is_named_and_the_equation_holds(tmp_path: Path) -> None:
    for builder, causes in ((kafka_run(), KAFKA_CAUSES), (redis_run(), REDIS_CAUSES)):
        document = reported(builder, tmp_path / builder.name)
        groups = {row["group"]: row for row in document["groups"]}
        assert {name: row["causes"] for name, row in groups.items()} == causes
        again = again_by_brute_force(builder)
        assert {name: row["dup"] for name, row in groups.items()} == again
        assert check(document, "equation")["value"] == "Pass"
        assert sum(row["observed"] for row in document["foreign"]["resumed"]) == again.total()
        assert document["verdict"]["value"] == "Pass", document["verdict"]


def test_what_rests_on_rocketmq_is_left_out_and_the_page_says_so(tmp_path: Path) -> None:
    document = reported(kafka_run(), tmp_path / "run", pages=True)
    assert not document["bounds"] + document["prediction"] + document["handover"]
    page = (tmp_path / "run" / "report" / "report.html").read_text()
    assert "no staircase of offsets, no bounds and no prediction" in page
    for part in ("staircase", "bounds"):
        assert f'id="{part}"' not in page
        assert f'href="#{part}"' not in page


def test_an_equation_that_does_not_hold_fails_and_names_the_queue(tmp_path: Path) -> None:
    builder = kafka_run()
    taken = [row for row in builder.rows["assign"] if (row["grp"], row["pqe"]) == ("lost", 2)]
    taken[0]["start_off"] -= 1
    document = reported(builder, tmp_path / "run")
    found = check(document, "equation")
    assert (found["value"], found["expected"], found["observed"]) == ("Fail", 31, 30)
    assert found["evidence"] == ["lost T/0: 4 repeats, 5 expected"]


def test_a_kill_that_did_not_happen_makes_a_run_inconclusive(tmp_path: Path) -> None:
    for name, kept in (("none", False), ("doubted", True)):
        builder = kafka_run()
        rows = builder.rows.pop("fault") if not kept else builder.rows["fault"]
        for row in rows:
            row["honest"] = False
        document = reported(builder, tmp_path / name)
        codes = [reason["code"] for reason in document["verdict"]["reasons"]]
        assert (document["verdict"]["value"], codes[0]) == ("Inconclusive", "FAULT_NOT_PROVED")
