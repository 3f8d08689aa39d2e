"""F8: a broker is cut off from its clients alone.

A program that is no pod of the cluster is a client, the witness too. Proof of effect: new
connections of a client get no answer, and every name server lists the broker. Proof of heal: it
answers, and serves a pull and a send.
"""

from __future__ import annotations

from failback.chaos.cluster.view import ClusterView, Member
from failback.chaos.faults.network_faults import fault_of, listed_at, silent


def unanswered(view: ClusterView, member: Member) -> str:
    """Say so if clients get no answer from a broker that all name servers list."""
    if not silent(member.address) or len(listed_at(view, member)) < len(view.nameservers):
        return ""
    return "a client gets no answer, and every name server lists the broker"


FAULT = fault_of(
    "F8",
    "cut-clients",
    "Packets between a broker and its clients are dropped for durationSeconds",
    120.0,
    proves="a client gets no answer, while every name server lists the broker; then it does",
    broker=lambda: unanswered,
)
