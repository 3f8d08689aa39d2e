"""Decide what a Topic needs now. Pure.

Queues that go away are first closed for producers (``writeQueueNums``). They are taken from
consumers only when no group has anything left to read: what is in them is unreadable afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.kinds.topic import Topic
from failback.operator.planning.metadata import items
from failback.operator.planning.metadata.items import Item, OnPair, Work
from failback.operator.planning.metadata.on_masters import Ways, plan_item, to_write
from failback.operator.planning.observed.observed import ObservedCluster
from failback.operator.planning.operations.step_context import ROUTE_SECONDS
from failback.operator.planning.plan.encoding import Verdict, names, true_since
from failback.operator.planning.plan.types import Action, DeleteTopic, Event, Plan, PutKv, PutTopic

ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
_READ: Final = "readQueueNums"
_WRITE: Final = "writeQueueNums"


def topic_config(topic: Topic) -> dict[str, Any]:
    """Return what a broker's table is to say of the topic, in RocketMQ's field names."""
    return {
        "topicName": topic.topic_name,
        _READ: topic.spec.read_queue_nums,
        _WRITE: topic.spec.write_queue_nums,
        "perm": topic.spec.perm,
    }


def plan_topic(
    topic: Topic,
    status: Mapping[str, Any],
    observed: ObservedCluster,
    cluster: BrokerCluster | None,
    now: float,
    *,
    deleting: bool,
) -> Plan:
    """Return what brings a topic towards its spec; arguments as of :func:`plan_item`."""
    item = Item(
        resource=topic,
        word="Topic",
        name=topic.topic_name,
        wanted=topic_config(topic),
        pairs=tuple(topic.spec.pairs),
    )
    ways = Ways(
        work=lambda pairs: _work(item, topic, status, observed, pairs, now),
        row=lambda stored: {key: stored[key] for key in (_READ, _WRITE, "perm") if key in stored},
        warnings=lambda found: _warnings(topic, found, observed),
        remove=lambda pairs: _removal(topic, observed, cluster, pairs),
    )
    return plan_item(item, ways, status, observed, cluster, now, deleting=deleting)


# --- queues -------------------------------------------------------------------------------------


def _work(
    item: Item,
    topic: Topic,
    status: Mapping[str, Any],
    observed: ObservedCluster,
    pairs: Sequence[OnPair],
    now: float,
) -> Work:
    puts: list[Action] = []
    written: list[OnPair] = []
    shrinking: list[str] = []
    closed = true_since(status, "Shrinking")
    for pair in to_write(item, pairs, observed.refused):
        config, why = _next_config(item, pair, observed, closed, now)
        if why:
            shrinking.append(f"{pair.name} {why}")
        if config != pair.stored:
            puts.append(PutTopic(pair.address, config))
            written.append(pair)
    unready = None
    if shrinking:
        unready = Verdict("Ready", False, "ShrinkingReads", names(shrinking))
    events = items.put_events(item, written, status)
    kv, kv_events = _order(topic, observed, pairs)
    return Work((*puts, *kv), (*events, *kv_events), unready, [_shrinking(shrinking, written)])


def _next_config(
    item: Item,
    pair: OnPair,
    observed: ObservedCluster,
    closed_since: float | None,
    now: float,
) -> tuple[dict[str, Any], str]:
    """Return what to write now, and why that is not yet all that is wanted."""
    stored = pair.stored
    if stored is None:
        return dict(item.wanted), ""
    wanted = {**stored, **item.wanted}
    if stored[_READ] <= wanted[_READ]:
        return wanted, ""
    held = {**wanted, _READ: stored[_READ]}
    if held != stored:
        return held, "closes queues for producers"
    if closed_since is None or now - closed_since < ROUTE_SECONDS:
        return held, "waits until producers know"
    lags = observed.topic_lags.get((item.name, pair.index))
    if lags is None:
        return held, "waits to know what is consumed"
    left = [str(queue) for queue, lag in sorted(lags.items()) if queue >= wanted[_READ] and lag > 0]
    if left:
        return held, f"waits for consumers of queues {names(left)}"
    return wanted, ""


def _shrinking(shrinking: Sequence[str], written: Sequence[OnPair]) -> Verdict:
    """Return the condition whose transition time says since when the queues are closed.

    It turns True when every pair has its fewer write queues, so a write keeps it False.
    """
    closed = bool(shrinking) and not written
    return Verdict("Shrinking", closed, "ClosedForProducers" if closed else "")


# --- order --------------------------------------------------------------------------------------


def order_value(topic: Topic, pairs: Sequence[OnPair]) -> str:
    """Return the value that clients of an ordered topic receive: ``pair:queues;…``."""
    if not topic.spec.order:
        return ""
    queues = topic.spec.write_queue_nums
    return ";".join(f"{pair.name}:{queues}" for pair in pairs)


def _order(
    topic: Topic, observed: ObservedCluster, pairs: Sequence[OnPair]
) -> tuple[tuple[Action, ...], tuple[Event, ...]]:
    """Return what makes every name server that answers announce the order, or stop to."""
    wanted = order_value(topic, pairs)
    wrong = tuple(
        name_server
        for name_server, table in sorted(observed.order_configs.items())
        if table.get(topic.topic_name, "") != wanted and name_server not in observed.read_only
    )
    if not wrong:
        return (), ()
    text = f"{topic.topic_name} order at {names(wrong)}: {wanted or 'none'}"
    put = PutKv(wrong, ORDER_NAMESPACE, topic.topic_name, wanted)
    return (put,), (Event("TopicUpdated", text),)


# --- the rest -----------------------------------------------------------------------------------


def _warnings(
    topic: Topic, cluster: BrokerCluster, observed: ObservedCluster
) -> list[tuple[str, str]]:
    found = []
    asks = bool(topic.spec.order) or topic.spec.deletion_policy == "Delete"
    if asks and observed.read_only:
        where = names(sorted(observed.read_only))
        text = f"{where} gets no order: no NameServer of this namespace, nor in allow.nameServers"
        found.append(("NameServersReadOnly", text))
    if topic.spec.attributes:
        text = f"{names(sorted(topic.spec.attributes))}: {why_ignored(cluster)}"
        found.append(("AttributesIgnored", text))
    known = {cluster.broker_name(index) for index in range(cluster.spec.pairs)}
    missing = [name for name in topic.spec.pairs if name != "*" and name not in known]
    if missing:
        found.append(("PairMissing", f"the cluster has no pair {names(missing)}"))
    return found


def why_ignored(cluster: BrokerCluster) -> str:
    """Say why fields that only RocketMQ 5 has are without effect."""
    engine = cluster.spec.engine
    if engine.program == "apache" and (engine.version or "").startswith("5."):
        return "not sent to brokers of 5.x yet, set them with mqadmin"
    return "only engine apache 5.x knows them"


def _removal(
    topic: Topic,
    observed: ObservedCluster,
    cluster: BrokerCluster | None,
    pairs: Sequence[OnPair],
) -> tuple[Action, ...]:
    servers = observed.own_name_servers
    brokers = tuple(pair.address for pair in pairs if pair.stored is not None)
    name = cluster.cluster_name if cluster is not None else ""
    actions: tuple[Action, ...] = (DeleteTopic(topic.topic_name, brokers, servers, name),)
    if topic.spec.order:
        actions += (PutKv(servers, ORDER_NAMESPACE, topic.topic_name, ""),)
    return actions
