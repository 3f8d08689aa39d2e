"""What may be said of offsets around a master's restart, by what was watched before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from failback.analytics.live.exposure import exposure
from failback.analytics.live.facts import GroupTopic, MemberFacts, OffsetFile, PairFacts
from failback.analytics.live.known import Bound, bound
from failback.analytics.live.queues import (
    SEEN,
    GroupStake,
    act_or_wait,
    lineage,
    overwrite_countdown,
)
from failback.analytics.live.watch import PairWatch, first_look, lost

KEY = GroupTopic("billing", "orders")
START, DOWN, BACK, COPIED = 10_000.0, 20_000.0, 20_060.0, 20_090.0
"""Unix seconds: the first start of the master, its kill, its return, and the slave's copy."""
FINISHED, FILE, COPY = 1408, 704, 696


def pair(
    at: float, master: int | None, slave: int, *, boot: float = START, version: str = ""
) -> PairFacts:
    def member(number: int, offset: int | None) -> MemberFacts:
        table = None if offset is None else {KEY: {0: offset}}
        file = OffsetFile("f", {KEY: {0: FILE}}, 1.0) if number == 0 else None
        started_ms = round((boot if number == 0 else START) * 1000)
        return MemberFacts(
            f"h:{number}", number, offset is not None, started_ms,
            offsets=table, file=file, stored_since_ms=1, version=version,
        )  # fmt: skip

    members = (member(0, master), member(1, slave))
    return PairFacts("b", members, at, {"orders": {0: 9000}}, {"orders": {0: 0}})


BEFORE = pair(DOWN - 1, 704, COPY)
AWAY = pair(DOWN + 5, None, COPY)
COMMITTED = pair(DOWN + 40, None, FINISHED)
RETURNED = pair(BACK + 5, FILE, FINISHED, boot=BACK)
OVERWRITTEN = pair(COPIED, FILE, FILE, boot=BACK)
READING = pair(COPIED + 20, 896, 896, boot=BACK)
OLD = pair(BACK + 601, 896, 896, boot=BACK)


def watched(*looks: PairFacts) -> PairFacts:
    watch = PairWatch()
    for each in looks:
        found = replace(each, seen=watch.look(each))
    return found


@pytest.mark.parametrize(
    ("looks", "safe", "said"),
    [
        ((BEFORE,), 704, Bound.EXACT),
        ((BEFORE, AWAY), 704, Bound.AT_LEAST),
        ((BEFORE, AWAY, COMMITTED), FINISHED, Bound.AT_LEAST),
        ((BEFORE, AWAY, COMMITTED, RETURNED), FINISHED, Bound.AT_LEAST),
        ((BEFORE, AWAY, COMMITTED, RETURNED, OVERWRITTEN), FINISHED, Bound.AT_LEAST),
        ((BEFORE, COMMITTED, OVERWRITTEN, READING), FINISHED, Bound.AT_LEAST),
        ((BEFORE, COMMITTED, OVERWRITTEN, OLD), FINISHED, Bound.AT_LEAST),
        ((COMMITTED, OVERWRITTEN), FINISHED, Bound.AT_LEAST),
        ((RETURNED, OVERWRITTEN), FINISHED, Bound.AT_LEAST),
        ((COMMITTED,), FINISHED, Bound.AT_LEAST),
        ((RETURNED,), FINISHED, Bound.AT_LEAST),
        ((OVERWRITTEN,), None, Bound.NOT_KNOWN),
        ((READING,), None, Bound.NOT_KNOWN),
        ((READING, OLD), 896, Bound.EXACT),
    ],
)
def test_a_safe_offset_is_said_as_what_it_is(
    looks: tuple[PairFacts, ...], safe: int | None, said: Bound
) -> None:
    found = lineage(watched(*looks), KEY, 0)
    assert (found.safe_offset, found.bound) == (safe, said)
    if said is Bound.NOT_KNOWN:
        assert (found.after_return, found.on_slave) == (None, None)
        assert not any(step.fell for step in found.steps)


def test_the_end_of_a_queue_is_exact_and_a_new_store_hides_nothing() -> None:
    at_end = replace(OVERWRITTEN, ends={"orders": {0: FILE}})
    assert lineage(at_end, KEY, 0).bound is Bound.EXACT
    new = tuple(replace(each, stored_since_ms=each.boot_ms + 1) for each in OVERWRITTEN.members)
    empty = tuple(replace(each, stored_since_ms=-1) for each in OVERWRITTEN.members)
    for members in (new, empty):
        assert lineage(replace(OVERWRITTEN, members=members), KEY, 0).bound is Bound.EXACT


def test_a_member_that_started_before_the_master_knows_its_position() -> None:
    since = round(BACK * 1000)
    assert bound(OVERWRITTEN, KEY, since - 1) is Bound.AT_LEAST
    assert bound(OVERWRITTEN, KEY, since + 1) is Bound.NOT_KNOWN, "it may read again"
    assert lineage(OVERWRITTEN, KEY, 0, 1500, since - 1).safe_offset == 1500
    assert lineage(OVERWRITTEN, KEY, 0, 900, since + 1).safe_offset is None


def test_what_was_overwritten_stays_until_the_group_has_passed_it() -> None:
    watch = PairWatch()
    for each in (BEFORE, AWAY, COMMITTED, RETURNED):
        watch.look(each)
    assert watch.overwritten_at is None, "the slave still has it"
    for each, left in ((OVERWRITTEN, 704), (READING, 512), (OLD, 512)):
        found = replace(each, seen=watch.look(each))
        assert lost(found) == {KEY: left}
        assert watch.overwritten_at == COPIED
        assert lineage(found, KEY, 0).steps[-1].place == SEEN
    passed = pair(BACK + 700, FINISHED, 896, boot=BACK)
    assert watch.look(passed) == {}
    assert watch.overwritten_at is None
    assert lineage(replace(passed, seen={}), KEY, 0).bound is Bound.EXACT


def test_a_deleted_group_is_not_waited_for() -> None:
    watch = PairWatch()
    for each in (BEFORE, COMMITTED, OVERWRITTEN):
        watch.look(replace(each, deleted=frozenset({"billing"})))
    assert watch.seen == {}


def test_a_figure_that_is_not_known_is_absent_and_never_zero() -> None:
    at_rest = {KEY: 0.0}
    assert "billing" not in exposure(OVERWRITTEN, at_rest)
    found = exposure(watched(BEFORE, COMMITTED, OVERWRITTEN), at_rest)["billing"]
    assert (found.most, found.bound) == (FINISHED - FILE, Bound.AT_LEAST)
    even = pair(COPIED, FILE, FILE, boot=BACK)
    unmoved = watched(pair(DOWN - 1, FILE, FILE), pair(DOWN + 5, None, FILE), even)
    assert "billing" not in exposure(unmoved, at_rest), "a lower bound of 0 says nothing"
    assert exposure(pair(DOWN - 1, FILE, FILE), at_rest)["billing"].most == 0


def test_one_look_at_a_slave_that_is_ahead_is_enough() -> None:
    assert first_look(RETURNED).seen == {KEY: {0: FINISHED}}
    assert first_look(OVERWRITTEN).seen is None


def test_a_slave_that_copies_nothing_overwrites_nothing() -> None:
    assert overwrite_countdown(RETURNED) == 35.0
    assert overwrite_countdown(pair(BACK + 5, FILE, FINISHED, boot=BACK, version="V5_5_0")) is None


def test_those_who_must_act_stand_first() -> None:
    stakes = [GroupStake("audit", 3000, 1), GroupStake("billing", 1719, 0)]
    assert act_or_wait(stakes, 25.2) == [
        "ACT   billing  no member; 1,719 will be re-consumed; slave copies in about 25 s",
        "wait  audit    1 member runs; stores its offsets by itself",
    ]
