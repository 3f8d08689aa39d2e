"""F7: a broker and the others of its pair are cut off from each other.

Proof of effect: the slaves' logs stand still while the master's grows. Proof of heal: they have
caught up.
"""

from __future__ import annotations

from failback.chaos.cluster.view import MASTER, ClusterView, Member
from failback.chaos.faults.network_faults import fault_of, log_end
from failback.protocol.errors import FailbackError


class StandStill:
    """What a look at the ends of a pair's logs adds to the look before."""

    def __init__(self) -> None:
        self._slaves: list[int] = []
        self._master = 0
        """Where the master's log ended when the slaves' ends last changed."""

    def __call__(self, view: ClusterView, victim: Member) -> str:
        """Say so if the slaves that are cut off stand still behind a growing master."""
        pair = [each for each in view.members if each.pair == victim.pair]
        others = [each for each in pair if each.role != MASTER]
        cut_off = others if victim.role == MASTER else [victim]
        try:
            slaves = [log_end(each) for each in cut_off]
            (master,) = [log_end(each) for each in pair if each.role == MASTER]
        except (FailbackError, ValueError):
            return ""
        if slaves != self._slaves:
            self._slaves, self._master = slaves, master
        if not slaves or master <= self._master or master <= max(slaves):
            return ""
        grown = master - self._master
        return f"the log of the master grew by {grown} bytes, and its slaves' stood still"


FAULT = fault_of(
    "F7",
    "cut-replication",
    "Packets between a broker and the others of its pair are dropped for durationSeconds",
    120.0,
    proves="the slaves' logs stand still while the master's grows; then they catch up",
    broker=StandStill,
)
