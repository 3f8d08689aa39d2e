"""Observations of a cluster whose brokers have given topic and group tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning.observed.observed import Broker, MemberView, ObservedCluster
from failback.operator.render.shape import Member

Table = Mapping[str, Mapping[str, Any]]
NAME_SERVERS = ("ns-0:9876", "ns-1:9876")


def cluster_of(pairs: int = 1, slaves: int = 1, **spec: Any) -> BrokerCluster:
    """Return a cluster ``orders``."""
    return BrokerCluster.model_validate(
        {
            "kind": "BrokerCluster",
            "metadata": {"name": "orders", "namespace": "shop", "uid": "uid-orders"},
            "spec": {
                "nameServerAddresses": list(NAME_SERVERS),
                "pairs": pairs,
                "slavesPerPair": slaves,
                **spec,
            },
        }
    )


def address(pair: int, ordinal: int) -> str:
    """Return where a member is asked."""
    return f"orders-{pair}-{ordinal}:10911"


def member(
    pair: int,
    ordinal: int,
    *,
    master: bool,
    topics: Table | None = None,
    groups: Table | None = None,
    answers: bool = True,
) -> MemberView:
    """Return a member; one that does not answer has no broker."""
    role, broker_id = ("ASYNC_MASTER", 0) if master else ("SLAVE", ordinal or 1)
    file = f"brokerId={broker_id}\nbrokerRole={role}\n"
    broker = None
    if answers:
        config = {"brokerRole": role, "brokerId": str(broker_id)}
        broker = Broker(address(pair, ordinal), config=config, topics=topics, groups=groups)
    return MemberView(pair, ordinal, config_map={"data": {"broker.conf": file}}, broker=broker)


def seen(*members: MemberView, **more: Any) -> ObservedCluster:
    """Return an observation of these members."""
    views: dict[Member, MemberView] = {(item.pair, item.ordinal): item for item in members}
    return ObservedCluster(at=0.0, members=views, name_servers=NAME_SERVERS, **more)
