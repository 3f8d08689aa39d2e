"""What the exporter shows beside the names that our brokers have too.

The names of rocketmq-exporter have its labels, so that dashboards for it go on working. What is
of a cluster or a broker says of which: labels that rocketmq-exporter lacks are added for that.
Source: RMQMetricsCollector, apache/rocketmq-exporter.
"""

from __future__ import annotations

from typing import Final

from failback.protocol import metric_families as shared
from failback.protocol.metric_families import NODE, Family

_BROKER: Final = ("cluster", "brokerIP", "broker")
_TOPIC: Final = ("cluster", "broker", "topic")
_GROUP: Final = ("cluster", "broker", "topic", "group")
_DIFF: Final = ("cluster", "group", "topic", "countOfOnlineConsumers", "msgModel")
_CLIENT: Final = ("cluster", "broker", "clientAddr", "clientId", "group", "topic")
_RUNTIME: Final = ("cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version")


def _gauge(name: str, labels: tuple[str, ...], text: str) -> Family:
    return Family(name, "gauge", labels, text)


EXPIRED: Final = _gauge(
    "rocketmq_consumer_expired_messages",
    _GROUP,
    "Messages that the group had not consumed when the broker deleted them. Only where there are.",
)
BEYOND_END: Final = _gauge(
    "rocketmq_consumer_beyond_end_messages",
    _GROUP,
    "How far the group's offsets lie behind the ends of queues. Only where they do.",
)
UP: Final = _gauge(
    "failback_exporter_up", (*NODE, "address"), "1 if the broker answered in the last period."
)
NAMESRV_UP: Final = _gauge(
    "failback_exporter_namesrv_up", ("address",), "1 if the name server answered."
)
SURVEY_SECONDS: Final = _gauge(
    "failback_exporter_survey_seconds", (), "How long the last round of questions took."
)
SURVEY_TIME: Final = _gauge(
    "failback_exporter_survey_time_seconds", (), "When it ended, Unix time."
)
EXPOSURE: Final = _gauge(
    "rocketmq_reconsume_exposure_messages",
    ("cluster", "broker", "consumer_group"),
    "Messages that the group would re-consume if the master were killed now, as predicted. "
    "Missing where a restart of the master may have hidden what the group had handled.",
)
QUEUE_LAG: Final = _gauge(
    "rocketmq_consumer_queue_lag_messages",
    ("cluster", "broker", "topic", "consumer_group", "queue_id"),
    "Lag of single queues, of the topics named by --queue-metrics only.",
)
RUN_ACTIVE: Final = _gauge(
    "failback_run_active", ("run", "experiment", "cluster"), "1 while a run goes on."
)
FAULT_ACTIVE: Final = _gauge(
    "failback_fault_active",
    ("fault", "target", "run"),
    "1 while a fault is injected and was not seen healed.",
)
RUN_VERDICT: Final = _gauge(
    "failback_run_verdict", ("run", "experiment", "arm", "verdict"), "1 for a report."
)
RECONSUMED: Final = Family(
    "rocketmq_reconsumed_messages_total",
    "counter",
    ("cluster", "consumer_group", "topic", "broker", "cause"),
    "Messages re-consumed, by report group of their cause, as reports found them.",
)
DELIVERED: Final = Family(
    "failback_delivered_messages_total",
    "counter",
    ("cluster", "consumer_group", "topic"),
    "Deliveries of the same reports: what the repeats are a part of.",
)
WASTED: Final = Family(
    "rocketmq_reconsume_wasted_seconds_total",
    "counter",
    ("cluster", "consumer_group", "topic"),
    "Seconds that handlers spent on messages that were re-consumed.",
)
PHASE_SECONDS: Final = Family(
    "rocketmq_failover_phase_seconds",
    "histogram",
    ("cluster", "broker", "phase"),
    "How long the phases of failovers took, as reports found them.",
)
REPORT_SECONDS: Final = Family(
    "failback_report_seconds", "histogram", ("engine", "stage"), "How long reports took to make."
)

OURS: Final = tuple(each for each in globals().values() if isinstance(each, Family))
"""All above: names that rocketmq-exporter does not have."""

SHARED: Final = (
    shared.MESSAGES_IN,
    shared.MESSAGES_OUT,
    shared.LAG,
    shared.DEAD_LETTERS,
    shared.PRODUCERS,
    shared.CONSUMERS,
    shared.PERMISSION,
    shared.STORAGE,
    shared.FLUSH_BEHIND,
    shared.DISPATCH_BEHIND,
    shared.START_TIME,
    shared.SYNC_AGE,
    shared.PERSIST_AGE,
    shared.OVERWRITES,
    shared.REGRESSIONS,
    shared.REGRESSION_MESSAGES,
    shared.DIVERGENCE,
)
"""Names that our brokers (DIVERGENCE: the operator) export too."""

BROKER_TPS: Final = _gauge(
    "rocketmq_broker_tps", _BROKER, "Messages stored per second over the last ten seconds."
)
BROKER_QPS: Final = _gauge(
    "rocketmq_broker_qps", _BROKER, "Messages handed out per second over the last ten seconds."
)
PRODUCER_TPS: Final = _gauge(
    "rocketmq_producer_tps", _TOPIC, "Messages stored per second since the survey before."
)
PRODUCER_OFFSET: Final = _gauge(
    "rocketmq_producer_offset", _TOPIC, "Sum of the ends of a topic's queues."
)
RETRY_OFFSET: Final = _gauge(
    "rocketmq_topic_retry_offset", _TOPIC, "Sum of the ends of a retry topic's queues."
)
DLQ_OFFSET: Final = _gauge(
    "rocketmq_topic_dlq_offset", ("cluster", "broker", "group"), "End of a dead letter queue."
)
CONSUMER_TPS: Final = _gauge(
    "rocketmq_consumer_tps", _GROUP, "Messages committed per second since the survey before."
)
GROUP_CONSUME_TPS: Final = _gauge(
    "rocketmq_group_consume_tps", _GROUP, "The same under another name that dashboards have."
)
CONSUMER_OFFSET: Final = _gauge(
    "rocketmq_consumer_offset", _GROUP, "Sum of the offsets that a group committed."
)
ACCUMULATION: Final = _gauge(
    "rocketmq_message_accumulation", _GROUP, "Messages behind the committed offsets."
)
GROUP_DIFF: Final = _gauge(
    "rocketmq_group_diff",
    _DIFF,
    "Messages behind the committed offsets, over all brokers of the cluster.",
)
GROUP_RETRY_DIFF: Final = _gauge("rocketmq_group_retrydiff", _DIFF, "The same of retry topics.")
GROUP_DLQ_DIFF: Final = _gauge(
    "rocketmq_group_dlqdiff", _DIFF, "The same of dead letter queues that are consumed."
)
GROUP_LATENCY: Final = _gauge(
    "rocketmq_group_get_latency_by_storetime",
    _GROUP,
    "How long in ms the oldest message waits that the group has not consumed; 0 if there is none.",
)
GROUP_READ_LATENCY: Final = _gauge(
    "rocketmq_group_get_latency",
    (*_GROUP, "queueid"),
    "Mean time in ms of the broker's reads over the last minute, of groups with members.",
)
GROUP_COUNT: Final = _gauge(
    "rocketmq_group_count",
    ("cluster", "broker", "caddr", "localaddr", "group"),
    "1 for each member of a group.",
)
PRODUCER_COUNT: Final = _gauge(
    "rocketmq_producer_count", ("cluster", "broker", "group"), "Producers of a group."
)
PRODUCER_SIZE: Final = _gauge(
    "rocketmq_producer_message_size",
    _TOPIC,
    "Bytes stored per second over the last minute, of topics that took messages lately.",
)
CONSUMER_SIZE: Final = _gauge(
    "rocketmq_consumer_message_size",
    _GROUP,
    "Bytes handed out per second over the last minute, of groups with members.",
)
SEND_BACK: Final = _gauge(
    "rocketmq_send_back_nums",
    _GROUP,
    "Messages sent back per second over the last minute, of groups with members.",
)
CLIENT_FAILED: Final = _gauge(
    "rocketmq_client_consume_fail_msg_count", _CLIENT, "Failed handlings within an hour."
)
CLIENT_FAILED_TPS: Final = _gauge(
    "rocketmq_client_consume_fail_msg_tps", _CLIENT, "Failed handlings per second."
)
CLIENT_OK_TPS: Final = _gauge(
    "rocketmq_client_consume_ok_msg_tps", _CLIENT, "Successful handlings per second."
)
CLIENT_RT: Final = _gauge("rocketmq_client_consume_rt", _CLIENT, "Time of a handling in ms.")
CLIENT_PULL_RT: Final = _gauge("rocketmq_client_consumer_pull_rt", _CLIENT, "Time of a pull in ms.")
CLIENT_PULL_TPS: Final = _gauge(
    "rocketmq_client_consumer_pull_tps", _CLIENT, "Messages pulled per second."
)

RUNTIME_KEYS: Final = {
    "msg_put_total_today_now": "msgPutTotalTodayNow",
    "msg_gettotal_today_now": "msgGetTotalTodayNow",
    "dispatch_behind_bytes": "dispatchBehindBytes",
    "put_message_size_total": "putMessageSizeTotal",
    "put_message_average_size": "putMessageAverageSize",
    "putmessage_times_total": "putMessageTimesTotal",
    "putmessage_entire_time_max": "putMessageEntireTimeMax",
    "getmessage_entire_time_max": "getMessageEntireTimeMax",
    "earliest_message_timestamp": "earliestMessageTimeStamp",
    "start_accept_sendrequest_time": "startAcceptSendRequestTimeStamp",
    "send_threadpool_queue_size": "sendThreadPoolQueueSize",
    "send_threadpoolqueue_capacity": "sendThreadPoolQueueCapacity",
    "pull_threadpoolqueue_capacity": "pullThreadPoolQueueCapacity",
    "query_threadpool_queue_capacity": "queryThreadPoolQueueCapacity",
    "remain_transientstore_buffer_numbs": "remainTransientStoreBufferNumbs",
    "pagecache_lock_time_mills": "pageCacheLockTimeMills",
    "commitlog_disk_ratio": "commitLogDiskRatio",
    "consumequeue_disk_ratio": "consumeQueueDiskRatio",
    "dispatch_maxbuffer": "dispatchMaxBuffer",
    "msg_puttotal_todaymorning": "msgPutTotalTodayMorning",
    "msg_gettotal_todaymorning": "msgGetTotalTodayMorning",
    "msg_puttotal_yesterdaymorning": "msgPutTotalYesterdayMorning",
    "msg_gettotal_yesterdaymorning": "msgGetTotalYesterdayMorning",
    "pull_threadpoolqueue_size": "pullThreadPoolQueueSize",
    "query_threadpoolqueue_size": "queryThreadPoolQueueSize",
    "send_threadpoolqueue_headwait_timemills": "sendThreadPoolQueueHeadWaitTimeMills",
    "pull_threadpoolqueue_headwait_timemills": "pullThreadPoolQueueHeadWaitTimeMills",
    "query_threadpoolqueue_headwait_timemills": "queryThreadPoolQueueHeadWaitTimeMills",
    "commitlog_minoffset": "commitLogMinOffset",
    "commitlog_maxoffset": "commitLogMaxOffset",
    "put_latency_99": "putLatency99",
    "put_latency_999": "putLatency999",
}
"""Suffix of ``rocketmq_brokeruntime_`` to the key of the runtime information (28)."""
RUNTIME_RATES: Final = {
    "put_tps": "putTps",
    "getfound_tps": "getFoundTps",
    "getmiss_tps": "getMissTps",
    "gettotal_tps": "getTotalTps",
    "gettransfered_tps": "getTransferedTps",
}
"""The same of keys with three rates: over 10, 60 and 600 seconds, which end the name."""
RATE_SECONDS: Final = (10, 60, 600)
RUNTIME_SIZES: Final = {
    "remain_howmanydata_toflush": "remainHowManyDataToFlush",
    "commitlogdir_capacity_total": "commitLogDirCapacity",
    "commitlogdir_capacity_free": "commitLogDirCapacity",
}
"""The same of keys whose values are sizes with a unit."""
PUT_TIMES: Final = {
    "pmdt_0ms": "<=0ms",
    "pmdt_0to10ms": "0~10ms",
    "pmdt_10to50ms": "10~50ms",
    "pmdt_50to100ms": "50~100ms",
    "pmdt_100to200ms": "100~200ms",
    "pmdt_200to500ms": "200~500ms",
    "pmdt_500to1s": "500ms~1s",
    "pmdt_1to2s": "1~2s",
    "pmdt_2to3s": "2~3s",
    "pmdt_3to4s": "3~4s",
    "pmdt_4to5s": "4~5s",
    "pmdt_5to10s": "5~10s",
    "pmdt_10stomore": "10s~",
}
"""The same of the classes of putMessageDistributeTime."""


RUNTIME: Final = {
    suffix: _gauge(f"rocketmq_brokeruntime_{suffix}", _RUNTIME, "As the broker says itself (28).")
    for suffix in (
        *RUNTIME_KEYS,
        *(f"{name}{seconds}" for name in RUNTIME_RATES for seconds in RATE_SECONDS),
        *RUNTIME_SIZES,
        *PUT_TIMES,
    )
}

KNOWN: Final = (
    *(each for each in globals().values() if isinstance(each, Family) and each not in OURS),
    *RUNTIME.values(),
)
"""All behind ``OURS``: names of rocketmq-exporter."""

ALL: Final = (*SHARED, *OURS, *KNOWN)
