"""What is counted of a canary's log, and what its ledger remembers."""

from __future__ import annotations

from pathlib import Path

import pytest

from failback.analytics.errors import ReportInputError
from failback.analytics.observe.canary.ledger import Ledger
from failback.analytics.observe.canary.measured import Delivery, again, standstill
from failback.protocol.names import check_topic


def got(at: float, queue: int, offset: int, record: bytes = b"a") -> Delivery:
    return Delivery(at, queue, ("broker-a", queue, offset, record))


def test_a_message_counts_once_for_what_came_before() -> None:
    deliveries = [
        got(1, 0, 10), got(2, 0, 11), got(3, 1, 10),
        got(20, 0, 11), got(21, 0, 12), got(22, 0, 11), got(23, 1, 10),
    ]  # fmt: skip
    assert again(reversed(deliveries), 10, 100) == {0: 1, 1: 1}
    assert again(deliveries, 10, 22.5) == {0: 1}
    assert again(deliveries, 24, 100) == {}


def test_another_record_at_an_offset_is_another_message() -> None:
    assert again([got(1, 0, 10), got(20, 0, 10, b"b")], 10, 100) == {}


@pytest.mark.parametrize(
    ("times", "longest"),
    [
        ([1, 2, 9, 40, 41, 90, 200], 49),
        ([1, 9.5, 60, 61], 50.5),  # it lies in the span in part
        ([1, 9, 12], 3),
        ([9, 9.5], None),  # nothing since
        ([11, 12, 60], None),  # nothing before
        ([], None),
    ],
)
def test_a_standstill_is_the_longest_gap_of_a_span(
    times: list[float], longest: float | None
) -> None:
    assert standstill(times, 10, 80) == longest


def test_a_ledger_keeps_names_and_what_is_left(tmp_path: Path) -> None:
    first = Ledger.begin(tmp_path, "upgrade 7.1")
    names = first.name("bench/broker-a")
    assert first.name("bench/broker-b") != names
    assert first.left == set()
    for pair in ("bench/broker-a", "bench/broker-b"):
        first.make(pair)
    first.removed("bench/broker-b")
    again = Ledger.begin(tmp_path, "upgrade 7.1")
    assert (again.starts, again.left) == (2, {"bench/broker-a"})
    assert again.name("bench/broker-a") == names
    assert names.topic.startswith("failback-canary-upgrade-7-1-")
    for name in (*names.groups, *names.topics):
        check_topic(name)
    assert Ledger.begin(tmp_path / "other", "upgrade 7.1").canary != first.canary


def test_a_ledger_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "canary.json").write_text('{"canary": 1}')
    with pytest.raises(ReportInputError, match=r"canary\.json"):
        Ledger.read(tmp_path)
