"""The conditions of a BrokerCluster, one function each. Pure.

Messages hold no time, age or counter: a steady cluster's status does not change.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from failback.operator.engines.catalogue import ACCEPT_UNKNOWN_KEY, config_keys, same_value
from failback.operator.planning.cluster.view import ClusterView
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import MemberView
from failback.operator.planning.operations import scale_down
from failback.operator.planning.operations.turns import titled, waits_for
from failback.operator.planning.plan.encoding import Verdict, find_condition, names, with_reasons
from failback.operator.planning.plan.types import Event, Operation
from failback.operator.planning.state import live_keys
from failback.operator.planning.state.cluster_state import ClusterState
from failback.operator.planning.state.decode import MAY_START
from failback.operator.planning.state.log_ends import given_up
from failback.operator.render.common import ORDER
from failback.operator.render.members import APACHE_TLS

_ADDRESS_KEYS: Final = frozenset(
    {"brokerIP1", "brokerIP2", "storePathRootDir", "storePathCommitLog", live_keys.MEMBERS}
    | {"failbackAccessFolder", *APACHE_TLS}
)
_BEFORE_READY: Final = frozenset(
    {"Creating", "NameServerMissing", "NameTaken", "InvalidSpec", "Suspended", "MasterUnclear"}
    | {"ReadingLogs"}
)
_AFTER_READY: Final = frozenset({"AllReady", "MasterDown", "SlaveDown", "PodNotReady"})


def never_ready(previous: Mapping[str, Any]) -> bool:
    """Tell whether a resource was not ready yet; one that waits for a volume or a node is not.

    ``observedGeneration`` is written first when the resource is ready.
    """
    before = find_condition(previous, "Ready")
    if before is None or before["reason"] in _BEFORE_READY:
        return True
    return "observedGeneration" not in previous and before["reason"] not in _AFTER_READY


def birth_events(
    previous: Mapping[str, Any], new: Mapping[str, Any], what: str
) -> tuple[Event, ...]:
    """Return the events of a resource that is seen first, or ready for the first time.

    Args:
        what: There is of it, such as ``2 pairs``.
    """
    created = () if previous.get("conditions") else (Event("Created", what),)
    now = find_condition(new, "Ready")
    if now is None or now["status"] != "True":
        return created
    return (*created, Event("Ready", now["message"])) if never_ready(previous) else created


def recovery_events(previous: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Event, ...]:
    """Return the event of a resource that is ready again, with what it was not ready for."""
    before, now = find_condition(previous, "Ready"), find_condition(new, "Ready")
    if now is None or before is None or now["status"] != "True" or before["status"] == "True":
        return ()
    text = f"ready again after {before['reason']}: {before['message']}"
    return () if never_ready(previous) else (Event("Recovered", text),)


def ready(view: ClusterView) -> Verdict:
    """Every pair has a writable master registered as id 0, and all members are ready.

    ``planning.cluster.cluster`` puts another verdict in its place while a spec is refused or no
    name server is known.
    """
    for reason, message in (
        _unclear(view),
        _platform_problem(view),
        _creating(view),
        _down(view),
        _not_registered(view),
        _draining(view),
    ):
        if reason:
            return Verdict("Ready", False, reason, message)
    return Verdict("Ready", True, "AllReady", "every pair has a writable master")


def _unclear(view: ClusterView) -> tuple[str, str]:
    found = [view.state.mastership(pair) for pair in sorted(view.state.unclear)]
    reason = "ReadingLogs" if all(each.reads for each in found) else "MasterUnclear"
    return (reason, " | ".join(each.unclear for each in found)) if found else ("", "")


def _platform_problem(view: ClusterView) -> tuple[str, str]:
    refused = view.observed.refused_pods
    lost = [name for item in view.members if (name := view.pod_name(item)) in refused]
    if lost:
        return "PodRefused", "; ".join(f"{each}: {refused[each]}" for each in lost[:3])
    for member in view.members:
        pod, claim = member.pod, member.claim
        if pod is not None and pod.problem in ("ImagePullError", "Unschedulable"):
            reason = pod.problem
            if reason == "Unschedulable" and claim is not None and claim.phase == "Pending":
                return "ClaimPending", _claim_message(member)
            return reason, f"{pod.name}: {pod.message}"
    for member in view.members:
        if member.claim is not None and member.claim.phase in ("Pending", "Lost"):
            pod = member.pod
            if pod is None or not pod.ready:
                return "ClaimPending", _claim_message(member)
    return "", ""


def _claim_message(member: MemberView) -> str:
    """Name the claim, its class, and what the claim's or the pod's last event says.

    An operator may not read events: those of the scheduler stand in the pod's condition as well.
    """
    claim, pod = member.claim, member.pod
    assert claim is not None
    storage_class = claim.storage_class or "the default class"
    hint = pod.message if pod is not None and pod.problem == "Unschedulable" else ""
    words = "; ".join(filter(None, (claim.message, hint)))
    return f"{claim.name} of {storage_class} is {claim.phase}: {words}".removesuffix(": ")


def _creating(view: ClusterView) -> tuple[str, str]:
    if not never_ready(view.previous):
        return "", ""
    waiting = [view.pod_name(item) for item in view.members if not _is_settled(view, item)]
    crashed = [item for item in view.members if item.pod and item.pod.problem == "CrashLoop"]
    if not waiting or crashed:
        return "", ""
    return "Creating", f"waiting for {names(waiting)}"


def _is_settled(view: ClusterView, member: MemberView) -> bool:
    if view.is_stopped(member) and not facts.is_gated(member):
        return True
    return member.is_ready and (view.is_registered(member) or not facts.routes_known(view.observed))


def _down(view: ClusterView) -> tuple[str, str]:
    down = [item for item in view.members if not item.is_ready]
    masters = [item for item in down if view.broker_id(item) == 0]
    for reason, items in (("MasterDown", masters), ("SlaveDown", down)):
        if items:
            return reason, "; ".join(_why_down(view, item) for item in items[:3])
    return "", ""


def _why_down(view: ClusterView, member: MemberView) -> str:
    name, pod = view.pod_name(member), member.pod
    if view.is_stopped(member):
        return f"{name} is held"
    if pod is None:
        return f"{name} does not exist"
    if pod.deleting:
        return f"{name} is stopping"
    verdict = "" if pod.prefix in MAY_START else pod.prefix
    words = pod.message or (verdict and (pod.prefix_message or verdict))
    return f"{name} is not ready" + (f": {words}" if words else "")


def _not_registered(view: ClusterView) -> tuple[str, str]:
    if not facts.routes_known(view.observed):
        if not view.observed.routes:
            return "", ""
        return "NotRegistered", _no_name_server(view)
    missing = [view.member_name(item) for item in view.members if not view.is_registered(item)]
    if missing:
        return "NotRegistered", f"no name server lists {names(missing)} under its id"
    return "", ""


def _draining(view: ClusterView) -> tuple[str, str]:
    closed = [
        view.cluster.broker_name(pair)
        for pair in range(view.shape.pairs)
        if not view.is_writable(pair)
    ]
    return ("Draining", f"{names(closed)} takes no writes") if closed else ("", "")


def config_applied(view: ClusterView) -> Verdict:
    """The read-back (26) of every member equals what is desired, key by key."""
    kind = "ConfigApplied"
    silent: list[str] = []
    live: list[str] = []
    waiting: list[str] = []
    unknown: set[str] = set()
    for member in view.members:
        name = view.member_name(member)
        answer = member.broker.config if member.broker else None
        if answer is None:
            silent.append(name)
            continue
        for key, value in view.wanted(member).items():
            if key in _ADDRESS_KEYS:
                continue
            known = config_keys().get(key)
            if known is None:
                unknown.add(key)
            if "${" in value or live_keys.is_live(key):
                continue
            if not same_value(key, answer.get(key, ""), value):
                (live if key == live_keys.PERMISSION else waiting).append(f"{key} on {name}")
        live += [f"{key} on {name}" for key in _live_differences(view, member)]
        if _pod_is_outdated(view, member):
            waiting.append(f"the template of {name}")
    if live:
        before = find_condition(view.previous, kind)
        if before is not None and before["reason"] == "RejectedKey":
            return Verdict(kind, False, "RejectedKey", before["message"])
        return Verdict(kind, False, "OutOfSync", f"differs: {names(live)}")
    if waiting:
        return Verdict(kind, False, "PendingRestart", f"needs a restart: {names(waiting)}")
    if silent:
        return Verdict(kind, None, "UnableToRetrieve", _because(view, "no answer of {}", silent))
    if view.unknown:
        text = (
            f"not applied: {names(sorted(view.unknown))}; {ACCEPT_UNKNOWN_KEY} names what is to be"
        )
        return Verdict(kind, False, "UnknownKey", text)
    if unknown:
        return Verdict(kind, None, "UnknownKey", f"can't be verified: {names(sorted(unknown))}")
    return Verdict(kind, True, "Verified", "every member answers with what is wanted")


def _live_differences(view: ClusterView, member: MemberView) -> list[str]:
    """Return the live keys whose value in the file or in the broker is not the one wanted."""
    where = (view.state, view.shape, (member.pair, member.ordinal))
    return sorted({*live_keys.file_changes(*where), *live_keys.broker_changes(*where)})


def _pod_is_outdated(view: ClusterView, member: MemberView) -> bool:
    """Tell whether the pod was made from another template than the StatefulSet's newest."""
    if member.pod is None or member.statefulset is None:
        return False
    newest = member.statefulset.get("status", {}).get("updateRevision", "")
    return bool(newest and member.pod.revision and member.pod.revision != newest)


def roles_consistent(view: ClusterView) -> Verdict:
    """Brokers (26) and name servers (106) agree with what is wanted; one master per pair."""
    kind = "RolesConsistent"
    for pair in range(view.shape.pairs):
        claiming = two_masters(view, pair)
        if claiming:
            return Verdict(kind, False, "TwoMasters", _two_masters_message(view, pair, claiming))
    for member in view.members:
        if problem := _role_problem(view, member):
            return Verdict(kind, False, "RoleMismatch", problem)
    for pair in range(view.shape.pairs):
        name = view.cluster.broker_name(pair)
        foreign = facts.foreign_addresses(view.observed, pair, name)
        if foreign:
            text = f"{names(foreign)} is registered as {name} and is none of its members"
            return Verdict(kind, False, "StaleRegistration", text)
    silent = [view.member_name(item) for item in view.members if _is_silent(item)]
    if not facts.routes_known(view.observed):
        return Verdict(kind, None, "UnableToRetrieve", _no_name_server(view))
    if silent:
        return Verdict(kind, None, "UnableToRetrieve", _because(view, "no answer of {}", silent))
    return Verdict(kind, True, "Consistent", "one master per pair, as wanted")


def _no_name_server(view: ClusterView) -> str:
    return with_reasons("no name server answers", (each.problem for each in view.observed.routes))


def _because(view: ClusterView, text: str, silent: Sequence[str]) -> str:
    """Return a message that names those members, and why they gave no answer."""
    asked = (item for item in view.members if view.member_name(item) in silent)
    problems = (item.broker.problem for item in asked if item.broker is not None)
    return with_reasons(text.format(names(silent)), problems)


def _is_silent(member: MemberView) -> bool:
    return member.broker is None or member.broker.config is None


def two_masters(view: ClusterView, pair: int) -> tuple[str, ...]:
    """Return the addresses that act as master of a pair when they are two or more."""
    name = view.cluster.broker_name(pair)
    if not facts.is_contested(view.observed, pair, name):
        return ()
    own = facts.claims_to_be_master(view.observed, pair)
    foreign = facts.foreign_addresses(view.observed, pair, name, ids=(0,))
    return (*(_address(view, member) for member in own), *foreign)


def _two_masters_message(view: ClusterView, pair: int, claiming: Sequence[str]) -> str:
    text = f"{view.cluster.broker_name(pair)} has masters at {names(sorted(claiming))}"
    wrong = [
        view.member_name(item)
        for item in facts.claims_to_be_master(view.observed, pair)
        if view.broker_id(item) != 0
    ]
    return f"{text}; {names(wrong)} is not the master member" if wrong else text


def _address(view: ClusterView, member: MemberView) -> str:
    config = member.broker.config if member.broker else None
    source = config or view.wanted(member)
    if "brokerIP1" not in source:
        return view.pod_name(member)
    return f"{source['brokerIP1']}:{source.get('listenPort', '')}"


def _role_problem(view: ClusterView, member: MemberView) -> str:
    config = member.broker.config if member.broker else None
    wanted = view.wanted(member)
    if config is None or not wanted:
        return ""
    for key in ("brokerRole", "brokerId"):
        have = config.get(key, "")
        if have != wanted[key]:
            return f"{view.member_name(member)} says {key}={have}, wanted {wanted[key]}"
    return ""


def replication_healthy(view: ClusterView) -> Verdict:
    """Every slave's lag is below FallenBehind, and it moves."""
    kind = "ReplicationHealthy"
    slaves = [item for pair in range(view.shape.pairs) for item in view.slaves(pair)]
    if not slaves:
        return Verdict(kind, True, "NoSlaves", "no pair has a slave")
    for pair in sorted({item.pair for item in slaves}):
        name = view.cluster.broker_name(pair)
        foreign = facts.foreign_addresses(view.observed, pair, name, ids=(0,))
        if foreign:  # a slave copies from the master that its registration is answered with
            text = f"the name servers give {names(foreign)} as master to the slaves of {name}"
            return Verdict(kind, False, "SlaveFollowsStranger", text)
    for prefix, reason in (
        ("Diverged", "Diverged"),
        ("SlaveAhead", "SlaveAhead"),
        ("TooFarBehind", "SlaveLagging"),
    ):
        found = [item for item in slaves if item.pod is not None and item.pod.prefix == prefix]
        if found:
            return Verdict(kind, False, reason, _prefix_message(view, found[0]))
    unknown = []
    for member in slaves:
        name, bucket = view.member_name(member), view.lag(member)
        if bucket == facts.FALLEN_BEHIND:
            return Verdict(kind, False, "SlaveLagging", f"{name} has fallen behind")
        if bucket == facts.UNKNOWN:
            unknown.append(name)
        elif facts.is_stalled(member.broker, view.now):
            return Verdict(kind, False, "SlaveDisconnected", f"{name} is behind and stands still")
    if unknown:
        down = [
            view.member_name(item)
            for item in slaves
            if view.member_name(item) in unknown and not item.is_ready
        ]
        if down:
            return Verdict(kind, False, "SlaveDisconnected", f"{names(down)} is not ready")
        text = _because(view, "lag of {} is not known", unknown)
        return Verdict(kind, None, "UnableToRetrieve", text)
    return Verdict(kind, True, "InSync", "every slave keeps pace")


def _prefix_message(view: ClusterView, member: MemberView) -> str:
    assert member.pod is not None
    text = f"{view.member_name(member)}: {member.pod.prefix_message or member.pod.prefix}"
    if member.claim is None:
        return text
    known = view.state.mastership(member.pair)
    lost = given_up(view.observed.member(member.pair, known.member), member)
    if lost.is_longer:
        return (
            f"{text}; {lost.words}; {ORDER}={member.claim.uid}@{known.epoch + 1} serves it instead"
        )
    order = f"failback.dev/force-resync-member={lost.order(member.claim.uid)}"
    only = f" and gives up {lost.bytes} bytes that only it has" if lost.bytes else ""
    return f"{text}; {order} wipes its volume{only}"


def metadata_synced(view: ClusterView) -> Verdict:
    """Topics and groups are equal, and no slave's offsets are old or ahead."""
    kind = "MetadataSynced"
    slaves = [item for pair in range(view.shape.pairs) for item in view.slaves(pair)]
    if not slaves:
        return Verdict(kind, True, "NoSlaves", "no pair has a slave")
    compared = [(view.member_name(item), view.metadata(item)) for item in slaves]
    for reason, field in (
        ("SlaveAheadOfMaster", "ahead"),
        ("TopicMissingOnSlave", "missing_topics"),
        ("GroupMissingOnSlave", "missing_groups"),
        ("OffsetSyncStale", "stale"),
    ):
        for name, found in compared:
            if found is not None and getattr(found, field):
                return Verdict(kind, False, reason, f"{name}: {names(getattr(found, field))}")
    silent = [name for name, found in compared if found is None]
    if silent:
        text = _because(view, "tables of {} are not known", silent)
        return Verdict(kind, None, "UnableToRetrieve", text)
    return Verdict(kind, True, "Synced", "slaves have what their masters have")


def scaling_down(view: ClusterView) -> Verdict:
    """A pair or slave is leaving."""
    found = [item for item in view.operations if item.type == scale_down.TYPE]
    if not found:
        refused = scale_down.refusals(view.state)
        if refused:
            return Verdict("ScalingDown", False, "ScaleDownRefused", names(refused, 3))
        return Verdict("ScalingDown", False, "")
    reason = {"DrainPair": "PendingConfigApplied", "WaitEmpty": "PendingEmpty"}.get(
        found[0].step, "PendingDelete"
    )
    pairs = names(view.cluster.broker_name(item.pair) for item in found if item.pair is not None)
    return Verdict("ScalingDown", True, reason, f"{pairs} is leaving" if pairs else "")


def reconciling(view: ClusterView) -> Verdict:
    """Operations are running, or a child is not at its revision."""
    if view.operations:
        state = dataclasses.replace(view.state, operations=view.operations)
        texts = [_operation_text(state, item) for item in view.operations]
        return Verdict("Reconciling", True, "Operation", "; ".join(texts))
    if view.drift:
        found = names(sorted(f"{kind}/{name}" for kind, name in view.drift))
        return Verdict("Reconciling", True, "Children", found)
    return Verdict("Reconciling", False, "")


def _operation_text(state: ClusterState, operation: Operation) -> str:
    text = f"{titled(state, operation)} is at {operation.step}"
    if operation.blocked_by:
        text += f", waits for {waits_for(state, operation)}"
    return text
