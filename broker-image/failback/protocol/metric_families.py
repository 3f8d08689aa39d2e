"""Names, types and labels of the metrics that more than one component exports.

Where the meaning is that of RocketMQ 5.x (BrokerMetricsConstant) so is the name. The broker fills
these from its own counters, the exporter from answers of the admin protocol; dashboards and alerts
need not know which of the two they read. Pure: the client library of Prometheus is not imported.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]


class Family(NamedTuple):
    """One metric: ``name`` as Prometheus shows it, with ``_total`` where it is a counter."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    text: str


NODE: Final = ("cluster", "node_type", "node_id")
"""A broker as RocketMQ 5.x labels it; ``node_id`` is ``brokerName-brokerId``."""
MEMBER: Final = (*NODE, "broker")
"""The same with the name of its pair, which is what master and slave have in common."""
_KIND_OF_TOPIC: Final = ("is_retry", "is_system")
_TOPIC: Final = (*NODE, "topic", *_KIND_OF_TOPIC)
_GROUP: Final = (*NODE, "topic", "consumer_group", *_KIND_OF_TOPIC)
_REGRESSION: Final = ("cluster", "broker", "node_role", "consumer_group", "topic", "source")
OTHER: Final = "other"
MAX_SERIES: Final = 200
"""Groups times topics of one metric that get a line of their own; the rest is ``other``."""

MESSAGES_IN: Final = Family("rocketmq_messages_in_total", "counter", _TOPIC, "Messages stored.")
MESSAGES_OUT: Final = Family(
    "rocketmq_messages_out_total", "counter", _GROUP, "Messages handed out."
)
CARRIED: Final = Family(
    "failback_carried_offsets_total",
    "counter",
    (),
    "Consumer offsets that starts of a broker of Apache raised to what its slaves know.",
)
LAG: Final = Family(
    "rocketmq_consumer_lag_messages",
    "gauge",
    _GROUP,
    "Messages between the committed offsets and the ends of the queues.",
)
INFLIGHT: Final = Family(
    "rocketmq_consumer_inflight_messages",
    "gauge",
    _GROUP,
    "Messages handed out whose offsets are not committed yet.",
)
DEAD_LETTERS: Final = Family(
    "rocketmq_send_to_dlq_messages_total",
    "counter",
    (*NODE, "consumer_group"),
    "Messages of a group that went to its dead letter queue.",
)
PUT_ASIDE: Final = Family(
    "failback_put_aside_messages_total",
    "counter",
    NODE,
    "Messages that could not be delivered and are kept in FAILBACK_PUT_ASIDE.",
)
PRODUCERS: Final = Family("rocketmq_producer_connections", "gauge", NODE, "Producers by heartbeat.")
CONSUMERS: Final = Family("rocketmq_consumer_connections", "gauge", NODE, "Consumers by heartbeat.")
PERMISSION: Final = Family(
    "rocketmq_broker_permission", "gauge", NODE, "brokerPermission: 6 reads and writes, 4 reads."
)
STORAGE: Final = Family("rocketmq_storage_size", "gauge", NODE, "Bytes of log held.")
FLUSH_BEHIND: Final = Family(
    "rocketmq_storage_flush_behind_bytes", "gauge", NODE, "Log bytes that are not synced yet."
)
DISK_REFUSES: Final = Family(
    "failback_disk_refuses_messages",
    "gauge",
    NODE,
    "1 while messages are refused because the disk is full, nearly full, or takes nothing.",
)
READ_FAILURES: Final = Family(
    "failback_read_failures_total",
    "counter",
    NODE,
    "Reads that failed: a bad sector, or a file that somebody cut.",
)
TABLES_WAITING: Final = Family(
    "failback_tables_not_written",
    "gauge",
    NODE,
    "Tables that the disk refused, and that are in memory only.",
)
DISPATCH_BEHIND: Final = Family(
    "rocketmq_storage_dispatch_behind_bytes",
    "gauge",
    NODE,
    "Log bytes that no consume queue shows yet.",
)
START_TIME: Final = Family(
    "rocketmq_broker_start_time_seconds", "gauge", MEMBER, "When the broker started, Unix time."
)
SYNC_AGE: Final = Family(
    "rocketmq_slave_metadata_sync_age_seconds",
    "gauge",
    MEMBER,
    "Since a slave last had its master's offsets.",
)
PERSIST_AGE: Final = Family(
    "rocketmq_offset_persist_age_seconds",
    "gauge",
    MEMBER,
    "Since consumer offsets were last written to disk.",
)
OVERWRITES: Final = Family(
    "rocketmq_slave_sync_overwrites_total",
    "counter",
    MEMBER,
    "Synchronisations that replaced offsets of a slave by smaller ones of its master.",
)
REGRESSIONS: Final = Family(
    "rocketmq_offset_regressions_total",
    "counter",
    _REGRESSION,
    "How often a stored consumer offset of a queue went back; source is restart, slave_sync, "
    "client_commit or reset.",
)
REGRESSION_MESSAGES: Final = Family(
    "rocketmq_offset_regression_messages_total",
    "counter",
    _REGRESSION,
    "By how many messages stored consumer offsets went back.",
)
DIVERGENCE: Final = Family(
    "rocketmq_slave_offset_divergence_messages",
    "gauge",
    ("cluster", "broker", "member", "consumer_group", "direction"),
    "Messages by which the offset tables of a slave and its master differ; direction is "
    "slave_ahead or master_ahead.",
)

HA_CONNECTIONS: Final = Family(
    "failback_ha_connections", "gauge", MEMBER, "Open connections on the HA port."
)
HA_ACKNOWLEDGED: Final = Family(
    "failback_ha_acknowledged_offset",
    "gauge",
    MEMBER,
    "The greatest physical offset that any slave has reported.",
)
HA_CONNECTED: Final = Family(
    "failback_ha_connected", "gauge", MEMBER, "1 while this slave is connected to its master."
)
HA_STOPPED: Final = Family(
    "failback_ha_stopped",
    "gauge",
    MEMBER,
    "1 while this slave does not replicate because its log is not its master's.",
)
HA_DIFFERS: Final = Family(
    "failback_ha_differs_at_offset",
    "gauge",
    MEMBER,
    "The first byte of this slave's log that is not its master's; -1 if none is known.",
)
GUARDED: Final = Family(
    "failback_guarded_offsets_total",
    "counter",
    MEMBER,
    "Consumer offsets that the guarded rules kept from going back.",
)
HA_REFUSED: Final = Family(
    "failback_ha_refused_reports_total",
    "counter",
    MEMBER,
    "Connections closed because their slave reported what this broker has not, or not sent.",
)

NOT_BELIEVED: Final = Family(
    "failback_not_believed_total",
    "counter",
    MEMBER,
    "Times that a registered broker was no member of the pair, or told an offset beyond its queue.",
)
_NOT_ALLOWED: Final = (
    "Requests that plain_acl.yml does not allow: refused (enforce), or only counted (warn). An"
    " empty access_key: none, or one that no account has."
)
_RULES_CURRENT: Final = (
    "1: the newest files with accounts are in use; 0: they have a fault, those before are."
)
ACCESS_REFUSED: Final = Family(
    "failback_access_refused_total",
    "counter",
    (*MEMBER, "access_key", "code", "mode"),
    _NOT_ALLOWED,
)
ACCESS_USED: Final = Family(
    "failback_access_key_last_used_timestamp_seconds",
    "gauge",
    (*MEMBER, "access_key"),
    "When this broker last took a request that was signed with the access key.",
)
ACCESS_CURRENT: Final = Family(
    "failback_access_rules_current",
    "gauge",
    MEMBER,
    _RULES_CURRENT,
)
_NOT_AFTER: Final = "When the certificate in use expires, Unix time."
_TLS_OPEN: Final = "Open connections that speak TLS."
_TLS_FAILED: Final = (
    "Connections that did not come to TLS; reason is bound (too many handshakes at once),"
    " certificate, closed (by the peer), plain (no TLS where it is wanted), protocol or timeout."
)
TLS_NOT_AFTER: Final = Family(
    "failback_tls_certificate_not_after_timestamp_seconds", "gauge", MEMBER, _NOT_AFTER
)
TLS_CONNECTIONS: Final = Family("failback_tls_connections", "gauge", MEMBER, _TLS_OPEN)
TLS_FAILURES: Final = Family(
    "failback_tls_handshake_failures_total", "counter", (*MEMBER, "reason"), _TLS_FAILED
)
REFUSED: Final = Family(
    "failback_refused_total",
    "counter",
    (*MEMBER, "bound"),
    "What peers were refused because a bound was reached: connections, unread, unfinished, "
    "heldPulls, tasks, clientCalls, newNames.",
)
OPEN_CONNECTIONS: Final = Family(
    "failback_connections", "gauge", MEMBER, "Open connections on the ports for clients."
)
HELD_PULLS: Final = Family("failback_held_pulls", "gauge", MEMBER, "Pulls that wait for a message.")

BROKER: Final = (
    ACCESS_REFUSED,
    ACCESS_USED,
    ACCESS_CURRENT,
    MESSAGES_IN,
    MESSAGES_OUT,
    LAG,
    INFLIGHT,
    DEAD_LETTERS,
    PUT_ASIDE,
    PRODUCERS,
    CONSUMERS,
    PERMISSION,
    STORAGE,
    FLUSH_BEHIND,
    DISPATCH_BEHIND,
    DISK_REFUSES,
    READ_FAILURES,
    TABLES_WAITING,
    START_TIME,
    SYNC_AGE,
    PERSIST_AGE,
    OVERWRITES,
    REGRESSIONS,
    REGRESSION_MESSAGES,
    HA_CONNECTIONS,
    HA_ACKNOWLEDGED,
    HA_CONNECTED,
    HA_STOPPED,
    HA_DIFFERS,
    GUARDED,
    HA_REFUSED,
    NOT_BELIEVED,
    REFUSED,
    OPEN_CONNECTIONS,
    HELD_PULLS,
    TLS_NOT_AFTER,
    TLS_CONNECTIONS,
    TLS_FAILURES,
)
"""What our broker exports itself."""

NAMESRV_CONNECTIONS: Final = Family(
    "failback_namesrv_connections", "gauge", (), "Open connections of brokers, clients and tools."
)
NAMESRV_BROKERS: Final = Family(
    "failback_namesrv_brokers", "gauge", (), "Addresses of brokers that are registered."
)
NAMESRV_TOPICS: Final = Family("failback_namesrv_topics", "gauge", (), "Topics that have a route.")
NAMESRV_REFUSED: Final = Family(
    "failback_namesrv_refused_total",
    "counter",
    ("bound",),
    "What peers were refused because a bound was reached: connections, unfinished, unread, tables.",
)
NAMESRV_TLS_NOT_AFTER: Final = Family(
    "failback_namesrv_tls_certificate_not_after_timestamp_seconds", "gauge", (), _NOT_AFTER
)
NAMESRV_TLS_CONNECTIONS: Final = Family("failback_namesrv_tls_connections", "gauge", (), _TLS_OPEN)
NAMESRV_TLS_FAILURES: Final = Family(
    "failback_namesrv_tls_handshake_failures_total", "counter", ("reason",), _TLS_FAILED
)
NAMESRV_ACCESS_REFUSED: Final = Family(
    "failback_namesrv_access_refused_total",
    "counter",
    ("access_key", "code", "mode"),
    _NOT_ALLOWED,
)
NAMESRV_ACCESS_USED: Final = Family(
    "failback_namesrv_access_key_last_used_timestamp_seconds",
    "gauge",
    ("access_key",),
    "When this name server last took a request that was signed with the access key.",
)
NAMESRV_ACCESS_CURRENT: Final = Family(
    "failback_namesrv_access_rules_current", "gauge", (), _RULES_CURRENT
)
NAMESRV: Final = (
    NAMESRV_CONNECTIONS,
    NAMESRV_BROKERS,
    NAMESRV_TOPICS,
    NAMESRV_REFUSED,
    NAMESRV_TLS_NOT_AFTER,
    NAMESRV_TLS_CONNECTIONS,
    NAMESRV_TLS_FAILURES,
    NAMESRV_ACCESS_REFUSED,
    NAMESRV_ACCESS_USED,
    NAMESRV_ACCESS_CURRENT,
)
"""What our name server exports itself."""
