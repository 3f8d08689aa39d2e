"""Exporter, dashboard and ``explain-offset`` say the same of the same pair."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from failback.analytics.dashboard.sources.brokers import BrokerSeen, Consumers
from failback.analytics.dashboard.sources.clusters import ClusterRef, MemberRef, PairRef
from failback.analytics.dashboard.views.fleet import cluster_document
from failback.analytics.dashboard.views.offset_health import offset_rows
from failback.analytics.exporter import families
from failback.analytics.exporter.figures import figures_of
from failback.analytics.exporter.pair_history import History
from failback.analytics.exporter.survey import BrokerAnswers, Survey
from failback.analytics.live.exposure import exposure
from failback.analytics.live.facts import GroupTopic, MemberFacts, OffsetFile, PairFacts, table_of
from failback.analytics.live.queues import lineage
from failback.protocol.clients import Connection, ConsumerConnection
from tests.unit.analytics.live.brute_force import asked_anew

KEY = GroupTopic("g", "T")
RETRY = GroupTopic("g", "%RETRY%g")
GUARDED = {"failbackGuardReturnedOffsets": "true"}
BOOT_MS, NOW = 1_000_000, 2_000.0
FILE = {"T@g": {0: 40, 1: 90}, "%RETRY%g@g": {0: 3}}
SLAVE = {"T@g": {0: 100, 1: 95}, "%RETRY%g@g": {0: 5}}
FIRST = {"T@g": {0: 100, 1: 100}, "%RETRY%g@g": {0: 5}}
LATER = {"T@g": {0: 150, 1: 120}, "%RETRY%g@g": {0: 6}}
ENDS = {"T": {0: 400, 1: 400}, "%RETRY%g": {0: 6}}
BEGINS = {"T": {0: 0, 1: 0}, "%RETRY%g": {0: 0}}
RATE = (50 + 20 + 1) / 10
Offsets = Mapping[str, Mapping[int, int]]


def exported(config: Mapping[str, str]) -> float:
    """The exporter's sample after two surveys."""

    def answers(bid: int, offsets: Offsets) -> BrokerAnswers:
        return BrokerAnswers(
            "c", "b", bid, f"h:{bid}", True, {"bootTimestamp": str(BOOT_MS)}, config, offsets,
            ENDS if bid == 0 else {},
            {"g": ConsumerConnection([Connection("one", "h:5")], message_model="CLUSTERING")},
            begins=BEGINS,
        )  # fmt: skip

    history = History()
    for at, offsets in ((0.0, FIRST), (10.0, LATER)):
        survey = Survey(at, NOW, 0.1, {}, (answers(0, offsets), answers(1, SLAVE)))
        history.look(survey)
    files = {("b", 0): OffsetFile("f", table_of(FILE), 2.0)}
    (metric,) = (
        each
        for each in figures_of(survey, history, offset_files=files).families()
        if each.name == families.EXPOSURE.name
    )
    (sample,) = metric.samples
    return sample.value


def shown(config: Mapping[str, str]) -> int:
    """What the Fleet page says."""
    members = tuple(MemberRef(f"b-{bid}", "b", f"h:{bid}", bid) for bid in (0, 1))
    cluster = ClusterRef("c", "c", "local", "here", "failback", (), (PairRef("b", members),))
    seen = {
        member.address: BrokerSeen(
            member.address, bid, True, BOOT_MS, config, member=member, at=NOW,
            offsets=table_of(offsets), ends=ENDS, begins=BEGINS, consumers=Consumers({"g": 1}),
            file=OffsetFile("f", table_of(FILE), 2.0) if bid == 0 else None,
        )
        for bid, (member, offsets) in enumerate(zip(members, (LATER, SLAVE), strict=True))
    }  # fmt: skip
    rates = {("c", "b"): {KEY: 7.0, RETRY: 0.1}}
    (pair,) = cluster_document(cluster, seen, rates, NOW)["pairs"]
    (row,) = pair["groups"]
    assert row["most"] == pair["exposure"]
    of_queues = offset_rows([cluster], seen)
    assert sum(each["at_risk"] for each in of_queues) == 110 + 30
    assert sum(each["at_risk_on_slave"] for each in of_queues) == 50 + 25
    most: int = row["most"]
    return most


def facts_of(config: Mapping[str, str]) -> PairFacts:
    file = OffsetFile("f", table_of(FILE), 2.0)
    return PairFacts(
        "b",
        (
            MemberFacts("h:0", 0, True, BOOT_MS, config, table_of(LATER), file, 2.0),
            MemberFacts("h:1", 1, True, BOOT_MS, config, table_of(SLAVE)),
        ),
        NOW,
        ENDS,
        BEGINS,
        {"g": 1},
    )


@pytest.mark.parametrize("config", [{}, GUARDED], ids=["compat", "guarded"])
def test_the_three_tools_say_one_figure(config: dict[str, str]) -> None:
    found = exposure(facts_of(config), {KEY: 7.0, RETRY: 0.1})["g"]
    assert exported(config) == pytest.approx(found.most)
    assert shown(config) == round(found.most)


def test_what_is_said_of_single_queues_adds_up_to_it() -> None:
    """``explain-offset`` is about one queue; a group at rest has nothing else at stake."""
    facts = facts_of({})
    found = exposure(facts, {KEY: 0.0, RETRY: 0.0})["g"]
    queues = [lineage(facts, key, queue) for key in (KEY, RETRY) for queue in (0, 1)]
    assert found.after_return == sum(each.after_return or 0 for each in queues)
    assert found.on_slave == sum(each.on_slave or 0 for each in queues)
    assert found.measured


def test_the_guard_hands_back_what_the_slave_knows() -> None:
    still = {KEY: 0.0, RETRY: 0.0}
    compat, guarded = (exposure(facts_of(each), still)["g"] for each in ({}, GUARDED))
    assert (compat.after_return, compat.on_slave) == (110 + 30 + 3, 50 + 25 + 1)
    assert guarded.after_return == guarded.on_slave == compat.on_slave


def test_a_group_at_rest_repeats_what_a_consumer_started_anew_is_told() -> None:
    """Message by message: the positions that the broker that answers would hand out."""
    facts = facts_of({})
    found = exposure(facts, {KEY: 0.0, RETRY: 0.0})["g"]
    assert found.after_return == asked_anew(LATER, FILE)
    assert found.on_slave == asked_anew(LATER, SLAVE)


def test_a_system_group_is_nobodys() -> None:
    rates = {GroupTopic("CID_RMQ_SYS_TRANS", "T"): 5.0, GroupTopic("g", "%DLQ%g"): 1.0}
    assert exposure(facts_of({}), rates) == {}


def test_without_an_answering_master_there_is_nothing_to_kill() -> None:
    slave = PairFacts("b", facts_of({}).members[1:], NOW)
    assert exposure(slave, {KEY: 7.0}) == {}


def test_what_the_masters_table_lacks_is_at_risk_where_its_file_cannot_be_read() -> None:
    """A returned master knows less than its slave: the file has no more than its table."""
    behind = MemberFacts("h:0", 0, True, BOOT_MS, {}, table_of(SLAVE), None, 2.0)
    ahead = MemberFacts("h:1", 1, True, BOOT_MS, {}, table_of(LATER))
    facts = PairFacts("b", (behind, ahead), NOW, ENDS, BEGINS, {"g": 1})
    at_rest = exposure(facts, {KEY: 0.0, RETRY: 0.0})["g"]
    assert (at_rest.after_return, at_rest.measured) == (50 + 25 + 1, False)
    level = MemberFacts("h:0", 0, True, BOOT_MS, {}, table_of(LATER), None, 2.0)
    even = PairFacts("b", (level, ahead), NOW, ENDS, BEGINS, {"g": 1})
    moving = {KEY: 7.0, RETRY: 0.0}
    more = exposure(facts, moving)["g"].after_return - exposure(even, moving)["g"].after_return
    assert more == pytest.approx(50 + 25 + 1), "beside the rate for the age of the file"
