"""One cluster as conditions and status see it: what is wanted beside what is observed. Pure."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from failback.common.numbers import whole, whole_or_0
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import Key, MemberView, Object
from failback.operator.planning.plan.types import Operation
from failback.operator.planning.state.cluster_state import StateView
from failback.operator.render.members import member_name, pod_name
from failback.operator.render.shape import Member, Shape


@dataclass(frozen=True)
class ClusterView(StateView):
    """The arguments of every condition of a BrokerCluster."""

    shape: Shape
    desired: Mapping[Key, Object] = field(default_factory=dict)
    """Objects rendered for ``shape``."""
    drift: Mapping[Key, str] = field(default_factory=dict)
    """Children that this pass applies, and why."""
    operations: tuple[Operation, ...] = ()
    """The operations after this pass, as the status shows them."""
    unknown: frozenset[str] = frozenset()
    """Keys of the spec's ``config`` that the engine does not know and that are not applied."""

    @property
    def previous(self) -> Mapping[str, Any]:
        """The status before this pass."""
        return self.state.status

    @functools.cached_property
    def members(self) -> tuple[MemberView, ...]:
        """The members that are wanted now, by pair and ordinal."""
        return tuple(
            self.observed.member(pair, ordinal)
            for pair in range(self.shape.pairs)
            for ordinal in self.ordinals(pair)
        )

    def ordinals(self, pair: int) -> range:
        """Return the ordinals of a pair that are wanted now."""
        slaves = self.shape.slaves.get(pair)
        return range((self.cluster.pair(pair).slaves if slaves is None else slaves) + 1)

    def pair_members(self, pair: int) -> Iterator[MemberView]:
        """Yield the wanted members of one pair."""
        return (member for member in self.members if member.pair == pair)

    @functools.cached_property
    def _properties(self) -> dict[Member, Mapping[str, str]]:
        return {
            (member.pair, member.ordinal): facts.properties(
                self.desired.get(("ConfigMap", self.member_name(member)))
            )
            for member in self.members
        }

    def wanted(self, member: MemberView) -> Mapping[str, str]:
        """Return the properties rendered for a member."""
        return self._properties.get((member.pair, member.ordinal), {})

    def broker_id(self, member: MemberView) -> int:
        """Return the broker id rendered for a member."""
        wanted = whole(self.wanted(member).get("brokerId"))
        if wanted is not None:
            return wanted
        return self.cluster.pair(member.pair).broker_id(member.ordinal)

    def master(self, pair: int) -> MemberView | None:
        """Return the member that is wanted as master of a pair."""
        found = [item for item in self.pair_members(pair) if self.broker_id(item) == 0]
        return found[0] if found else None

    def slaves(self, pair: int) -> tuple[MemberView, ...]:
        """Return the members that are wanted as slaves of a pair."""
        return tuple(item for item in self.pair_members(pair) if self.broker_id(item) != 0)

    def member_name(self, member: MemberView) -> str:
        """Return the name of a member's StatefulSet and ConfigMap."""
        return member_name(self.cluster, member.pair, member.ordinal)

    def pod_name(self, member: MemberView) -> str:
        """Return the name of a member's pod."""
        return pod_name(self.cluster, member.pair, member.ordinal)

    def is_registered(self, member: MemberView) -> bool:
        """Tell whether the member is listed under its id."""
        name = self.cluster.broker_name(member.pair)
        return facts.is_registered(self.observed, name, member, self.broker_id(member))

    def is_stopped(self, member: MemberView) -> bool:
        """Tell whether the member is meant to have no pod now."""
        wanted = self.desired.get(("StatefulSet", self.member_name(member)), {})
        return bool(wanted.get("spec", {}).get("replicas", 1) == 0)

    def previous_pair(self, index: int) -> Mapping[str, Any]:
        """Return what the status said of a pair before this pass."""
        return self.state.row(index)

    def previous_member(self, member: MemberView) -> Mapping[str, Any]:
        """Return what the status said of a member before this pass."""
        for item in self.previous_pair(member.pair).get("members") or ():
            if item.get("ordinal") == member.ordinal:
                found: Mapping[str, Any] = item
                return found
        return {}

    def lag(self, member: MemberView) -> str:
        """Return the lag bucket of a slave."""
        master = self.master(member.pair)
        before = self.previous_member(member).get("lag")
        return facts.lag_bucket(master.broker if master else None, member.broker, before, self.now)

    def metadata(self, member: MemberView) -> facts.Metadata | None:
        """Return how a slave's tables compare with its master's."""
        master = self.master(member.pair)
        return facts.compare_metadata(master.broker if master else None, member.broker)

    def is_writable(self, pair: int) -> bool:
        """Tell whether the pair's master is ready, registered as id 0 and open for writes."""
        master = self.master(pair)
        if master is None or not master.is_ready or not self.is_registered(master):
            return False
        config = master.broker.config if master.broker else None
        permission = (config or self.wanted(master)).get("brokerPermission", "6")
        return bool(whole_or_0(permission) & 2)
