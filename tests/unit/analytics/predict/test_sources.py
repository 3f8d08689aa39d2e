"""Settings and faults from an experiment's workload, a run.json and a broker.conf."""

from __future__ import annotations

from typing import Any

import pytest

from failback.analytics.predict.faults import Start, Stop
from failback.analytics.predict.settings import Settings
from failback.analytics.predict.sources import (
    kill_seconds,
    plan_of,
    with_broker_config,
    with_system,
    with_workload,
)
from failback.protocol.errors import ConfigError

KILL: dict[str, Any] = {
    "id": "f1",
    "fault": "kill",
    "at": 6.0,
    "target": {"pair": "demo-0", "role": "master"},
    "with": {"downSeconds": 50},
}


def workload(**topic: Any) -> dict[str, Any]:
    return {
        "topics": [{"name": "orders", "queues": 4, "ratePerSecond": 40.0, **topic}],
        "groups": [
            {
                "name": "billing",
                "topic": "orders",
                "members": 2,
                "threads": 1,
                "pullThresholdForQueue": 64,
                "handler": {"meanMs": 8.0, "jitterMs": 2.0, "failRatio": 0.1},
                "start": {"spreadSeconds": 0},
            }
        ],
        "switches": {"drain_on_shutdown_ms": 30_000, "persist_offset_interval_ms": 2_000},
    }


def consumer_fault(at: float = 0.0, **with_: Any) -> dict[str, Any]:
    return {
        "id": "f2",
        "fault": "kill-consumer",
        "at": at,
        "target": {"group": "billing"},
        "with": with_,
    }


def test_a_workload_gives_rates_sizes_and_client_settings() -> None:
    found = with_workload(Settings(), workload(), "billing", uptime_seconds=20)
    assert (found.rate, found.queues, found.members) == (40, 4, 2)
    assert found.most_rate == 250  # two members, one thread each, 8 ms
    assert found.bound_rate == 120  # three times what is produced: nothing waits
    assert found.await_termination == 30_000
    assert found.persist_consumer_offset_interval == 2_000
    assert found.retry_rate == pytest.approx(4)
    assert found.client_uptime_seconds == 20
    assert found.backlog == 0


def test_a_preloaded_backlog_shrinks_until_the_kill_and_its_worst_case_grows() -> None:
    given = workload(preloadMessages=6_000)
    found = with_workload(
        Settings(time_scale=0.1), given, "billing", uptime_seconds=20, longest_uptime_seconds=80
    )
    assert found.backlog == 600 + (40 - 250) * 2
    assert found.backlog_most == 600 + 40 * 8
    assert found.consume_rate == 250
    assert found.bound_rate == pytest.approx(2 * 1000 / 6)
    halved = with_workload(Settings(pairs=2), given, "billing", uptime_seconds=0)
    assert (halved.rate, halved.backlog) == (20, 3_000)


def test_a_burst_raises_the_worst_case_only() -> None:
    calm = with_workload(Settings(), workload(), "billing")
    burst = {"everySeconds": 5, "factor": 2.0}
    found = with_workload(Settings(), workload(burst=burst), "billing")
    assert (found.consume_rate, found.bound_rate) == (40, 240)
    assert calm.bound_rate == 120


def test_members_that_start_spread_have_phases_of_their_own() -> None:
    given = workload()
    given["groups"][0]["start"] = {"spreadSeconds": 30}
    assert with_workload(Settings(), given, "billing", uptime_seconds=20).client_uptime_seconds is (
        None
    )


@pytest.mark.parametrize(
    ("faults", "stop", "start", "rows"),
    [
        ([KILL], None, Start(1), "8, or 1+6+11"),
        (
            [KILL, consumer_fault(after="slave-serving:f1", minServed=1200, signal="TERM",
                                  restartAfter="registered:f1", restartAfterSeconds=5)],
            Stop("served", messages=1200, signal="TERM"),
            Start(5, after_return=True),
            "1+2+3+6",
        ),
        (
            [KILL, consumer_fault(at=20, signal="KILL", restartAfterSeconds=2)],
            Stop("outage", 14, signal="KILL"),
            Start(2),
            "5",
        ),
        (
            [KILL, consumer_fault(at=0.5, after="accept:f1", signal="KILL")],
            Stop("return", 0.5, signal="KILL"),
            Start(5),
            "1+2+3+6",
        ),
        (
            [KILL, consumer_fault(at=3, after="gone:f1", signal="TERM")],
            Stop("outage", 3, signal="TERM"),
            Start(5),
            "5",
        ),
    ],
)  # fmt: skip
def test_the_faults_of_an_arm_are_one_plan(
    faults: list[dict[str, Any]], stop: Stop | None, start: Start, rows: str
) -> None:
    plan = plan_of(faults, "billing", "spec.faults")
    assert (plan.down_seconds, plan.stop, plan.rows) == (50, stop, rows)
    assert plan.start == start
    assert kill_seconds(faults) == 6


def test_a_fault_of_another_group_leaves_consumers_running() -> None:
    assert plan_of([KILL, consumer_fault(at=9)], "shipping", "spec.faults").stop is None


def test_no_fault_and_consumers_alone() -> None:
    assert plan_of([{"id": "f0", "fault": "none"}], "billing", "spec.faults").name == "none"
    alone = plan_of([consumer_fault(signal="TERM")], "billing", "spec.faults")
    assert (alone.kills_master, alone.stop) == (False, Stop("outage", 0.0, signal="TERM"))


@pytest.mark.parametrize(
    ("faults", "told"),
    [
        ([{"id": "f1", "fault": "pause"}], 'spec.faults[0].fault: "pause" is not predicted'),
        ([KILL, {**KILL, "id": "f3"}], "more than one broker fault"),
        ([{**KILL, "target": {"role": "slave"}}], "a fault of a slave is not predicted"),
        ([KILL, consumer_fault(after="gone:f9")], "is no milestone of the broker's fault"),
        ([KILL, consumer_fault(restartAfter="slave-serving:f1")], "is not predicted"),
    ],
)
def test_what_cannot_be_predicted_is_named(faults: list[dict[str, Any]], told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        plan_of(faults, "billing", "spec.faults")
    assert told in str(refused.value)


def test_a_run_gives_intervals_topology_and_rules() -> None:
    run = {
        "engine": "apache",
        "time_scale": 0.1,
        "system": {
            "flush_interval_ms": 1000,
            "slave_sync_interval_ms": 10_000,
            "delay_flush_interval_ms": 2000,
            "client_commit_interval_ms": 3000,
            "rules": "guarded",
        },
        "topology": {"pairs": [{"members": [{}, {}]}, {"members": [{}, {}]}]},
    }
    found = with_system(Settings(), run)
    assert found.flush_consumer_offset_interval == 1000
    assert found.flush_delay_offset_interval == 2000
    assert found.persist_consumer_offset_interval == 3000
    assert (found.pairs, found.slaves, found.time_scale) == (2, 1, 0.1)
    assert found.guard_returned_offsets
    assert found.broker_start_seconds == 5
    assert found.slave_copies_offsets
    run["system"] = {"slave_copies_offsets": False}
    assert not with_system(Settings(), run).slave_copies_offsets


def test_a_broker_conf_gives_what_is_known_of_it() -> None:
    conf = {"flushConsumerOffsetInterval": "1000", "autoCreateTopicEnable": "false", "rate": "9"}
    assert with_broker_config(Settings(), conf) == Settings(flush_consumer_offset_interval=1000)


@pytest.mark.parametrize("group", ["biling", ""])
def test_an_unknown_group_is_named(group: str) -> None:
    with pytest.raises(ConfigError, match=f'spec.workload.groups: no "{group}", there is billing'):
        with_workload(Settings(), workload(), group)
