"""Whether another cluster or another operator acts on the same names. Pure.

A name server keeps one broker of a name and id. Where two clusters have the same broker names at
the same name servers, the second broker to register gets the clients of the first. So the younger
cluster makes nothing. The resources tell this before any broker runs. Brokers of others, and name
servers by an address that no resource has, show in what the name servers list
(``planning.cluster.cluster``).

Every operator writes its version into the status. A version of ours that turns into another one was
written by another operator. One that is there at the start is that of the release before. Two
operators of one version do each other no harm and cannot be told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

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
    here = own["metadata"]["namespace"]
    if reference is None:
        theirs: Sequence[str] = other["spec"].get("nameServerAddresses") or ()
    elif reference == own["spec"].get("nameServerRef") and namespace == here:
        return True
    else:
        theirs = published(namespace, reference["name"])
    ours = {place_of(each, here) for each in servers}
    return not ours.isdisjoint(place_of(each, namespace) for each in theirs)


def place_of(address: str, namespace: str) -> tuple[str, ...]:
    """Return one spelling for all names by which Kubernetes knows the pods of a NameServer.

    ``main-namesrv``, ``main-namesrv.shop.svc`` and ``main-ns-0.main-ns.shop.svc.cluster.local``
    with any port are the NameServer ``main`` of namespace ``shop``, as ``render.service`` names
    its Services. Any other address is itself.

    Args:
        namespace: Where a name without one is looked up.
    """
    host = address.rpartition(":")[0].rstrip(".").lower()
    labels = host.partition(".svc")[0].split(".")
    for service in (labels[0], *labels[1:2]):
        name = next((service.removesuffix(end) for end in SERVICES if service.endswith(end)), "")
        rest = labels[labels.index(service) + 1 :]
        if name and len(rest) <= 1:
            return name, *(rest or [namespace])
    return (address,)


SERVICES: Final = ("-namesrv", "-ns", "-external")
"""Endings of the Services of a NameServer."""


SECONDS: Final = 300.0
"""How long the other one is believed to be there after it wrote last."""


@dataclass(slots=True)
class OtherOperator:
    """What is remembered of one resource; it may be lost at any time."""

    shown: str = ""
    version: str = ""
    until: float = 0.0

    def look(self, shown: str, own: str, now: float) -> tuple[tuple[str, ...], str]:
        """Return the versions of both operators while there are two, and the one to show.

        The first answer to another one's version is our own, so that it learns of us too. After
        that both leave what is there, or they would write over each other for ever.

        Args:
            shown: Version in the status now.
            own: Version of this operator.
            now: Seconds of any clock that does not go back.
        """
        known = now < self.until
        if shown and shown != own == self.shown:
            self.version, self.until = shown, now + SECONDS
        self.shown = shown
        if now >= self.until:
            return (), own
        return tuple(sorted((own, self.version))), shown if known and shown else own
