"""What two looks at a pair's offset tables tell."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from failback.client.admin.queue_offsets import (
    Divergence,
    Regression,
    RegressionWatch,
    SyncWatch,
    divergence,
)

TABLES = st.dictionaries(
    st.sampled_from(["T@g", "T@h", "%RETRY%g@g"]),
    st.dictionaries(st.integers(0, 3), st.integers(0, 20), min_size=1),
)


def test_each_direction_is_summed_over_the_queues_of_a_group() -> None:
    master = {"T@g": {0: 10, 1: 5}, "U@g": {0: 1}, "T@h": {0: 3}}
    slave = {"T@g": {0: 4, 1: 9}, "U@g": {0: 8}, "T@h": {0: 3}}
    assert divergence(master, slave) == {"g": Divergence(11, 6), "h": Divergence(0, 0)}


def test_a_group_that_only_one_of_them_knows_counts_from_zero() -> None:
    assert divergence({}, {"T@g": {0: 7}}) == {"g": Divergence(7, 0)}
    assert divergence({"T@g": {0: 7}}, {}) == {"g": Divergence(0, 7)}


@given(TABLES, TABLES)
def test_changing_sides_changes_the_direction(one: dict, other: dict) -> None:  # type: ignore[type-arg]
    here, there = divergence(one, other), divergence(other, one)
    assert {group: (each.slave_ahead, each.master_ahead) for group, each in here.items()} == {
        group: (each.master_ahead, each.slave_ahead) for group, each in there.items()
    }


def test_a_slave_that_follows_is_never_old() -> None:
    watch = SyncWatch()
    assert watch.age_seconds(0) is None
    watch.look({"T@g": {0: 10}}, {"T@g": {0: 10}}, 0)
    watch.look({"T@g": {0: 90}}, {"T@g": {0: 60}}, 10)
    assert watch.age_seconds(10) == 0
    watch.look({"T@g": {0: 120}}, {"T@g": {0: 60}}, 20)
    assert watch.age_seconds(25) == 15
    assert watch.overwrites == 0


def test_clients_that_commit_to_the_slave_are_no_copy() -> None:
    watch = SyncWatch()
    watch.look({"T@g": {0: 10}}, {"T@g": {0: 10}}, 0)
    watch.look(None, {"T@g": {0: 500}}, 10)  # the master is down
    watch.look({"T@g": {0: 10}}, {"T@g": {0: 700}}, 20)
    assert watch.age_seconds(20) == 20
    watch.look({"T@g": {0: 10}}, {"T@g": {0: 10}}, 30)  # and now it was overwritten
    assert watch.age_seconds(30) == 0
    assert watch.overwrites == 1


def test_what_went_back_has_the_source_that_can_be_seen() -> None:
    master = RegressionWatch(is_slave=False)
    assert master.look({"T@g": {0: 100, 1: 9}}, 1) == []
    assert master.look({"T@g": {0: 40, 1: 9}}, 1) == [Regression("T", "g", "client_commit", 1, 60)]
    assert master.look({"T@g": {0: 10, 1: 2}}, 2) == [Regression("T", "g", "restart", 2, 37)]
    slave = RegressionWatch(is_slave=True)
    slave.look({"T@g": {0: 100}}, 1)
    assert slave.look({"T@g": {0: 99}}, 1) == [Regression("T", "g", "slave_sync", 1, 1)]


def test_a_group_that_was_deleted_has_not_gone_back() -> None:
    watch = RegressionWatch(is_slave=False)
    watch.look({"T@g": {0: 100}, "T@h": {0: 1}}, 1)
    assert watch.look({"T@h": {0: 1}}, 1) == []


@given(st.lists(TABLES, max_size=6))
def test_nothing_goes_back_where_every_value_grows(steps: list) -> None:  # type: ignore[type-arg]
    watch, grown = RegressionWatch(is_slave=False), {}  # type: ignore[var-annotated]
    for step in steps:
        for key, queues in step.items():
            kept = dict(grown.get(key, {}))
            for queue_id, offset in queues.items():
                kept[queue_id] = max(offset, kept.get(queue_id, 0))
            grown = {**grown, key: kept}
        assert watch.look(grown, 1) == []
