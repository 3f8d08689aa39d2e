"""What surveys become: names, labels, rates, the budget, and what went back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.core import Metric

from failback.analytics.exporter import families
from failback.analytics.exporter.figures import bytes_of, figures_of
from failback.analytics.exporter.pair_history import Budget, History
from failback.analytics.exporter.survey import BrokerAnswers, MemberStatus, Survey
from failback.analytics.live.facts import OffsetFile, Table, table_of
from failback.protocol.clients import Connection, ConsumerConnection
from failback.protocol.stats import ConsumeStatus

RUNTIME = {
    "bootTimestamp": "1000000",
    "earliestMessageTimeStamp": "1000000",
    "commitLogMinOffset": "100",
    "commitLogMaxOffset": "5100",
    "dispatchBehindBytes": "7",
    "remainHowManyDataToFlush": "1.5 KiB",
    "putTps": "12.5 3.0 1.0",
    "getTransferedTps": "4.0 2.0 1.0",
    "brokerVersion": "413",
}
CONFIG = {"brokerPermission": "6", "flushConsumerOffsetInterval": "5000"}
MASTER = BrokerAnswers(
    "c",
    "b",
    0,
    "127.0.0.1:10911",
    True,
    RUNTIME,
    CONFIG,
    {"T@g": {0: 60, 1: 40}},
    {"T": {0: 100, 1: 50}, "%DLQ%g": {0: 3}, "TBW102": {0: 1}},
    {
        "g": ConsumerConnection(
            [Connection("one", "127.0.0.1:5")], {}, "CONSUME_PASSIVELY", "CLUSTERING"
        )
    },
)
SLAVE = BrokerAnswers("c", "b", 1, "127.0.0.1:10921", True, RUNTIME, CONFIG, {"T@g": {0: 60}})

Values = dict[str, dict[tuple[str, ...], float]]


def survey(at: float, *brokers: BrokerAnswers) -> Survey:
    return Survey(at, 1000.0 + at, 0.1, {"127.0.0.1:9876": True}, brokers)


def values(metrics: Iterable[Metric]) -> Values:
    """Return name to label values, in the order of the family's labels, to value."""
    by_name = {family.name: family for family in families.ALL}
    found: Values = {}
    for metric in metrics:
        for sample in metric.samples:
            labels = by_name[sample.name].labels
            assert set(sample.labels) == set(labels), sample.name
            found.setdefault(sample.name, {})[tuple(sample.labels[each] for each in labels)] = (
                sample.value
            )
    return found


def shown(*surveys: Survey, **options: Any) -> Values:
    history = History()
    for each in surveys:
        history.look(each)
    return values(figures_of(surveys[-1], history, **options).families())


def test_one_survey_shows_what_needs_no_second() -> None:
    found = shown(survey(0, MASTER, SLAVE))
    node = ("c", "master", "b-0")
    assert found["failback_exporter_up"][(*node, "127.0.0.1:10911")] == 1
    assert found["rocketmq_broker_start_time_seconds"][(*node, "b")] == 1000
    assert found["rocketmq_storage_size"][node] == 5000
    assert found["rocketmq_storage_flush_behind_bytes"][node] == 1536
    assert found["rocketmq_broker_permission"][node] == 6
    assert found["rocketmq_broker_tps"][("c", "127.0.0.1:10911", "b")] == 12.5
    assert found["rocketmq_producer_offset"][("c", "b", "T")] == 150
    assert found["rocketmq_topic_dlq_offset"][("c", "b", "g")] == 3
    assert found["rocketmq_consumer_offset"][("c", "b", "T", "g")] == 100
    assert found["rocketmq_message_accumulation"][("c", "b", "T", "g")] == 50
    assert found["rocketmq_group_diff"][("c", "g", "T", "1", "CLUSTERING")] == 50
    assert found["rocketmq_consumer_lag_messages"][(*node, "T", "g", "false", "false")] == 50
    assert found["rocketmq_messages_in_total"][(*node, "TBW102", "false", "true")] == 1
    assert found["rocketmq_brokeruntime_put_tps60"]
    directions = found["rocketmq_slave_offset_divergence_messages"]
    assert directions[("c", "b", "b-1", "g", "master_ahead")] == 40
    assert directions[("c", "b", "b-1", "g", "slave_ahead")] == 0
    assert "rocketmq_consumer_tps" not in found
    assert "rocketmq_reconsume_exposure_messages" not in found


def test_rates_and_exposure_come_with_the_second_survey() -> None:
    later = replace(
        MASTER,
        offsets={"T@g": {0: 1060, 1: 1040}},
        ends={"T": {0: 1100, 1: 1050}},
    )
    found = shown(survey(0, MASTER), survey(10, later))
    assert found["rocketmq_producer_tps"][("c", "b", "T")] == 200
    assert found["rocketmq_consumer_tps"][("c", "b", "T", "g")] == 200
    node = ("c", "master", "b-0")
    assert found["rocketmq_messages_out_total"][(*node, "T", "g", "false", "false")] == 2000
    exposed = found["rocketmq_reconsume_exposure_messages"][("c", "b", "g")]
    assert exposed > 5 * 200, "the offset file of a healthy broker is up to 5 s old"
    idle = shown(survey(0, MASTER), survey(10, MASTER))
    assert idle["rocketmq_reconsume_exposure_messages"] == {("c", "b", "g"): 0}


def test_a_file_that_can_be_read_says_what_it_lacks_and_how_old_it_is() -> None:
    def exposed(table: Table, age: float) -> Values:
        files = {("b", 0): OffsetFile("file", table, age)}
        return shown(survey(0, MASTER), survey(10, later), offset_files=files)

    ends = {"T": {0: 1060, 1: 1040}}
    later = replace(MASTER, offsets={"T@g": {0: 1060, 1: 1040}}, ends=ends)
    few = exposed(table_of({"T@g": {0: 1060, 1: 1000}}), 60.0)
    many = exposed(table_of({"T@g": {0: 60, 1: 40}}), 0.5)
    place = ("c", "b", "g")
    exposure = "rocketmq_reconsume_exposure_messages"
    assert many[exposure][place] - few[exposure][place] == 2000 - 40
    assert many["rocketmq_offset_persist_age_seconds"] == {("c", "master", "b-0", "b"): 0.5}


def test_a_master_that_was_restarted_lost_offsets() -> None:
    back = replace(
        MASTER, runtime={**RUNTIME, "bootTimestamp": "2000000"}, offsets={"T@g": {0: 20, 1: 40}}
    )
    found = shown(survey(0, MASTER), survey(10, back))
    labels = ("c", "b", "master", "g", "T", "restart")
    assert found["rocketmq_offset_regressions_total"] == {labels: 1}
    assert found["rocketmq_offset_regression_messages_total"] == {labels: 40}


def test_a_broker_that_is_silent_or_no_longer_listed_is_down() -> None:
    silent = BrokerAnswers("c", "b", 0, MASTER.address)
    label = ("c", "master", "b-0", MASTER.address)
    assert shown(survey(0, silent))["failback_exporter_up"] == {label: 0}
    gone = shown(survey(0, MASTER), survey(10, SLAVE))["failback_exporter_up"]
    assert gone[label] == 0
    assert gone[("c", "slave", "b-1", SLAVE.address)] == 1
    forgotten = shown(survey(0, MASTER), survey(4000, SLAVE))["failback_exporter_up"]
    assert label not in forgotten


KNOWN = replace(MASTER, settings=frozenset({"g"}), topics=frozenset({"T"}))
REGRESSIONS = "rocketmq_offset_regressions_total"


def test_what_went_back_is_shown_as_long_as_broker_topic_and_group_are_there() -> None:
    lower = replace(KNOWN, offsets={"T@g": {0: 20, 1: 40}})
    went_back = (survey(0, KNOWN), survey(10, lower))
    assert REGRESSIONS in shown(*went_back, survey(20, lower))
    for gone in (
        replace(lower, topics=frozenset()),
        replace(lower, settings=frozenset(), groups={}),
    ):
        assert REGRESSIONS not in shown(*went_back, survey(20, gone))
    again = {**RUNTIME, "bootTimestamp": "2000000"}
    without_group = replace(lower, settings=frozenset(), groups={})
    empty = replace(without_group, topics=frozenset(), runtime=again)
    assert REGRESSIONS in shown(*went_back, survey(20, empty)), "its disk was lost, nothing deleted"
    later = replace(without_group, runtime=again)
    still_deleted = shown(survey(0, KNOWN), survey(10, without_group), survey(20, later))
    assert "rocketmq_consumer_lag_messages" not in still_deleted
    assert REGRESSIONS in shown(*went_back, survey(3000, SLAVE))
    assert REGRESSIONS not in shown(*went_back, survey(4000, SLAVE))


def test_a_slave_without_tables_says_of_no_group_that_it_is_deleted() -> None:
    lower = replace(KNOWN, offsets={"T@g": {0: 20, 1: 40}})
    silent = BrokerAnswers("c", "b", 0, MASTER.address)
    new = replace(SLAVE, offsets={}, ends={"TBW102": {0: 1}}, settings=frozenset(),
                  topics=frozenset({"TBW102"}))  # fmt: skip
    back = shown(survey(0, KNOWN), survey(10, lower), survey(20, silent, new), survey(30, lower))
    assert REGRESSIONS in back
    acting = replace(SLAVE, ends=MASTER.ends, settings=frozenset(), topics=frozenset({"T"}))
    away = shown(survey(0, KNOWN), survey(10, silent, acting))
    assert ("c", "b", "T", "g") in away["rocketmq_consumer_offset"]


def test_a_slave_that_stands_still_is_old() -> None:
    moved = replace(MASTER, offsets={"T@g": {0: 90, 1: 40}})
    found = shown(survey(0, MASTER, SLAVE), survey(60, moved, SLAVE))
    assert found["rocketmq_slave_metadata_sync_age_seconds"] == {("c", "slave", "b-1", "b"): 60}


def test_queues_are_shown_of_named_topics_only() -> None:
    assert "rocketmq_consumer_queue_lag_messages" not in shown(survey(0, MASTER))
    found = shown(survey(0, MASTER), queue_topics={"T"})
    assert found["rocketmq_consumer_queue_lag_messages"] == {
        ("c", "b", "T", "g", "0"): 40,
        ("c", "b", "T", "g", "1"): 10,
    }


@pytest.mark.full
def test_a_thousand_topics_and_a_hundred_groups_keep_to_the_budget() -> None:
    topics = [f"T{number}" for number in range(1000)]
    large = replace(
        MASTER,
        offsets={f"{topic}@g{group}": {0: 1} for topic in topics for group in range(100)},
        ends={topic: {0: 3} for topic in topics},
        groups={},
    )
    found = shown(survey(0, large))
    for name, rows in found.items():
        assert len(rows) <= 201, name
    lags = found["rocketmq_consumer_lag_messages"]
    assert sum(lags.values()) == 2 * 100 * 1000, "what has no line of its own is in other"


def test_places_stay_where_they_are() -> None:
    budget = Budget(most=2)
    assert [budget.place("k", "c", (name, "g")) for name in ("A", "B", "C", "A")] == [
        ("A", "g"),
        ("B", "g"),
        ("other", "other"),
        ("A", "g"),
    ]
    assert budget.place("k", "c", ("D", "")) == ("other", "")
    assert budget.place("k", "other cluster", ("D", "")) == ("D", "")


def test_a_name_that_is_gone_makes_room_for_another() -> None:
    budget = Budget(most=2)
    a, b, c = (("T", name) for name in "abc")
    for at, asked in ((0.0, (a, b)), (3000.0, (a,)), (3700.0, (a,))):
        budget.look(at)
        assert [budget.place("group", "c", place) for place in asked] == list(asked)
    assert (budget.has("group", "c", b), budget.has("group", "c", a)) == (False, True)
    assert [budget.place("group", "c", place) for place in (c, b)] == [c, ("other", "other")]


@pytest.mark.parametrize(
    ("text", "size"),
    [("12 B", 12), ("58.5 GiB", 58.5 * 2**30), ("1.0 KiB", 1024), ("", None), ("much", None)],
)
def test_sizes_as_brokers_word_them(text: str, size: float | None) -> None:
    assert bytes_of(text) == size


def test_how_late_a_group_is_is_known_where_it_was_asked_or_nothing_waits() -> None:
    behind = replace(MASTER, latencies_ms={("T", "g"): 1500.0})
    name, place = "rocketmq_group_get_latency_by_storetime", ("c", "b", "T", "g")
    assert shown(survey(0, behind))[name] == {place: 1500}
    done = replace(MASTER, offsets={"T@g": {0: 100, 1: 50}})
    assert shown(survey(0, done))[name] == {place: 0}
    assert name not in shown(survey(0, MASTER)), "behind, and nobody was asked"


def test_counters_of_the_broker_and_its_producers_are_shown() -> None:
    rates = {
        ("TOPIC_PUT_SIZE", "T"): 2048.0,
        ("GROUP_GET_SIZE", "T@g"): 1024.0,
        ("SNDBCK_PUT_NUMS", "T@g"): 0.5,
        ("GROUP_GET_LATENCY", "1@T@g"): 0.25,
        ("GROUP_GET_SIZE", "T@stranger"): 9.0,
    }
    found = shown(survey(0, replace(MASTER, rates=rates, producers={"p": 2, "q": 1})))
    place = ("c", "b", "T", "g")
    assert found["rocketmq_producer_message_size"] == {("c", "b", "T"): 2048}
    assert found["rocketmq_consumer_message_size"] == {place: 1024}
    assert found["rocketmq_send_back_nums"] == {place: 0.5}
    assert found["rocketmq_group_get_latency"] == {(*place, "1"): 0.25}
    assert found["rocketmq_producer_count"] == {("c", "b", "p"): 2, ("c", "b", "q"): 1}
    assert found["rocketmq_producer_connections"] == {("c", "master", "b-0"): 3}
    assert "rocketmq_producer_connections" not in shown(survey(0, MASTER)), "it does not tell"


def test_sizes_and_classes_of_times_are_read_from_texts() -> None:
    runtime = {
        **RUNTIME,
        "commitLogDirCapacity": "Total : 2.0 GiB, Free : 512.0 MiB.",
        "putMessageDistributeTime": "[<=0ms]:7 [0~10ms]:3 [10s~]:1",
    }
    found = shown(survey(0, replace(MASTER, runtime=runtime)))
    values = {
        name.removeprefix("rocketmq_brokeruntime_"): next(iter(rows.values()))
        for name, rows in found.items()
        if name.startswith("rocketmq_brokeruntime_")
    }
    assert values["commitlogdir_capacity_total"] == 2 << 30
    assert values["commitlogdir_capacity_free"] == 512 << 20
    assert values["remain_howmanydata_toflush"] == 1536
    assert values["commitlog_maxoffset"] == 5100
    assert [values[f"pmdt_{part}"] for part in ("0ms", "0to10ms", "10stomore")] == [7, 3, 1]
    assert "pmdt_1to2s" not in values


@pytest.mark.foreign
@pytest.mark.parametrize("offset", [101, 5000, 2**63 - 1])
def test_nothing_was_consumed_beyond_the_end_of_a_queue(offset: int) -> None:
    beyond = replace(MASTER, offsets={"T@g": {0: offset, 1: 40}})
    found = shown(survey(0, MASTER), survey(10, beyond), survey(20, MASTER), survey(30, beyond))
    node = ("c", "master", "b-0")
    assert found["rocketmq_messages_out_total"][(*node, "T", "g", "false", "false")] == 2 * 40
    assert found["rocketmq_consumer_offset"][("c", "b", "T", "g")] == float(offset + 40), "as it is"


@pytest.mark.foreign
def test_what_another_member_knows_was_not_consumed_meanwhile() -> None:
    """The slave acts for its pair with older copies, then the master comes back."""
    away = replace(MASTER, up=False, offsets=None, ends={}, groups={})
    acting = replace(SLAVE, offsets={"T@g": {0: 50, 1: 40}}, ends={"T": {0: 90, 1: 50}})
    surveys = [survey(0, MASTER, SLAVE), survey(10, away, acting), survey(20, MASTER, SLAVE)]
    found = shown(*surveys, *(survey(at, MASTER, SLAVE) for at in (30, 40, 50)))
    node = ("c", "master", "b-0")
    assert found["rocketmq_messages_out_total"][(*node, "T", "g", "false", "false")] == 0
    assert found["rocketmq_consumer_tps"][("c", "b", "T", "g")] == 0
    assert found["rocketmq_producer_tps"][("c", "b", "T")] == 0


def test_a_dead_letter_queue_that_is_consumed_has_a_diff_of_its_own() -> None:
    found = shown(survey(0, replace(MASTER, offsets={"%DLQ%g@g": {0: 1}})))
    row = ("c", "g", "%DLQ%g", "1", "CLUSTERING")
    assert found["rocketmq_group_dlqdiff"] == {row: 2}
    assert "rocketmq_group_diff" not in found


def test_two_clusters_at_one_name_server_are_never_added_up() -> None:
    """The same pair, group, topic and client are in both."""
    client = MemberStatus("g", "T", "one", "127.0.0.1:5", ConsumeStatus(consume_failed_msgs=3))
    one = replace(MASTER, cluster="c1", members=[client])
    two = replace(one, cluster="c2", offsets={"T@g": {0: 60, 1: 47}})
    alone = [shown(survey(0, each)) for each in (one, two)]
    both = shown(survey(0, one, two))
    for name in ("rocketmq_group_diff", "rocketmq_client_consume_fail_msg_count"):
        assert both[name] == {**alone[0][name], **alone[1][name]}
    assert sorted(both["rocketmq_group_diff"].values()) == [43, 50]
    for family in families.ALL:
        if family.labels and family.labels[0] not in ("run", "fault", "engine", "address"):
            assert family.labels[0] == "cluster", family.name


def test_what_has_no_line_of_its_own_is_added_up() -> None:
    groups = [f"g{number}" for number in range(300)]
    many = replace(MASTER, offsets={f"T@{group}": {0: 40, 1: 50} for group in groups})
    later = replace(MASTER, offsets={f"T@{group}": {0: 90, 1: 50} for group in groups})
    found = shown(survey(0, many), survey(10, later))
    lags = found["rocketmq_consumer_lag_messages"]
    assert len(lags) == 201
    assert lags["c", "master", "b-0", "other", "other", "false", "false"] == 100 * 10
    assert sum(found["rocketmq_consumer_tps"].values()) == pytest.approx(300 * 5)
    assert sum(found["rocketmq_messages_out_total"].values()) == 300 * 50


def test_a_rate_does_not_come_and_go_with_each_commit() -> None:
    """A consumer commits 500 messages every five seconds, and there is a survey every second."""
    history, rates = History(), []
    for second in range(60):
        done = 500 * (second // 5)
        history.look(survey(second, replace(MASTER, offsets={"T@g": {0: done}})))
        rates.append(history.pairs["c", "b"].committed.per_second.get(("T", "g")))
    assert rates[0] is None
    for rate in rates[20:]:
        assert rate == pytest.approx(100, rel=0.51)
