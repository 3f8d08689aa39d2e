"""The merge of consumer offsets: what is raised, what stays, and how far."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from failback.carry.merge import Merged, Table, merge
from tests.support.common.counts import examples

KEY = "orders@billing"
TABLES = st.dictionaries(
    st.sampled_from([KEY, "orders@audit", "%RETRY%billing@billing", "two@at@signs", "none"]),
    st.dictionaries(st.integers(-1, 2), st.integers(-3, 30), max_size=3),
    max_size=4,
)
ENDS = st.dictionaries(st.integers(-1, 2), st.integers(0, 30))


def one(offset: int, queue: int = 0) -> dict[str, dict[int, int]]:
    return {KEY: {queue: offset}}


def all_held(_topic: str, _queue: int, wanted: int) -> int:
    return wanted


def decided(own: Table, *theirs: Table, previous: Table | None = None, end: int = 10**9) -> Merged:
    named = [(f"slave-{number}", table) for number, table in enumerate(theirs)]
    return merge(own, previous, named, lambda _topic, _queue, wanted: min(wanted, end))


def test_a_larger_offset_is_taken_with_its_source() -> None:
    merged = decided(one(1032), one(1610))
    assert str(merged.raised[0]) == "orders@billing queue 0: 1032 -> 1610 (from slave-0)"
    assert merged.raised[0].messages == 578
    assert merged.applied(one(1032)) == one(1610)


def test_the_largest_of_all_slaves_counts() -> None:
    (row,) = decided(one(3040), one(4576), one(2848)).raised
    assert (row.wanted, row.source) == (4576, "slave-0")


def test_an_offset_that_is_missing_is_taken_also_if_it_is_0() -> None:
    assert decided({}, one(7)).applied({}) == one(7)
    assert decided({}, one(0)).applied({}) == one(0)


def test_a_smaller_offset_stays_and_no_key_is_deleted() -> None:
    own = {**one(500), "mine@g": {3: 7}}
    merged = decided(own, one(400))
    assert merged.applied(own) == own
    assert [(row.own, row.theirs) for row in merged.lower] == [(500, 400)]


def test_an_offset_is_cut_at_the_last_message_of_this_disk() -> None:
    merged = decided(one(3000), one(4717), end=3565)
    assert merged.applied(one(3000)) == one(3565)
    assert [(row.theirs, row.wanted) for row in merged.beyond] == [(4717, 3565)]


def test_a_queue_that_is_not_here_gets_nothing() -> None:
    merged = decided({}, one(5), end=-1)
    assert merged.raised == ()
    assert len(merged.beyond) == 1
    assert decided({}, one(0), end=-1) == Merged()  # a queue that no member has begun


@pytest.mark.parametrize(("theirs", "stands"), [(899, 100), (900, 100), (901, 901)])
def test_what_the_master_lowered_itself_stays_unless_more_was_consumed(
    theirs: int, stands: int
) -> None:
    merged = decided(one(100), one(theirs), previous=one(900))
    assert merged.applied(one(100)) == one(stands)
    assert len(merged.lowered) == (stands == 100)


def test_what_the_master_deleted_itself_stays_deleted() -> None:
    assert decided({}, one(900), previous=one(900)).applied({}) == {}


@pytest.mark.parametrize("theirs", [40, 900])
def test_a_group_that_accepts_less_gets_what_the_slaves_say(theirs: int) -> None:
    own = {**one(100), "orders@audit": {0: 100}}
    slave = {**one(theirs), "orders@audit": {0: 40}}
    merged = merge(own, one(900), [("s", slave)], all_held, accept_lower={"billing"})
    assert merged.applied(own) == {**one(theirs), "orders@audit": {0: 100}}


def test_what_no_client_commits_is_passed_over_and_named() -> None:
    slave = {"a@b@c": {0: 5}, "none": {0: 5}, KEY: {0: -1, -1: 5, 1: 6}}
    merged = decided({}, slave)
    assert merged.applied({}) == one(6, queue=1)
    assert sorted(merged.odd) == [
        "'a@b@c' of slave-0 is no topic@group",
        "'none' of slave-0 is no topic@group",
        "orders@billing queue -1 of slave-0 has the offset 5",
        "orders@billing queue 0 of slave-0 has the offset -1",
    ]


@settings(max_examples=examples(300))
@given(TABLES, st.none() | TABLES, st.lists(TABLES, max_size=3), ENDS)
@example({"T@g": {0: -2}}, None, [{"T@g": {0: 0}}], {})  # no client commits -2; no queue here
def test_nothing_is_lowered_or_moved_past_this_disk_and_a_second_run_changes_nothing(
    own: Table, previous: Table | None, theirs: list[Table], ends: dict[int, int]
) -> None:
    def last_held(_topic: str, queue: int, wanted: int) -> int:
        return min(wanted, ends.get(queue, -1))

    sources = [(str(number), table) for number, table in enumerate(theirs)]
    merged = merge(own, previous, sources, last_held)
    after = merged.applied(own)
    for key, queues in own.items():
        assert all(after[key][queue] >= offset for queue, offset in queues.items())
    for row in merged.raised:
        assert row.own < row.wanted <= ends[row.queue]
        assert row.wanted <= max(table.get(row.key, {}).get(row.queue, -1) for table in theirs)
    assert merge(after, previous, sources, last_held).raised == ()
    changed = {(row.key, row.queue) for row in merged.raised}
    for key, queues in after.items():
        for queue, offset in queues.items():
            assert (key, queue) in changed or own[key][queue] == offset


@settings(max_examples=examples(100))
@given(TABLES, TABLES, ENDS)
def test_a_group_that_accepts_less_is_never_moved_past_this_disk(
    own: Table, theirs: Table, ends: dict[int, int]
) -> None:
    merged = merge(
        own,
        None,
        [("s", theirs)],
        lambda _topic, queue, wanted: min(wanted, ends.get(queue, -1)),
        accept_lower={"billing"},
    )
    assert all(0 <= row.wanted <= ends[row.queue] for row in merged.raised)
    lowered = [row for row in merged.raised if row.wanted < row.own]
    assert all(row.key.endswith("@billing") for row in lowered)
