"""Reports from a trace: what is counted, what stays open, and that none of them passes."""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from failback.analytics.errors import ReportInputError
from failback.analytics.report import make_report
from failback.analytics.report.make_report import read_report, report
from failback.analytics.report.page.answers import cause_lines
from failback.analytics.trace.pages import Pages, Place
from tests.support.analytics.damage import FILES, deadline
from tests.support.analytics.run_builder import RunBuilder
from tests.support.analytics.trace_builder import TraceBuilder, made_id, pub, record

M1, M2 = made_id(9, 1), made_id(9, 2)


@pytest.fixture(autouse=True)
def _without_html(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page has its own tests; drawing it for every report here would only take time."""
    monkeypatch.setattr(make_report, "_html_can_be_made", lambda: False)


@pytest.fixture
def topic(tmp_path: Path) -> TraceBuilder:
    return TraceBuilder(tmp_path / "traced")


def reported(topic: TraceBuilder, **wanted: Any) -> dict[str, Any]:
    topic.write(**wanted)
    found: dict[str, Any] = read_report(report(topic.run_dir, "local").json)
    return found


def test_a_handover_with_a_wanted_retry(topic: TraceBuilder) -> None:
    topic.copy(M1)
    topic.copy(M2)
    topic.copy(M2, topic="%RETRY%g", rt=1, t=15)
    topic.trace(pub(M1), pub(M2))
    topic.handled(M1, 10, 20)
    topic.handled(M2, 10, 14, success=False)
    topic.handled(M2, 30, 50, rt=1)
    topic.handled(M1, 1020, 1320, process=2)
    topic.handled(M2, 1020, 1030, process=2, rt=1)
    document = reported(topic)
    totals, (group,) = document["totals"], document["groups"]
    assert (totals["delivered"], totals["distinct"], totals["retry"], totals["dup"]) == (5, 2, 1, 2)
    assert (totals["dup_after_success"], totals["wasted_seconds"]) == (2, 0.31)
    assert group["repeat_age_seconds"]["p50"] == 0.97
    assert group["repeat_age_seconds"]["max"] == 1.0
    assert (group["unattributed"], group["causes"], group["members"]) == (2, {}, 2)
    windows = {(q["topic"], w["lo"], w["hi"], w["cause"])
               for q in document["queues"] for w in q["windows"]}  # fmt: skip
    assert windows == {("T", 0, 1, None), ("%RETRY%g", 0, 1, None)}
    assert document["source"]["deliver"] == "trace"


def test_no_trace_passes_and_the_reasons_are_named(topic: TraceBuilder) -> None:
    topic.copy(M1)
    topic.handled(M1, 1, 2)
    document = reported(topic)
    assert document["verdict"]["value"] == "Inconclusive"
    values = {check["id"]: check["value"] for check in document["checks"]}
    open_ = {name for name, value in values.items() if value == "Inconclusive"}
    assert open_ == {"drained", "no_loss", "no_client_bug", "resume_points"}
    assert {value for name, value in values.items() if name not in open_} == {"Pass"}
    assert {reason["code"] for reason in document["verdict"]["reasons"]} == {
        "NO_DRAIN", "RECORDER_GAP",
    }  # fmt: skip
    assert document["totals"]["lost"] is None


def test_it_says_that_causes_take_an_observer(topic: TraceBuilder) -> None:
    topic.copy(M1)
    for t in (1, 100):
        topic.handled(M1, t, t + 1)
    document = reported(topic)
    assert document["groups"][0]["unattributed"] == 1
    how = "observe the next outage with `failback observe --trace`"
    assert any(reason["detail"].endswith(how) for reason in document["verdict"]["reasons"])
    (why,) = cause_lines(document)
    assert why.happened.endswith("observe the next outage with failback observe --trace.")


def test_a_member_that_lost_a_queue_and_got_it_back(topic: TraceBuilder) -> None:
    for number, message in enumerate((M1, M2)):
        topic.copy(message)
        for t in (1, 100):
            topic.handled(message, t + number, t + number + 1)
    (queue,) = reported(topic)["queues"]
    assert [(window["lo"], window["hi"]) for window in queue["windows"]] == [(0, 2)]


def test_no_cause_is_named_without_the_send_backs(topic: TraceBuilder) -> None:
    topic.copy(M1)
    for t in (10, 11):
        topic.copy(M1, topic="%RETRY%g", rt=1, t=t)
    topic.handled(M1, 1, 2, success=False)
    topic.handled(M1, 20, 21, rt=1)
    topic.handled(M1, 30, 31, rt=1)
    (group,) = reported(topic)["groups"]
    assert (group["retry"], group["dup"], group["causes"], group["unattributed"]) == (1, 1, {}, 1)


def test_what_could_not_be_read_is_a_gap(topic: TraceBuilder) -> None:
    topic.copy(M1)
    topic.trace(record("SubBefore", "soon"))
    topic.handled(M1, 1, 2)
    document = reported(topic, problems=("pair-c: no answer",))
    (check,) = [check for check in document["checks"] if check["id"] == "recorder_complete"]
    assert check["value"] == "Inconclusive"
    gaps = document["evidence"]["recorder_gaps"]
    assert gaps[0] == "pair-c: no answer"
    assert "record 0 of RMQ_SYS_TRACE_TOPIC pair-b/0 offset 0 is a SubBefore of 2" in gaps[1]


def test_an_expectation_that_is_not_met_fails(topic: TraceBuilder) -> None:
    topic.copy(M1)
    for t in (1, 10, 20):
        topic.handled(M1, t, t + 1)
    topic.write()
    path = topic.run_dir / "run.json"
    run = json.loads(path.read_text())
    run["expect"] = [{"metric": "totals.dup", "op": "<=", "value": 1}]
    path.write_text(json.dumps(run))
    (topic.run_dir / "manifest.json").unlink()
    document = read_report(report(topic.run_dir, "local").json)
    assert document["verdict"]["value"] == "Fail"


def test_handlers_without_an_end_are_counted(topic: TraceBuilder) -> None:
    topic.copy(M1)
    topic.handled(M1, 1, None)
    topic.handled(M1, 10, 11)
    document = reported(topic)
    assert document["quality"]["trace_missing_end"] == document["totals"]["abandoned"] == 1
    assert (document["totals"]["dup"], document["totals"]["dup_after_success"]) == (1, 0)


def test_a_group_in_which_every_member_gets_everything(topic: TraceBuilder) -> None:
    topic.copy(M1)
    for process in (1, 2):
        topic.handled(M1, process, 5, process=process)
    assert reported(topic)["totals"]["dup"] == 1
    assert reported(topic, broadcasting=("g",))["totals"]["dup"] == 0


def test_a_message_with_a_lab_id_is_counted_by_it(topic: TraceBuilder) -> None:
    """As the embedded log of the same run would: sent twice by the application is one message."""
    topic.copy(M1, lid=5)
    topic.copy(M2, lid=5)
    topic.handled(M1, 1, 2)
    topic.handled(M2, 10, 12)
    document = reported(topic)
    assert (document["totals"]["distinct"], document["totals"]["dup"]) == (1, 1)
    assert document["quality"]["foreign_rows"] == 0


def test_reading_goes_on_where_it_stopped(tmp_path: Path) -> None:
    place = Place("../b", "%T/", 3)
    pages = Pages(tmp_path)
    pages.open({"run": "r"})
    assert pages.read_to("records", place) is None
    pages.write("records", place, 5, 9, [])
    again = Pages(tmp_path)
    again.open({"run": "r"})
    assert (again.read_to("records", place), again.places("records")) == (9, [place])
    assert all(path.is_relative_to(tmp_path) for path in tmp_path.rglob("*"))
    assert again.holes("records") == []
    again.write("records", place, 20, 21, [])
    assert again.holes("records") == [(place, 9, 20)]
    with pytest.raises(ReportInputError, match="was begun with run 'r', not 'other'"):
        again.open({"run": "other"})


@pytest.mark.parametrize("kind", [each for each in FILES if each != "missing"])
def test_a_damaged_page_is_named(kind: str, topic: TraceBuilder) -> None:
    topic.handled(M1, 1, 2)
    topic.flush()
    (page,) = topic.run_dir.rglob("*.parquet")
    FILES[kind](page)
    with deadline(), pytest.raises(ReportInputError, match=page.name) as error:
        topic.write()
    assert "[Errno" not in str(error.value)


def test_files_of_others_beside_the_pages_are_left_alone(topic: TraceBuilder) -> None:
    topic.handled(M1, 1, 2)
    topic.flush()
    (page,) = topic.run_dir.rglob("*.parquet")
    places = topic.pages.places("records")
    for name in ("notes", "\u00b2", "9" * 40):
        (page.parent.parent / name).mkdir()
        (page.parent / f"{name}-{name}.parquet").write_bytes(b"")
    assert topic.pages.places("records") == places
    assert reported(topic)["totals"]["delivered"] == 1


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(3))
def test_the_consume_log_of_the_same_run_says_the_same(tmp_path: Path, seed: int) -> None:
    r = Random(seed)
    topic, log = TraceBuilder(tmp_path / "traced"), RunBuilder("logged")
    for lid in range(20):
        topic.copy(made_id(9, lid), lid=lid, t=lid)
    for lid in range(0, 20, 4):
        topic.copy(made_id(9, lid), lid=lid, topic="%RETRY%g", rt=1, t=100 + lid)
    for t in sorted(r.sample(range(1000), 60)):
        lid, process = r.randrange(20), r.randrange(1, 4)
        rt = int(lid % 4 == 0 and t > 300)
        end = None if r.random() < 0.1 else t + r.randrange(1, 40)
        good = r.random() < 0.8
        topic.handled(made_id(9, lid), t, end, rt=rt, success=good, process=process)
        log.deliver(
            lid // 4 if rt else lid,
            t,
            end,
            lid=lid,
            rt=rt,
            topic="%RETRY%g" if rt else "T",
            proc=process,
            status=None if end is None else "SUCCESS" if good else "LATER",
        )
    traced = reported(topic)
    logged = read_report(report(log.write(tmp_path / "logged"), "local").json)
    names = ("delivered", "distinct", "primary", "retry", "dup", "dup_after_success",
             "dup_messages", "abandoned", "max_redelivery", "wasted_seconds", "handler_seconds",
             "repeat_age_seconds", "redelivery_counts")  # fmt: skip
    both = [{name: found["groups"][0][name] for name in names} for found in (traced, logged)]
    assert both[0] == both[1]
    assert both[0]["dup_after_success"] > 5
    # By keys the curve depends on where bins of 10 ms begin; its error says by how much.
    curves = [found["groups"][0]["dedupe"]["by_seconds"] for found in (traced, logged)]
    assert curves[0] == curves[1]
    queues = [{(q["topic"], q["qid"]): (q["delivered"], q["dup"]) for q in found["queues"]}
              for found in (traced, logged)]  # fmt: skip
    assert queues[0] == queues[1]


FEW = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
MANY = settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.full
@FEW
@given(seed=st.integers(0, 1 << 32))
def test_counts_are_those_of_a_plain_count(seed: int) -> None:
    check_against_plain_count(Random(seed))


@pytest.mark.soak
@MANY
@given(seed=st.integers(0, 1 << 32))
def test_counts_are_those_of_a_plain_count_500_times(seed: int) -> None:
    check_against_plain_count(Random(seed))


def check_against_plain_count(r: Random) -> None:
    """A random trace, stored in any order and partly twice, counted in the plainest way."""
    with tempfile.TemporaryDirectory() as folder:
        topic = TraceBuilder(Path(folder) / "traced")
        messages = [made_id(9, number) for number in range(r.randrange(1, 6))]
        for message in messages:
            for _ in range(r.choice((1, 1, 1, 2))):
                topic.copy(message, qid=r.randrange(2), t=r.randrange(9))
            for rt in (1, 2):
                if r.random() < 0.5:
                    topic.copy(message, topic="%RETRY%g", rt=rt, t=r.randrange(9))
        handled = []
        for t in sorted(r.sample(range(200), r.randrange(1, 25))):
            end = None if r.random() < 0.1 else t + r.randrange(1, 30)
            row = (r.choice(messages), r.choice((0, 0, 0, 1, 2)), t, end, r.random() < 0.7)
            handled.append(row)
        for message, rt, t, end, success in r.sample(handled, len(handled)):
            topic.handled(message, t, end, rt=rt, success=success, process=r.randrange(1, 4))
        totals = reported(topic)["totals"]
        expected = plain_count(handled)
        assert {name: totals[name] for name in expected} == expected


def plain_count(handled: list[tuple[str, int, int, int | None, bool]]) -> dict[str, Any]:
    never = 1 << 40
    of_message = defaultdict(list)
    for message, rt, t, end, success in sorted(handled, key=lambda row: row[2]):
        of_message[message].append((rt, t, never if end is None else end, success))
    retry = dup = useless = wasted = 0
    for rows in of_message.values():
        for at, (rt, t, end, _) in enumerate(rows):
            earlier = rows[:at]
            failed = any(r == rt - 1 and e <= t and not good for r, _, e, good in earlier)
            if not earlier:
                continue
            if rt > 0 and failed and all(r != rt for r, *_ in earlier):
                retry += 1
                continue
            dup += 1
            if any(good and e <= t for _, _, e, good in earlier):
                useless += 1
                wasted += 0 if end == never else end - t
    return {
        "delivered": len(handled),
        "distinct": len(of_message),
        "retry": retry,
        "dup": dup,
        "dup_after_success": useless,
        "abandoned": sum(row[3] is None for row in handled),
        "wasted_seconds": round(wasted / 1000, 6),
    }
