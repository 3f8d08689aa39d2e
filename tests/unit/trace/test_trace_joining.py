"""From trace records to deliveries with a place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from failback.analytics.trace.deliveries import handlings_of
from failback.analytics.trace.pages import Pages
from tests.support.analytics.trace_builder import (
    START_MS,
    TraceBuilder,
    after,
    before,
    made_id,
    pub,
    record,
)

M1, M2 = made_id(9, 1), made_id(9, 2)
MS = 1_000_000


@pytest.fixture
def topic(tmp_path: Path) -> TraceBuilder:
    return TraceBuilder(tmp_path / "traced")


def rows(topic: TraceBuilder, table: str = "deliver") -> list[dict[str, Any]]:
    """Rows of the lake by process and time."""
    path = topic.run_dir / "lake" / f"table={table}"
    found = pq.read_table(path, partitioning=None).to_pylist()
    key = "did" if table == "deliver" else "ukey"
    return sorted(found, key=lambda row: row[key])


def test_begin_end_place_and_process_of_a_delivery(topic: TraceBuilder) -> None:
    topic.copy("other")
    offset = topic.copy(M1, qid=2, t=3)
    topic.handled(M1, 10, 25, process=0x1234)
    written = topic.write()
    (row,) = rows(topic)
    assert (row["bt"], row["et"]) == ((START_MS + 10) * MS, (START_MS + 25) * MS)
    assert (row["broker"], row["ptopic"], row["qid"], row["qoff"]) == ("pair-a", "T", 2, offset)
    assert (row["status"], row["rt"], row["ukey"], row["lane"]) == ("SUCCESS", 0, M1, None)
    assert (row["client_id"], row["store_ms"]) == (f"127.0.0.1@{0x1234}", START_MS + 3)
    assert len(row["omid"]) == 16
    assert (written.deliveries, written.gaps) == (1, ())


def test_processes_are_told_apart_by_the_ids_they_make(topic: TraceBuilder) -> None:
    for process in (2, 1, 2):
        topic.handled(M1, process, 5, process=process)
    topic.write()
    assert [(row["inc"], row["did"] & 0xFFFF) for row in rows(topic)] == [(1, 1), (2, 1), (2, 2)]


def test_a_trace_that_was_stored_twice_counts_once(topic: TraceBuilder) -> None:
    topic.copy(M1)
    request = made_id(1, 1)
    body = before(M1, 1, request) + after(M1, 2, request)
    topic.trace(body)
    topic.trace(body, qid=1)
    topic.trace(after(M1, 2, request))
    written = topic.write()
    assert (written.deliveries, written.counts.repeated) == (1, 3)


def test_two_copies_in_one_batch_count_twice(topic: TraceBuilder) -> None:
    request = made_id(1, 1)
    for offset in range(2):
        assert topic.copy(M1, t=offset) == offset
    topic.trace(before(M1, 1, request) * 2 + after(M1, 2, request) * 2)
    written = topic.write()
    assert [row["qoff"] for row in rows(topic)] == [0, 1]
    assert written.counts.several_copies == 2


def test_the_end_of_an_old_client_is_its_cost_times_its_batch(topic: TraceBuilder) -> None:
    request = made_id(1, 1)
    ends = [record("SubAfter", request, m, 7, True, "key", 0) for m in (M1, M2)]
    topic.trace(before(M1, 10, request), before(M2, 10, request), *ends)
    topic.write()
    assert [row["et"] - row["bt"] for row in rows(topic)] == [14 * MS, 14 * MS]


@pytest.mark.parametrize(
    ("success", "code", "status"),
    [
        (True, 0, "SUCCESS"),
        (True, 1, "SUCCESS"),  # handled, but only after the consume timeout
        (False, 1, "LATER"),
        (False, 2, "EXC"),
        (False, 3, "NULL"),
        (False, 4, "LATER"),
    ],
)
def test_what_the_handler_returned(
    topic: TraceBuilder, success: bool, code: int, status: str
) -> None:
    request = made_id(1, 1)
    topic.trace(before(M1, 1, request), after(M1, 2, request, success=success, code=code))
    topic.write()
    assert rows(topic)[0]["status"] == status


def test_a_handler_without_end_is_abandoned(topic: TraceBuilder) -> None:
    topic.handled(M1, 1, None)
    written = topic.write(scanned=False)
    (row,) = rows(topic)
    assert (row["status"], row["et"], written.counts.missing_end) == ("ABANDONED", None, 1)
    assert written.gaps == ()


def test_a_handling_of_which_only_the_end_came(topic: TraceBuilder) -> None:
    topic.copy(M1)
    topic.copy(M2)
    topic.copy(M2, topic="%RETRY%g", rt=1)
    topic.trace(after(M1, 20, made_id(1, 1), cost=8), after(M2, 20, made_id(1, 2)))
    topic.trace(record("SubAfter", made_id(1, 3), M1, 8, True, "key", 0))
    nameless = after(M1, 20, made_id(1, 4))[:-1].split(b"\x01")[:8]
    topic.trace(b"\x01".join(nameless) + b"\x02")
    written = topic.write()
    (row,) = rows(topic)
    assert (row["bt"], row["rt"], row["grp"]) == ((START_MS + 12) * MS, 0, "g")
    assert [gap.partition(" ")[2][:50] for gap in written.gaps] == [
        "handlings have no SubBefore and were told by their",
        "handlings have no SubBefore, and their SubAfter no",
        "handlings have no SubBefore, and their SubAfter no",
        "handlings have no SubBefore that says which attemp",
    ]


def test_retries_lie_in_the_retry_topic_of_their_group(topic: TraceBuilder) -> None:
    topic.copy(M1)
    topic.copy(M1, topic="%RETRY%other", rt=1)
    topic.copy(M1, topic="%RETRY%g", rt=2, t=9)
    topic.copy(M1, topic="%RETRY%g", rt=1, t=5)
    topic.copy(M1, topic="%DLQ%g", rt=3, t=99)
    for rt, t in ((0, 1), (1, 6), (2, 10), (3, 20)):
        topic.handled(M1, t, t + 1, rt=rt, success=False)
    assert topic.write().counts.several_copies == 0
    places = [(row["ptopic"], row["qoff"], row["ltopic"]) for row in rows(topic)]
    assert places == [
        ("T", 0, "T"),
        ("%RETRY%g", 1, "T"),
        ("%RETRY%g", 0, "T"),
        ("%RETRY%g", 0, "T"),  # a local retry: the copy of the attempt before, once more
    ]


def test_a_message_without_uniq_key_is_traced_by_its_place(topic: TraceBuilder) -> None:
    topic.copy(None)
    topic.flush()
    found = topic.pages.read("copies").to_pylist()[0]
    topic.handled(found["omid"].hex().upper(), 1, 2)
    topic.write()
    (row,) = rows(topic)
    assert (row["qoff"], row["ukey"], row["keys"]) == (0, None, "key")


def test_a_message_that_lies_nowhere_is_kept_and_named(topic: TraceBuilder) -> None:
    topic.copy(M2)
    topic.handled(M1, 1, 2)
    topic.handled(M1, 5, 6)
    topic.handled(M2, 5, 6)
    written = topic.write()
    lost = [(row["broker"], row["qoff"]) for row in rows(topic) if row["ukey"] == M1]
    assert lost[0] == lost[1]
    assert lost[0][0] == "?"
    assert written.gaps == ("2 handlings are of messages that lie in no topic read",)


def test_a_clock_that_was_set_back_inside_a_handler(topic: TraceBuilder) -> None:
    topic.handled(M1, 100, 40)
    written = topic.write()
    (row,) = rows(topic)
    assert (row["et"], written.counts.clock_steps) == (row["bt"], 1)


def test_clients_clocks_are_set_against_the_brokers(topic: TraceBuilder) -> None:
    for number in range(5):
        topic.trace(before(M1, 1, made_id(1, number)), host="10.0.0.1", took=-500 + number)
        topic.trace(before(M1, 1, made_id(1, 9 + number)), host="10.0.0.2", took=2)
    topic.write()
    path = topic.run_dir / "lake" / "table=clock"
    found = {row["host"]: row for row in pq.read_table(path, partitioning=None).to_pylist()}
    assert found["10.0.0.1"]["offset_ns"] == -500 * MS
    assert found["10.0.0.1"]["error_ns"] == 3 * MS
    assert (found["10.0.0.2"]["offset_ns"], found["10.0.0.2"]["error_ns"]) == (2 * MS, MS)


@pytest.mark.parametrize("jump", [3_600_000, -3_600_000])
@pytest.mark.parametrize("at", [5, 50, 95])
def test_a_clients_clock_that_jumps_is_as_unsure_as_it_jumped(
    topic: TraceBuilder, jump: int, at: int
) -> None:
    for number in range(100):
        ahead = jump if number >= at else 0
        body = before(M1, 1, made_id(1, number))
        topic.trace(body, born=5_000 * number + ahead, took=2 - ahead)
    topic.write()
    path = topic.run_dir / "lake" / "table=clock"
    (row,) = pq.read_table(path, partitioning=None).to_pylist()
    assert row["error_ns"] == pytest.approx(abs(jump) * MS, rel=0.01)


def test_sends_of_a_batch_are_one_row_each(topic: TraceBuilder) -> None:
    topic.trace(pub(f"{M1},{M2}", 5, cost=3, offset_id="AA,BB", success=False), pub(M1, 1))
    topic.write()
    found = [(row["ukey"], row["res"], row["offset_msg_id"]) for row in rows(topic, "produce")]
    assert sorted(found) == [
        (M1, "OK", bytes.fromhex("7F00000100002A9F0000000000000010")),
        (M1, "OK_DEGRADED", b"\xaa"),
        (M2, "OK_DEGRADED", b"\xbb"),
    ]
    assert {row["broker"] for row in rows(topic, "produce")} == {"pair-a"}


def test_only_the_groups_that_were_asked_for(topic: TraceBuilder) -> None:
    topic.handled(M1, 1, 2, group="g")
    topic.handled(M1, 1, 2, group="h")
    assert topic.write(groups=("h",)).groups == ("h",)
    assert [row["grp"] for row in rows(topic)] == ["h"]


def test_nothing_at_all(topic: TraceBuilder) -> None:
    assert topic.write().deliveries == 0
    assert len(handlings_of(Pages(topic.run_dir).read("records"))) == 0
