"""OffsetSnapshot: when offsets are kept, what a restore would do, and that it does just that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from failback.carry.restoring import (
    MAX_GROUPS,
    MAX_QUEUES,
    OnMaster,
    preview,
    restore_of,
)
from failback.client.admin.queue_offsets import Span
from failback.operator.kinds.offset_snapshot import OffsetSnapshot, OffsetSnapshotStatus
from failback.operator.planning.offsets import kept_table
from failback.operator.planning.offsets.snapshot_object import (
    ObservedSnapshot,
    plan_offset_snapshot,
)
from failback.operator.planning.plan.encoding import find_condition, to_time
from failback.operator.planning.plan.types import Apply, Delete, Plan, RestoreOffsets

CREATED = 1_800_000_000.0
KEY, PAIR, ADDRESS = "PAID@billing", "orders-0", "a:1"
OTHER = "PAID@audit"
HELD = {KEY: {0: 60, 1: 40}, OTHER: {0: 5}, "RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS": {0: 9}}


def snapshot(**spec: Any) -> OffsetSnapshot:
    return OffsetSnapshot.model_validate(
        {
            "apiVersion": "failback.dev/v1alpha1",
            "kind": "OffsetSnapshot",
            "metadata": {
                "name": "nightly",
                "namespace": "shop",
                "uid": "u-1",
                "creationTimestamp": to_time(CREATED),
            },
            "spec": {"clusterRef": {"name": "orders"}, **spec},
        }
    )


def master(
    offsets: Mapping[str, Mapping[int, int]] | None,
    *,
    at: float = CREATED + 1,
    ranges: Mapping[int, tuple[int, int]] | None = None,
    online: frozenset[str] = frozenset(),
) -> OnMaster:
    """A master with topic PAID, whose queues 0 and 1 hold 0 to 100 unless said otherwise."""
    found = {0: (0, 100), 1: (0, 100)} if ranges is None else ranges
    stored = {("PAID", queue): Span(*each) for queue, each in found.items()}
    return OnMaster(ADDRESS, offsets, at, stored, online)


class Resource:
    """An OffsetSnapshot, its status and its ConfigMaps, as an API server keeps them."""

    def __init__(self, **spec: Any) -> None:
        self.spec = spec
        self.status: dict[str, Any] = {}
        self.config_maps: dict[str, dict[str, Any]] = {}
        self.written = ""

    def run(self, now: float, found: OnMaster | None, pairs: tuple[str, ...] = (PAIR,)) -> Plan:
        """Run a pass, carry its actions out, and keep its status."""
        made = snapshot(**self.spec)
        entries = self.status.get("snapshots") or [{"configMap": ""}]
        wanted = self.spec.get("restore", {}).get("snapshot", "latest")
        named = [each for each in entries if wanted in ("latest", each.get("name"))] or entries
        observed = ObservedSnapshot(
            None if found is None else dict.fromkeys(pairs, found),
            kept_table.read(self.config_maps.get(named[0]["configMap"])),
            self.config_maps,
            self.written,
        )
        plan = plan_offset_snapshot(made, self.status, observed, now)
        for action in plan.actions:
            if isinstance(action, Apply):
                manifest = action.manifest
                self.config_maps[manifest["metadata"]["name"]] = {
                    **manifest,
                    "metadata": {**manifest["metadata"], "uid": "m"},
                }
            elif isinstance(action, Delete):
                del self.config_maps[action.key[1]]
        self.status = dict(plan.status)
        OffsetSnapshotStatus.model_validate(self.status)
        return plan

    def reason(self, kind: str) -> str | None:
        found = find_condition(self.status, kind)
        return None if found is None else str(found["reason"])

    def orders(self, plan: Plan) -> list[RestoreOffsets]:
        return [each for each in plan.actions if isinstance(each, RestoreOffsets)]


# --- keeping --------------------------------------------------------------------------------------


def test_one_snapshot_is_taken_when_the_object_is_made_and_no_other() -> None:
    found = Resource()
    plan = found.run(CREATED + 2, master(HELD))
    (made,) = plan.actions
    assert isinstance(made, Apply)
    assert kept_table.read(made.manifest) == {PAIR: {KEY: {0: 60, 1: 40}, OTHER: {0: 5}}}
    (owner,) = made.manifest["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("OffsetSnapshot", "u-1")
    assert "failback.dev/cluster" not in made.manifest["metadata"]["labels"]
    (entry,) = found.status["snapshots"]
    assert (entry["groups"], entry["offsets"]) == (2, 3)
    assert found.reason("Ready") == "Taken"
    assert found.run(CREATED + 1e6, master({})).actions == ()
    assert found.run(CREATED + 1e6, None).actions == ()
    assert found.reason("Ready") == "Taken"


def test_only_answers_since_it_is_due_count_and_every_master_must_give_one() -> None:
    found = Resource()
    for old in (master(HELD, at=CREATED - 1), master(None), OnMaster("")):
        for seconds, reason in ((2, "Waiting"), (60, "MasterDown")):
            assert found.run(CREATED + seconds, old).actions == ()
            assert found.reason("Ready") == reason
    assert found.run(CREATED + 2, None).actions == ()
    assert found.reason("Ready") == "ClusterMissing"
    assert found.run(CREATED + 2, master(HELD), pairs=()).actions == ()
    assert found.run(CREATED + 2, master(HELD)).actions != ()


def test_a_schedule_goes_on_and_only_the_newest_are_kept() -> None:
    found = Resource(every="1h", keep=2)
    taken = []
    now = CREATED + 1
    for turn in range(5):
        held = {KEY: {0: turn}}
        found.run(now, master(held, at=now))
        taken.append(found.status["snapshots"][0]["name"])
        plan = found.run(now + 1, master(held, at=now))
        found.run(now + 2, master(held, at=now))
        assert plan.wake_after is not None
        assert len(found.config_maps) == min(turn + 1, 2)
        assert len(found.status["snapshots"]) == min(turn + 1, 2)
        now += 3600
    assert len(set(taken)) == 5
    assert [each["name"] for each in found.status["snapshots"]] == [taken[4], taken[3]]


def test_a_snapshot_that_was_written_and_not_noted_is_written_again_under_its_name() -> None:
    first, second = Resource(), Resource()
    first.run(CREATED + 2, master(HELD))
    second.run(CREATED + 9, master(HELD, at=CREATED + 8))
    assert first.config_maps.keys() == second.config_maps.keys()


def test_only_the_groups_named_are_kept() -> None:
    found = Resource(groups=["audit"])
    found.run(CREATED + 2, master(HELD))
    assert [kept_table.read(each) for each in found.config_maps.values()] == [
        {PAIR: {OTHER: {0: 5}}}
    ]


def test_offsets_that_no_object_can_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_table, "MAX_BYTES", 20)
    found = Resource()
    assert found.run(CREATED + 2, master(HELD)).actions == ()
    assert found.reason("Ready") == "SnapshotTooLarge"


# --- giving back ----------------------------------------------------------------------------------


def kept() -> Resource:
    """A resource with one snapshot of ``HELD``."""
    found = Resource()
    found.run(CREATED + 2, master(HELD))
    return found


NOW = {KEY: {0: 100, 1: 20}, OTHER: {0: 5}}


def test_nothing_is_written_before_the_preview_is_confirmed_and_then_just_that() -> None:
    found = kept()
    found.spec["restore"] = {}
    for _ in range(3):
        assert found.run(CREATED + 60, master(NOW)).actions == ()
    assert found.reason("Restored") == "PreviewReady"
    shown = found.status["restore"]
    assert (shown["redelivered"], shown["skipped"]) == (40, 20)
    (group,) = shown["groups"]
    assert group == {
        "group": "billing",
        "redelivered": 40,
        "skipped": 20,
        "ahead": 40 + 60,
        "leftAlone": 0,
        "online": False,
    }
    assert [(each["queue"], each["fromOffset"], each["toOffset"]) for each in shown["queues"]] == [
        (0, 100, 60),
        (1, 20, 40),
    ]
    found.spec["restore"] = {"confirm": "wrong"}
    assert found.run(CREATED + 61, master(NOW)).actions == ()
    found.spec["restore"] = {"confirm": shown["id"]}
    (order,) = found.orders(found.run(CREATED + 62, master(NOW)))
    assert order == RestoreOffsets(ADDRESS, ((KEY, 0, 100, 60), (KEY, 1, 20, 40)), shown["id"])
    assert found.reason("Restored") == "Restoring"


def test_it_is_complete_once_it_was_read_back_and_is_not_done_twice() -> None:
    found = kept()
    found.spec["restore"] = {}
    found.run(CREATED + 60, master(NOW))
    name = found.status["restore"]["id"]
    found.spec["restore"] = {"confirm": name}
    assert found.orders(found.run(CREATED + 62, master(NOW)))
    assert found.orders(found.run(CREATED + 63, master(NOW))), "not read back yet: tried again"
    found.written = name
    assert found.run(CREATED + 64, master(NOW)).actions == ()
    assert found.reason("Restored") == "Restored"
    assert found.status["restore"]["phase"] == "Complete"
    assert found.run(CREATED + 99, master(NOW)).actions == (), "the group has moved on"
    found.spec["restore"] = {}
    found.run(CREATED + 100, master(NOW))
    assert found.status["restore"]["phase"] == "Preview"
    del found.spec["restore"]
    found.run(CREATED + 101, master(NOW))
    assert "restore" not in found.status
    assert found.reason("Restored") is None


def test_an_operator_that_begins_anew_finishes_a_restore_that_is_already_written() -> None:
    found = kept()
    found.spec["restore"] = {}
    found.run(CREATED + 60, master(NOW))
    found.spec["restore"] = {"confirm": found.status["restore"]["id"]}
    found.run(CREATED + 62, master(NOW))
    assert found.run(CREATED + 63, master(HELD)).actions == ()
    assert found.status["restore"]["phase"] == "Complete"
    assert found.status["restore"]["redelivered"] == 40


def test_a_preview_that_stays_true_writes_no_status_while_messages_come() -> None:
    found = kept()
    found.spec["restore"] = {}
    found.run(CREATED + 60, master(NOW))
    before = found.status
    found.run(CREATED + 70, master(NOW, ranges={0: (0, 170), 1: (0, 190)}))
    assert found.status == before


def test_what_changes_between_preview_and_confirmation_needs_another_confirmation() -> None:
    found = kept()
    found.spec["restore"] = {}
    found.run(CREATED + 60, master(NOW))
    old = found.status["restore"]["id"]
    found.spec["restore"] = {"confirm": old}
    moved = {**NOW, KEY: {0: 100, 1: 30}}
    assert found.run(CREATED + 61, master(moved)).actions == ()
    assert found.reason("Restored") == "PreviewReady"
    assert found.status["restore"]["id"] != old
    assert found.status["restore"]["skipped"] == 10


def test_running_members_are_a_reason_to_refuse_unless_told() -> None:
    found = kept()
    running = frozenset({"billing"})
    found.spec["restore"] = {}
    found.run(CREATED + 60, master(NOW, online=running))
    assert found.reason("Restored") == "GroupOnline"
    name = found.status["restore"]["id"]
    found.spec["restore"] = {"confirm": name}
    assert found.run(CREATED + 61, master(NOW, online=running)).actions == ()
    found.spec["restore"] = {"confirm": name, "online": True}
    moved = {**NOW, KEY: {0: 100, 1: 25}}
    (order,) = found.orders(found.run(CREATED + 62, master(moved, online=running)))
    assert order.offsets == ((KEY, 0, 100, 60), (KEY, 1, 25, 40)), "a running group moves on"


def test_members_that_come_while_it_is_written_stop_it() -> None:
    found = kept()
    found.spec["restore"] = {}
    found.run(CREATED + 60, master(NOW))
    found.spec["restore"] = {"confirm": found.status["restore"]["id"]}
    found.run(CREATED + 62, master(NOW))
    plan = found.run(CREATED + 63, master(NOW, online=frozenset({"billing"})))
    assert plan.actions == ()
    assert (found.reason("Restored"), found.status["restore"]["phase"]) == (
        "GroupOnline",
        "Preview",
    )


def test_what_somebody_sets_while_it_is_written_is_not_overwritten() -> None:
    found = kept()
    found.spec["restore"] = {}
    found.run(CREATED + 60, master(NOW))
    found.spec["restore"] = {"confirm": found.status["restore"]["id"]}
    found.run(CREATED + 62, master(NOW))
    moved = {KEY: {0: 90, 1: 20}, OTHER: {0: 7}}
    (order,) = found.orders(found.run(CREATED + 63, master(moved)))
    assert order.offsets == ((KEY, 1, 20, 40),)


def test_only_the_groups_asked_for_go_back() -> None:
    found = kept()
    found.spec["restore"] = {"groups": ["audit"]}
    found.run(CREATED + 60, master({**NOW, OTHER: {0: 50}}))
    assert [each["group"] for each in found.status["restore"]["groups"]] == ["audit"]
    assert found.status["restore"]["redelivered"] == 45


@pytest.mark.foreign
def test_a_group_that_a_snapshot_does_not_have_is_an_error_with_the_nearest_name() -> None:
    found = kept()
    found.spec["restore"] = {"groups": ["audit", "adit"]}
    assert found.run(CREATED + 60, master(NOW)).actions == ()
    assert found.reason("Restored") == "GroupMissing"
    condition = find_condition(found.status, "Restored")
    assert condition is not None
    assert 'has no offsets of adit, did you mean "audit"?' in condition["message"]


@pytest.mark.foreign
@pytest.mark.parametrize(
    ("held", "span", "again", "skipped", "alone"),
    [
        (5000, (0, 100), 40, 0, ""),  # is re-consumed: what there is between 60 and the end
        (5000, (80, 100), 20, 0, ""),
        (1, (80, 100), 0, 0, ""),  # what lies below the begin can not be skipped
        (1, (0, 100), 0, 59, ""),
        (10, (0, 59), 0, 0, "queue 0 of PAID on orders-0 ends before 60, the kept offset of"),
    ],
)
def test_only_messages_that_there_are_come_again_or_are_skipped(
    held: int, span: tuple[int, int], again: int, skipped: int, alone: str
) -> None:
    found = kept()
    found.spec["restore"] = {}
    now = {KEY: {0: held, 1: 40}, OTHER: {0: 5}}
    found.run(CREATED + 60, master(now, ranges={0: span, 1: (0, 100)}))
    told = found.status["restore"]
    (group,) = [each for each in told["groups"] if each["group"] != "audit"] or [
        {"redelivered": 0, "skipped": 0}
    ]
    assert (group["redelivered"], group["skipped"]) == (again, skipped)
    condition = find_condition(found.status, "Restored")
    assert condition is not None
    if alone:
        assert "1 queue is left alone, such as: " + alone in condition["message"]
    else:
        assert "left alone" not in condition["message"]


def test_a_snapshot_is_named_and_one_that_is_not_there_is_said_so() -> None:
    found = kept()
    found.spec["restore"] = {"snapshot": "20200101T000000Z"}
    assert found.run(CREATED + 60, master(NOW)).actions == ()
    assert found.reason("Restored") == "SnapshotMissing"
    found.config_maps.clear()
    found.spec["restore"] = {}
    found.run(CREATED + 61, master(NOW))
    assert found.reason("Restored") == "SnapshotMissing"


@pytest.mark.parametrize("lacks", ["offsets", "ranges", "online"])
def test_nothing_is_said_while_a_master_does_not_answer(lacks: str) -> None:
    found = kept()
    found.spec["restore"] = {}
    changes: dict[str, Any] = {lacks: None}
    assert found.run(CREATED + 60, replace(master(NOW), **changes)).actions == ()
    assert found.reason("Restored") == "UnableToRetrieve"
    condition = find_condition(found.status, "Restored")
    assert condition is not None
    assert condition["message"] == f"what the master of {PAIR} holds now is not known"
    assert "restore" not in found.status


# --- the rows -------------------------------------------------------------------------------------


def rows_of(kept_offset: int, begin: int, end: int, old: int | None) -> tuple[Any, ...]:
    held = {} if old is None else {KEY: {0: old}}
    found = restore_of(
        {PAIR: {KEY: {0: kept_offset}}}, {PAIR: master(held, ranges={0: (begin, end)})}
    )
    assert found is not None
    rows = [(row.old, row.new, row.redelivered, row.skipped, row.ahead) for row in found.rows]
    return (*rows, dict(found.left_alone))


def test_an_offset_stays_within_its_queue() -> None:
    assert rows_of(60, 0, 100, 80) == ((80, 60, 20, 0, 40), {})
    assert rows_of(60, 70, 100, 80) == ((80, 70, 10, 0, 30), {}), "below the begin"
    assert rows_of(60, 0, 60, 40) == ((40, 60, 0, 20, 0), {})
    assert rows_of(60, 0, 59, 40) == ({"billing": 1},), "another log, or it lost its end"
    assert rows_of(60, 0, 0, None) == ({"billing": 1},), "an empty store"
    assert rows_of(60, 0, 100, None) == ((None, 60, 0, 0, 40), {}), "the table was lost"
    assert rows_of(60, 0, 100, 60) == ({},), "nothing differs"


def test_queues_topics_and_pairs_that_are_gone_are_left_alone() -> None:
    table = {PAIR: {KEY: {0: 1, 7: 1}, "GONE@billing": {0: 1}}, "orders-9": {OTHER: {0: 1, 1: 1}}}
    found = restore_of(table, {PAIR: master({})})
    assert found is not None
    assert [(row.topic, row.queue) for row in found.rows] == [("PAID", 0)]
    assert found.left_alone == {"billing": 2, "audit": 2}


def test_a_preview_is_bounded_and_begins_with_what_costs_most() -> None:
    groups = {f"T@g{number:03}": dict.fromkeys(range(8), 0) for number in range(100)}
    held = {
        key: dict.fromkeys(queues, number) for number, (key, queues) in enumerate(groups.items())
    }
    ranges = {("T", queue): Span(0, 1000) for queue in range(8)}
    found = restore_of({PAIR: groups}, {PAIR: OnMaster(ADDRESS, held, 0, ranges, frozenset())})
    assert found is not None
    shown = preview(found, "s")
    assert (len(shown["groups"]), len(shown["queues"])) == (MAX_GROUPS, MAX_QUEUES)
    assert shown["moreQueues"] == 99 * 8 - MAX_QUEUES
    assert shown["groups"][0]["group"] == "g099"
    assert {each["group"] for each in shown["queues"]} == {f"g{n:03}" for n in range(68, 100)}
    assert shown["redelivered"] == 8 * sum(range(100))
    OffsetSnapshotStatus.model_validate({"restore": shown})
