"""A figure is shown only of what it stands for: the kinds of groups and queues, in two tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import pytest

from failback.analytics.dashboard.sources.brokers import BrokerSeen, Consumers
from failback.analytics.dashboard.sources.clusters import ClusterRef, MemberRef, PairRef
from failback.analytics.dashboard.views.fleet import cluster_document
from failback.analytics.dashboard.views.offset_health import offset_rows
from failback.analytics.exporter.figures import figures_of
from failback.analytics.exporter.pair_history import History
from failback.analytics.exporter.survey import BrokerAnswers, Survey
from failback.analytics.live.facts import OffsetFile, table_of
from failback.protocol.clients import Connection, ConsumerConnection

pytestmark = pytest.mark.foreign
NOW = 1_800_000_000.0
GROUP, TOPIC = "billing", "orders"
OF_GROUPS = (
    "rocketmq_consumer_lag_messages",
    "rocketmq_message_accumulation",
    "rocketmq_group_diff",
    "rocketmq_group_retrydiff",
    "rocketmq_group_get_latency_by_storetime",
    "rocketmq_reconsume_exposure_messages",
    "rocketmq_consumer_offset",
    "rocketmq_consumer_expired_messages",
    "rocketmq_consumer_beyond_end_messages",
    "rocketmq_slave_offset_divergence_messages",
)
Offsets = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True)
class World:
    """One pair at one instant, as every tool may ask it."""

    offsets: Offsets
    slave: Offsets | None = None
    file: Offsets | None = None
    ends: Mapping[str, Mapping[int, int]] | None = None
    begins: Mapping[str, Mapping[int, int]] | None = None
    model: Literal["CLUSTERING", "BROADCASTING"] | None = "CLUSTERING"
    """``None``: nobody is connected."""
    settings: frozenset[str] = frozenset({GROUP})
    latency_ms: float | None = None
    is_up: bool = True

    @property
    def connected(self) -> dict[str, ConsumerConnection]:
        if self.model is None:
            return {}
        member = Connection("c1", "h:5")
        return {GROUP: ConsumerConnection([member], {}, message_model=self.model)}

    @property
    def broadcasting(self) -> frozenset[str]:
        return frozenset({GROUP} if self.model == "BROADCASTING" else ())

    def answers(self) -> tuple[BrokerAnswers, ...]:
        boot = {"bootTimestamp": "1000000"}
        if not self.is_up:
            return (BrokerAnswers("c", "b", 0, "h:0"),)
        latencies = {} if self.latency_ms is None else {(TOPIC, GROUP): self.latency_ms}
        master = BrokerAnswers(
            "c", "b", 0, "h:0", True, boot, {}, self.offsets, self.ends or ENDS,
            self.connected, latencies_ms=latencies, begins=self.begins or {},
            settings=self.settings,
        )  # fmt: skip
        if self.slave is None:
            return (master,)
        return master, BrokerAnswers("c", "b", 1, "h:1", True, boot, {}, self.slave)


ENDS = {TOPIC: {0: 40, 1: 40}, f"%RETRY%{GROUP}": {0: 7}, f"%DLQ%{GROUP}": {0: 2}}
USUAL = World({f"{TOPIC}@{GROUP}": {0: 30, 1: 40}})


def exported(*worlds: World) -> dict[str, float]:
    """The sum of each family of groups, of those that have a sample about the group."""
    history = History()
    survey = Survey(0, NOW, 0.1, {}, ())
    for number, world in enumerate(worlds):
        survey = Survey(10.0 * number, NOW + 10 * number, 0.1, {}, world.answers())
        history.look(survey)
    found: dict[str, float] = {}
    for metric in figures_of(survey, history).families():
        for sample in metric.samples:
            text = " ".join(sample.labels.values())
            if GROUP in text and sample.name in OF_GROUPS:
                found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def everything_about_the_group(*worlds: World) -> list[str]:
    history = History()
    survey = Survey(0, NOW, 0.1, {}, ())
    for number, world in enumerate(worlds):
        survey = Survey(10.0 * number, NOW + 10 * number, 0.1, {}, world.answers())
        history.look(survey)
    return [
        sample.name
        for metric in figures_of(survey, history).families()
        for sample in metric.samples
        if GROUP in " ".join(sample.labels.values())
    ]


CLUSTER = ClusterRef(
    "c", "c", "local", "here", "failback", (),
    (PairRef("b", tuple(MemberRef(f"b-{bid}", "b", f"h:{bid}", bid) for bid in (0, 1))),),
)  # fmt: skip


def seen(world: World, deleted: frozenset[str] = frozenset()) -> dict[str, BrokerSeen]:
    ends = {topic: ends for topic, ends in (world.ends or ENDS).items() if "%" not in topic}
    master = BrokerSeen(
        "h:0", 0, True, 1_000_000, member=CLUSTER.members[0], at=NOW,
        offsets=table_of(world.offsets), ends=ends, begins=world.begins or {},
        file=None if world.file is None else OffsetFile("f", table_of(world.file), 2.0),
        consumers=Consumers({GROUP: 1} if world.model else {}, world.broadcasting, deleted=deleted),
    )  # fmt: skip
    slave = BrokerSeen(
        "h:1", 1, True, 1_000_000, member=CLUSTER.members[1], at=NOW,
        offsets=table_of(world.slave if world.slave is not None else world.offsets),
    )  # fmt: skip
    return {"h:0": master, "h:1": slave}


def shown(world: World, deleted: frozenset[str] = frozenset()) -> list[dict[str, object]]:
    """Rows of groups on the fleet's page."""
    rates = {("c", "b"): dict.fromkeys(table_of(world.offsets), 10.0)}
    (pair,) = cluster_document(CLUSTER, seen(world, deleted), rates, NOW)["pairs"]
    rows: list[dict[str, object]] = pair["groups"]
    return rows


def test_a_usual_group_has_its_figures() -> None:
    found = exported(USUAL)
    assert found["rocketmq_consumer_lag_messages"] == 10
    assert found["rocketmq_consumer_offset"] == 70
    assert shown(USUAL)[0]["lag"] == 10
    assert shown(USUAL)[0]["broadcasting"] is False


# --- groups that broadcast ------------------------------------------------------------------------


@pytest.mark.parametrize("later", [None, replace(USUAL, model=None)], ids=["online", "all left"])
def test_a_group_that_broadcasts_has_no_figure_of_old_offsets(later: World | None) -> None:
    old = World(
        {f"{TOPIC}@{GROUP}": {0: 5, 1: 5}, f"%RETRY%{GROUP}@{GROUP}": {0: 1}},
        slave={f"{TOPIC}@{GROUP}": {0: 9}},
        model="BROADCASTING",
        latency_ms=956.0,
    )
    worlds = [old] if later is None else [old, replace(later, offsets=old.offsets)]
    assert exported(*worlds) == {}, "also while no member is online"
    (row,) = shown(old)
    assert row["broadcasting"] is True
    assert [row[name] for name in ("lag", "rate", "after_return", "on_slave", "most")] == [None] * 5
    assert offset_rows([CLUSTER], seen(old)) == []


def test_a_group_that_shares_messages_again_has_its_figures_again() -> None:
    found = exported(replace(USUAL, model="BROADCASTING"), USUAL)
    assert found["rocketmq_consumer_lag_messages"] == 10


# --- groups that were deleted ---------------------------------------------------------------------

GONE = replace(USUAL, model=None, settings=frozenset())


@pytest.mark.parametrize("offsets", [{}, USUAL.offsets], ids=["offsets gone", "offsets kept"])
def test_of_a_deleted_group_nothing_is_left(offsets: Offsets) -> None:
    fell = replace(USUAL, offsets={f"{TOPIC}@{GROUP}": {0: 20, 1: 40}})
    after = replace(GONE, offsets=offsets, slave=USUAL.offsets)
    assert "rocketmq_offset_regressions_total" in everything_about_the_group(USUAL, fell)
    assert everything_about_the_group(USUAL, fell, after) == [], "with the next survey"
    assert shown(replace(after, offsets=offsets), frozenset({GROUP})) == []
    assert offset_rows([CLUSTER], seen(after, frozenset({GROUP}))) == []


def test_a_group_that_a_tool_gave_offsets_before_it_ran_is_not_deleted() -> None:
    assert exported(GONE)["rocketmq_consumer_lag_messages"] == 10


def test_a_group_that_is_back_has_its_figures_again() -> None:
    assert exported(USUAL, GONE, USUAL)["rocketmq_consumer_lag_messages"] == 10


# --- new groups, brokers that are gone ------------------------------------------------------------


def test_a_group_without_an_offset_has_no_figure() -> None:
    new = replace(USUAL, offsets={})
    assert exported(new) == {}
    assert shown(new) == []


def test_of_a_broker_that_is_gone_no_figure_stays_at_its_last_value() -> None:
    assert exported(USUAL, replace(USUAL, is_up=False)) == {}
    silent = seen(USUAL)
    silent["h:0"] = replace(silent["h:0"], answered=False)
    (pair,) = cluster_document(CLUSTER, silent, {("c", "b"): {}}, NOW)["pairs"]
    assert [(row["lag"], row["most"]) for row in pair["groups"]] == [(None, None)]


# --- expired queues, offsets beyond the end -------------------------------------------------------


@dataclass(frozen=True)
class Outside:
    offset: int
    begin: int
    lag: int
    expired: float | None
    beyond: float | None
    safe: int
    state: str


OUTSIDE = {
    "within": Outside(25, 20, 15, None, None, 25, "equal"),
    "all consumed": Outside(40, 20, 0, None, None, 40, "equal"),
    "expired": Outside(5, 20, 20, 15, None, 20, "expired"),
    "never committed": Outside(-1, 20, 20, 20, None, 20, "expired"),
    "all has expired": Outside(5, 40, 0, 35, None, 40, "expired"),
    "beyond": Outside(5000, 20, 0, None, 4960, 40, "beyond the end"),
    "beyond by one": Outside(41, 0, 0, None, 1, 40, "beyond the end"),
}


@pytest.mark.parametrize("case", OUTSIDE.values(), ids=OUTSIDE)
def test_lag_counts_what_is_stored_and_the_rest_is_said(case: Outside) -> None:
    world = World(
        {f"{TOPIC}@{GROUP}": {0: case.offset}},
        ends={TOPIC: {0: 40}},
        begins={TOPIC: {0: case.begin}},
    )
    found = exported(world)
    assert found["rocketmq_consumer_lag_messages"] == case.lag
    assert found["rocketmq_message_accumulation"] == case.lag
    assert found.get("rocketmq_consumer_expired_messages") == case.expired
    assert found.get("rocketmq_consumer_beyond_end_messages") == case.beyond
    assert shown(world)[0]["lag"] == case.lag
    (row,) = offset_rows([CLUSTER], seen(world))
    assert (row["lag"], row["safe_offset"], row["state"]) == (case.lag, case.safe, case.state)
    assert bool(row["outside"]) is (not case.begin <= case.offset <= 40)
    if case.beyond:
        assert f"--offset {case.safe}" in row["command"]


@pytest.mark.parametrize("offset", [5, 25, 5000])
def test_what_would_come_again_is_what_is_stored(offset: int) -> None:
    """File and slave know nothing done: all that is stored below the offset would repeat."""
    world = World(
        {f"{TOPIC}@{GROUP}": {0: offset}}, slave={}, file={f"{TOPIC}@{GROUP}": {0: 0}},
        ends={TOPIC: {0: 40}}, begins={TOPIC: {0: 20}},
    )  # fmt: skip
    (row,) = offset_rows([CLUSTER], seen(world))
    stored = {5: 0, 25: 5, 5000: 20}[offset]
    assert (row["at_risk"], row["at_risk_on_slave"]) == (stored, stored)
    still = {("c", "b"): dict.fromkeys(table_of(world.offsets), 0.0)}
    (pair,) = cluster_document(CLUSTER, seen(world), still, NOW)["pairs"]
    assert pair["exposure"] == stored


# --- queues and topics that are no more -----------------------------------------------------------


def test_of_a_queue_that_is_no_more_nothing_is_recommended() -> None:
    """The topic was given fewer queues; the table still has the offset of the third."""
    world = World({f"{TOPIC}@{GROUP}": {0: 30, 2: 7}}, slave={f"{TOPIC}@{GROUP}": {0: 30, 2: 9}})
    assert exported(world)["rocketmq_consumer_lag_messages"] == 10
    rows = {row["qid"]: row for row in offset_rows([CLUSTER], seen(world))}
    assert rows[0]["state"] == "equal"
    row = rows[2]
    assert (row["state"], row["safe_offset"], row["command"]) == ("no such queue", None, None)
    assert (row["ahead"], row["lag"], row["at_risk_on_slave"]) == (0, None, None)
    assert row["outside"] == ["there is no such queue any more"]


def test_of_a_topic_that_was_deleted_there_is_no_lag() -> None:
    world = replace(USUAL, offsets={**USUAL.offsets, f"gone@{GROUP}": {0: 5}})
    history = History()
    survey = Survey(0.0, NOW, 0.1, {}, world.answers())
    history.look(survey)
    topics = {
        sample.labels["topic"]
        for metric in figures_of(survey, history).families()
        for sample in metric.samples
        if sample.name == "rocketmq_consumer_lag_messages"
    }
    assert topics == {TOPIC}
