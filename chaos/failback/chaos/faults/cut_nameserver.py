"""F9: a broker is cut off from the name servers, or all clients are.

Proof of effect: no name server lists the broker any more while it answers; of clients: no name
server answers them while the broker does. Proof of heal: every name server answers and lists it.
A name server drops a broker that it has not heard of for two minutes.
"""

from __future__ import annotations

from failback.chaos.cluster.broker_facts import ask_nameservers
from failback.chaos.cluster.view import ClusterView, Member
from failback.chaos.experiment.fault_kinds import Parameter
from failback.chaos.faults.network_faults import fault_of, silent


def unlisted(view: ClusterView, member: Member) -> str:
    """Say so if every name server answers without the broker, which answers too."""
    tables = ask_nameservers(view.nameservers).values()
    if silent(member.address) or not all(
        table is not None and member.address not in table.get(member.broker_name, {}).values()
        for table in tables
    ):
        return ""
    return "the broker answers, and no name server lists it"


def unanswered(view: ClusterView, member: Member) -> str:
    """Say so if no name server answers a client, and the broker does."""
    tables = ask_nameservers(view.nameservers).values()
    if silent(member.address) or any(table is not None for table in tables):
        return ""
    return "the broker answers a client, and no name server does"


FAULT = fault_of(
    "F9",
    "cut-nameserver",
    "Packets between the name servers and a broker, or all clients, are dropped for "
    "durationSeconds",
    200.0,
    Parameter("side", "choice", "side", "broker", ("broker", "clients")),
    proves="the broker answers and no name server lists it, or none answers a client; then all do",
    broker=lambda: unlisted,
    clients=lambda: unanswered,
)
