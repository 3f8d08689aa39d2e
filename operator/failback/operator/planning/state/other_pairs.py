"""Whether other pairs take the messages of a pair that closes. Pure.

A pair is closed before its master goes, so that producers have gone to other pairs by then. Where
they have nowhere to go that only makes the outage longer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from failback.operator.planning.observed import facts
from failback.operator.planning.state.cluster_state import ClusterState
from failback.protocol.message import DLQ_PREFIX, RETRY_PREFIX
from failback.protocol.names import is_system_topic

_WRITE: Final = 2


def is_broker_made(topic: str) -> bool:
    """Tell whether brokers make and fill a topic themselves: system topics, retries, dead letters.

    The two that are named after a pair and its cluster are not among them.
    """
    return is_system_topic(topic) or topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def take_messages_of(state: ClusterState, pair: int) -> bool:
    """Tell whether every topic that producers write to on a pair is open on another one too.

    What is not known of the pair's own topics speaks for closing it.
    """
    own = _written_topics(state, pair)
    if own is None:
        return True
    others = [other for other in state.pairs if other != pair and _takes_writes(state, other)]
    elsewhere = set().union(*(_written_topics(state, other) or () for other in others))
    return bool(others) and own <= elsewhere


def _takes_writes(state: ClusterState, pair: int) -> bool:
    master = state.master(pair)
    name = state.cluster.broker_name(pair)
    listed = facts.is_registered(state.observed, name, master, 0)
    return master.is_ready and listed and pair not in state.base_shape.closed


def _written_topics(state: ClusterState, pair: int) -> set[str] | None:
    broker = state.master(pair).broker
    if broker is None or broker.topics is None:
        return None
    of_brokers = {state.cluster.cluster_name, state.cluster.broker_name(pair)}
    return {
        name
        for name, config in broker.topics.items()
        if _is_written(config) and name not in of_brokers and not is_broker_made(name)
    }


def _is_written(config: Mapping[str, Any]) -> bool:
    return bool(config.get("perm", 6) & _WRITE)
