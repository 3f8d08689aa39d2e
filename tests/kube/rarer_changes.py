"""What happens to a cluster more rarely: another life of four clusters, to compare its ends.

``vault`` gets larger volumes and another image, loses a copy and is deleted; ``quay`` loses its
master for good; ``annex`` has name servers of its own, that come and go, and its operator is
uninstalled and installed again; ``shop``, with name servers of its own too, is experimented on, and
the experiment reported.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from failback.client.admin.admin import AdminClient
from failback.operator.kubernetes.helm_hooks import FINALIZER, remove_finalizers
from failback.protocol.errors import FailbackError
from tests.support.chaos.kube_cluster import allow, chaos_account, experiment_text
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.namespaces import Namespace
from tests.support.operator.operator_process import condition_of
from tests.support.operator.resources import resource
from tests.support.operator.scripted_clusters import (
    Change,
    change_spec,
    cluster_manifest,
    comparable,
    create,
    is_switched,
    name_things,
    objects_of,
    things_synced,
)

SIZE: Final = "30Gi"
QUEUES: Final = 2
_RESYNC: Final = "failback.dev/force-resync-member"
_KILL: Final = {
    "id": "f1",
    "fault": "kill",
    "at": 10,
    "target": {"pair": "shop-0", "role": "master"},
    "with": {"downSeconds": 30},
}
_FEW: Final = {"ratePerSecond": 50, "bodyBytes": 128}


# --- volumes, images, copies, the end -----------------------------------------------------------


def _grown(namespace: Namespace, cluster: str) -> bool:
    """Whether the claims have grown and the templates know of it."""
    claims = [
        namespace.api.get("PersistentVolumeClaim", f"data-{cluster}-0-{member}-0")
        for member in (0, 1)
    ]
    sets = [namespace.api.find("StatefulSet", f"{cluster}-0-{member}") for member in (0, 1)]
    if not all(item["status"]["capacity"]["storage"] == SIZE for item in claims):
        return False
    return all(item is not None and _asked(item) == SIZE for item in sets)


def _asked(statefulset: Object) -> str:
    """Return the size of the volumes that a StatefulSet asks for."""
    template = statefulset["spec"]["volumeClaimTemplates"][0]
    return str(template["spec"]["resources"]["requests"]["storage"])


def _forget_copy(namespace: Namespace, cluster: str) -> None:
    """Ask for the slave's volume to be wiped."""
    claim = namespace.api.get("PersistentVolumeClaim", f"data-{cluster}-0-1-0")
    marks = {_RESYNC: claim["metadata"]["uid"]}
    namespace.api.patch("BrokerCluster", cluster, {"metadata": {"annotations": marks}})


def _copied_anew(namespace: Namespace, cluster: str) -> bool:
    wiped = namespace.api.get("BrokerCluster", cluster)["metadata"]["annotations"][_RESYNC]
    claim = namespace.api.find("PersistentVolumeClaim", f"data-{cluster}-0-1-0")
    lease = namespace.api.find("Lease", f"failback-{cluster}-0")
    return claim is not None and claim["metadata"]["uid"] != wiped and lease is None


def _delete(namespace: Namespace, cluster: str) -> None:
    namespace.api.delete("BrokerCluster", cluster)


def _is_gone(namespace: Namespace, cluster: str) -> bool:
    return namespace.api.find("BrokerCluster", cluster) is None and not namespace.api.list(
        "Pod", labels=f"failback.dev/cluster={cluster}"
    )


def _left(namespace: Namespace, cluster: str) -> dict[str, Any]:
    """What a deleted cluster leaves: its volumes."""
    claims = namespace.api.list("PersistentVolumeClaim", labels=f"failback.dev/cluster={cluster}")
    names = sorted(str(item["metadata"]["name"]) for item in claims)
    return {"objects": objects_of(namespace, cluster), "claims": names}


# --- a master that is gone ----------------------------------------------------------------------


def _create_manual(namespace: Namespace, cluster: str) -> None:
    namespace.api.create(cluster_manifest(cluster, failover={"mode": "Manual"}))


def _lose_master(namespace: Namespace, cluster: str) -> None:
    """Kill the master and keep it down; ask for the role to be taken from it."""
    words = ("exec", f"{cluster}-0-0-0", "--", "failback-init", "kill", "9", "--hold")
    namespace.kubectl(*words, check=False)  # the command may die with the container
    namespace.api.create(
        resource(
            "RoleSwitch",
            f"{cluster}-swap",
            clusterRef={"name": cluster},
            pair=0,
            targetMember=1,
            mode="Forced",
        )
    )


# --- name servers, topics, another operator -----------------------------------------------------


def _create_apart(namespace: Namespace, cluster: str) -> None:
    namespace.api.create(resource("NameServer", cluster, replicas=1))
    namespace.api.create(cluster_manifest(cluster, nameServerRef={"name": cluster}))


def _name_servers(count: int) -> Change:
    """Let there be so many name servers; brokers are told before a pod goes."""

    def make(namespace: Namespace, cluster: str) -> None:
        namespace.api.patch("NameServer", cluster, {"spec": {"replicas": count}})

    def is_done(namespace: Namespace, cluster: str) -> bool:
        item = namespace.api.get("NameServer", cluster)
        status = item["status"]
        told = namespace.api.get("ConfigMap", f"{cluster}-0-1")["data"]["broker.conf"]
        observed = bool(status.get("observedGeneration") == item["metadata"]["generation"])
        there = status.get("readyReplicas"), len(status["addresses"]), told.count(":9876")
        return observed and there == (count, count, count)

    return Change(f"{count} name servers", make, is_done)


def _shrink(namespace: Namespace, cluster: str) -> None:
    queues = {"readQueueNums": QUEUES, "writeQueueNums": QUEUES}
    namespace.api.patch("Topic", f"{cluster}-paid", {"spec": queues})


def _shrunk(namespace: Namespace, cluster: str) -> bool:
    topic = namespace.api.get("Topic", f"{cluster}-paid")
    status = topic["status"]
    return (
        bool(status.get("observedGeneration") == topic["metadata"]["generation"])
        and all(condition_of(topic, kind)["status"] == "True" for kind in ("Ready", "Synced"))
        and all(pair.get("readQueueNums") == QUEUES for pair in status["pairs"])
    )


def _delete_things(namespace: Namespace, cluster: str) -> None:
    for kind, name in (("Topic", f"{cluster}-paid"), ("SubscriptionGroup", f"{cluster}-billing")):
        namespace.api.patch(kind, name, {"spec": {"deletionPolicy": "Delete"}})
        namespace.api.delete(kind, name)


def _things_gone(namespace: Namespace, cluster: str) -> bool:
    """Whether resources, topic and group are gone."""
    if any(
        namespace.api.find(kind, f"{cluster}-{name}")
        for kind, name in (("Topic", "paid"), ("SubscriptionGroup", "billing"))
    ):
        return False
    status = namespace.api.get("BrokerCluster", cluster)["status"]
    addresses = [item["address"] for item in status["pairs"][0]["members"]]
    try:
        return asyncio.run(_nobody_knows(addresses, cluster))
    except (FailbackError, OSError):
        return False


async def _nobody_knows(addresses: list[str], cluster: str) -> bool:
    async with AdminClient(timeout_ms=3000) as admin:
        for address in addresses:
            topics = (await admin.all_topic_config(address)).topic_config_table
            groups = (await admin.all_groups(address)).subscription_group_table
            if f"{cluster}-paid" in topics or f"{cluster}-billing" in groups:
                return False
    return True


def _uninstall(namespace: Namespace, cluster: str) -> None:
    """What the chart's hook does at the end of a release."""
    from kubernetes import config

    untyped: Any = config
    with untyped.new_client_from_config(str(namespace.kubeconfig)) as api:
        assert remove_finalizers(api, [namespace.name], lambda text: None) > 0


def _is_adopted(namespace: Namespace, cluster: str) -> bool:
    """Whether the next operator has looked at topic and group, and has its finalizer on both."""
    return things_synced(namespace, cluster) and all(
        FINALIZER in namespace.api.get(kind, f"{cluster}-{name}")["metadata"].get("finalizers", ())
        for kind, name in (("Topic", "paid"), ("SubscriptionGroup", "billing"))
    )


# --- an experiment and its report ---------------------------------------------------------------


def _open_shop(namespace: Namespace, cluster: str) -> None:
    allow(namespace)
    chaos_account(namespace)
    values = {"failbackTimeScale": "0.1", "autoCreateTopicEnable": "false"}
    # Clients know all brokers of a name server: those of another cluster would get their offsets.
    namespace.api.create(resource("NameServer", cluster, replicas=1))
    reference = {"name": cluster}
    namespace.api.create(
        cluster_manifest(cluster, nameServerRef=reference, slaveReadEnable=True, config=values)
    )


def _experiment(namespace: Namespace, cluster: str) -> None:
    found = json.loads(experiment_text([_KILL], namespace))
    found["metadata"]["name"] = f"{cluster}-lab"
    found["spec"]["clusterRef"]["name"] = cluster
    found["spec"]["workload"]["topics"][0] |= _FEW
    found["spec"]["steadyState"]["minProducePerSecond"] = 5
    namespace.api.create(found)


def _reached(kind: str, phase: str) -> Callable[[Namespace, str], bool]:
    def reached(namespace: Namespace, cluster: str) -> bool:
        status = namespace.api.get(kind, f"{cluster}-lab").get("status", {})
        assert status.get("phase") not in ("Failed", "Aborted"), status
        return bool(status.get("phase") == phase)

    return reached


def _results(namespace: Namespace, cluster: str) -> dict[str, Any]:
    """Objects, spec, and what experiment and report say: their figures differ from run to run."""
    item = namespace.api.get("BrokerCluster", cluster)
    found = {"objects": objects_of(namespace, cluster), "spec": item["spec"]}
    for kind in ("ChaosExperiment", "ReconsumptionReport"):
        other = namespace.api.find(kind, f"{cluster}-lab") or {}
        status = other.get("status", {})
        found[kind] = {
            "phase": status.get("phase"),
            "runs": [(run["arm"], run["repetition"]) for run in status.get("runs", ())],
            "conditions": {
                name: condition_of(other, name).get("status")
                for name in ("Injected", "Recovered", "Complete")
            },
        }
    return comparable(namespace, found)


def _report(namespace: Namespace, cluster: str) -> None:
    name = f"{cluster}-lab"
    namespace.api.create(
        resource("ReconsumptionReport", name, experimentRef={"name": name}, engine="local")
    )


RARER: Final[Mapping[str, tuple[Change, ...]]] = {
    "vault": (
        Change("create", create),
        Change("resize", change_spec(storage={"size": SIZE}), _grown),
        Change(
            "image change",
            change_spec(engine={"type": "failback", "image": "failback/broker:another"}),
        ),
        Change("resync", _forget_copy, _copied_anew),
        Change("delete", _delete, is_settled=_is_gone, look=_left),
    ),
    "quay": (
        Change("create", _create_manual),
        Change("forced role switch", _lose_master, is_switched),
    ),
    "annex": (
        Change("create", _create_apart),
        _name_servers(2),
        Change("topic and group", name_things, things_synced),
        Change("reinstall", _uninstall, _is_adopted, unattended=True),
        Change("shrink", _shrink, _shrunk),
        Change("delete topic and group", _delete_things, _things_gone),
        _name_servers(1),
    ),
    "shop": (
        Change("create", _open_shop, look=_results),
        Change("experiment", _experiment, _reached("ChaosExperiment", "Completed"), look=_results),
        Change("report", _report, _reached("ReconsumptionReport", "Done"), look=_results),
    ),
}
