"""What is legal but unwise: the reasons of a BrokerCluster's condition ``Warning``. Pure.

Among them are what the running engine does, and an engine that must stay although the spec names
another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from failback.operator.engines.catalogue import normalise, quirk, unknown_key_hint
from failback.operator.engines.quirks import EngineVersion, store_compatible, unreleased
from failback.operator.kinds.base import Engine, Resources, parse_quantity
from failback.operator.kinds.permits import Permits
from failback.operator.planning.cluster.view import ClusterView
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import MemberView
from failback.operator.planning.operations import resize, resync
from failback.operator.planning.plan.encoding import (
    Verdict,
    find_condition,
    names,
    stored_operations,
)
from failback.operator.planning.state.running_engine import (
    ACCEPT,
    STORE_UPGRADE,
    accepts,
    has_v5_store,
    held_engine,
)
from failback.operator.render import apache
from failback.operator.render.members import could_carry, offsets_in_rocksdb
from failback.operator.schema.permitted import refusals

KNOWN_ANNOTATIONS: Final = frozenset(
    f"failback.dev/{name}"
    for name in (
        "pause-reconciliation",
        "restart",
        "restart-member",
        "skip-scaledown-check",
        "give-up-groups",
        "force-resync-member",
        "node-fenced",
        "hold-member",
        "open-member",
        "accept-quirk",
        "accept-unknown-key",
        "managed",
        "kopf-managed",
        "last-handled-configuration",
    )
)
_MANY_CORES: Final = 64
_WEAKER: Final[Mapping[str, Any]] = {"runAsNonRoot": False, "runAsUser": 0, "runAsGroup": 0}


def unknown_annotations(annotations: Mapping[str, str]) -> list[str]:
    """Return the annotations of our prefix that mean nothing: a typo must not be silent."""
    return sorted(
        key
        for key in annotations
        if key.startswith("failback.dev/") and key not in KNOWN_ANNOTATIONS
    )


def warning(view: ClusterView, engine_version: str, permits: Permits | None = None) -> Verdict:
    """Join everything that is legal but unwise; the first reason names the condition."""
    found = [*_found(view, engine_version)]
    if view.cluster.spec.deletion_protection and permits and not permits.admission_policies:
        text = "deletionProtection has no effect: the chart's admission policies are not in force"
        found.append(
            ("DeletionUnprotected", f"{text} (admissionPolicies.enabled, Kubernetes 1.30)")
        )
    found += [
        ("NotAllowed", f"{each.path}: {each.message}; it stays until the spec changes")
        for each in refusals(view.cluster, permits)
    ]
    return joined(found)


def joined(found: list[tuple[str, str]]) -> Verdict:
    """Return the condition ``Warning`` of some reasons with their messages."""
    if not found:
        return Verdict("Warning", False, "")
    text = "; ".join(f"{reason}: {message}" for reason, message in found)
    return Verdict("Warning", True, found[0][0], text)


def truncated(found: Verdict) -> Verdict:
    """Add to the condition ``Warning`` that the status is not whole; others stay as they are."""
    if found.type != "Warning":
        return found
    text = "StatusTruncated: member detail is left out"
    text = f"{text}; {found.message}" if found.message else text
    return Verdict("Warning", True, "StatusTruncated", text)


def _found(view: ClusterView, engine_version: str) -> Iterator[tuple[str, str]]:
    spec = view.cluster.spec
    yield from another_operator(view.observed.other_operators)
    yield from unlikely(spec.engine, spec.resources, *(x.resources for x in spec.pair_overrides))
    yield from _annotations_and_overrides(view)
    yield from _roles(view)
    yield from _keys_and_quirks(view, engine_version)
    yield from engine_warnings(view, engine_version)
    yield from _platform(view)


def another_operator(other_operators: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the reason for two operators on one resource, while there are two."""
    if other_operators:
        yield (
            "AnotherOperator",
            f"operators of versions {' and '.join(other_operators)} both act on it",
        )


def unlikely(engine: Engine, *given: Resources | None) -> Iterator[tuple[str, str]]:
    """Yield the reasons for values that no node and no registry will have."""
    if engine.program == "apache" and (text := unreleased(engine.version or "")):
        yield "UnknownVersion", f"engine.version: {text}"
    tables = [table for each in given if each for table in (each.requests, each.limits)]
    cpus = [table["cpu"] for table in tables if "cpu" in table]
    if many := [cpu for cpu in cpus if parse_quantity(cpu) > _MANY_CORES]:
        yield "ManyCores", f"resources: cpu {many[0]} is over {_MANY_CORES} cores (500m is half)"


def _annotations_and_overrides(view: ClusterView) -> Iterator[tuple[str, str]]:
    spec, marks = view.cluster.spec, view.cluster.metadata.annotations
    if unknown := unknown_annotations(marks):
        yield "UnknownAnnotation", f"{names(unknown)} is no annotation of this operator"
    beyond = [item.index for item in spec.pair_overrides if item.index >= spec.pairs]
    if beyond:
        yield "OverrideForMissingPair", f"pair {names(map(str, beyond))} does not exist"
    held = sorted(
        filter(None, marks.get("failback.dev/hold-member", "").replace(" ", "").split(","))
    )
    if held:
        yield "MemberHeld", f"{names(held)} is held down"


def _roles(view: ClusterView) -> Iterator[tuple[str, str]]:
    for pair in range(view.cluster.spec.pairs):
        wish, first = view.cluster.pair(pair).first_master, view.previous_pair(pair)
        if wish is not None and wish != first.get("firstMaster", wish):
            text = f"pair {pair} was begun with {first['firstMaster']}, {wish} changes nothing"
            yield "MasterMemberEdited", f"masterMember of {text}: a RoleSwitch changes the master"
    if view.shape.read_forced:
        pairs = names(view.cluster.broker_name(pair) for pair in sorted(view.shape.read_forced))
        yield "SlaveReadForced", f"slaves of {pairs} serve reads although the spec says no"
    alone = [
        view.cluster.broker_name(pair)
        for pair in range(view.cluster.spec.pairs)
        if view.cluster.pair(pair).slave_read_enable and not view.cluster.pair(pair).slaves
    ]
    if alone:
        yield "SlaveReadWithoutSlaves", f"{names(alone)} has no slave that could serve"


def _keys_and_quirks(view: ClusterView, version: str) -> Iterator[tuple[str, str]]:
    cluster, engine = view.cluster, view.cluster.spec.engine
    keys = set(cluster.spec.config)
    for override in cluster.spec.pair_overrides:
        keys |= set(override.config)
    hints = [
        hint for key in sorted(keys) if (hint := unknown_key_hint(key, engine.program, version))
    ]
    if hints:
        yield "UnknownConfigKey", names(hints, 3)
    by_replicas = quirk("ackRule", engine.program, version) == "inSyncReplicas"
    wanted = cluster.spec.sync.in_sync_replicas
    synchronous = any(
        cluster.pair(pair).master_role == "SYNC_MASTER" for pair in range(cluster.spec.pairs)
    )
    if by_replicas and synchronous and wanted == 1:
        yield "SyncByNameOnly", "SYNC_MASTER with inSyncReplicas=1 waits for nobody"
    if not by_replicas and wanted is not None and wanted != 2:
        yield "InSyncReplicasIgnored", f"this engine waits for one slave, not for {wanted - 1}"
    yield from _carry(view, version)
    reads = any(cluster.pair(pair).slave_read_enable for pair in range(cluster.spec.pairs))
    if reads and _drops_topics(engine.program, version):
        added = " (accepted)" if accepts(cluster, "dropsTopicsOnSync") else ""
        yield "EngineQuirk", f"dropsTopicsOnSync of {engine.program} {version}{added}"


def _carry(view: ClusterView, version: str) -> Iterator[tuple[str, str]]:
    """Yield why a master that returns gets no offsets of its slaves although it should."""
    cluster = view.cluster
    pairs = [cluster.pair(index) for index in range(cluster.spec.pairs)]
    wanted = [pair for pair in pairs if could_carry(cluster, pair)]
    stores = {pair.broker_name: offsets_in_rocksdb(pair, version) for pair in wanted}
    if apart := [f"{name} has {setting}" for name, setting in stores.items() if setting]:
        yield "CarryUnsupported", f"offsets are in RocksDB, no start is given any: {names(apart)}"
    lacks = [
        view.member_name(item)
        for item in view.members
        if item.statefulset is not None
        and not stores.get(cluster.broker_name(item.pair), "-")
        and not facts.has_carry(item.statefulset)
    ]
    if lacks:
        yield (
            "CarryNeedsRestart",
            f"a start of {names(lacks, 3)} is given no offsets, its pod is of an earlier release:"
            " change annotation failback.dev/restart",
        )


def _drops_topics(engine: str, version: str) -> bool:
    return quirk("dropsTopicsOnSync", engine, version) is True


def _platform(view: ClusterView) -> Iterator[tuple[str, str]]:
    spec = view.cluster.spec
    given = spec.pod_template.security_context
    weak = sorted(key for key, value in _WEAKER.items() if key in given and given[key] == value)
    profile = given.get("seccompProfile", {}).get("type", "RuntimeDefault")
    if profile == "Unconfined":
        weak.append("seccompProfile")
    if weak:
        yield "PodSecurityWeakened", f"podTemplate.securityContext sets {names(weak)}"
    monitored = spec.metrics.pod_monitor.enabled
    if monitored and "PodMonitor" not in view.observed.served_kinds:
        yield "PodMonitorCrdMissing", "the API server does not serve PodMonitor"
    pairs = [view.cluster.pair(index) for index in range(spec.pairs)]
    silent = [each for each in pairs if each.config.get("metricsExporterType") != "PROM"]
    mute = not all(could_carry(view.cluster, each) for each in silent)
    if monitored and mute and spec.engine.program == "apache":
        text = "pods of Apache have metrics by offsetCarry, or from 5.1 on metricsExporterType=PROM"
        yield "NoMetricsPort", text
    found = {apache.excess(spec.engine, pair.resources) for pair in pairs}
    yield from (("HeapTooLarge", each) for each in sorted(filter(None, found)))
    resync_refused = resync.refusal(view.state)
    if resync_refused:
        yield "ResyncRefused", resync_refused
    refused = [view.member_name(item) for item in view.members if _resize_refused(view, item)]
    if refused:
        yield "VolumeResizeRefused", f"the claim of {names(refused)} does not grow"


def _resize_refused(view: ClusterView, member: MemberView) -> bool:
    """Tell whether a claim was not allowed to ask for what is wanted.

    The operation ends with the refusal; this condition keeps its generation from trying again.
    """
    claim = member.claim
    if claim is None or not claim.requested:
        return False
    if any(item.type == resize.TYPE for item in view.operations):
        return False
    before = stored_operations(view.previous)
    ended = any((item.get("data") or {}).get("refused") for item in before)
    wanted = parse_quantity(view.cluster.pair(member.pair).storage_size)
    small = parse_quantity(claim.requested) < wanted
    return bool(small and (ended or resize.was_refused(view.cluster, view.previous)))


CHANGE_REFUSED: Final = "EngineChangeRefused"
_AUTO_CREATE: Final = "autoCreateTopicEnable"
_TEMPLATE: Final = "TBW102"
_INHERIT: Final = 1
"""Bit of a topic's permission: others are made after it (PermName.PERM_INHERIT)."""


def engine_warnings(view: ClusterView, version: str) -> Iterator[tuple[str, str]]:
    """Yield reason and message of an engine that must stay, and of topics that are not made."""
    refusal = _refused_change(view, version)
    if refusal is not None:
        yield CHANGE_REFUSED, refusal
    barren = [view.member_name(item) for item in view.members if _makes_no_topics(item.broker)]
    if barren:
        yield (
            "AutoCreateLost",
            f"{names(barren)} makes no topics although {_AUTO_CREATE} is true: {_TEMPLATE} is made"
            " at start, and refusing a topic ends its inheritance",
        )


def refused_change(status: Mapping[str, Any]) -> str | None:
    """Return what the condition ``Warning`` says of a refused change of the engine."""
    said = find_condition(status, "Warning") or {}
    for part in str(said.get("message", "")).split("; "):
        reason, _, message = part.partition(": ")
        if reason == CHANGE_REFUSED:
            return message
    return None


def _refused_change(view: ClusterView, version: str) -> str | None:
    wanted = view.cluster.spec.engine
    held = held_engine(view.cluster, view.observed, {"version": version})
    if held is None:
        return None
    running = EngineVersion(held["type"], held["version"])
    asked = EngineVersion(wanted.program, version)
    back = store_compatible(running, asked)
    if back is None:
        text = store_compatible(asked, running)
        return f"{text}: annotation {ACCEPT}={STORE_UPGRADE} begins this upgrade without a way back"
    return back + _way_back(view, running)


def _way_back(view: ClusterView, running: EngineVersion) -> str:
    """Return what a person can do where not all members were upgraded."""
    done = [item for item in view.members if has_v5_store(item)]
    if len(done) == len(view.members):
        return ""
    slave, label = done[0], view.member_name(done[0])
    on = f"{running.version} written again goes on"
    if len(done) > 1 or slave == view.master(slave.pair) or slave.claim is None:
        return f": {names(map(view.member_name, done))} ran it, {on}"
    return f": {resync.ANNOTATION}={slave.claim.uid} copies {label} again and leads back, {on}"


def _makes_no_topics(broker: Any) -> bool:
    """Tell whether a master says that it makes topics on demand and has no topic to inherit."""
    if broker is None or broker.topics is None or not facts.says_master(broker):
        return False
    said = (broker.config or {}).get(_AUTO_CREATE, "")
    template = broker.topics.get(_TEMPLATE, {})
    return normalise(_AUTO_CREATE, said) == "true" and not template.get("perm", 0) & _INHERIT
