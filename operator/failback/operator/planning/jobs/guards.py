"""What must hold before a run's Job exists: reason and message of the first that does not. Pure.

The rendering of the cluster merges an arm's configuration while the experiment's status names the
arm. :func:`arm_problem` only tells whether that configuration is in force.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from failback.operator.engines.catalogue import ACCEPT_UNKNOWN_KEY, known_keys, unknown_key_hint
from failback.operator.kinds.chaos_experiment import Arm, ChaosExperiment, Fault
from failback.operator.kinds.permits import Permits
from failback.operator.planning.observed.observed import Object, ObservedExperiment
from failback.operator.planning.plan.encoding import find_condition, from_time
from failback.operator.schema.permitted import broken

LABEL: Final = "failback.dev/chaos-allowed"
RUN_DIR: Final = "failback.dev/run-dir"
CONSENT: Final[Mapping[str, str]] = {"swap-roles": "role-swap"}
"""Faults that need a person's consent, and the word for it; the same in
``failback.chaos.targets.kube.guards``."""
DEFAULT_PAUSE_SECONDS: Final = 60.0
"""Of a pause that names none; the same in ``failback.chaos.faults.pause``."""
_BROKER: Final = "broker"


class Refusal(NamedTuple):
    """Reason and message of ``Injected=False``."""

    reason: str
    message: str


def refusal(
    experiment: ChaosExperiment,
    arm: Arm,
    observed: ObservedExperiment,
    permits: Permits | None = None,
) -> Refusal | None:
    """Return why no Job may be made now, or ``None``.

    Args:
        permits: What the chart lets resources name; ``None`` = anything.
    """
    refused = broken(experiment, permits)
    if refused:
        return Refusal("InvalidSpec", "; ".join(map(str, refused[:3])))
    if permits is not None and not permits.experiments:
        return Refusal("NotAllowed", "experiments are off: chaos.enabled of the chart")
    name = experiment.spec.cluster_ref.name
    cluster = observed.cluster
    if cluster is None:
        return Refusal("ClusterMissing", f"there is no BrokerCluster {name}")
    checks = (
        _label(experiment, observed),
        _consent(experiment, arm),
        _known_pairs(experiment, arm, cluster),
        _known_keys(arm, cluster),
        _lease(observed),
        _cluster(cluster),
        _liveness(experiment, arm, observed.broker_pods),
    )
    return next((found for found in checks if found is not None), None)


def faults_of(experiment: ChaosExperiment, arm: Arm) -> list[Fault]:
    """Return the faults of one arm: the experiment's, then its own."""
    return [*experiment.spec.faults, *arm.faults]


def _label(experiment: ChaosExperiment, observed: ObservedExperiment) -> Refusal | None:
    labels = observed.namespace_labels
    namespace = experiment.namespace
    if labels is None:
        return Refusal("NotAllowed", f"the labels of namespace {namespace} can't be read")
    if labels.get(LABEL) != "true":
        return Refusal("NotAllowed", f"namespace {namespace} has no label {LABEL}=true")
    return None


def _consent(experiment: ChaosExperiment, arm: Arm) -> Refusal | None:
    for fault in faults_of(experiment, arm):
        word = CONSENT.get(fault.fault)
        if word is not None and word not in experiment.spec.guard.consent:
            text = f"{fault.id}: {fault.fault} needs guard.consent: [{word}]"
            return Refusal("GuardRefused", text)
    return None


def _known_pairs(experiment: ChaosExperiment, arm: Arm, cluster: Object) -> Refusal | None:
    """Refuse a fault of a pair that the cluster has not; a pair is named by its broker name."""
    spec = cluster["spec"]
    prefix = spec.get("brokerNamePrefix") or cluster["metadata"]["name"]
    count = spec.get("pairs", 1)
    known = [f"{prefix}-{index}" for index in range(count)]
    for fault in faults_of(experiment, arm):
        pair = fault.target.pair
        if pair and pair not in known:
            text = f"{fault.id}: there is no pair {pair}, there is {', '.join(known)}"
            return Refusal("GuardRefused", text)
    return None


def _known_keys(arm: Arm, cluster: Object) -> Refusal | None:
    """A slip in an arm's configuration is not rolled out, as one of the cluster's is not."""
    engine = cluster["spec"].get("engine") or {}
    kind = str(arm.engine or engine.get("type") or "failback").lower()
    same = kind == str(engine.get("type") or "failback").lower()
    known = known_keys(kind, engine.get("version") if same else None)
    marks = cluster["metadata"].get("annotations") or {}
    accepted = marks.get(ACCEPT_UNKNOWN_KEY, "").replace(" ", "").split(",")
    unknown = sorted(arm.broker_config.keys() - known.keys() - set(accepted))
    if not unknown:
        return None
    hints = [unknown_key_hint(key, kind, None) or key for key in unknown]
    return Refusal("UnknownKey", f"arm {arm.name}: brokerConfig: {', '.join(hints[:3])}")


def _lease(observed: ObservedExperiment) -> Refusal | None:
    lease = observed.lease
    if lease is None:
        return None
    name, spec = lease["metadata"]["name"], lease.get("spec") or {}
    left = (lease["metadata"].get("annotations") or {}).get(RUN_DIR)
    holder = spec.get("holderIdentity")
    renewed = from_time(spec.get("renewTime")) or 0.0
    lives = observed.at - renewed <= float(spec.get("leaseDurationSeconds") or 0)
    if holder and lives:
        return Refusal("ClusterBusy", f"lease {name} is held by {holder}")
    if left:
        return Refusal("GuardRefused", f"lease {name}: {left} is not healed")
    return None


def _cluster(cluster: Object) -> Refusal | None:
    name, status = cluster["metadata"]["name"], cluster.get("status") or {}
    for kind in ("Ready", "RolesConsistent"):
        found = find_condition(status, kind)
        if found is None or found["status"] != "True":
            why = f"{kind} is {found['status']}/{found['reason']}" if found else f"{kind} is unset"
            return Refusal("ClusterBusy", f"cluster {name}: {why}")
    operation = status.get("currentOperation")
    if operation:
        return Refusal("ClusterBusy", f"cluster {name}: {operation['type']} is in progress")
    return None


def _liveness(experiment: ChaosExperiment, arm: Arm, pods: Sequence[Object]) -> Refusal | None:
    """A pause that outlasts the liveness probe would become a kill by the kubelet."""
    scale = float(experiment.spec.time_scale)
    for fault in faults_of(experiment, arm):
        if fault.fault != "pause":
            continue
        given = fault.with_.duration_seconds
        seconds = (DEFAULT_PAUSE_SECONDS if given is None else given) * scale
        for pod in pods:
            window = _liveness_window(pod)
            if window is not None and seconds > window:
                text = (
                    f"{fault.id}: a pause of {seconds:g} s is longer than the liveness window of "
                    f"{window:g} s: set lifecycle.livenessProbe: false"
                )
                return Refusal("GuardRefused", text)
    return None


def _liveness_window(pod: Mapping[str, Any]) -> float | None:
    containers = pod["spec"].get("containers") or ()
    broker = next((each for each in containers if each.get("name") == _BROKER), None)
    probe = broker.get("livenessProbe") if broker else None
    if not probe:
        return None
    return float(probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3))


def arm_problem(arm: Arm, observed: ObservedExperiment) -> str:
    """Return what of an arm is not in force yet; empty when all of it is."""
    cluster = observed.cluster
    if cluster is None:
        return "the cluster"
    wanted = [f"{key}={value}" for key, value in sorted(arm.broker_config.items())]
    if wanted and not observed.config_maps:
        return "no ConfigMap of the cluster is known"
    for name, found in sorted(observed.config_maps.items()):
        lines = set(found.get("data", {}).get("broker.conf", "").splitlines())
        for line in wanted:
            if line not in lines:
                return f"ConfigMap {name} has no {line}"
    if arm.engine is not None:
        for pod in observed.broker_pods:
            if _engine_of(pod) != arm.engine.lower():
                return f"pod {pod['metadata']['name']} does not run {arm.engine}"
    if wanted or arm.engine is not None:
        found_condition = find_condition(cluster.get("status") or {}, "ConfigApplied")
        if found_condition is None or found_condition["status"] != "True":
            reason = found_condition["reason"] if found_condition else "unset"
            return f"ConfigApplied is {reason}"
    return ""


def _engine_of(pod: Object) -> str:
    containers = pod["spec"].get("containers") or ()
    args = next((each.get("args") or [""] for each in containers if each["name"] == "broker"), [""])
    return "apache" if args[0] == "./mqbroker" else "failback"
