"""What a Helm release needs done around its own life: finalizers before, the chaos label after.

Runs in the chart's hook Jobs, with accounts of their own, while no operator runs: so it does not
share the operator's connection.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from failback.kube.blocking import BlockingKube
from failback.kube.errors import ApiError
from failback.kube.resources import RESOURCES
from failback.operator.kubernetes.finalizers import without_finalizer
from failback.protocol.errors import FailbackError

CHAOS_LABEL: Final = "failback.dev/chaos-allowed"
KINDS: Final = (
    "ChaosExperiment",
    "ReconsumptionReport",
    "RoleSwitch",
    "Topic",
    "SubscriptionGroup",
    "BrokerCluster",
    "NameServer",
)
STOP_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.5
_ATTEMPTS: Final = 5
_NOT_FOUND, _CONFLICT = 404, 409

Say = Callable[[str], None]


class ReleaseError(FailbackError):
    """The hook can't do its work; the message says what to do by hand."""


def remove_finalizers(api: BlockingKube, namespaces: Sequence[str], say: Say) -> int:
    """Take our finalizer off all custom resources; return off how many.

    Args:
        namespaces: Where; empty = everywhere.

    Raises:
        ReleaseError: A resource changes faster than we read it.
    """
    count = 0
    for namespace in namespaces or ("",):
        for kind in KINDS:
            for attempt in range(_ATTEMPTS):
                done, again = _sweep(api, namespace, kind, say)
                count += done
                if not again:
                    break
                time.sleep(_POLL_SECONDS * attempt)
            else:
                where = namespace or "the cluster"
                raise ReleaseError(
                    f"{RESOURCES[kind][2]} of {where} still change: does an operator run?"
                )
    return count


def _sweep(api: BlockingKube, namespace: str, kind: str, say: Say) -> tuple[int, bool]:
    """Patch every resource of one kind once; return how many, and whether one moved on."""
    try:
        found = api.list_all(kind, namespace)
    except ApiError as error:
        if error.code == _NOT_FOUND:  # the kind is not installed
            return 0, False
        raise
    done, again = 0, False
    for resource in found:
        patch = without_finalizer(resource)
        if patch is None:
            continue
        where, name = resource["metadata"]["namespace"], resource["metadata"]["name"]
        try:
            api.merge(kind, where, name, patch)
        except ApiError as error:
            if error.code not in (_NOT_FOUND, _CONFLICT):
                raise
            again |= error.code == _CONFLICT
            continue
        say(f"{RESOURCES[kind][2]}/{name} in {where}: finalizer removed")
        done += 1
    return done, again


def stop_deployment(api: BlockingKube, namespace: str, name: str, say: Say) -> None:
    """Scale a Deployment to 0 and wait until its pods are gone.

    An operator that still runs would put its finalizer back.

    Raises:
        ReleaseError: A pod is still there after two minutes.
    """
    try:
        found = api.merge("Deployment", namespace, name, {"spec": {"replicas": 0}})
    except ApiError as error:
        if error.code == _NOT_FOUND:
            return
        raise
    labels = found["spec"]["selector"]["matchLabels"]
    selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    deadline = time.monotonic() + STOP_SECONDS
    while left := api.list_all("Pod", namespace, selector):
        if time.monotonic() >= deadline:
            names = ", ".join(pod["metadata"]["name"] for pod in left)
            raise ReleaseError(f"{names} in {namespace} does not end")
        time.sleep(_POLL_SECONDS)
    say(f"{name} in {namespace} is stopped")


def allow_chaos(api: BlockingKube, namespaces: Sequence[str], say: Say) -> None:
    """Label namespaces so that experiments may run in them."""
    for namespace in namespaces:
        body = {"metadata": {"labels": {CHAOS_LABEL: "true"}}}
        api.merge("Namespace", "", namespace, body)
        say(f"namespace {namespace}: experiments are allowed")
