"""The counters of a broker under the names that tools ask for."""

from __future__ import annotations

from collections.abc import Iterator

from failback.broker.messaging.topic_admission import TopicAdmission
from failback.broker.monitoring.statistics import BrokerStatistics
from failback.broker.monitoring.stats_items import Count


def stats_counts(
    cluster: str, admission: TopicAdmission, statistics: BrokerStatistics
) -> Iterator[Count]:
    """Yield what has counted something. A message that is sent counts as a call of its own."""
    for topic, target in admission.targets.items():
        if target.messages_in:
            yield Count("TOPIC_PUT_NUMS", topic, target.messages_in, target.messages_in)
            yield Count("TOPIC_PUT_SIZE", topic, target.bytes_in, target.messages_in)
    for (topic, group), reads in statistics.reads.items():
        key = f"{topic}@{group}"
        yield Count("GROUP_GET_NUMS", key, statistics.messages_out[topic, group], reads.found)
        yield Count("GROUP_GET_SIZE", key, reads.bytes, reads.found)
    for (topic, group, queue_id), of_queue in statistics.queue_reads.items():
        key = f"{queue_id}@{topic}@{group}"
        yield Count("GROUP_GET_LATENCY", key, of_queue.milliseconds, of_queue.found)
    for key, sent_back in statistics.sent_back.items():
        yield Count("SNDBCK_PUT_NUMS", key, sent_back, sent_back)
    puts, gets = statistics.put_messages, statistics.transferred_messages
    if puts:
        yield Count("BROKER_PUT_NUMS", cluster, puts, puts)
    if gets:
        yield Count("BROKER_GET_NUMS", cluster, gets, statistics.get_found)
