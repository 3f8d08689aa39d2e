"""Two clusters of the same broker names at the same name servers: the younger makes nothing. Pure.

A name server keeps one broker of a name and id. The second one to register takes the clients of the
first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from failback.operator.planning.observed.observed import Object

Published = Callable[[str, str], Sequence[str]]
"""Namespace and name of a NameServer → the addresses that its status has."""


def older_rival(
    own: Object, others: Iterable[Object], servers: Sequence[str], published: Published
) -> str:
    """Say which older cluster has the broker names of ``own``; empty when none has.

    Args:
        others: The other BrokerClusters whose brokers have the same names.
        servers: ``host:port`` of the name servers that ``own`` registers at.
    """
    for other in others:
        if _age(other) < _age(own) and _shares_name_server(own, other, servers, published):
            found = other["metadata"]
            name = f"{found['namespace']}/{found['name']}"
            return f"BrokerCluster {name} is older and has these broker names at the name servers"
    return ""


def _age(cluster: Object) -> tuple[str, str, str]:
    metadata = cluster["metadata"]
    return metadata.get("creationTimestamp") or "", metadata["namespace"], metadata["name"]


def _shares_name_server(
    own: Object, other: Object, servers: Sequence[str], published: Published
) -> bool:
    reference, namespace = other["spec"].get("nameServerRef"), other["metadata"]["namespace"]
    if reference is None:
        theirs: Sequence[str] = other["spec"].get("nameServerAddresses") or ()
    elif (
        reference == own["spec"].get("nameServerRef") and namespace == own["metadata"]["namespace"]
    ):
        return True
    else:
        theirs = published(namespace, reference["name"])
    return not set(servers).isdisjoint(theirs)
