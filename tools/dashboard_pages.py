"""The pages of Grafana: tables that tools/dashboards.py turns into files.

Only metrics that something exports have a panel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Panel:
    """One chart: queries with their legends, and the unit in Grafana's word."""

    title: str
    description: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    kind: str = "timeseries"


@dataclass(frozen=True)
class Dashboard:
    """A page of panels. ``variables`` have a name, a metric, and the label of it that they list."""

    uid: str
    title: str
    variables: tuple[tuple[str, str, str], ...]
    panels: tuple[Panel, ...]


_PAIR: Final = 'cluster=~"$cluster",broker=~"$pair"'
_NODES: Final = 'cluster=~"$cluster",node_id=~"$pair-.*"'
"""Metrics with the labels of RocketMQ 5.x have no name of the pair, only of the member."""
_MASTER: Final = f'{_PAIR},node_type="master"'
_AHEAD: Final = f'{_PAIR},direction="slave_ahead"'
_VERDICT: Final = "{{experiment}} {{arm}} {{verdict}}"
_GROUP: Final = 'consumer_group=~"$consumer_group"'
_PLACE: Final = f'topic=~"$topic",{_GROUP}'
_VARIABLES: Final = (
    ("cluster", "rocketmq_broker_start_time_seconds", "cluster"),
    ("pair", "rocketmq_broker_start_time_seconds", "broker"),
    ("topic", "rocketmq_messages_in_total", "topic"),
    ("consumer_group", "rocketmq_consumer_lag_messages", "consumer_group"),
)
_MEMBER: Final = "{{cluster}} {{node_id}}"
_NODE: Final = "{{cluster}} {{node_id}} {{node_type}}"
_OBJECT: Final = 'namespace=~"$namespace"'


def _each(metric: str, labels: str = _PAIR) -> str:
    return f"{metric}{{{labels}}}"


def _rate(metric: str, labels: str, by: str) -> str:
    return f"sum by (cluster, {by}) (rate({metric}{{{labels}}}[$__rate_interval]))"


OFFSETS: Final = Dashboard(
    "failback-offset-health",
    "Failback / Offset health",
    _VARIABLES,
    (
        Panel(
            "Overwrite countdown",
            "Seconds that are left, at most 40 (Apache 5.x: 53 more), until a slave that is "
            "ahead copies older offsets of its returned master. Empty is good.",
            (
                (
                    "clamp_min(40 - (time() - "
                    f"{_each('rocketmq_broker_start_time_seconds', _MASTER)}), 0) and "
                    "on (cluster, broker) max by (cluster, broker) ("
                    f"{_each('rocketmq_slave_offset_divergence_messages', _AHEAD)}) > 0",
                    "{{cluster}} {{broker}}",
                ),
            ),
            "s",
        ),
        Panel(
            "Slave and master differ",
            "Messages between the offset tables of a slave and its master. Slave ahead is what a "
            "returned master is about to overwrite.",
            (
                (
                    _each("rocketmq_slave_offset_divergence_messages", f"{_PAIR},{_GROUP}"),
                    "{{cluster}} {{member}} {{consumer_group}} {{direction}}",
                ),
            ),
        ),
        Panel(
            "Age of the slave's offsets",
            "Time since a slave last fetched topics, groups and offsets from its master. What was "
            "consumed since is re-consumed after a failover.",
            ((_each("rocketmq_slave_metadata_sync_age_seconds"), _NODE),),
            "s",
        ),
        Panel(
            "Age of the offset file",
            "Time since a broker wrote its consumer offsets to disk: what a kill costs.",
            ((_each("rocketmq_offset_persist_age_seconds"), _NODE),),
            "s",
        ),
        Panel(
            "Offsets that went back, by source",
            "Messages that a group would re-consume if it began now.",
            (
                (
                    _rate(
                        "rocketmq_offset_regression_messages_total",
                        f"{_PAIR},{_PLACE}",
                        "broker, consumer_group, source",
                    ),
                    "{{cluster}} {{broker}} {{consumer_group}} {{source}}",
                ),
            ),
        ),
        Panel(
            "Exposure",
            "Messages that a group would re-consume if its master were killed now.",
            (
                (
                    _each("rocketmq_reconsume_exposure_messages", f"{_PAIR},{_GROUP}"),
                    "{{cluster}} {{broker}} {{consumer_group}}",
                ),
            ),
        ),
        Panel(
            "Copies that overwrote newer offsets",
            "Synchronisations per second that made an offset of a slave smaller.",
            (
                (
                    _rate("rocketmq_slave_sync_overwrites_total", _PAIR, "node_id"),
                    _MEMBER,
                ),
            ),
        ),
        Panel(
            "Consumer lag",
            "Messages stored and not yet committed, as each broker counts them.",
            (
                (
                    _each("rocketmq_consumer_lag_messages", f"{_NODES},{_PLACE}"),
                    "{{cluster}} {{node_id}} {{consumer_group}} {{topic}}",
                ),
            ),
        ),
    ),
)

_KILLED: Final = 'cluster=~"$cluster|",broker=~"$pair"'
_BY_GROUP: Final = "sum by (cluster, consumer_group)"
_AGAIN: Final = "rocketmq_reconsumed_messages_total"
_RUNS: Final = f'cluster=~"$cluster|",{_PLACE}'
"""Run folders may not know their cluster."""


def _in_an_hour(counter: str) -> str:
    """By how much a counter of reports has grown; its first value is growth too."""
    now = f"{counter}{{{_RUNS}}}"
    return f"{now} - {now} offset 1h > 0 or {now} unless {now} offset 1h"


RECONSUMPTION: Final = Dashboard(
    "failback-reconsumption",
    "Failback / Re-consumption",
    _VARIABLES,
    (
        Panel(
            "Re-consumed, by cause",
            "Re-consumed messages that reports have found, by group of causes.",
            ((f"sum by (cluster, cause) ({_AGAIN}{{{_RUNS}}})", "{{cluster}} {{cause}}"),),
        ),
        Panel(
            "Share of all deliveries",
            "Of the same reports: repeats divided by deliveries.",
            (
                (
                    f"{_BY_GROUP} ({_AGAIN}{{{_RUNS}}}) / {_BY_GROUP} "
                    f"(failback_delivered_messages_total{{{_RUNS}}})",
                    "{{cluster}} {{consumer_group}}",
                ),
            ),
            "percentunit",
        ),
        Panel(
            "Seconds of handlers wasted",
            "What handlers spent on messages that they had handled before.",
            (
                (
                    f"{_BY_GROUP} (rocketmq_reconsume_wasted_seconds_total{{{_RUNS}}})",
                    "{{cluster}} {{consumer_group}}",
                ),
            ),
            "s",
        ),
        Panel(
            "Budget burn",
            "Repeats in reports of the last hour as a part of all deliveries in them. 14.4 times "
            "the budget of a month is an alert.",
            (
                (
                    f"{_BY_GROUP} ({_in_an_hour(_AGAIN)}) / "
                    f"{_BY_GROUP} ({_in_an_hour('failback_delivered_messages_total')})",
                    "{{cluster}} {{consumer_group}}",
                ),
            ),
            "percentunit",
        ),
        Panel(
            "Runs and faults",
            "Runs that go on, and faults that are in force.",
            (
                ("failback_run_active", "run {{run}}"),
                ("failback_fault_active", "{{fault}} {{target}}"),
            ),
            kind="state-timeline",
        ),
        Panel(
            "Verdicts",
            "Of the reports that the exporter knows.",
            (("count by (experiment, arm, verdict) (failback_run_verdict)", _VERDICT),),
        ),
        Panel(
            "Phases of a failover",
            "Seconds after the kill, mean over all reports.",
            (
                (
                    f"sum by (cluster, phase) (rocketmq_failover_phase_seconds_sum{{{_KILLED}}}) / "
                    f"sum by (cluster, phase) (rocketmq_failover_phase_seconds_count{{{_KILLED}}})",
                    "{{cluster}} {{phase}}",
                ),
            ),
            "s",
        ),
        Panel(
            "Time to report",
            "Mean over all reports, by stage.",
            (
                (
                    "sum by (engine, stage) (failback_report_seconds_sum) / "
                    "sum by (engine, stage) (failback_report_seconds_count)",
                    "{{engine}} {{stage}}",
                ),
            ),
            "s",
        ),
    ),
)

BROKERS: Final = Dashboard(
    "failback-broker-pair",
    "Failback / Broker pair",
    _VARIABLES,
    (
        Panel(
            "Messages in",
            "Messages stored per second.",
            (
                (
                    _rate(
                        "rocketmq_messages_in_total",
                        f'{_NODES},topic=~"$topic"',
                        "node_id, node_type",
                    ),
                    _NODE,
                ),
            ),
            "ops",
        ),
        Panel(
            "Messages out",
            "Messages delivered per second: to whom the slave serves reads shows here.",
            (
                (
                    _rate(
                        "rocketmq_messages_out_total", f"{_NODES},{_PLACE}", "node_id, node_type"
                    ),
                    _NODE,
                ),
            ),
            "ops",
        ),
        Panel(
            "In flight",
            "Messages handed out whose offsets are not committed yet.",
            (
                (
                    "sum by (cluster, node_id, consumer_group) (rocketmq_consumer_inflight_messages"
                    f"{{{_NODES},{_PLACE}}})",
                    "{{cluster}} {{node_id}} {{consumer_group}}",
                ),
            ),
        ),
        Panel(
            "Dead letters",
            "Messages that went to dead letter queues, per second.",
            (
                (
                    _rate(
                        "rocketmq_send_to_dlq_messages_total",
                        f"{_NODES},{_GROUP}",
                        "node_id, consumer_group",
                    ),
                    "{{cluster}} {{node_id}} {{consumer_group}}",
                ),
            ),
            "ops",
        ),
        Panel(
            "HA link",
            "Connections of a master, and whether a slave is connected.",
            (
                (_each("failback_ha_connections", _MASTER), "connections {{cluster}} {{node_id}}"),
                (_each("failback_ha_connected"), "connected {{cluster}} {{node_id}}"),
            ),
        ),
        Panel(
            "Replication stopped",
            "1 where a slave refuses its master's log because it has another.",
            ((_each("failback_ha_stopped"), _MEMBER),),
        ),
        Panel(
            "Not on disk yet",
            "Bytes of the log that are not synced.",
            ((_each("rocketmq_storage_flush_behind_bytes", _NODES), _NODE),),
            "bytes",
        ),
        Panel(
            "Not dispatched yet",
            "Bytes of the log that no consume queue shows.",
            ((_each("rocketmq_storage_dispatch_behind_bytes", _NODES), _NODE),),
            "bytes",
        ),
        Panel(
            "Log held",
            "Size of the log.",
            ((_each("rocketmq_storage_size", _NODES), _NODE),),
            "bytes",
        ),
        Panel(
            "Connections",
            "Producers and consumers by heartbeat.",
            (
                (
                    _each("rocketmq_producer_connections", _NODES),
                    f"producers {_MEMBER}",
                ),
                (
                    _each("rocketmq_consumer_connections", _NODES),
                    f"consumers {_MEMBER}",
                ),
            ),
        ),
        Panel(
            "Permission",
            "6 reads and writes, 4 reads only: a pair that drains.",
            ((_each("rocketmq_broker_permission", _NODES), _NODE),),
        ),
        Panel(
            "Uptime",
            "A master that is younger than 40 s may still overwrite the offsets of its slave.",
            ((f"time() - {_each('rocketmq_broker_start_time_seconds')}", _NODE),),
            "s",
        ),
    ),
)

INGEST: Final = Dashboard(
    "failback-ingest",
    "Failback / Ingest",
    (("run", "failback_shipper_backlog_bytes", "run"),),
    (
        Panel(
            "Segments stored",
            "Per second; code 200 is one that was known already.",
            (
                (
                    "sum by (code) (rate(failback_ingest_segments_total[$__rate_interval]))",
                    "{{code}}",
                ),
            ),
            "ops",
        ),
        Panel(
            "Bytes stored",
            "Bodies of segments, per second.",
            (("sum (rate(failback_ingest_bytes_total[$__rate_interval]))", "bytes"),),
            "Bps",
        ),
        Panel(
            "Refused",
            "Uploads refused per second; 429 is back-pressure and loses nothing.",
            (
                (
                    "sum by (code) (rate(failback_ingest_rejected_total[$__rate_interval]))",
                    "{{code}}",
                ),
            ),
            "ops",
        ),
        Panel(
            "Time to store",
            "95th percentile from a whole body to its answer.",
            (
                (
                    "histogram_quantile(0.95, sum by (le) "
                    "(rate(failback_ingest_commit_seconds_bucket[$__rate_interval])))",
                    "95 %",
                ),
            ),
            "s",
        ),
        Panel(
            "Backlog of the shippers",
            "Bytes that were not sent when a shipper was last heard of.",
            (('failback_shipper_backlog_bytes{run=~"$run"}', "{{run}}"),),
            "bytes",
        ),
        Panel(
            "Gaps",
            "Holes in consume logs, found when a run was closed.",
            (('failback_log_gaps_total{run=~"$run"}', "{{run}}"),),
        ),
        Panel(
            "Held in memory",
            "Bodies that are not stored yet, and uploads under way.",
            (("failback_ingest_queue_bytes", "bytes"),),
            "bytes",
        ),
        Panel(
            "Room",
            "Size of the lake, and what is free.",
            (
                ("failback_ingest_stored_bytes", "stored"),
                ("failback_ingest_free_bytes", "free"),
            ),
            "bytes",
        ),
    ),
)

OPERATOR: Final = Dashboard(
    "failback-operator",
    "Failback / Operator",
    (("namespace", "failback_operator_pass_age_seconds", "namespace"),),
    (
        Panel(
            "Passes",
            "Looks at a custom resource per second, by result.",
            (
                (
                    "sum by (kind, result) "
                    "(rate(failback_operator_passes_total[$__rate_interval]))",
                    "{{kind}} {{result}}",
                ),
            ),
            "ops",
        ),
        Panel(
            "Duration of a pass",
            "95th percentile.",
            (
                (
                    "histogram_quantile(0.95, sum by (le, kind) "
                    "(rate(failback_operator_pass_seconds_bucket[$__rate_interval])))",
                    "{{kind}}",
                ),
            ),
            "s",
        ),
        Panel(
            "Age of the last pass",
            "The oldest ten.",
            (
                (
                    f"topk(10, failback_operator_pass_age_seconds{{{_OBJECT}}})",
                    "{{kind}} {{namespace}}/{{name}}",
                ),
            ),
            "s",
        ),
        Panel(
            "Running operations",
            "One at a time for each cluster, with its step.",
            (
                (
                    f"failback_operator_operation_active{{{_OBJECT}}} == 1",
                    "{{namespace}}/{{name}} {{type}} {{step}}",
                ),
            ),
            kind="state-timeline",
        ),
        Panel(
            "Blocked by",
            "What an operation waits for.",
            (
                (
                    f"failback_operator_blocked{{{_OBJECT}}} == 1",
                    "{{namespace}}/{{name}} {{predicate}}",
                ),
            ),
            kind="state-timeline",
        ),
        Panel(
            "Writable pairs",
            "1 where a master takes messages.",
            (
                (
                    f"failback_operator_pair_writable{{{_OBJECT}}}",
                    "{{namespace}}/{{name}} {{pair}}",
                ),
            ),
            kind="state-timeline",
        ),
        Panel(
            "Masters of a pair",
            "More than 1 loses messages.",
            (
                (
                    f"failback_operator_pair_masters{{{_OBJECT}}}",
                    "{{namespace}}/{{name}} {{pair}}",
                ),
            ),
        ),
        Panel(
            "Slaves behind",
            "Bytes of the log that a slave has not got yet.",
            (
                (
                    f"failback_operator_slave_lag_bytes{{{_OBJECT}}}",
                    "{{namespace}}/{{name}} {{pair}} {{member}}",
                ),
            ),
            "bytes",
        ),
        Panel(
            "Requests to the API server",
            "By answer; at rest there are no writes.",
            (
                (
                    "sum by (verb, code) "
                    "(rate(failback_operator_api_requests_total[$__rate_interval]))",
                    "{{verb}} {{code}}",
                ),
            ),
            "ops",
        ),
        Panel(
            "Requests to brokers",
            "By result.",
            (
                (
                    "sum by (result) "
                    "(rate(failback_operator_admin_requests_total[$__rate_interval]))",
                    "{{result}}",
                ),
            ),
            "ops",
        ),
    ),
)
