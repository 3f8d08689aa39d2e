"""What the operator says of brokers under the names of their own metrics."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from failback.operator.brokers.figures import ClusterFigures, PairFigures
from failback.operator.metrics import BrokerFigures, Metrics
from failback.operator.planning.observed.observed import Broker, MemberView, ObservedCluster

STATUS = {"pairs": [{"index": 0, "name": "demo-0", "masterMember": 0}]}
MASTER = Broker(
    "m",
    config={"brokerId": "0"},
    runtime={"bootTimestamp": "2000"},
    offsets={"T@g": {0: 100}, "T@h": {0: 4}},
)
SLAVE = Broker(
    "s", config={"brokerId": "1"}, runtime={"bootTimestamp": "3000"}, offsets={"T@g": {0: 350}}
)
GROUP = {"namespace": "shop", "cluster": "demo", "broker": "demo-0", "member": "demo-0-1"}


def observed(master: Broker, slave: Broker) -> ObservedCluster:
    members = {
        (0, number): MemberView(pair=0, ordinal=number, broker=broker)
        for number, broker in enumerate((master, slave))
    }
    return replace(ObservedCluster(at=0.0), members=members)


def shown(metrics: Metrics, name: str) -> list[tuple[dict[str, str], float]]:
    return [
        (dict(sample.labels), sample.value)
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
        if sample.name == name
    ]


def look(figures: PairFigures, slave: Broker, at: float, *, apache: bool) -> list[BrokerFigures]:
    return figures.look(ClusterFigures("demo", apache), STATUS, observed(MASTER, slave), at)


def test_the_tables_of_a_pair_are_compared_by_group() -> None:
    metrics = Metrics(version="1", kopf="1", kubernetes="1")
    brokers = look(PairFigures(), SLAVE, 10, apache=False)
    metrics.show("BrokerCluster", "shop", "demo", STATUS, brokers=brokers)
    found = shown(metrics, "rocketmq_slave_offset_divergence_messages")
    assert ({**GROUP, "consumer_group": "g", "direction": "slave_ahead"}, 250) in found
    assert ({**GROUP, "consumer_group": "h", "direction": "master_ahead"}, 4) in found
    assert shown(metrics, "rocketmq_broker_start_time_seconds") == [], "ours say it themselves"
    metrics.forget("BrokerCluster", "shop", "demo")
    assert shown(metrics, "rocketmq_slave_offset_divergence_messages") == []


def test_of_apache_start_and_age_of_the_copy_are_shown_too() -> None:
    metrics, figures = Metrics(version="1", kopf="1", kubernetes="1"), PairFigures()
    look(figures, SLAVE, 10, apache=True)
    brokers = look(figures, SLAVE, 55, apache=True)
    metrics.show("BrokerCluster", "shop", "demo", STATUS, brokers=brokers)
    starts = shown(metrics, "rocketmq_broker_start_time_seconds")
    assert [(labels["node_id"], value) for labels, value in starts] == [
        ("demo-0-0", 2.0),
        ("demo-0-1", 3.0),
    ]
    ((labels, age),) = shown(metrics, "rocketmq_slave_metadata_sync_age_seconds")
    assert (labels["node_id"], labels["broker"], age) == ("demo-0-1", "demo-0", 45.0)
    copied = replace(SLAVE, offsets=MASTER.offsets)
    assert look(figures, copied, 60, apache=True)[1].sync_age_seconds == 0


def test_a_run_is_active_while_its_experiment_has_an_arm() -> None:
    metrics = Metrics(version="1", kopf="1", kubernetes="1")
    status = {"activeArm": "stay", "activeRepetition": 2}
    metrics.show("ChaosExperiment", "shop", "kill", status, cluster="demo")
    assert shown(metrics, "failback_run_active") == [
        (
            {
                "namespace": "shop",
                "run": "kill-stay-2",
                "experiment": "kill",
                "cluster": "demo",
            },
            1,
        )
    ]
    metrics.show("ChaosExperiment", "shop", "kill", {"phase": "Completed"}, cluster="demo")
    assert shown(metrics, "failback_run_active") == []


def test_a_silent_slave_is_where_it_was_last_seen() -> None:
    figures, member = PairFigures(), (0, 1)
    master, ahead = replace(MASTER, end=1000), replace(MASTER, end=9000)
    assert figures.lag_bytes(member, master, None) is None, "it was never seen"
    assert figures.lag_bytes(member, master, replace(SLAVE, end=900)) == 100
    assert figures.lag_bytes(member, ahead, SLAVE) == 8100
    assert figures.lag_bytes(member, ahead, None) == 8100
    assert figures.lag_bytes(member, None, replace(SLAVE, end=950)) is None
    assert figures.lag_bytes(member, ahead, None) == 8050
    assert figures.lag_bytes((1, 1), ahead, None) is None, "another slave"


@pytest.mark.parametrize(("prefix", "value"), [("Diverged", 1), ("Verified", 0)])
def test_a_slave_that_waits_because_of_its_log_is_told(prefix: str, value: int) -> None:
    metrics = Metrics(version="1", kopf="1", kubernetes="1")
    members = [{"ordinal": 0}, {"ordinal": 1, "prefix": prefix}]
    status = {"pairs": [{"index": 0, "name": "demo-0", "members": members}]}
    metrics.show("BrokerCluster", "shop", "demo", status)
    place = {"namespace": "shop", "name": "demo", "pair": "0", "member": "1"}
    assert shown(metrics, "failback_operator_slave_diverged") == [(place, value)]
