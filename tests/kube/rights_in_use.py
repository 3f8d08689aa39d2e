"""What the operator needs each right of its Role for: an errand per right.

Pods pretend to run, unless somebody has to answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from failback.operator.render.broker import REGISTERED_GATE
from tests.kube.missing_right import (
    Come,
    Errand,
    Place,
    counted,
    counted_and_apply_failed,
    logged,
    not_listed,
)
from tests.kube.small_resources import claim, cluster, experiment, make, name_of, sample, settle
from tests.support.chaos.kube_cluster import allow
from tests.support.common.polling import wait_until
from tests.support.kube_lab.api import Object
from tests.support.operator.foreign_broker import ForeignBroker
from tests.support.operator.operator_process import condition_of, is_true
from tests.support.operator.optional_kinds import PLURALS, names_of
from tests.support.operator.quick_pair import QUICK
from tests.support.operator.resources import resource
from tests.support.operator.rights import Right

KINDS: Final[Mapping[str, str]] = {
    "NameServer": "nameservers",
    "BrokerCluster": "brokerclusters",
    "Topic": "topics",
    "SubscriptionGroup": "subscriptiongroups",
    "RoleSwitch": "roleswitches",
    "ChaosExperiment": "chaosexperiments",
    "ReconsumptionReport": "reconsumptionreports",
}
FINALIZED: Final = ("Topic", "SubscriptionGroup", "RoleSwitch", "ChaosExperiment")
CHILDREN: Final[Mapping[str, tuple[str, str]]] = {
    "statefulsets": ("apps", "StatefulSet"),
    "services": ("", "Service"),
    "configmaps": ("", "ConfigMap"),
    "poddisruptionbudgets": ("policy", "PodDisruptionBudget"),
}
OTHERS: Final[Mapping[str, str]] = {"pods": "", "persistentvolumeclaims": "", "jobs": "batch"}
OWN: Final = "failback.dev"
FINALIZER: Final = "failback.dev/finalizer"
UNPULLABLE: Final = {"type": "failback", "image": "failback/broker:does-not-exist"}


# --- errands ------------------------------------------------------------------------------------


def _watch() -> Errand:
    return Errand(lambda place: lambda: place.readiness() == "ok", is_told=not_listed, starts=False)


def _conflict(kind: str) -> Errand:
    """Somebody else wrote meanwhile: the resource is read again."""
    plural = KINDS[kind]

    def ask(place: Place) -> Come:
        assert place.proxy is not None
        place.proxy.answer(409, times=-1, verb="patch", resource=f"{plural}/status")
        make(kind, place)
        return lambda: place.requests(("get",), plural, 200) > 0

    return Errand(ask, proxied=True)


def _status(kind: str) -> Errand:
    def ask(place: Place) -> Come:
        make(kind, place)
        return lambda: "status" in place.find(kind, name_of(kind))

    return Errand(ask)


def _finalizer(kind: str) -> Errand:
    def ask(place: Place) -> Come:
        make(kind, place)
        return lambda: (
            FINALIZER in place.find(kind, name_of(kind))["metadata"].get("finalizers", ())
        )

    return Errand(ask, is_told=logged)


def _child(kind: str) -> Errand:
    def ask(place: Place) -> Come:
        place.create(sample("NameServer"))
        return lambda: place.find(kind, "main-ns")

    return Errand(ask, is_told=counted_and_apply_failed)


def _disable_budget(place: Place) -> Come:
    place.create(sample("NameServer"), cluster(slavesPerPair=1))
    place.namespace.api.wait("PodDisruptionBudget", "demo-0")
    spec = {"spec": {"podDisruptionBudget": {"enabled": False}}}
    place.namespace.api.patch("BrokerCluster", "demo", spec)
    return lambda: not place.find("PodDisruptionBudget", "demo-0")


def _grow(place: Place) -> tuple[str, str]:
    """Ask for larger volumes; return the uid and the size that there were."""
    place.create(sample("NameServer"), cluster())
    api = place.namespace.api
    api.wait("Pod", "demo-0-0-0", is_true("Ready"))
    volume = api.wait("PersistentVolumeClaim", "data-demo-0-0-0", _capacity)
    before = place.uid("StatefulSet", "demo-0-0")
    api.patch("BrokerCluster", "demo", {"spec": {"storage": {"size": "30Gi"}}})
    return before, _capacity(volume)


def _capacity(volume: Object) -> str:
    return str(volume["status"]["capacity"]["storage"])


def _grow_claims(place: Place) -> Come:
    _, size = _grow(place)
    return lambda: _capacity(place.find("PersistentVolumeClaim", "data-demo-0-0-0")) != size


def _grow_templates(place: Place) -> Come:
    before, _ = _grow(place)
    return lambda: place.uid("StatefulSet", "demo-0-0") not in ("", before)


def _lose_slave(place: Place) -> Come:
    place.create(sample("NameServer"), cluster(slavesPerPair=1, engine=UNPULLABLE))
    place.namespace.api.wait("Pod", "demo-0-1-0")
    place.namespace.api.patch("BrokerCluster", "demo", {"spec": {"slavesPerPair": 0}})
    return lambda: not place.find("ConfigMap", "demo-0-1")


def _replace_unready(place: Place) -> Come:
    place.create(sample("NameServer"), cluster(engine=UNPULLABLE))
    place.namespace.api.wait("Pod", "demo-0-0-0")
    before = place.uid("Pod", "demo-0-0-0")
    other = {"engine": {**UNPULLABLE, "image": "failback/another:does-not-exist"}}
    place.namespace.api.patch("BrokerCluster", "demo", {"spec": other})
    return lambda: place.uid("Pod", "demo-0-0-0") not in ("", before)


def _open_gate(place: Place) -> Come:
    engine = {"type": "apache", "version": "4.9.8", "image": "apache/rocketmq:does-not-exist"}
    place.create(sample("NameServer"), cluster(engine=engine, config={}))
    place.stack.enter_context(ForeignBroker(place.namespace, "demo"))
    pod = partial(place.find, "Pod", "demo-0-0-0")
    return lambda: is_true(REGISTERED_GATE)(pod())


def _show_role(place: Place) -> Come:
    place.create(sample("NameServer"), cluster())
    label = "failback.dev/role"
    return lambda: place.find("Pod", "demo-0-0-0")["metadata"]["labels"].get(label) == "master"


def _restart(place: Place) -> Come:
    settle(place)
    name = "failback.dev/restart-member"
    place.mark("restart-member", "demo-0-0")
    return lambda: (
        name not in place.find("BrokerCluster", "demo")["metadata"].get("annotations", {})
    )


def _resync(kind: str, name: str, storage: str) -> Callable[[Place], tuple[str, Come]]:
    """Have the slave's copy made anew; return the uid that there was, and whether it is gone."""

    def ask(place: Place) -> tuple[str, Come]:
        settle(place, slavesPerPair=1, storage={"type": storage})
        before = place.uid(kind, name)
        place.mark("force-resync-member", before)
        return before, lambda: place.uid(kind, name) not in ("", before)

    return ask


def _wipe_pod(place: Place) -> Come:
    return _resync("Pod", "demo-0-1-0", "ephemeral")(place)[1]


def _wipe_claim(place: Place) -> Come:
    return _resync("PersistentVolumeClaim", "data-demo-0-1-0", "persistent")(place)[1]


def _give_lease_back(place: Place) -> Come:
    is_new = _wipe_claim(place)
    return lambda: is_new() and not place.find("Lease", "failback-demo-0")


def _begin_run(place: Place) -> Come:
    allow(place.namespace)
    settle(place)
    experiment(place)
    return lambda: place.find("PersistentVolumeClaim", "failback-runs")


def _stop_run(place: Place) -> Come:
    _begin_run(place)
    api = place.namespace.api
    wait_until(lambda: api.list("Job"), "the Job", 120)
    name = api.list("Job")[0]["metadata"]["name"]
    api.patch("ChaosExperiment", "lab", {"spec": {"abort": True}})
    return lambda: not place.find("Job", name)


def _be_allowed(place: Place) -> Come:
    allow(place.namespace)
    place.create(sample("NameServer"), cluster())
    experiment(place)

    def reason() -> str:
        return str(condition_of(place.find("ChaosExperiment", "lab"), "Injected").get("reason", ""))

    return lambda: reason() not in ("", "NotAllowed")


def _says_not_allowed(place: Place, right: Right) -> bool:
    found = condition_of(place.find("ChaosExperiment", "lab"), "Injected")
    text = f"the labels of namespace {place.namespace.name} can't be read"
    return found.get("message") == text and counted(place, right)


def _post_event(place: Place) -> Come:
    experiment(place)
    return lambda: [
        item
        for item in place.namespace.api.list("Event")
        if item.get("reportingComponent") == "failback-operator"
    ]


def _count(place: Place) -> Come:
    place.create(claim(), sample("ReconsumptionReport"))
    return lambda: place.namespace.api.list("Job")


def _find_input(place: Place) -> Come:
    place.create(claim(), sample("ReconsumptionReport"))
    return lambda: place.find("ReconsumptionReport", "counted").get("status")


def _lead(place: Place) -> Come:
    return lambda: (
        place.find("Lease", "failback-operator").get("spec", {}).get("holderIdentity") == ("me")
    )


def _old_leader(place: Place) -> None:
    """A Lease that nobody has renewed for years."""
    place.create(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "failback-operator"},
            "spec": {
                "holderIdentity": "another",
                "leaseDurationSeconds": 15,
                "renewTime": "2020-01-01T00:00:00.000000Z",
            },
        }
    )


def _old_switch(place: Place) -> None:
    """A RoleSwitch that ended years ago and is to go a minute after its end."""
    found = sample("RoleSwitch")
    found["spec"]["ttlSecondsAfterFinished"] = 60
    place.create(found)
    status = {"phase": "Failed", "finishedAt": "2020-01-01T00:00:00Z"}
    place.namespace.api.patch("RoleSwitch", "swap", {"status": status}, subresource="status")


def _forget_switch(place: Place) -> Come:
    return lambda: not place.find("RoleSwitch", "swap")


def _monitor(place: Place) -> Come:
    monitored = {"podMonitor": {"enabled": True}}
    place.create(resource("NameServer", "main", replicas=1, metrics=monitored))
    return lambda: names_of(place.namespace.api, "podmonitors")


def _monitor_no_more(place: Place) -> Come:
    there = _monitor(place)
    wait_until(there, "a PodMonitor", 120)
    spec = {"spec": {"metrics": {"podMonitor": {"enabled": False}}}}
    place.namespace.api.patch("NameServer", "main", spec)
    return lambda: not there()


def _count_with_spark(place: Place) -> Come:
    found = sample("ReconsumptionReport")
    found["spec"] |= {"engine": "spark", "spark": {"mode": "sparkApplication"}}
    place.create(claim(), found)
    return lambda: names_of(place.namespace.api, "sparkapplications")


_LEADING: Final = {"FAILBACK_LEADER_ELECTION": "true", "POD_NAME": "me"}
_OPTIONALLY: Final = {"FAILBACK_POD_MONITORS": "true", "FAILBACK_SPARK_OPERATOR": "true"}


def _real(ask: Callable[[Place], Come]) -> Errand:
    return Errand(ask, pretended=False, variables=QUICK)


def _all() -> dict[Right, Errand]:
    found: dict[Right, Errand] = {}
    watched = {
        **dict.fromkeys(KINDS.values(), OWN),
        **{plural: group for plural, (group, _) in CHILDREN.items()},
        **OTHERS,
    }
    for plural, group in watched.items():
        found |= {(group, plural, verb): _watch() for verb in ("list", "watch")}
    for kind, plural in KINDS.items():
        found[OWN, plural, "get"] = _conflict(kind)
        found[OWN, f"{plural}/status", "patch"] = _status(kind)
    for kind in FINALIZED:
        found[OWN, KINDS[kind], "patch"] = _finalizer(kind)
    for plural, (group, kind) in CHILDREN.items():
        found |= {(group, plural, verb): _child(kind) for verb in ("get", "create", "patch")}
    for verb in ("get", "create", "patch"):
        found["batch", "jobs", verb] = Errand(_count)
        found["monitoring.coreos.com", PLURALS["PodMonitor"], verb] = Errand(
            _monitor, variables=_OPTIONALLY
        )
        found["sparkoperator.k8s.io", PLURALS["SparkApplication"], verb] = Errand(
            _count_with_spark, variables=_OPTIONALLY
        )
    for verb in ("get", "create"):
        found["coordination.k8s.io", "leases", verb] = Errand(_lead, variables=_LEADING)
    return found | {
        (OWN, "brokerclusters", "patch"): _real(_restart),
        (OWN, "roleswitches", "delete"): Errand(_forget_switch, prepare=_old_switch),
        ("apps", "statefulsets", "delete"): Errand(_grow_templates),
        ("", "configmaps", "delete"): _real(_lose_slave),
        ("policy", "poddisruptionbudgets", "delete"): Errand(_disable_budget),
        ("", "pods", "patch"): _real(_show_role),
        ("", "pods", "delete"): _real(_wipe_pod),
        ("", "pods/eviction", "create"): _real(_replace_unready),
        ("", "pods/status", "patch"): _real(_open_gate),
        ("", "persistentvolumeclaims", "get"): Errand(_find_input),
        ("", "persistentvolumeclaims", "create"): _real(_begin_run),
        ("", "persistentvolumeclaims", "patch"): Errand(_grow_claims),
        ("", "persistentvolumeclaims", "delete"): _real(_wipe_claim),
        ("", "events", "create"): Errand(
            _post_event, again=lambda place: experiment(place, "once-more")
        ),
        ("", "namespaces", "get"): Errand(_be_allowed, is_told=_says_not_allowed),
        ("coordination.k8s.io", "leases", "update"): Errand(
            _lead, prepare=_old_leader, variables=_LEADING
        ),
        ("coordination.k8s.io", "leases", "delete"): _real(_give_lease_back),
        ("batch", "jobs", "delete"): _real(_stop_run),
        ("monitoring.coreos.com", PLURALS["PodMonitor"], "delete"): Errand(
            _monitor_no_more, variables=_OPTIONALLY
        ),
    }


ERRANDS: Final[Mapping[Right, Errand]] = _all()
"""Every right of the chart's Role, those of optional kinds among them."""
