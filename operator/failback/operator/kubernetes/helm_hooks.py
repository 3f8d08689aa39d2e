"""What a Helm release needs done around its own life: finalizers before, the chaos label after.

Runs in the chart's hook Jobs, with accounts of their own, while no operator runs: so it does not
share the operator's connection.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from failback.operator.kinds.base import FINALIZER
from failback.protocol.errors import FailbackError

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

CHAOS_LABEL: Final = "failback.dev/chaos-allowed"
GROUP, VERSION = "failback.dev", "v1alpha1"
PLURALS: Final = (
    "chaosexperiments",
    "reconsumptionreports",
    "roleswitches",
    "topics",
    "subscriptiongroups",
    "brokerclusters",
    "nameservers",
)
STOP_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.5
_ATTEMPTS: Final = 5
_NOT_FOUND, _CONFLICT = 404, 409
_MERGE: Final = "application/merge-patch+json"

Say = Callable[[str], None]


class ReleaseError(FailbackError):
    """The hook can't do its work; the message says what to do by hand."""


def without_finalizer(resource: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the patch that takes our finalizer off, or ``None`` when it is not there.

    The patch carries the resourceVersion: a finalizer that came meanwhile is not lost.
    """
    metadata = resource["metadata"]
    present = metadata.get("finalizers") or []
    if FINALIZER not in present:
        return None
    kept = [each for each in present if each != FINALIZER]
    return {"metadata": {"resourceVersion": metadata["resourceVersion"], "finalizers": kept}}


def api_client() -> ApiClient:
    """Connect with the pod's account, or with the kubeconfig outside a cluster."""
    from kubernetes import client, config

    untyped: Any = config
    try:
        untyped.load_incluster_config()
    except config.ConfigException:
        untyped.load_kube_config()
    return client.ApiClient()


def remove_finalizers(api: ApiClient, namespaces: Sequence[str], say: Say) -> int:
    """Take our finalizer off all custom resources; return off how many.

    Args:
        namespaces: Where; empty = everywhere.

    Raises:
        ReleaseError: A resource changes faster than we read it.
    """
    count = 0
    for namespace in namespaces or ("",):
        for plural in PLURALS:
            for attempt in range(_ATTEMPTS):
                done, again = _sweep(api, namespace, plural, say)
                count += done
                if not again:
                    break
                time.sleep(_POLL_SECONDS * attempt)
            else:
                where = namespace or "the cluster"
                raise ReleaseError(f"{plural} of {where} still change: does an operator run?")
    return count


def _sweep(api: ApiClient, namespace: str, plural: str, say: Say) -> tuple[int, bool]:
    """Patch every resource of one kind once; return how many, and whether one moved on."""
    from kubernetes import client

    resources: Any = client.CustomObjectsApi(api)
    try:
        if namespace:
            found = resources.list_namespaced_custom_object(GROUP, VERSION, namespace, plural)
        else:
            found = resources.list_cluster_custom_object(GROUP, VERSION, plural)
    except client.ApiException as error:
        if error.status == _NOT_FOUND:  # the kind is not installed
            return 0, False
        raise
    done, again = 0, False
    for resource in found["items"]:
        patch = without_finalizer(resource)
        if patch is None:
            continue
        where, name = resource["metadata"]["namespace"], resource["metadata"]["name"]
        try:
            resources.patch_namespaced_custom_object(
                GROUP, VERSION, where, plural, name, patch, _content_type=_MERGE
            )
        except client.ApiException as error:
            if error.status not in (_NOT_FOUND, _CONFLICT):
                raise
            again |= error.status == _CONFLICT
            continue
        say(f"{plural}/{name} in {where}: finalizer removed")
        done += 1
    return done, again


def stop_deployment(api: ApiClient, namespace: str, name: str, say: Say) -> None:
    """Scale a Deployment to 0 and wait until its pods are gone.

    An operator that still runs would put its finalizer back.

    Raises:
        ReleaseError: A pod is still there after two minutes.
    """
    from kubernetes import client

    deployments: Any = client.AppsV1Api(api)
    pods: Any = client.CoreV1Api(api)
    try:
        found = deployments.patch_namespaced_deployment(name, namespace, {"spec": {"replicas": 0}})
    except client.ApiException as error:
        if error.status == _NOT_FOUND:
            return
        raise
    labels = found.spec.selector.match_labels
    selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    deadline = time.monotonic() + STOP_SECONDS
    while left := pods.list_namespaced_pod(namespace, label_selector=selector).items:
        if time.monotonic() >= deadline:
            names = ", ".join(pod.metadata.name for pod in left)
            raise ReleaseError(f"{names} in {namespace} does not end")
        time.sleep(_POLL_SECONDS)
    say(f"{name} in {namespace} is stopped")


def allow_chaos(api: ApiClient, namespaces: Sequence[str], say: Say) -> None:
    """Label namespaces so that experiments may run in them."""
    from kubernetes import client

    for namespace in namespaces:
        body = {"metadata": {"labels": {CHAOS_LABEL: "true"}}}
        client.CoreV1Api(api).patch_namespace(namespace, body)
        say(f"namespace {namespace}: experiments are allowed")
