"""May a RoleSwitch begin? What refuses it for good, and what it has to wait for. Pure.

Asked by the operation before its first write, and by the RoleSwitch's own plan, which shows what
it waits for while it is Pending.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import MemberView, ObservedCluster
from failback.operator.planning.operations.step_context import member_label
from failback.operator.planning.operations.switching.pair import end_of
from failback.operator.planning.operations.switching.request import Request
from failback.operator.planning.plan.types import Operation
from failback.operator.planning.state import predicates
from failback.operator.planning.state.cluster_state import ClusterState

MASTERLESS_SECONDS: Final = 30.0
"""A forced switch believes that a master which is not held down is gone after this."""
_COMMON: Final = ("NotPaused", "PairFree", "NoChaosRunning", "NameServersReachable")
_PLANNED: Final = (
    "NoOtherOperation",
    "SingleMaster",
    "PrefixVerified",
    "MetadataEqual",
    "ClaimsSettled",
)


@dataclass(frozen=True, slots=True)
class Preflight:
    """The answer."""

    old_master: int
    refused: str = ""
    """Why it will never begin; empty = nothing speaks against it."""
    blocked: tuple[str, ...] = ()
    """Names of the predicates it waits for."""

    @property
    def passed(self) -> bool:
        return not self.refused and not self.blocked


def preflight(
    state: ClusterState, request: Request, *, operation: Operation | None = None
) -> Preflight:
    """Judge a request.

    Args:
        operation: The operation of this very request, once it is open.
    """
    pair, target = request.spec.pair, request.spec.target_member
    cluster, observed, now = state.cluster, state.observed, state.now
    old = state.master_member(pair)
    refused = _refused(cluster, observed, request, old)
    if refused:
        return Preflight(old, refused)
    if pair in state.unclear:
        return Preflight(old, blocked=("MasterKnown",))
    forced = request.spec.mode == "Forced"
    names = _COMMON if forced else _COMMON + _PLANNED
    false = predicates.evaluate(
        names, state, pair=pair, operation=operation or _asking(request), master=old
    )
    more = _forced(observed, pair, old, now) if forced else _planned(observed, request, old, now)
    if not observed.member(pair, target).is_ready:
        more = (*more, "TargetReady")
    return Preflight(old, blocked=(*false, *more))


def _asking(request: Request) -> Operation:
    """Return the operation that a request would open, as far as predicates look at it."""
    return Operation("", "RoleSwitch", "Preflight", data={"experiment": request.experiment})


def _refused(cluster: BrokerCluster, observed: ObservedCluster, request: Request, old: int) -> str:
    spec = request.spec
    if not spec.names_pair_of(cluster):
        return f"cluster {cluster.name} has no pair {spec.pair_}"
    if spec.target_member not in cluster.pair(spec.pair).ordinals:
        return f"pair {spec.pair_} has no member {spec.target_member}"
    if spec.target_member == old:
        return f"member {old} is already master of pair {spec.pair}"
    if spec.mode == "Planned":
        return ""
    if cluster.spec.failover.mode != "Manual":
        return "mode Forced needs failover.mode Manual on the cluster"
    return _better_target(cluster, observed, request, old)


def _better_target(
    cluster: BrokerCluster, observed: ObservedCluster, request: Request, old: int
) -> str:
    """Name a reachable member whose log is longer than the target's, if one is."""
    spec = request.spec
    target = end_of(observed.member(spec.pair, spec.target_member))
    if target is None:
        return ""
    for ordinal in cluster.pair(spec.pair).ordinals:
        end = end_of(observed.member(spec.pair, ordinal))
        if ordinal not in (old, spec.target_member) and end is not None and end > target:
            better = member_label(cluster, (spec.pair, ordinal))
            return f"{better} has more of the log than the target"
    return ""


def _planned(observed: ObservedCluster, request: Request, old: int, now: float) -> tuple[str, ...]:
    pair = request.spec.pair
    master = observed.member(pair, old)
    target = observed.member(pair, request.spec.target_member)
    found: tuple[str, ...] = ()
    if not master.is_ready:
        found += ("OldMasterReady",)
    lag = facts.lag_bytes(master.broker, target.broker)
    if lag is None or not (
        lag <= request.spec.max_lag_bytes or facts.in_sync(master.broker, target.broker, now)
    ):
        found += ("LagAcceptable",)
    return found


def _is_held_down(member: MemberView) -> bool:
    """Whether the member has no pod and its StatefulSet makes none."""
    wanted = (member.statefulset or {}).get("spec", {}).get("replicas")
    return member.pod is None and wanted == 0


def _forced(observed: ObservedCluster, pair: int, old: int, now: float) -> tuple[str, ...]:
    found: tuple[str, ...] = ()
    if observed.member(pair, old).is_ready:
        found += ("OldMasterDown",)
    since = observed.masterless_since.get(pair)
    needed = 0.0 if _is_held_down(observed.member(pair, old)) else MASTERLESS_SECONDS
    if since is None or now - since < needed:
        found += ("MasterUnregistered",)
    for (index, ordinal), member in sorted(observed.members.items()):
        waits = index == pair and ordinal != old and member.is_ready and end_of(member) is None
        if waits:
            return (*found, "LogEndsKnown")
    return found
