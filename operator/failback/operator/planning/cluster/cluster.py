"""Decide what a BrokerCluster needs now: one pass, from observation to actions and status. Pure.

Depends on its arguments only. Nothing is destroyed on what is not known, and at most one action of
a pass takes something away. Once nothing is left to do the plan holds no action and an unchanged
status.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning import operations
from failback.operator.planning.cluster import conditions, drain, guarded, last_valid, warnings
from failback.operator.planning.cluster import status as cluster_status
from failback.operator.planning.cluster.carried import carried_events, carried_verdicts
from failback.operator.planning.cluster.external_access import (
    external_access,
    with_addresses,
    without_waiting,
)
from failback.operator.planning.cluster.unapplied_keys import left_out, refused_changes, without
from failback.operator.planning.cluster.view import ClusterView
from failback.operator.planning.cluster.warnings import CHANGE_REFUSED, refused_change
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import Key, Object, ObservedCluster
from failback.operator.planning.operations.evidence import has_evidence
from failback.operator.planning.operations.turns import Turn, lane_of, operate
from failback.operator.planning.plan.children import by_key, key_of, plan_children
from failback.operator.planning.plan.encoding import (
    OPERATION_FIELDS,
    Verdict,
    find_condition,
    from_time,
    is_true,
    judged,
    names,
    operations_to_status,
)
from failback.operator.planning.plan.memory import Desired, Memory
from failback.operator.planning.plan.types import (
    Action,
    Apply,
    Event,
    LabelPod,
    Plan,
)
from failback.operator.planning.state import live_keys
from failback.operator.planning.state.claim_marks import claim_marks, last_marks
from failback.operator.planning.state.cluster_state import ClusterState
from failback.operator.planning.state.decode import member_of
from failback.operator.planning.state.guard_stages import removed_too_early
from failback.operator.planning.state.running_engine import cluster_context
from failback.operator.render import common
from failback.operator.render.context import Context
from failback.operator.render.objects import render_cluster
from failback.operator.render.shape import Shape
from failback.operator.schema.permitted import accepting, broken
from failback.operator.schema.rules import Violation

_OF_MEMBERS: Final = frozenset({"ConfigMap", "StatefulSet"})
_COMPARED: Final = frozenset(
    {"ConfigApplied", "RolesConsistent", "ReplicationHealthy", "MetadataSynced", "ScalingDown"}
    | {"Reconciling"}
)
"""Conditions that compare the cluster with what is wanted of it."""
_WAITING: Final = 15.0
"""Seconds until the next look at something that is not as wanted, though nothing changed:
some causes are a matter of time."""
_DRAINING: Final = 5.0
"""Seconds until the next look at a master that is to leave its node."""
_LONGEST_RULE: Final = 90.0
"""Seconds after the last change from which on time alone turns nothing: no rule counts longer."""


def plan_cluster(
    cluster: BrokerCluster,
    status: Mapping[str, Any],
    observed: ObservedCluster,
    context: Context,
    now: float,
    memory: Memory | None = None,
    refused: str = "",
) -> Plan:
    """Return what brings the cluster towards its spec, and the status to write.

    Args:
        memory: Results of earlier passes; the plan is the same without it.
        refused: Why the stored spec can't even be read; ``cluster`` then has the last valid one.
    """
    memory = Memory() if memory is None else memory
    given = _Given(cluster, status, observed, context, now, memory)
    found = () if refused else broken(cluster, context.permits)
    if found:
        kept = last_valid.kept(cluster, observed.objects, memory)
        found = broken(cluster, accepting(context.permits, kept)) if kept is not None else found
    text = refused or "; ".join(map(_words, found[:3])) or _oversize(cluster)
    return _by_last_valid(given, text) if text else _by_its_spec(given)


def _oversize(cluster: BrokerCluster) -> str:
    """Return why the objects of all members together would be too large; empty if they are not.

    Each member's objects have the spec's template and keys once or more. All objects are in the
    operator's memory and in the API server's.
    """
    members = cluster.spec.pairs * (1 + cluster.spec.slaves_per_pair)
    if members * _MOST_OBJECT_BYTES <= MOST_SPEC_BYTES:
        return ""
    size = len(cluster.spec.model_dump_json(exclude_unset=True)) * members
    if size <= MOST_SPEC_BYTES:
        return ""
    return (
        f"spec: {members} members with {size // members} bytes of spec each are {size} bytes, at"
        f" most {MOST_SPEC_BYTES} are taken: shorten podTemplate and config, or have fewer pairs"
    )


def _words(found: Violation) -> str:
    return f"{found.rule} {found.path}: {found.message}"


_MOST_OBJECT_BYTES: Final = 3 * 1024 * 1024 // 2
"""What etcd keeps of one resource."""
MOST_SPEC_BYTES: Final = 16 * 1024 * 1024
"""Bytes of a cluster's spec times its members; 256 members with 10 KB each have 2.5 MB."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Given:
    """The arguments of :func:`plan_cluster`."""

    cluster: BrokerCluster
    status: Mapping[str, Any]
    observed: ObservedCluster
    context: Context
    now: float
    memory: Memory

    @property
    def state(self) -> ClusterState:
        """The state of the pass without an operation that this release lacks or can't believe."""
        state = ClusterState.of(self.cluster, self.status, self.observed, self.now)
        known = tuple(
            item
            for item in state.operations
            if item.type in operations.OPERATIONS and has_evidence(state, item)
        )
        return dataclasses.replace(state, operations=known)


@dataclasses.dataclass(frozen=True, slots=True)
class _Refusal:
    """Why the spec is not carried out, as ``Ready`` says it."""

    reason: str
    message: str


def _by_last_valid(given: _Given, text: str) -> Plan:
    """Keep the cluster by the last spec that could be carried out; without one do nothing."""
    kept = last_valid.kept(given.cluster, given.observed.objects, given.memory)
    refusal = _Refusal("InvalidSpec", text)
    if kept is None or broken(kept, accepting(given.context.permits, kept)):
        return _only_status(given.state, given.context, refusal)
    return _by_its_spec(dataclasses.replace(given, cluster=kept), refusal)


def _by_its_spec(given: _Given, refusal: _Refusal | None = None) -> Plan:
    """Return what brings the cluster towards its spec.

    Args:
        refusal: Why it is that of earlier.
    """
    cluster, observed, context = given.cluster, given.observed, given.context
    state = given.state
    addresses = _name_servers(observed)
    if addresses is None:
        return _only_status(state, context, _Refusal("NameServerMissing", _missing(cluster)))
    shape = shape_of(state)
    rendered_in = cluster_context(cluster, observed, shape, context)
    rendered_in = with_addresses(rendered_in, cluster, observed)
    version = common.engine_version(cluster.spec.engine, rendered_in)
    unknown = left_out(state, version, rendered_in.version)
    applied_spec = without(cluster, unknown, given.memory)
    desired = given.memory.render(
        applied_spec,
        addresses,
        rendered_in,
        shape,
        lambda: by_key(render_cluster(applied_spec, addresses, rendered_in, shape=shape)),
    )
    desired = _without_unclear(state, shape, without_waiting(cluster, rendered_in, desired))
    early = removed_too_early(cluster, observed)
    fixed = [*filter(None, [early]), *refused_changes(observed, desired)]
    if fixed and refusal is None:
        return _by_last_valid(given, "; ".join(fixed[:3]))
    refusal = refusal or _taken(state, desired)
    note = last_valid.key_of(cluster.name)
    if refusal is None and observed.name_servers is not None and desired:
        desired = {**desired, note: last_valid.note(cluster, rendered_in, given.memory)}
    children, drift = plan_children(desired.values(), observed.objects, given.memory, note)
    if state.is_paused:
        view = ClusterView(state, shape, desired, {}, state.operations, unknown)
        return Plan(status=_status(view, context, rendered_in, refusal, settled=False))
    contested = [pair for pair in range(shape.pairs) if state.is_contested(pair)]
    applied = [item for item in children if not _picks_a_master(item, observed, contested)]
    if refusal is not None and refusal.reason == "NameTaken":
        applied = [item for item in applied if _heals(item, observed)]
        keys = [key_of(item.manifest) for item in applied if isinstance(item, Apply)]
        drift = {key: drift[key] for key in keys if key in drift}
    held = "SingleMaster" if contested else _hold(refusal)
    turn = operate(state, desired, held=held)
    view = ClusterView(state, shape, desired, drift, turn.operations, unknown)
    claims = () if held == "NamesFree" else claim_marks(state, desired, turn.begun)
    before = (*claims, *applied)
    drained = drain.Drain() if held or turn.begun else drain.drain(state, context)
    marks = (*_pod_marks(view), *drained.actions)
    actions = (*before, *turn.actions, *marks)
    lanes = (*map(lane_of, before), *turn.lanes, *map(lane_of, marks))
    if held == "NamesFree" and not any(each.exists for each in observed.members.values()):
        actions, lanes = (), ()
    # The pass in which an operation ends does not know yet whether another pair needs one.
    idle = not state.operations and not turn.operations
    switched = shape.guarding is None
    settled = idle and not actions and not contested and refusal is None and switched
    new = _status(view, context, rendered_in, refusal, settled=settled)
    events = (*turn.events, *drained.events, *_events(view, new))
    return Plan(
        actions=actions,
        status=new,
        lanes=lanes,
        operations_first=turn.first if actions else None,
        events=(*events, *_refusal_events(view.previous, refusal)),
        wake_after=_wake_after(view, turn, new),
        last_actions=last_marks(state),
    )


def shape_of(state: ClusterState) -> Shape:
    """Return the shape to render now: how the objects deviate from the spec on purpose.

    Members that leave are still rendered, and a role is what the ConfigMaps say
    (``planning.state.cluster_state``). A closed pair is closed until an operation opens it. Live
    keys wait for their member's turn.
    """
    known = [item for item in state.operations if item.pair not in state.unclear]
    shape = operations.reshape(state.base_shape, state.cluster, known)
    return dataclasses.replace(shape, live=live_keys.held(state, shape))


def _taken(state: ClusterState, desired: Mapping[Key, Object]) -> _Refusal | None:
    """Return whose name this cluster would take, or ``None``.

    A pair without members that name servers list is of other brokers, whichever address this
    cluster knows those name servers by. A broker that was killed is listed for two minutes more.
    """
    observed = state.observed
    if observed.rival:
        return _Refusal("NameTaken", observed.rival)
    for pair in set(range(state.cluster.spec.pairs)).difference(state.ordinals):
        name = state.cluster.broker_name(pair)
        others = [at for each in facts.registrations(observed, name).values() for at in each]
        if others:
            text = f"the name servers list {name} at {names(sorted(others))}, no member of this"
            return _Refusal("NameTaken", f"{text} cluster: stop it or set brokerNamePrefix")
    taken = sorted(key for key in desired if key in observed.foreign)
    if not taken:
        return None
    text = names(f"{kind}/{name} belongs to somebody else" for kind, name in taken)
    return _Refusal("NameTaken", text)


def _hold(refusal: _Refusal | None) -> str:
    """Return what operations wait for while another owner has a name."""
    return "NamesFree" if refusal is not None and refusal.reason == "NameTaken" else ""


def _heals(action: Action, observed: ObservedCluster) -> bool:
    """Tell whether an action keeps what is there: nothing new is made beside an object of another
    owner."""
    if not isinstance(action, Apply):
        return True
    if key_of(action.manifest) in observed.foreign:
        return False
    pair = action.manifest["metadata"].get("labels", {}).get("failback.dev/pair")
    here = {str(view.pair) for view in observed.members.values() if view.exists}
    member = member_of(action.manifest)
    return pair is None or (pair in here and (member is None or observed.member(*member).exists))


def _missing(cluster: BrokerCluster) -> str:
    reference = cluster.spec.name_server_ref
    return f"there is no NameServer {reference.name if reference else ''}".rstrip()


def _name_servers(observed: ObservedCluster) -> list[str] | None:
    """Return the addresses to render: those given, else the last that members were told."""
    if observed.name_servers is not None:
        return list(observed.name_servers)
    for _, member in sorted(observed.members.items()):
        known = facts.properties(member.config_map).get("namesrvAddr")
        if known:
            return known.split(";")
    return None


def _picks_a_master(action: Action, observed: ObservedCluster, contested: Sequence[int]) -> bool:
    """Tell whether an action changes what a member of a pair with two masters of ours starts from.

    A member that is asked to stop is stopped: that is how a person ends that state.
    """
    if not isinstance(action, Apply) or action.manifest["kind"] not in _OF_MEMBERS:
        return False
    pair = action.manifest["metadata"].get("labels", {}).get("failback.dev/pair")
    stops = action.manifest.get("spec", {}).get("replicas") == 0
    return not stops and any(
        pair == str(index) and len(facts.claims_to_be_master(observed, index)) > 1
        for index in contested
    )


def _pod_marks(view: ClusterView) -> tuple[Action, ...]:
    """Return what pods are to show: the role a broker says it has."""
    found: list[Action] = []
    for member in view.members:
        pod = member.pod
        if pod is None or pod.deleting:
            continue
        says_master = facts.says_master(member.broker)
        if says_master is not None:
            role = "master" if says_master else "slave"
            if pod.role != role:
                found.append(LabelPod(pod.name, pod.uid, {common.ROLE_LABEL: role}))
    return tuple(found)


def _without_unclear(state: ClusterState, shape: Shape, desired: Desired) -> Desired:
    """Leave out what would open a pair whose master cannot be told.

    Its members are stopped or stand at their gates, and keep the files that they have. A slave that
    serves reads keeps its role.
    """
    if not state.unclear:
        return desired
    found = {}
    for key, item in desired.items():
        member, stands = member_of(item), key in state.observed.objects
        pair = item["metadata"].get("labels", {}).get("failback.dev/pair", "")
        if not pair.isdigit() or int(pair) not in state.unclear:
            keeps = True
        elif member is None or key[0] not in _OF_MEMBERS:
            keeps = stands
        elif member in shape.stopped | shape.gated:
            keeps = key[0] == "StatefulSet" and (stands or member in shape.gated)
        else:
            keeps = shape.masters[member[0]] != member[1]
        if keeps:
            found[key] = item
    return found


def _verdicts(
    view: ClusterView, version: str, refusal: _Refusal | None, context: Context
) -> list[Verdict]:
    ready = conditions.ready(view)
    if refusal is not None:
        ready = Verdict("Ready", False, refusal.reason, refusal.message)
    elif view.observed.name_servers is None:
        ready = Verdict("Ready", False, "NameServerMissing", _missing(view.cluster))
    elif view.state.is_paused and ready.value:
        gone = sorted(key for key in view.desired if key not in view.observed.objects)
        missing = names(f"{kind}/{name}" for kind, name in gone)
        text = f"paused, {missing} is not there" if missing else "paused: nothing is repaired"
        ready = Verdict("Ready", not missing, "Suspended", text)
    return [
        ready,
        conditions.config_applied(view),
        conditions.roles_consistent(view),
        conditions.replication_healthy(view),
        conditions.metadata_synced(view),
        *carried_verdicts(view),
        conditions.scaling_down(view),
        *drain.drain(view.state, context).verdicts,
        *external_access(view),
        *guarded.verdicts(view),
        conditions.reconciling(view),
        warnings.warning(view, version, context.permits),
    ]


def _status(
    view: ClusterView,
    context: Context,
    rendered_in: Context,
    refusal: _Refusal | None,
    *,
    settled: bool,
) -> dict[str, Any]:
    """Return the whole status; fields that are not ours to say stay as they were.

    Args:
        context: Of this operator.
        rendered_in: The same with the release that the cluster's members run.
        refusal: Why the cluster's own spec is not carried out.
    """
    version = common.engine_version(view.cluster.spec.engine, rendered_in)
    pairs = cluster_status.pairs(view)
    verdicts = [*_verdicts(view, version, refusal, context), _paused(view.state.is_paused)]
    found = {
        **view.previous,
        "operatorVersion": view.observed.version_shown or context.version,
        "replicas": cluster_status.pairs_present(view),
        "readyPairs": cluster_status.ready_pairs(view),
        "selector": cluster_status.selector(view),
        "pendingRestarts": cluster_status.pending_restarts(view),
        "pairs": pairs,
        "masters": ",".join(pair["master"] or "-" for pair in pairs),
    }
    ready = next(each for each in verdicts if each.type == "Ready")
    if settled and (ready.value or not conditions.never_ready(view.previous)):
        found["observedGeneration"] = view.cluster.metadata.generation
    found.pop("leftoverClaims", None)
    if leftover := cluster_status.leftover_claims(view):
        found["leftoverClaims"] = leftover
    for field in OPERATION_FIELDS:
        found.pop(field, None)
    found |= operations_to_status(view.operations)
    found, truncated = cluster_status.trimmed(found)
    if truncated:
        verdicts = [warnings.truncated(item) for item in verdicts]
    found["conditions"] = _conditions(view.state, verdicts)
    return found


def _paused(value: bool) -> Verdict:
    return Verdict("Paused", value, "Requested" if value else "")


def _conditions(state: ClusterState, verdicts: list[Verdict]) -> list[dict[str, Any]]:
    generation = state.cluster.metadata.generation
    return judged(state.status, verdicts, now=state.now, generation=generation)


def _only_status(state: ClusterState, context: Context, refusal: _Refusal) -> Plan:
    """Return a plan that says why nothing is done; the children stay as they are.

    Without a spec nothing can be compared with what is there: other conditions are not known.
    """
    previous = state.status
    said = [item["type"] for item in previous.get("conditions") or ()]
    unknown = [Verdict(kind, None, refusal.reason) for kind in said if kind in _COMPARED]
    ready = Verdict("Ready", False, refusal.reason, refusal.message)
    verdicts = [ready, *unknown, _paused(state.is_paused)]
    found = {
        **previous,
        "operatorVersion": previous.get("operatorVersion") or context.version,
        "conditions": _conditions(state, verdicts),
    }
    return Plan(status=found, events=_refusal_events(previous, refusal))


def _refusal_events(previous: Mapping[str, Any], refusal: _Refusal | None) -> tuple[Event, ...]:
    if refusal is None or not _turned(previous, "Ready", refusal.reason):
        return ()
    events = [Event(refusal.reason, refusal.message, warning=True)]
    if refusal.reason == "InvalidSpec" and ".config" in refusal.message:
        events.append(Event("ConfigRejected", refusal.message, warning=True))
    return tuple(events)


def _turned(previous: Mapping[str, Any], kind: str, reason: str) -> bool:
    """Tell whether a condition gives this reason for the first time."""
    before = find_condition(previous, kind)
    return before is None or before["reason"] != reason


def _events(view: ClusterView, new: Mapping[str, Any]) -> tuple[Event, ...]:
    """Return the events of conditions that turned in this pass."""
    found = []
    at_rest = not (view.operations or view.state.operations)  # an operation tells its own restarts
    downs = [("Ready", each, each) for each in ("MasterDown", "SlaveDown") if at_rest]
    for kind, reason, event in (
        *downs,
        ("Ready", "MasterUnclear", "MasterUnclear"),
        ("RolesConsistent", "TwoMasters", "TwoMastersDetected"),
        ("ReplicationHealthy", "Diverged", "SlaveDiverged"),
        ("ReplicationHealthy", "SlaveAhead", "SlaveDiverged"),
        ("ReplicationHealthy", "SlaveLagging", "SlaveLagging"),
        ("MetadataSynced", "SlaveAheadOfMaster", "SlaveAheadOfMaster"),
        ("ScalingDown", "ScaleDownRefused", "ScaleDownRefused"),
    ):
        now = find_condition(new, kind)
        if now and now["reason"] == reason and _turned(view.previous, kind, reason):
            found.append(Event(event, now["message"], warning=True))
    found += carried_events(view.previous, new)
    found += guarded.events(view.previous, new)
    found += conditions.birth_events(view.previous, new, f"{view.shape.pairs} pairs")
    found += conditions.recovery_events(view.previous, new) if at_rest else ()
    waits = find_condition(new, drain.KIND)
    if waits and waits["status"] == "True" and _turned(view.previous, drain.KIND, waits["reason"]):
        found.append(Event(drain.KIND, waits["message"], warning=True))
    refused = refused_change(new)
    if refused is not None and refused != refused_change(view.previous):
        found.append(Event(CHANGE_REFUSED, refused, warning=True))
    return tuple(found)


def _wake_after(view: ClusterView, turn: Turn, new: Mapping[str, Any]) -> float | None:
    if turn.operations or view.state.operations:
        return turn.wake_after
    if is_true(new, drain.KIND):
        return _DRAINING
    if is_true(new, "Ready") or view.now - _changed_at(view, new) > _LONGEST_RULE:
        return None
    return _WAITING


def _changed_at(view: ClusterView, new: Mapping[str, Any]) -> float:
    """Return the Unix time of the newest change from which a rule counts; 0 without any."""
    observed = view.observed
    times: list[float | None] = [
        *observed.master_since.values(),
        *observed.masterless_since.values(),
        *(from_time(item["lastTransitionTime"]) for item in new["conditions"]),
    ]
    for member in view.members:
        if member.broker is not None:
            times.append(member.broker.stalled_since)
        if member.pod is not None:
            times += [member.pod.started_at, member.pod.ready_since]
    return max((time for time in times if time is not None), default=0.0)
