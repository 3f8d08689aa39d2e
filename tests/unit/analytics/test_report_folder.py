"""Reports as files: schema, verdicts, evidence, and what bad input gets."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from failback.analytics.errors import EngineUnavailable, ReportInputError
from failback.analytics.report import make_report
from failback.analytics.report.make_report import check_report, read_report, report, report_many
from failback.analytics.report.measures.forecast import holds, validated
from failback.analytics.report.status_summary import status_of
from tests.support.analytics.bad_input import clean, codes
from tests.support.analytics.cases import CASES, c2, c3
from tests.support.analytics.run_builder import MS, RunBuilder


@pytest.fixture(autouse=True)
def _without_html(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page has its own tests; drawing it for every report here would only take time."""
    monkeypatch.setattr(make_report, "_html_can_be_made", lambda: False)


def made(builder: RunBuilder, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = read_report(report(builder.write(folder), "local").json)
    return found


def test_a_clean_run_passes(tmp_path: Path) -> None:
    paths = report(clean().write(tmp_path / "r"), "local")
    assert (paths.verdict, paths.exit_code) == ("Pass", 0)
    document = read_report(paths.json)
    assert document["totals"]["lost"] == 0
    assert document["totals"]["produced"] == document["totals"]["acknowledged"] == 3
    assert len(document["evidence"]["run_sha256"]) == 64
    assert paths.summary.read_text().count("\n") < 80


@pytest.mark.few(6)
@pytest.mark.parametrize("name", CASES)
def test_every_report_matches_its_schema(name: str, tmp_path: Path) -> None:
    builder, _ = CASES[name]()
    check_report(made(builder, tmp_path / name))


@pytest.mark.parametrize("build", [c2, c3])
def test_golden_reports(build: Callable[[], Any], tmp_path: Path) -> None:
    builder, _ = build()
    text = report(builder.write(tmp_path / "r"), "local").json.read_text()
    document = json.loads(text)
    for changing in ("created", "timings", "failback_version"):
        document.pop(changing)
    document["evidence"].pop("run_sha256")  # Parquet bytes carry the writer's version
    golden = Path(__file__).parents[2] / "data" / "analytics" / f"report-{builder.name}.json"
    assert json.dumps(document, ensure_ascii=False, indent=1) + "\n" == golden.read_text()


def test_a_report_without_a_field_is_refused(tmp_path: Path) -> None:
    document = made(clean(), tmp_path / "r")
    del document["totals"]["dup"]
    with pytest.raises(jsonschema.ValidationError):
        check_report(document)
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ReportInputError, match="dup"):
        read_report(path)


def test_unknown_fields_are_kept_by_readers(tmp_path: Path) -> None:
    document = made(clean(), tmp_path / "r") | {"something": "new"}
    path = tmp_path / "newer.json"
    path.write_text(json.dumps(document))
    assert read_report(path)["something"] == "new"


def test_many_runs_in_one_go(tmp_path: Path) -> None:
    runs = [build()[0].write(tmp_path / build.__name__) for build in (c2, c3)]
    done = report_many(runs, "local", tmp_path / "out")
    assert [paths.folder for paths in done] == [tmp_path / "out" / "c2", tmp_path / "out" / "c3"]
    assert all(paths.json.exists() for paths in done)


def test_runs_that_were_no_experiment_are_reported_on_together(tmp_path: Path) -> None:
    runs = []
    for name in ("r1", "r2"):
        builder = clean()
        builder.name = name
        builder.run |= {"source": "workload", "run": name}
        runs.append(builder.write(tmp_path / name))
    done = report_many(runs, "local", tmp_path / "out")
    documents = [read_report(paths.json) for paths in done]
    assert [each["verdict"]["value"] for each in documents] == ["Observed", "Observed"]
    assert status_of(documents, "")["verdict"] == "Pass"


def test_a_master_that_stays_away_fails(tmp_path: Path) -> None:
    b = clean()
    b.fault("KILL", 5)
    document = made(b, tmp_path / "r")
    assert (document["verdict"]["value"], codes(document)) == ("Fail", ["RECOVERED"])


def test_the_silence_of_a_stopped_consumer_is_no_missing_traffic(tmp_path: Path) -> None:
    b = clean()
    b.run["workload"] = {"topics": [{"name": "T", "ratePerSecond": 400}]}
    b.fault("CLIENT_TERM", 1000, pair=None, broker=None, bid=None, role=None, addr=None)
    b.fault("CLIENT_START", 4000, pair=None, broker=None, bid=None, role=None, addr=None)
    assert codes(made(b, tmp_path / "r")) == []


def test_a_group_that_ended_before_a_kill_has_no_traffic_to_miss(tmp_path: Path) -> None:
    for detail, missed in (('{"group": "g", "member": 0}', []), (None, ["NO_TRAFFIC"])):
        b = clean()
        b.run["workload"] = {"topics": [{"name": "T", "ratePerSecond": 400}]}
        if detail:
            nobody: dict[str, Any] = dict.fromkeys(("pair", "broker", "bid", "role", "addr"))
            b.fault("CLIENT_TERM", 1000, detail=detail, **nobody)
            b.fault("HEALED", 6000, **nobody)
        b.fault("KILL", 2000, fid="f2")
        b.fault("ACCEPT", 3000, fid="f2")
        b.fault("HEALED", 4000, fid="f2")
        assert codes(made(b, tmp_path / ("ended" if detail else "there"))) == missed


def test_no_java_is_one_line_and_auto_is_local(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    folder = clean().write(tmp_path / "r")
    with pytest.raises(EngineUnavailable, match="Java 17"):
        report(folder, "spark")
    assert read_report(report(folder, "auto").json)["engine"] == "local"
    with pytest.raises(ReportInputError, match="engine must be one of"):
        report(folder, "warp")


def test_a_full_disk_leaves_the_old_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = clean().write(tmp_path / "r")
    before = report(folder, "local").json.read_bytes()

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        report(folder, "local")
    assert (folder / "report" / "report.json").read_bytes() == before
    assert sorted(path.name for path in (folder / "report").iterdir()) == [
        "figures-data.parquet",
        "report.json",
        "summary.md",
        "tables",
    ]
    assert not list((folder / "report").rglob(".*.tmp"))


# --- checks of the experiment --------------------------------------------------------------------


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("wish", "value"),
    [
        ({"metric": "totals.dup", "op": "==", "value": 5}, "Pass"),
        ({"metric": "totals.dup", "op": "<=", "value": 4}, "Fail"),
        ({"metric": "totals.dup", "op": "between", "value": [1, 5]}, "Pass"),
        ({"metric": "totals.dup_ratio", "op": "<", "value": 0.6}, "Pass"),
        ({"metric": "dup", "group": "g", "op": ">=", "value": 5}, "Pass"),
        ({"metric": "causes.ROLLBACK_RESTART", "group": "g", "op": "==", "value": 3}, "Pass"),
        ({"metric": "rto.0.consume_ms.max", "op": "<=", "value": 9}, "Inconclusive"),
        ({"metric": "totals.dup", "op": "within-bound"}, "Pass"),
    ],
)
def test_expectations_become_checks(wish: dict[str, Any], value: str, tmp_path: Path) -> None:
    builder, _ = c2()
    builder.run["expect"] = [wish]
    document = made(builder, tmp_path / "r")
    (check,) = [check for check in document["checks"] if check["id"] == "expect.0"]
    assert check["value"] == value
    assert document["verdict"]["value"] == value


def test_thresholds_are_a_shorthand(tmp_path: Path) -> None:
    builder, _ = c2()
    builder.run["thresholds"] = {"maxDuplicateRatio": 0.5, "maxLost": 0}
    document = made(builder, tmp_path / "r")
    assert document["verdict"]["value"] == "Fail"
    said = document["verdict"]["reasons"][0]["detail"]
    assert said == "totals.dup_ratio is 0.5556, the limit is <= 0.5"


def handover(consumed: int, loaded: int) -> RunBuilder:
    """The slave serves an outage, the consumer stops cleanly, a new one starts on the master."""
    b = RunBuilder("handover")
    b.fault("KILL", 1000)
    b.assign(0, 0, end=(2000, "SHUTDOWN"))
    b.run_of(range(consumed), 10)
    b.commit(900, loaded, at=(0, 1))
    b.commit(1900, consumed, at=(1, 1))
    b.fault("ACCEPT", 3000)
    b.fault("HEALED", 3500)
    b.sample(3010, loaded, binc=2)
    b.assign(4000, loaded, proc=2, at=(0, 2))
    b.run_of(range(loaded, consumed), 4010, proc=2)
    return b


def test_a_handover_shows_consumed_minus_loaded(tmp_path: Path) -> None:
    document = made(handover(consumed=20, loaded=6), tmp_path / "r")
    (row,) = document["handover"]
    assert (row["consumed"], row["loaded"], row["expected"], row["observed"]) == (20, 6, 14, 14)
    assert (row["loaded_source"], row["had"]) == ("code43", 6)
    assert document["totals"]["dup"] == 14
    assert document["groups"][0]["causes"] == {"ROLLBACK_SLAVE_ONLY_PROGRESS": 14}
    (check,) = [check for check in document["checks"] if check["id"] == "handover:g"]
    assert (check["value"], check["expected"], check["observed"]) == ("Pass", 14, 14)
    (bound,) = document["bounds"]
    assert (bound["mechanism"], bound["observed"]) == ("rows 1+2+3+6", 14)
    assert bound["bound"] >= 14


def test_a_handover_that_does_not_add_up_fails(tmp_path: Path) -> None:
    b = handover(consumed=20, loaded=6)
    b.rows["deliver"].pop()  # one repeat less than the offsets promise
    assert b.closed is not None
    b.closed["procs"] = {}
    document = made(b, tmp_path / "r")
    (check,) = [check for check in document["checks"] if check["id"] == "handover:g"]
    assert check["value"] == "Fail"


def test_what_was_in_hand_at_the_stop_is_no_part_of_a_handover(tmp_path: Path) -> None:
    b = handover(consumed=20, loaded=6)
    b.deliver(20, 1990)  # begun before the stop, not finished: above all that was consumed
    b.deliver(20, 4200, 4210, proc=2)
    document = made(b, tmp_path / "r")
    (row,) = document["handover"]
    assert (row["consumed"], row["expected"], row["observed"]) == (20, 14, 14)
    assert document["totals"]["dup"] == 15
    (check,) = [check for check in document["checks"] if check["id"] == "handover:g"]
    assert check["value"] == "Pass"


@pytest.mark.parametrize("known_from", ["its-commit", "the-masters-table"])
def test_an_owner_that_stops_after_the_return_has_told_the_master(
    tmp_path: Path, known_from: str
) -> None:
    """The clean stop took until after the return, so its last commit reached the master."""
    b = RunBuilder("late")
    b.fault("KILL", 1000)
    b.assign(0, 0, end=(3100, "SHUTDOWN"))
    b.run_of(range(20), 10)
    b.commit(900, 6, at=(0, 1))
    b.commit(1900, 18, at=(1, 1))
    b.fault("ACCEPT", 2900)
    b.fault("HEALED", 2950)
    b.sample(2910, 6, binc=2)
    if known_from == "its-commit":
        b.commit(3050, 18, at=(0, 2))
    else:
        b.sample(3500, 18, binc=2)
    b.assign(4000, 18, proc=2, at=(0, 2))
    b.run_of(range(18, 22), 4010, proc=2)
    document = made(b, tmp_path / "r")
    (row,) = document["handover"]
    assert (row["loaded"], row["had"], row["expected"], row["observed"]) == (6, 18, 2, 2)
    (check,) = [check for check in document["checks"] if check["id"] == "handover:g"]
    assert (check["value"], check["expected"], check["observed"]) == ("Pass", 2, 2)


def test_an_unexplained_start_is_a_finding(tmp_path: Path) -> None:
    b = clean()
    b.sample(0, 0)
    b.sample(90, 3)
    b.sample(110, 3)
    b.assign(100, 1, pqe=2, src_addr="127.0.0.1:10911")
    document = made(b, tmp_path / "r")
    assert document["resume_points"]["unexplained"][0]["start"] == 1
    assert "RESUME_UNEXPLAINED" in codes(document)
    b.commit(95, 1)
    explained = made(b, tmp_path / "s")
    assert explained["resume_points"]["unexplained"] == []


def test_a_report_of_changed_files_is_inconclusive(tmp_path: Path) -> None:
    folder = clean().write(tmp_path / "r")
    assert report(folder, "local").verdict == "Pass"
    closed = folder / "closed.json"
    closed.write_text(closed.read_text() + " ")
    paths = report(folder, "local")
    assert paths.verdict == "Inconclusive"
    assert "EVIDENCE_CHANGED" in codes(read_report(paths.json))


def test_what_explains_a_start_is_named_by_its_rows(tmp_path: Path) -> None:
    document = made(handover(consumed=20, loaded=6), tmp_path / "file")
    (row,) = document["rollbacks"]
    assert row["explained_by"] == "file"
    assert row["explained_rows"] == ["broker_offset_sample/99/4"]  # after three rows of the fault
    b = clean()
    b.commit(5, 3)
    b.commit(94, 1)
    b.commit(95, 1)
    b.commit(96, 1, proc=2)
    b.assign(100, 1, pqe=2)
    (row,) = made(b, tmp_path / "commit")["rollbacks"]
    assert row["explained_by"] == "commit"
    own = b.rows["commit"][2]["seq"]
    assert row["explained_rows"] == [f"commit/1/{own}", "commit/2/1"]  # the last of each process


def test_times_of_two_hosts_are_brought_together(tmp_path: Path) -> None:
    b = RunBuilder("hosts")
    b.assign(0, 0, end=(50, "SHUTDOWN"))
    b.deliver(0, 10, 20)
    ahead = 1_000_000  # the other host's clock reads this many ms more
    b.assign(100 + ahead, 0, proc=2, host="far")
    b.deliver(0, 110 + ahead, 120 + ahead, proc=2, host="far")
    for host, offset in (("h", 0), ("far", -ahead * MS)):
        b.add("clock", host=host, boot_id=host, source="exchange", offset_ns=offset,
              error_ns=2 * MS)  # fmt: skip
    document = made(b, tmp_path / "r")
    assert document["totals"]["dup_after_success"] == 1
    assert document["groups"][0]["repeat_age_seconds"]["max"] == 0.09


# --- what was to be expected ---------------------------------------------------------------------


def ended(b: RunBuilder, kind: str, at: float) -> None:
    """A step of the fault f2 on the consumers of group g."""
    b.fault(kind, at, fid="f2", pair=None, broker=None, bid=None, role=None, addr=None,
            detail='{"group": "g"}')  # fmt: skip


def predicted_handover() -> RunBuilder:
    b = handover(consumed=20, loaded=6)
    ended(b, "CLIENT_TERM", 2000)
    ended(b, "CLIENT_START", 4000)
    return b


def test_a_fault_is_predicted_from_what_was_measured(tmp_path: Path) -> None:
    document = made(predicted_handover(), tmp_path / "r")
    (row,) = document["prediction"]
    assert (row["fid"], row["group"], row["observed"]) == ("f1", "g", 14)
    assert row["p5"] <= row["p50"] <= row["p95"] <= row["max"] <= row["worst"]
    assert row["inside"] is (row["p5"] <= 14 <= row["p95"])
    assert row["validated"] is validated()
    assert set(row["causes"]) <= {"ROLLBACK_RESTART", "ROLLBACK_SLAVE_ONLY_PROGRESS",
                                  "TAIL_SHUTDOWN"}  # fmt: skip


def test_equal_runs_are_predicted_equally(tmp_path: Path) -> None:
    one, two = (made(predicted_handover(), tmp_path / name) for name in "ab")
    for block in ("prediction", "knobs", "exposure", "notes"):
        assert one[block] == two[block]


def test_knobs_are_those_that_save_something_best_first(tmp_path: Path) -> None:
    knobs = made(predicted_handover(), tmp_path / "r")["knobs"]
    saved = [knob["predicted_reduction"] for knob in knobs]
    assert saved == sorted(saved, reverse=True)
    assert all(knob["predicted_reduction"] > 0 or knob["worst_reduction"] > 0 for knob in knobs)


def test_what_is_not_predicted_says_why(tmp_path: Path) -> None:
    b = predicted_handover()
    b.run["groups"][0]["members"] = 3
    document = made(b, tmp_path / "r")
    assert document["prediction"] == []
    assert "1 of 3 members were ended" in document["notes"]["prediction"]
    assert made(clean(), tmp_path / "s")["notes"]["prediction"].startswith("no master was killed")


def test_exposure_is_how_far_the_copies_lag_behind(tmp_path: Path) -> None:
    b = clean()
    b.run_of(range(3, 8), 1000, step=100)
    b.sample(500, 1, source="file")
    document = made(b, tmp_path / "r")
    # After a second three offsets were delivered, after two eight; the file says 1.
    row = document["exposure"]["g"]
    assert row == {"p50": 2, "max": 7, "at_kill": None, "broker": "broker-a"}


def test_a_predictor_is_validated_by_twenty_runs_of_which_four_of_five_are_inside() -> None:
    cell = {"p5": 10, "p95": 20, "worst": 50, "observed": [12] * 16 + [5] * 4}
    assert holds([cell])
    assert not holds([{**cell, "observed": [12] * 15 + [5] * 5}])
    assert not holds([{**cell, "observed": [12] * 19}])
    assert not holds([{**cell, "observed": [12] * 19 + [51]}])


# --- versions of the report itself ---------------------------------------------------------------


def test_a_report_of_another_version_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(made(clean(), tmp_path / "r") | {"schema": "failback.report/2"}))
    with pytest.raises(ReportInputError, match=r"'failback.report/2', this version reads"):
        read_report(path)


def test_an_integer_that_is_no_json_number_for_everybody_is_refused(tmp_path: Path) -> None:
    document = made(clean(), tmp_path / "r")
    document["totals"]["produced"] = 2**53 + 1
    with pytest.raises(jsonschema.ValidationError, match=r"totals.produced: .* above 2\^53"):
        check_report(document)
