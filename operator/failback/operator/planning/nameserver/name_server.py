"""Decide what a NameServer needs now. Pure.

Its addresses come from the spec and from DNS, never from which pods are ready: a name server
that restarts changes no broker's configuration. Growing, an address is told to brokers once its
pod has been ready. Shrinking, brokers forget the address first, and the pod goes when they have
polled twice.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from failback.operator.kinds.guarding import Tls
from failback.operator.kinds.name_server import NameServer, NameServerSpec
from failback.operator.planning.cluster import guarded, last_valid
from failback.operator.planning.cluster.conditions import (
    birth_events,
    never_ready,
    recovery_events,
)
from failback.operator.planning.cluster.external_access import CONDITION, address_of
from failback.operator.planning.cluster.warnings import (
    another_operator,
    joined,
    unknown_annotations,
    unlikely,
)
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import ObservedNameServer, Pod
from failback.operator.planning.plan.children import by_key, plan_children
from failback.operator.planning.plan.encoding import (
    Verdict,
    find_condition,
    judged,
    names,
    true_since,
    with_reasons,
)
from failback.operator.planning.plan.types import Event, Plan
from failback.operator.planning.state.running_engine import name_server_context
from failback.operator.render import apache
from failback.operator.render.common import TLS_FILE
from failback.operator.render.context import Context
from failback.operator.render.nameserver import addresses, selector, statefulset_name
from failback.operator.render.objects import render_name_server
from failback.operator.render.service import external_name
from failback.operator.schema.permitted import accepting, broken

SHRINK_SECONDS: Final = 240.0
"""Two polls of the brokers for name servers (120 s each)."""
_WAITING: Final = 5.0


@dataclasses.dataclass(frozen=True, slots=True)
class _Replicas:
    """How many pods there are to be, and how many addresses brokers receive."""

    pods: int
    published: int
    shrinking: bool = False


def plan_name_server(
    name_server: NameServer,
    status: Mapping[str, Any],
    observed: ObservedNameServer,
    context: Context,
    now: float,
) -> Plan:
    """Return what brings the name servers towards their spec, and the status to write."""
    refused = broken(name_server, context.permits)
    if not refused:
        return _by_its_spec(name_server, status, observed, context, now)
    kept = last_valid.kept_name_server(name_server, observed.objects)
    if kept is not None:
        refused = broken(name_server, accepting(context.permits, kept))
        if not refused:
            return _by_its_spec(name_server, status, observed, context, now)
    text = "; ".join(f"{item.rule} {item.path}: {item.message}" for item in refused[:3])
    refusal = Verdict("Ready", False, "InvalidSpec", text)
    if kept is None or broken(kept, accepting(context.permits, kept)):
        return _refused(name_server, status, context, now, refusal)
    return _by_its_spec(kept, status, observed, context, now, refusal)


def _by_its_spec(
    name_server: NameServer,
    status: Mapping[str, Any],
    observed: ObservedNameServer,
    context: Context,
    now: float,
    refusal: Verdict | None = None,
) -> Plan:
    """Return what brings the name servers towards their spec.

    Args:
        refusal: Why it is that of earlier.
    """
    replicas = _replicas(name_server, status, observed, now)
    tls, waits = _tls(name_server, observed)
    current = _with_replicas(name_server, replicas.pods, tls)
    rendered_in = name_server_context(name_server, observed, context)
    desired = by_key(render_name_server(current, rendered_in))
    taken = sorted(key for key in desired if key in observed.foreign)
    if taken:
        text = names(f"{kind}/{name} belongs to somebody else" for kind, name in taken)
        refusal = Verdict("Ready", False, "NameTaken", text)
        if not observed.objects:
            return _refused(name_server, status, context, now, refusal)
        desired = {key: item for key, item in desired.items() if key not in taken}
    note = last_valid.name_server_key(name_server.name)
    if refusal is None and desired:
        desired[note] = last_valid.name_server_note(name_server, rendered_in)
    paused = is_paused(name_server)
    actions, drift = plan_children(desired.values(), observed.objects, last=note)
    if paused:
        actions, drift = (), {}
    published = addresses(_with_replicas(name_server, replicas.published), context)
    ready = refusal or _ready(name_server, status, observed, replicas, published)
    outside = _outside(name_server, observed)
    changed = names(sorted(f"{kind}/{name}" for kind, name in drift))
    verdicts = [
        ready,
        Verdict("Shrinking", replicas.shrinking, "WaitsForBrokers" if replicas.shrinking else ""),
        Verdict("Reconciling", bool(drift), "Children" if drift else "", changed),
        Verdict("Paused", paused, "Requested" if paused else ""),
        *_external_access(name_server, status, outside),
        *_tls_verdict(name_server, status, drift, waits),
        _warning(name_server, observed),
    ]
    found = {
        **status,
        "operatorVersion": observed.version_shown or context.version,
        "replicas": len(observed.pods),
        "readyReplicas": sum(_is_ready(pod) for pod in observed.pods.values()),
        "selector": ",".join(f"{key}={text}" for key, text in selector(name_server).items()),
        "addresses": published,
        "externalAddresses": outside,
        "conditions": judged(status, verdicts, now=now, generation=name_server.metadata.generation),
    }
    done = not (actions or paused or replicas.shrinking or refusal or waits)
    if done and (ready.value or not never_ready(status)):
        found["observedGeneration"] = name_server.metadata.generation
    return Plan(
        actions=actions,
        status=found,
        events=(
            *birth_events(status, found, f"{name_server.spec.replicas} name servers"),
            *recovery_events(status, found),
            *guarded.events(status, found),
            *_events(status, published, replicas, observed),
            *_refusal_events(status, refusal),
        ),
        wake_after=_WAITING if replicas.shrinking or not ready.value else None,
    )


def _outside(name_server: NameServer, observed: ObservedNameServer) -> list[str]:
    """Return the addresses for clients outside that are known."""
    external = name_server.spec.external
    if external is None:
        return []
    if external.type == "NodePort":
        return [f"{host}:{external.node_port}" for host in external.node_addresses or ()]
    found = address_of(observed.objects.get(("Service", external_name(name_server))))
    return [f"{found}:{name_server.spec.port}"] if found else []


def _external_access(
    name_server: NameServer, status: Mapping[str, Any], outside: list[str]
) -> tuple[Verdict, ...]:
    if name_server.spec.external is None:
        known = find_condition(status, CONDITION) is not None
        return (Verdict(CONDITION, True, "", "no access from outside"),) if known else ()
    if not outside:
        text = f"the load balancer of {external_name(name_server)} has no address yet"
        return (Verdict(CONDITION, False, "WaitingForAddress", text),)
    return (Verdict(CONDITION, True, "Announced", names(outside)),)


def is_paused(name_server: NameServer) -> bool:
    """Tell whether nothing but the status may be written."""
    return name_server.spec.suspend or name_server.metadata.is_paused


_TLS: Final = "TLS"


def _tls(name_server: NameServer, observed: ObservedNameServer) -> tuple[Tls | None, str]:
    """Return the TLS of now, and what it waits for: brokers change before and after it."""
    wanted = name_server.spec.tls
    stored = observed.objects.get(("ConfigMap", statefulset_name(name_server)))
    mode = facts.properties(stored, TLS_FILE).get("tls.server.mode", "")
    if wanted is None or mode == wanted.mode.lower() or stored is None:
        return wanted, ""
    between: Tls = wanted.model_copy(update={"mode": "Permissive"})
    if wanted.mode == "Enforcing" and observed.plain_clusters:
        return between, f"brokers of {names(observed.plain_clusters)} speak no TLS yet"
    if wanted.mode == "Disabled" and observed.tls_clusters:
        return between, f"brokers of {names(observed.tls_clusters)} still speak TLS"
    return wanted, ""


def _tls_verdict(
    name_server: NameServer, status: Mapping[str, Any], drift: object, waits: str
) -> tuple[Verdict, ...]:
    tls = name_server.spec.tls
    if tls is None:
        known = find_condition(status, _TLS) is not None
        return (Verdict(_TLS, True, "Off", "not asked for"),) if known else ()
    if waits or drift:
        return (Verdict(_TLS, False, "WaitsForBrokers" if waits else "Changing", waits),)
    return (Verdict(_TLS, True, tls.mode, guarded.SAYS[tls.mode]),)


def _with_replicas(name_server: NameServer, replicas: int, tls: Tls | None = None) -> NameServer:
    spec: NameServerSpec = name_server.spec.model_copy(
        update={"replicas": replicas, "suspend": False, "tls": tls}
    )
    return name_server.model_copy(update={"spec": spec})


def _replicas(
    name_server: NameServer, status: Mapping[str, Any], observed: ObservedNameServer, now: float
) -> _Replicas:
    """Return pods and addresses of this moment, from what brokers were told before."""
    wanted = name_server.spec.replicas
    published = len(status.get("addresses") or ())
    if not published:
        return _Replicas(wanted, wanted)
    if wanted > published:
        while published < wanted and _is_ready(observed.pods.get(published)):
            published += 1
        return _Replicas(wanted, published)
    stored = observed.objects.get(("StatefulSet", statefulset_name(name_server)), {})
    running = stored.get("spec", {}).get("replicas", wanted)
    if running <= wanted:
        return _Replicas(wanted, wanted)
    since = true_since(status, "Shrinking")
    if since is not None and now - since >= SHRINK_SECONDS:
        return _Replicas(wanted, wanted)
    return _Replicas(running, wanted, shrinking=True)


def _is_ready(pod: Pod | None) -> bool:
    return pod is not None and pod.ready and not pod.deleting


def _ready(
    name_server: NameServer,
    status: Mapping[str, Any],
    observed: ObservedNameServer,
    replicas: _Replicas,
    published: list[str],
) -> Verdict:
    kind, name = "Ready", statefulset_name(name_server)
    for _, pod in sorted(observed.pods.items()):
        if pod.problem in ("ImagePullError", "Unschedulable"):
            return Verdict(kind, False, pod.problem, f"{pod.name}: {pod.message}")
    if observed.refused_pods:
        said = "; ".join(f"{pod}: {each}" for pod, each in sorted(observed.refused_pods.items()))
        return Verdict(kind, False, "PodRefused", said)
    unready = [index for index in range(replicas.pods) if not _is_ready(observed.pods.get(index))]
    if unready:
        reason = "Creating" if never_ready(status) else "PodNotReady"
        words = [_why(name, index, observed.pods.get(index)) for index in unready]
        return Verdict(kind, False, reason, names(words))
    silent = [each for each in published if not observed.is_answering(each)]
    if silent:
        asked = [observed.routes[each].problem for each in silent if each in observed.routes]
        text = with_reasons(f"no answer of {names(silent)}", asked)
        return Verdict(kind, False, "NotAnswering", text)
    if replicas.shrinking:
        return Verdict(kind, False, "Shrinking", "brokers forget the addresses that leave")
    return Verdict(kind, True, "AllReady", "every name server answers")


def _why(name: str, index: int, pod: Pod | None) -> str:
    if pod is None:
        return f"{name}-{index} does not exist"
    return f"{name}-{index} is not ready" + (f": {pod.message}" if pod.message else "")


def _warning(name_server: NameServer, observed: ObservedNameServer) -> Verdict:
    found = list(another_operator(observed.other_operators))
    found += unlikely(name_server.spec.engine, name_server.spec.resources)
    if unknown := unknown_annotations(name_server.metadata.annotations):
        found.append(("UnknownAnnotation", f"{names(unknown)} is no annotation of this operator"))
    if name_server.spec.metrics.pod_monitor.enabled and "PodMonitor" not in observed.served_kinds:
        found.append(("PodMonitorCrdMissing", "the API server does not serve PodMonitor"))
    engine = name_server.spec.engine
    if name_server.spec.metrics.pod_monitor.enabled and engine.program == "apache":
        found.append(("NoMetricsPort", "a name server of Apache has no port with metrics"))
    if excess := apache.excess(engine, name_server.spec.resources):
        found.append(("HeapTooLarge", excess))
    return joined(found)


def _refused(
    name_server: NameServer,
    status: Mapping[str, Any],
    context: Context,
    now: float,
    refusal: Verdict,
) -> Plan:
    """Return a plan that says why nothing is done; the children stay as they are."""
    verdicts = [refusal]
    if find_condition(status, "Reconciling") is not None:
        verdicts.append(Verdict("Reconciling", None, refusal.reason))
    found = {
        **status,
        "operatorVersion": status.get("operatorVersion") or context.version,
        "conditions": judged(status, verdicts, now=now, generation=name_server.metadata.generation),
    }
    return Plan(status=found, events=_refusal_events(status, refusal))


def _refusal_events(status: Mapping[str, Any], refusal: Verdict | None) -> tuple[Event, ...]:
    before = find_condition(status, "Ready")
    if refusal is None or (before is not None and before["reason"] == refusal.reason):
        return ()
    return (Event(refusal.reason, refusal.message, warning=True),)


def _events(
    status: Mapping[str, Any],
    published: list[str],
    replicas: _Replicas,
    observed: ObservedNameServer,
) -> tuple[Event, ...]:
    before = list(status.get("addresses") or ())
    if not before or before == published:
        return ()
    found = [Event("AddressesChanged", f"{';'.join(before)} -> {';'.join(published)}")]
    if len(published) > len(before):
        found.append(Event("ScaledUp", f"{len(published)} name servers"))
    if len(published) < len(before):
        found.append(Event("ScaledDown", f"{len(published)} name servers"))
    return tuple(found)
