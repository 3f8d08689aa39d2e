"""Metric families from a survey and the memory of earlier ones. No I/O."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from failback.analytics.exporter import families as own
from failback.analytics.exporter.details import GET_LATENCY, GET_SIZE, PUT_SIZE, SENT_BACK
from failback.analytics.exporter.pair_history import (
    History,
    Lags,
    Place,
    committed_of,
    lags_of,
    sums_of,
)
from failback.analytics.exporter.survey import BrokerAnswers, OffsetFiles, Survey, pair_facts
from failback.analytics.live.exposure import exposure
from failback.analytics.live.facts import GroupTopic
from failback.client.admin.queue_offsets import divergence
from failback.protocol import metric_families as shared
from failback.protocol.message import DLQ_PREFIX, RETRY_PREFIX
from failback.protocol.metric_families import MEMBER, Family
from failback.protocol.names import is_system_topic

Labels = tuple[str, ...]
GroupLabels = tuple[Place, tuple[str, str], Family, tuple[int, str]]
"""Topic and group as shown, retry and system, family of the diff, members and model."""
_GROUP_RATES: Final = {
    GET_SIZE: own.CONSUMER_SIZE,
    SENT_BACK: own.SEND_BACK,
    GET_LATENCY: own.GROUP_READ_LATENCY,
}
_SIZE: Final = re.compile(r"\s*([0-9.]+)\s*([KMGTPE]?)i?B?\s*")
_UNITS: Final = " KMGTPE"
_CAPACITY: Final = re.compile(r"Total : (.*), Free : (.*?)\.?")
_CLASS: Final = re.compile(r"\[([^\]]*)\]:(\d+)")


@dataclass(slots=True)
class GroupSums:
    """The sums of groups under the same labels."""

    lag: int = 0
    expired: int = 0
    beyond: int = 0
    offset: int = 0
    consumed: int = 0
    rate: float | None = None


class Figures:
    """Values by family and labels; values with the same labels are added up."""

    def __init__(self) -> None:
        self._values: dict[Family, dict[Labels, float]] = {}

    def set(self, family: Family, labels: Iterable[object], value: float) -> None:
        """Set a value, or add it to the one of ``other``."""
        rows = self._values.setdefault(family, {})
        key = tuple(map(str, labels))
        rows[key] = rows.get(key, 0.0) + value

    def families(self) -> Iterator[Metric]:
        """Return what Prometheus scrapes."""
        for family, rows in self._values.items():
            counter = family.kind == "counter"
            make = CounterMetricFamily if counter else GaugeMetricFamily
            metric = make(family.name, family.text, labels=family.labels)
            for labels, value in rows.items():
                metric.add_metric(labels, value)
            yield metric


def figures_of(
    survey: Survey,
    history: History,
    *,
    queue_topics: Collection[str] = (),
    offset_files: OffsetFiles | None = None,
) -> Figures:
    """Return the figures of a survey.

    Args:
        survey: The newest one, which the history has seen.
        history: Of the same cluster.
        queue_topics: Topics whose queues are shown one by one.
        offset_files: Broker name and id to its consumerOffset.json.
    """
    found = Figures()
    found.set(own.SURVEY_SECONDS, (), survey.seconds)
    found.set(own.SURVEY_TIME, (), survey.wall)
    for address, is_up in survey.name_servers.items():
        found.set(own.NAMESRV_UP, (address,), int(is_up))
    for broker in (*survey.brokers, *history.unlisted(survey)):
        is_up = broker.up and broker in survey.brokers
        found.set(own.UP, (*broker.node, broker.address), int(is_up))
        if is_up:
            _add_broker(found, broker)
        if is_up and broker.ends:
            lags = lags_of(broker, history.uncounted((broker.cluster, broker.broker)))
            _add_topics(found, broker, history)
            _add_groups(found, broker, history, queue_topics, lags)
            _add_members(found, broker, history)
    for labels, count in history.regressions.items():
        found.set(shared.REGRESSIONS, labels, count[0])
        found.set(shared.REGRESSION_MESSAGES, labels, count[1])
    files = offset_files or {}
    for broker in survey.brokers:
        file = files.get((broker.broker, broker.broker_id))
        if file is not None:
            found.set(shared.PERSIST_AGE, (*broker.node, broker.broker), file.age_seconds)
    _add_slaves(found, survey, history)
    _add_exposures(found, survey, history, files)
    return found


def _add_broker(found: Figures, broker: BrokerAnswers) -> None:
    runtime, node = broker.runtime, broker.node
    first, last = _number(runtime, "commitLogMinOffset"), _number(runtime, "commitLogMaxOffset")
    values: list[tuple[Family, float | None]] = [
        (shared.START_TIME, broker.boot_ms / 1000 if broker.boot_ms else None),
        (shared.STORAGE, last - max(0.0, first) if first is not None and last else last),
        (shared.FLUSH_BEHIND, bytes_of(runtime.get("remainHowManyDataToFlush", ""))),
        (shared.DISPATCH_BEHIND, _number(runtime, "dispatchBehindBytes")),
        (shared.PERMISSION, _number(broker.config, "brokerPermission")),
    ]
    for family, value in values:
        if value is not None:
            labels = (*node, broker.broker) if family.labels == MEMBER else node
            found.set(family, labels, value)
    place = (broker.cluster, broker.address, broker.broker)
    for family, key in ((own.BROKER_TPS, "putTps"), (own.BROKER_QPS, "getTransferedTps")):
        rates = _rates(runtime, key)
        if rates:
            found.set(family, place, rates[0])
    _add_runtime(found, broker)


def _add_runtime(found: Figures, broker: BrokerAnswers) -> None:
    runtime = broker.runtime
    labels = (
        broker.cluster,
        broker.address,
        broker.address,
        runtime.get("brokerVersionDesc", ""),
        runtime.get("bootTimestamp", ""),
        runtime.get("brokerVersion", ""),
    )
    for suffix, key in own.RUNTIME_KEYS.items():
        value = _number(runtime, key)
        if value is not None:
            found.set(own.RUNTIME[suffix], labels, value)
    for suffix, key in own.RUNTIME_RATES.items():
        for seconds, rate in zip(own.RATE_SECONDS, _rates(runtime, key), strict=False):
            found.set(own.RUNTIME[f"{suffix}{seconds}"], labels, rate)
    _add_sizes(found, runtime, labels)


def _add_sizes(found: Figures, runtime: Mapping[str, str], labels: Labels) -> None:
    """Show sizes with units, and classes of times, of the runtime information."""
    capacity = _CAPACITY.fullmatch(runtime.get("commitLogDirCapacity", "").strip())
    sizes = {
        "remain_howmanydata_toflush": runtime.get("remainHowManyDataToFlush", ""),
        "commitlogdir_capacity_total": capacity[1] if capacity else "",
        "commitlogdir_capacity_free": capacity[2] if capacity else "",
    }
    for suffix, text in sizes.items():
        size = bytes_of(text)
        if size is not None:
            found.set(own.RUNTIME[suffix], labels, size)
    counts = dict(_CLASS.findall(runtime.get("putMessageDistributeTime", "")))
    for suffix, name in own.PUT_TIMES.items():
        if name in counts:
            found.set(own.RUNTIME[suffix], labels, int(counts[name]))


def _add_topics(found: Figures, broker: BrokerAnswers, history: History) -> None:
    cluster, name = broker.cluster, broker.broker
    rates, deleted = (
        history.pairs[cluster, name].stored.per_second,
        history.deleted((cluster, name)),
    )
    for topic, end in sums_of(broker.ends).items():
        if _group_of(topic) in deleted:
            continue
        if topic.startswith(DLQ_PREFIX):
            group = history.budget.place("dlq", cluster, ("", topic[len(DLQ_PREFIX) :]))[1]
            found.set(own.DLQ_OFFSET, (cluster, name, group), end)
            found.set(shared.DEAD_LETTERS, (*broker.node, group), end)
            continue
        shown = history.budget.place("topic", cluster, (topic, ""))[0]
        labels = (*broker.node, shown, *kind_of(topic))
        found.set(shared.MESSAGES_IN, labels, end)
        is_retry = topic.startswith(RETRY_PREFIX)
        found.set(
            own.RETRY_OFFSET if is_retry else own.PRODUCER_OFFSET, (cluster, name, shown), end
        )
        if topic in rates:
            found.set(own.PRODUCER_TPS, (cluster, name, shown), rates[topic])
        size = broker.rates.get((PUT_SIZE, topic))
        if size is not None:
            found.set(own.PRODUCER_SIZE, (cluster, name, shown), size)


def _add_groups(
    found: Figures,
    broker: BrokerAnswers,
    history: History,
    queue_topics: Collection[str],
    lags: Lags,
) -> None:
    """Show every group on every topic. Groups without a line of their own are added up first."""
    cluster, name = broker.cluster, broker.broker
    pair = history.pairs[cluster, name]
    sums: dict[GroupLabels, GroupSums] = {}
    connected = {group: _members_of(broker, group) for group in {group for _, group in lags.behind}}
    kinds = {
        topic: (kind_of(topic), _diff_family(topic)) for topic in {it for it, _ in lags.behind}
    }
    rates, consumed = pair.committed.per_second, pair.consumed
    for place, offset in committed_of(broker).items():
        behind = lags.behind.get(place)
        if behind is None:
            continue
        shown = history.budget.place("group", cluster, place)
        key = (shown, *kinds[place[0]], connected[place[1]])
        total = sums.get(key)
        if total is None:
            total = sums[key] = GroupSums()
        total.lag += sum(behind.values())
        total.expired += lags.expired.get(place, 0)
        total.beyond += lags.beyond.get(place, 0)
        total.offset += offset
        total.consumed += consumed.get(place, 0)
        rate = rates.get(place)
        if rate is not None:
            total.rate = (total.rate or 0.0) + rate
        if place[0] in queue_topics:
            for queue_id, waiting in behind.items():
                found.set(own.QUEUE_LAG, (cluster, name, *place, queue_id), waiting)
    for ((topic, group), kind, family, (members, model)), total in sums.items():
        labels = (*broker.node, topic, group, *kind)
        known = (cluster, name, topic, group)
        found.set(shared.LAG, labels, total.lag)
        found.set(shared.MESSAGES_OUT, labels, total.consumed)
        found.set(own.ACCUMULATION, known, total.lag)
        found.set(own.CONSUMER_OFFSET, known, total.offset)
        if total.expired:
            found.set(own.EXPIRED, known, total.expired)
        if total.beyond:
            found.set(own.BEYOND_END, known, total.beyond)
        if total.rate is not None:
            found.set(own.CONSUMER_TPS, known, total.rate)
            found.set(own.GROUP_CONSUME_TPS, known, total.rate)
        found.set(family, (cluster, group, topic, members, model), total.lag)
    _add_group_details(found, broker, history, lags)


def _add_group_details(found: Figures, broker: BrokerAnswers, history: History, lags: Lags) -> None:
    """Show the details of single groups with lines of their own."""
    cluster, name = broker.cluster, broker.broker
    for place, queues in lags.behind.items():
        if not history.budget.has("group", cluster, place):
            continue
        age = broker.latencies_ms.get(place)
        if age is not None or not any(queues.values()):
            found.set(own.GROUP_LATENCY, (cluster, name, *place), age or 0)
    for (counter, key), rate in broker.rates.items():
        family = _GROUP_RATES.get(counter)
        if family is None:
            continue
        *queue, topic, group = key.split("@", 2 if counter == GET_LATENCY else 1)
        if history.budget.has("group", cluster, (topic, group)):
            found.set(family, (cluster, name, topic, group, *queue), rate)


def _diff_family(topic: str) -> Family:
    if topic.startswith(RETRY_PREFIX):
        return own.GROUP_RETRY_DIFF
    return own.GROUP_DLQ_DIFF if topic.startswith(DLQ_PREFIX) else own.GROUP_DIFF


def _members_of(broker: BrokerAnswers, group: str) -> tuple[int, str]:
    """Return how many members a group has, and how they share messages."""
    connection = broker.groups.get(group)
    if connection is None:
        return 0, "CLUSTERING"
    return len(connection.connection_set), connection.message_model or "CLUSTERING"


def _add_members(found: Figures, broker: BrokerAnswers, history: History) -> None:
    count = sum(len(each.connection_set) for each in broker.groups.values())
    place = (broker.cluster, broker.broker)
    found.set(shared.CONSUMERS, broker.node, count)
    if broker.producers is not None:
        found.set(shared.PRODUCERS, broker.node, sum(broker.producers.values()))
        for group, number in broker.producers.items():
            shown = history.budget.place("producer", broker.cluster, ("", group))[1]
            found.set(own.PRODUCER_COUNT, (broker.cluster, broker.broker, shown), number)
    for group, connection in list(broker.groups.items())[: shared.MAX_SERIES]:
        for member in connection.connection_set:
            client = (member.client_addr, member.client_id)
            found.set(own.GROUP_COUNT, (*place, *client, group), 1)
    for each in broker.members[: shared.MAX_SERIES]:
        labels = (*place, each.client_addr, each.client_id, each.group, each.topic)
        status = each.status
        found.set(own.CLIENT_FAILED, labels, status.consume_failed_msgs)
        found.set(own.CLIENT_FAILED_TPS, labels, status.consume_failed_tps)
        found.set(own.CLIENT_OK_TPS, labels, status.consume_ok_tps)
        found.set(own.CLIENT_RT, labels, status.consume_rt)
        found.set(own.CLIENT_PULL_RT, labels, status.pull_rt)
        found.set(own.CLIENT_PULL_TPS, labels, status.pull_tps)


def _add_slaves(found: Figures, survey: Survey, history: History) -> None:
    masters = {(each.cluster, each.broker): each for each in survey.brokers if each.is_master}
    for slave in (each for each in survey.brokers if not each.is_master):
        watch = history.sync(slave)
        labels = (*slave.node, slave.broker)
        age = watch.age_seconds(survey.at) if watch else None
        if age is not None and watch is not None:
            found.set(shared.SYNC_AGE, labels, age)
            found.set(shared.OVERWRITES, labels, watch.overwrites)
        master = masters.get((slave.cluster, slave.broker))
        if master is None or master.offsets is None or slave.offsets is None:
            continue
        uncounted = history.uncounted((master.cluster, master.broker))
        for group, distance in divergence(master.offsets, slave.offsets).items():
            if group in uncounted:
                continue
            shown = history.budget.place("divergence", slave.cluster, ("", group))[1]
            where = (slave.cluster, slave.broker, slave.node[2], shown)
            found.set(shared.DIVERGENCE, (*where, "slave_ahead"), distance.slave_ahead)
            found.set(shared.DIVERGENCE, (*where, "master_ahead"), distance.master_ahead)


def _add_exposures(found: Figures, survey: Survey, history: History, files: OffsetFiles) -> None:
    """Show the cost of a kill of each master that answers, by group."""
    pairs: dict[tuple[str, str], list[BrokerAnswers]] = {}
    for each in survey.brokers:
        pairs.setdefault((each.cluster, each.broker), []).append(each)
    for (cluster, broker), members in pairs.items():
        past = history.pairs.get((cluster, broker))
        if past is None:
            continue
        facts = replace(
            pair_facts(survey, members, files, partial(history.sync_age, at=survey.at)),
            broadcasting=history.broadcasting(cluster),
            deleted=history.deleted((cluster, broker)),
        )
        facts = replace(facts, seen=past.watch.look(facts))
        topics = next((each.topics for each in members if each.topics is not None), None)
        rates = {
            GroupTopic(group, topic): rate
            for (topic, group), rate in past.committed.per_second.items()
            if topics is None or topic in topics  # offsets of a deleted topic stay in the table
        }
        for group, exposed in exposure(facts, rates).items():
            shown = history.budget.place("exposure", cluster, ("", group))[1]
            found.set(own.EXPOSURE, (cluster, broker, shown), exposed.most)


def _group_of(topic: str) -> str:
    """Return the group whose retries or dead letters a topic has; empty for any other topic."""
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if topic.startswith(prefix):
            return topic[len(prefix) :]
    return ""


def kind_of(topic: str) -> tuple[str, str]:
    """Return the labels ``is_retry`` and ``is_system`` of a topic."""
    is_retry = topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
    return str(is_retry).lower(), str(is_system_topic(topic)).lower()


def _number(table: Mapping[str, str], key: str) -> float | None:
    try:
        return float(table[key])
    except (KeyError, ValueError):
        return None


def _rates(table: Mapping[str, str], key: str) -> list[float]:
    try:
        return [float(word) for word in table.get(key, "").split()]
    except ValueError:
        return []


def bytes_of(text: str) -> float | None:
    """Read ``58.7 GiB`` or ``12 B``; ``None`` for other text."""
    found = _SIZE.fullmatch(text)
    if found is None:
        return None
    try:
        return float(found[1]) * 1024.0 ** _UNITS.index(found[2] or " ")
    except ValueError:
        return None
