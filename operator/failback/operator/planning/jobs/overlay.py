"""Whether the configuration of an arm is in force. Pure.

The overlay itself is merged by the rendering of the cluster while the experiment's status names
the arm; here it is only looked for.
"""

from __future__ import annotations

from failback.operator.kinds.chaos_experiment import Arm
from failback.operator.planning.jobs.observed_jobs import ObservedExperiment
from failback.operator.planning.observed.observed import Object
from failback.operator.planning.plan.encoding import find_condition


def missing(arm: Arm, observed: ObservedExperiment) -> str:
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
