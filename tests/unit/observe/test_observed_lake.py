"""The lake of an observed run: samples, absences and traced deliveries, whoever reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from failback.analytics.analysis.lineage import lineage, queues_named
from failback.analytics.live.known import Bound
from failback.analytics.observe.lake import recorded_bound, run_at
from failback.analytics.report.make_report import report
from failback.analytics.run.history_reading import read_history
from tests.support.analytics.trace_builder import START_MS, TraceBuilder, made_id
from tests.support.observe.folders import document, written
from tests.support.observe.outages import at_work, come_back, serve, take_over
from tests.support.observe.stories import MASTER, SLAVE, Story

NS = 1_000_000_000
END = (1 << 62) - 1


def told() -> Story:
    """A master that is down from second 8 to 19 and begins with 90 where 150 was reached."""
    story = at_work(100, file=90, pause=4)
    serve(story, 150)
    come_back(story, 90)
    take_over(story, 200)
    story.store(200)
    story.commit(200)
    story.wait()
    return story


def begun(story: Story, path: Path, **wanted: Any) -> Path:
    """Write a story that begins when traces of the builder do."""
    run = written(story, path, **wanted)
    about = json.loads((run / "run.json").read_text())
    about["zero"]["wall_ns"] = START_MS * 1_000_000
    (run / "run.json").write_text(json.dumps(about))
    return run


def traced(path: Path, jump: int = 0) -> None:
    """Both queues: 90 to 150 handled before the return, all from 90 on after it.

    The clients' clock is set by ``jump`` ms in between.
    """
    topic = TraceBuilder(path, "story")
    for queue in (0, 1):
        ids = [made_id(queue + 5, offset) for offset in range(200)]
        for message in ids:
            topic.copy(message, topic="orders", qid=queue)
        for offset in range(85, 150):
            topic.handled(ids[offset], 200 * (offset - 80), 200 * (offset - 80) + 5,
                          process=1, group="billing")  # fmt: skip
        for offset in range(90, 200):
            topic.handled(ids[offset], 22_000 + 10 * offset, 22_005 + 10 * offset,
                          process=2, group="billing", ahead=jump)  # fmt: skip
    topic.flush()


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Traced copies of the builder lie on pair-a."""
    monkeypatch.setattr("tests.support.observe.stories.PAIR", "bench/pair-a")


def test_the_story_of_an_offset_is_told(tmp_path: Path) -> None:
    source = run_at(begun(told(), tmp_path / "run"))
    history = read_history(source.folder, source.lake)
    (queue,) = queues_named(history, "billing", "orders", 1)
    found = lineage(history, source.lake, queue, END)
    assert found.safe_offset == 200
    assert found.fell_at is not None
    assert (found.fell_at.place, found.fell_at.offset, found.fell_at.fell) == (
        "master table", 90, 10,
    )  # fmt: skip
    assert "it had started again" in found.fell_at.what
    on_slave = [step.offset for step in found.steps if step.place == "slave table"]
    assert on_slave == [90, 100, 150, 200]
    assert [(step.kind, step.issued, step.observed) for step in history.faults] == [
        ("GONE", 7.1 * NS, 8.1 * NS), ("ACCEPT", 18 * NS, 19.1 * NS),
    ]  # fmt: skip
    assert history.end_of(queue.queue, 24 * NS) == 200


@pytest.mark.parametrize(
    ("seconds", "safe", "bound"), [(6, 100, "exact"), (9, 100, "at least"), (15, 150, "at least")]
)
def test_what_a_slave_was_told_is_a_lower_bound_while_the_master_is_down(
    tmp_path: Path, seconds: int, safe: int, bound: str
) -> None:
    source = run_at(begun(told(), tmp_path / "run"))
    history = read_history(source.folder, source.lake)
    (queue,) = queues_named(history, "billing", "orders", 1)
    found = lineage(history, source.lake, queue, seconds * NS)
    assert (found.safe_offset, recorded_bound(history, found)) == (safe, bound)
    last = lineage(history, source.lake, queue, END)
    assert recorded_bound(history, last) is Bound.EXACT, "it is the queue's end"


def test_a_process_that_can_not_tell_yet_when_it_began_is_named_later(tmp_path: Path) -> None:
    story = told()
    at = next(n for n, look in enumerate(story.looks) if look.began == 19)
    young = story.looks[at]
    brokers = tuple(
        each if each.broker_id else type(each)(**_fields(each) | {"boot_ms": None})
        for each in young.brokers
    )
    story.looks[at] = type(young)(young.began, young.ended, 1.0, young.listings, brokers)
    source = run_at(begun(story, tmp_path / "run"))
    rows = source.lake.records("broker_offset_sample")
    assert {row["binc"] for row in rows if row["bid"] == MASTER} == {1000, 29_000}
    (accepted,) = (row for row in source.lake.records("fault") if row["kind"] == "ACCEPT")
    assert accepted["boot_ms"] == 29_000


def _fields(look: Any) -> dict[str, Any]:
    return {name: getattr(look, name) for name in look.__struct_fields__}


def test_the_page_shows_the_offsets_of_the_queue_that_fell_furthest(tmp_path: Path) -> None:
    run = begun(told(), tmp_path / "run")
    report(run)
    page = (run / "report" / "report.html").read_text()
    assert "restart: 100 → 90" in page
    assert document(run)["evidence"]["rows"]["broker_offset_sample"] > 0


def test_where_nothing_happens_a_look_in_half_a_minute_becomes_rows(tmp_path: Path) -> None:
    story = Story()
    for second in range(300):
        if second == 200:
            story.start(150)  # another process, and none was missed
        story.commit(second)
        story.wait()
    looks = run_at(begun(story, tmp_path / "run")).lake.records("broker_offset_sample")
    seconds = {row["t"] // NS for row in looks if row["bid"] == SLAVE}
    assert seconds >= {0, *range(140, 260), 299}
    assert len(seconds & set(range(139))) == 5, "one in half a minute"


def test_instances_are_told_apart(tmp_path: Path) -> None:
    story = told()
    for look in story.looks:
        for broker in look.brokers:
            if broker.offsets is not None:
                table = broker.offsets["orders@billing"]
                broker.offsets["MQ_INST_a%orders@MQ_INST_a%billing"] = dict.fromkeys(table, 70)
    made = report(begun(story, tmp_path / "run"))
    assert "Group billing in MQ_INST_a: none." in made.sentence
    assert "Group billing: " in made.sentence


@pytest.mark.usefixtures("brokers")
def test_traced_deliveries_make_the_report_exact(tmp_path: Path) -> None:
    run = begun(told(), tmp_path / "run", trace=("RMQ_SYS_TRACE_TOPIC",))
    traced(run)
    made = report(run)
    assert made.sentence.endswith(
        "Group billing: 120 re-consumed"
        " (progress lost at the master's restart or slave-only progress)."
    )
    found = document(run)
    (group,) = found["observation"]["returns"][0]["groups"]
    assert (group["lo"], group["hi"], group["exact"]) == (120, 120, True)
    assert (found["totals"]["dup"], found["totals"]["delivered"]) == (120, 350)
    # The master had told 100 of each queue. At 8.1 s it was gone, and 121 had been handed out.
    assert found["groups"][0]["causes"] == {
        "ROLLBACK_RESTART": 2 * 10,
        "ROLLBACK_SLAVE_ONLY_PROGRESS": 2 * (150 - 121),
    }
    assert found["groups"][0]["unattributed"] == 2 * (121 - 100)
    assert "Evidence: trace, complete" in (run / "report" / "report.html").read_text()


@pytest.mark.usefixtures("brokers")
@pytest.mark.parametrize("jump", [3_600_000, -3_600_000])
def test_no_count_is_exact_where_a_clock_jumped(tmp_path: Path, jump: int) -> None:
    run = begun(told(), tmp_path / "run", trace=("RMQ_SYS_TRACE_TOPIC",))
    traced(run, jump)
    report(run)
    (group,) = document(run)["observation"]["returns"][0]["groups"]
    assert not group["exact"]
    assert group["lo"] <= 120 <= group["hi"]


@pytest.mark.full
@pytest.mark.usefixtures("brokers")
def test_what_is_seen_after_a_report_is_in_the_next_one(tmp_path: Path) -> None:
    story = told()
    looks, story.looks = story.looks, story.looks[:10]
    run = begun(story, tmp_path / "run")
    report(run)
    assert document(run)["observation"]["returns"] == []
    story.looks = looks[10:]
    begun(story, run)
    traced(run)
    report(run)
    found = document(run)
    assert found["observation"]["returns"][0]["groups"][0]["exact"]
    assert found["evidence"]["rows"]["deliver"] == 350


def test_a_trace_that_is_switched_off_is_said(tmp_path: Path) -> None:
    run = begun(told(), tmp_path / "run", trace=("T",))
    made = report(run)
    assert made.verdict == "Observed"
    (gap,) = document(run)["observation"]["gaps"]
    assert gap["what"] == "no delivery was traced in T: switch message trace on in the clients"
