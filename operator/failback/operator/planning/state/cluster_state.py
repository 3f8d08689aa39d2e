"""One BrokerCluster in one pass: what is wanted, what is observed, what follows from both. Pure.

A pass makes one :class:`ClusterState` and hands it to every operation. What it says is read from
the children themselves, so that an operator that starts again finds the same.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import Key, MemberView, Object, ObservedCluster
from failback.operator.planning.plan.encoding import operations_from_status
from failback.operator.planning.plan.types import Operation
from failback.operator.planning.state import instants
from failback.operator.planning.state.guard_stages import guarding_of
from failback.operator.planning.state.log_ends import serves_reads
from failback.operator.planning.state.mastership import Mastership, mastership, says_master
from failback.operator.planning.state.running_engine import arm_engine, held_engine, running_arm
from failback.operator.render.members import member_name
from failback.operator.render.shape import MOST_MEMBERS, Member, Shape

FAILOVER_SECONDS: Final = 30.0
"""How long a master must be gone before reads of its slaves are forced."""


@dataclass(frozen=True)
class ClusterState:
    """What every condition, predicate and operation of one pass asks about the cluster."""

    cluster: BrokerCluster
    status: Mapping[str, Any]
    """The status before this pass."""
    observed: ObservedCluster
    now: float
    """Unix time of the pass."""
    operations: tuple[Operation, ...] = ()
    """Those in the status, the current one first, with nothing in the future."""

    @classmethod
    def of(
        cls,
        cluster: BrokerCluster,
        status: Mapping[str, Any],
        observed: ObservedCluster,
        now: float,
    ) -> ClusterState:
        """Return the state of a pass; another clock may have written the operations."""
        operations = operations_from_status(status)
        kept = tuple(instants.not_after(operation, now) for operation in operations)
        return cls(cluster, status, observed, now, kept)

    def begin(
        self,
        kind: str,
        step: str,
        cause: str,
        *,
        pair: int | None = None,
        member: int | None = None,
        blocked_by: tuple[str, ...] = (),
        data: Mapping[str, Any],
    ) -> Operation:
        """Return an operation that begins now; equal causes give it the same id."""
        text = f"{kind}\0{pair}\0{self.cluster.metadata.generation}\0{cause}"
        return Operation(
            id=hashlib.sha256(text.encode()).hexdigest()[:12],
            type=kind,
            step=step,
            pair=pair,
            member=member,
            started_at=self.now,
            step_started_at=self.now,
            blocked_by=blocked_by,
            data=data,
        )

    @property
    def is_paused(self) -> bool:
        """Nothing but the status may be written."""
        return self.cluster.spec.suspend or self.cluster.metadata.is_paused

    # --- members ---

    @functools.cached_property
    def ordinals(self) -> Mapping[int, tuple[int, ...]]:
        """Pair → ordinals that have objects or a pod; a bare claim is no member."""
        found: dict[int, tuple[int, ...]] = {}
        for (pair, ordinal), view in sorted(self.observed.members.items()):
            if view.exists:
                found[pair] = (*found.get(pair, ()), ordinal)
        return found

    @property
    def pairs(self) -> tuple[int, ...]:
        """The indices of the pairs that have any member."""
        return tuple(self.ordinals)

    def wanted(self, pair: int) -> tuple[MemberView, ...]:
        """Return the members of a pair as the spec wants them."""
        return tuple(
            self.observed.member(pair, ordinal) for ordinal in self.cluster.pair(pair).ordinals
        )

    def is_leaving(self, pair: int, ordinal: int = 0) -> bool:
        """Tell whether the spec has no place for a member any more."""
        return pair >= self.cluster.spec.pairs or ordinal > self.cluster.pair(pair).slaves

    # --- masters ---

    @functools.cached_property
    def masters(self) -> Mapping[int, int]:
        """Pair → ordinal that is master, of every pair that is wanted or has a member."""
        return {pair: found.member for pair, found in self.masterships.items()}

    @functools.cached_property
    def masterships(self) -> Mapping[int, Mastership]:
        """Pair → its master, of every pair that is wanted or has a member."""
        count = max([self.cluster.spec.pairs, *(pair + 1 for pair in self.pairs)])
        return {pair: self._mastership(pair) for pair in range(count)}

    def master_member(self, pair: int) -> int:
        """Return the ordinal that is master, as :meth:`mastership` says."""
        found = self.masters.get(pair)
        return self.mastership(pair).member if found is None else found

    def mastership(self, pair: int) -> Mastership:
        """Return the master of a pair; the newest epoch on its claims says so."""
        found = self.masterships.get(pair)
        return self._mastership(pair) if found is None else found

    def _mastership(self, pair: int) -> Mastership:
        views = [
            view for (index, _), view in sorted(self.observed.members.items()) if index == pair
        ]
        return mastership(self.cluster, pair, views, self.row(pair))

    def row(self, pair: int) -> Mapping[str, Any]:
        """Return what the status says of a pair; empty when it does not know it."""
        rows = [row for row in self.status.get("pairs") or () if row.get("index") == pair]
        return rows[0] if rows else {}

    @functools.cached_property
    def unclear(self) -> frozenset[int]:
        """The pairs of which no member may open, because their master cannot be told.

        Of a pair that leaves no member opens anyway.
        """
        return frozenset(
            pair
            for pair, found in self.masterships.items()
            if found.unclear and pair < self.cluster.spec.pairs
        )

    def master(self, pair: int) -> MemberView:
        """Return the master of a pair."""
        return self.observed.member(pair, self.master_member(pair))

    def is_whole(self, pair: int) -> bool:
        """Tell whether every wanted member of a pair is ready and its master is registered."""
        name = self.cluster.broker_name(pair)
        registered = facts.is_registered(self.observed, name, self.master(pair), 0)
        return registered and all(view.is_ready for view in self.wanted(pair))

    def is_contested(self, pair: int) -> bool:
        """Tell whether two or more processes act as master of a pair."""
        return facts.is_contested(self.observed, pair, self.cluster.broker_name(pair))

    def holds(self, view: MemberView) -> bool:
        """Tell whether a budget of its own keeps a member's pod: a master's, by its label."""
        labelled = view.pod is not None and view.pod.role == "master"
        return labelled and self.cluster.spec.failover.on_drain != "Allow"

    # --- what is rendered before any operation ---

    @functools.cached_property
    def arm(self) -> Mapping[str, Any] | None:
        """The arm of an experiment whose configuration is merged over the cluster's now."""
        return running_arm(self.observed)

    @functools.cached_property
    def held_engine(self) -> dict[str, str] | None:
        """The engine that must stay because the wanted one can't read the stores."""
        return held_engine(self.cluster, self.observed, arm_engine(self.cluster, self.arm))

    @functools.cached_property
    def base_shape(self) -> Shape:
        """The shape before any operation: what exists is kept, what the spec adds is added."""
        spare = {
            pair: ordinals[-1]
            for pair, ordinals in self.ordinals.items()
            if ordinals[-1] > self.cluster.pair(pair).slaves
        }
        shape = Shape(
            pairs=len(self.masters),
            slaves=spare,
            masters=dict(self.masters),
            stopped=self._kept_out[0],
            gated=self._kept_out[1],
            closed=frozenset(pair for pair in self.masters if self._is_closed(pair)),
            masters_held=frozenset(
                view.pair
                for view in self.observed.members.values()
                if view.is_ready and self.holds(view)
            ),
            read_forced=frozenset(pair for pair in self.pairs if self._reads_are_forced(pair)),
            overlay=dict(self.arm.get("brokerConfig") or {}) if self.arm else {},
            engine=arm_engine(self.cluster, self.arm),
            guarding=guarding_of(self.cluster, self.observed),
        )
        held = self.held_engine
        return shape if held is None else dataclasses.replace(shape, engine=held)

    @functools.cached_property
    def _kept_out(self) -> tuple[frozenset[Member], frozenset[Member]]:
        """The members that are stopped while their master is not known, and those that only read
        where the log on their claim ends, once nothing runs there. A slave that serves reads is
        neither. What has read is stopped before it opens."""
        stopped = {(pair, each) for pair in self.unclear for each in range(MOST_MEMBERS)}
        gated: set[Member] = set()
        for member, view in self.observed.members.items():
            if member not in stopped or self.masterships[view.pair].stops:
                stopped |= {member} if facts.is_gated(view) else set()
            elif serves_reads(view):
                stopped.remove(member)
            elif view.claim is not None and not (view.claim.empty or view.claim.deleting):
                gated |= {member} if facts.is_gated(view) or facts.is_stopped(view) else set()
        return frozenset(stopped - gated), frozenset(gated)

    def _is_closed(self, pair: int) -> bool:
        """Tell whether a pair takes no writes now: its master's file says so, or it is new."""
        view = self.master(pair)
        if view.config_map is not None:
            return facts.properties(view.config_map).get("brokerPermission") == "4"
        views = (self.observed.member(pair, each) for each in self.ordinals.get(pair, ()))
        if all(map(facts.is_gated, views)):
            return not self._is_fresh
        config = view.broker.config if view.broker else None
        return (config or {}).get("brokerPermission") == "4"

    @functools.cached_property
    def _is_fresh(self) -> bool:
        """The cluster is made for the first time: nothing serves that could be copied."""
        if self.status.get("observedGeneration"):
            return False
        views = self.observed.members.values()
        return not any(view.pod is not None and view.pod.ready for view in views)

    # --- failover: slaves that serve reads while the master is gone ---

    def _reads_are_forced(self, pair: int) -> bool:
        """Decide ``failover.mode: SlaveReadOnly`` for one pair.

        What was forced stays so until the master is registered and its slaves have its tables.
        """
        master = self.master(pair)
        if self.cluster.spec.failover.mode != "SlaveReadOnly" or self.is_leaving(pair):
            return False
        if self.cluster.pair(pair).slave_read_enable or self.is_leaving(pair, master.ordinal):
            return False
        since = self.observed.masterless_since.get(pair)
        gone = not master.is_ready
        if gone and since is not None and self.observed.at - since >= FAILOVER_SECONDS:
            return True
        ordinals = [each for each in self.ordinals[pair] if each != master.ordinal]
        slaves = [self.observed.member(pair, ordinal) for ordinal in ordinals]
        files = [facts.properties(slave.config_map) for slave in slaves]
        forced = any(file.get("slaveReadEnable") == "true" for file in files)
        return forced and not self._is_restored(master, slaves)

    def _is_restored(self, master: MemberView, slaves: list[MemberView]) -> bool:
        name = self.cluster.broker_name(master.pair)
        if not facts.is_registered(self.observed, name, master, 0):
            return False
        tables = [facts.compare_metadata(master.broker, slave.broker) for slave in slaves]
        return all(
            table and table.equal and not table.stale and not table.ahead for table in tables
        )


def master_of(desired: Mapping[Key, Object], cluster: BrokerCluster, pair: int) -> int:
    """Return the master member of a pair among rendered objects.

    Raises:
        LookupError: The pair is not rendered.
    """
    for ordinal in range(MOST_MEMBERS):
        rendered = desired.get(("ConfigMap", member_name(cluster, pair, ordinal)))
        if rendered is not None and says_master(rendered):
            return ordinal
    raise LookupError(f"pair {pair} is not rendered")


def members(cluster: BrokerCluster, pair: int) -> tuple[Member, ...]:
    """Return the members of a pair as the spec wants them."""
    return tuple((pair, ordinal) for ordinal in cluster.pair(pair).ordinals)


@dataclass(frozen=True)
class StateView:
    """What is asked about the state of one pass, with the short names of its parts."""

    state: ClusterState

    @property
    def cluster(self) -> BrokerCluster:
        """What the user wants."""
        return self.state.cluster

    @property
    def observed(self) -> ObservedCluster:
        """What this pass sees."""
        return self.state.observed

    @property
    def now(self) -> float:
        """Unix time of the pass."""
        return self.state.now
