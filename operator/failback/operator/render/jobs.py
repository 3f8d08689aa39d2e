"""What the Jobs of experiments and reports share, and the volume that keeps run folders. Pure.

The operator injects nothing: it renders the Job that does. A run volume has no owner, because runs
outlive everything; all else belongs to its custom resource.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from failback.operator.kinds.base import Resource, Resources
from failback.operator.kinds.permits import (
    EXPERIMENT_ACCOUNT,
    REPORT_ACCOUNT,
    Permits,
    read_permits,
)
from failback.operator.render import common
from failback.operator.render.context import KUBERNETES_HOME, KUBERNETES_RUN_DIR, Object

RUNS: Final = "/runs"
"""Where the run volume is mounted."""
CONTAINER: Final = "main"
_ANSWERS: Final = (1, 2, 3)
"""Exit codes after which a second try would say the same."""


@dataclass(frozen=True, slots=True)
class JobContext:
    """What the chart decided about Jobs."""

    namespace: str
    version: str
    domain: str = "cluster.local"
    chaos_image: str = ""
    analytics_image: str = ""
    runs_claim: str = "failback-runs"
    runs_size: str = "20Gi"
    runs_storage_class: str = ""
    """Empty: the cluster's default."""
    permits: Permits | None = None
    """What resources may name; ``None`` = anything."""

    @classmethod
    def of_environment(
        cls, environment: Mapping[str, str], namespace: str, version: str, domain: str
    ) -> JobContext:
        """Read the operator's own variables; what is unset has this release's default."""
        return cls(
            namespace=namespace,
            version=version,
            domain=domain,
            chaos_image=environment.get("FAILBACK_IMAGE_CHAOS", ""),
            analytics_image=environment.get("FAILBACK_IMAGE_SPARK", ""),
            runs_claim=environment.get("FAILBACK_RUNS_CLAIM") or "failback-runs",
            runs_size=environment.get("FAILBACK_RUNS_SIZE") or "20Gi",
            runs_storage_class=environment.get("FAILBACK_RUNS_STORAGE_CLASS", ""),
            permits=read_permits(environment),
        )

    def experiment_account(self, asked: str) -> str:
        """Return the account of an experiment's Jobs; the default means the chart's own."""
        if self.permits is None or asked != EXPERIMENT_ACCOUNT:
            return asked
        return self.permits.experiment_accounts[0]

    def report_account(self, asked: str) -> str:
        """Return the account that starts Spark's executors; the default means the chart's own."""
        if self.permits is None or asked != REPORT_ACCOUNT:
            return asked
        return self.permits.report_accounts[0]


@dataclass(frozen=True, slots=True)
class Work:
    """What one Job runs, with what, and for how long."""

    image: str
    args: Sequence[str]
    """The words behind ``failback``."""
    claim: str
    """Of the run volume."""
    seconds: int
    """Deadline of the whole Job."""
    grace_seconds: int
    """Time between SIGTERM and SIGKILL."""
    account: str | None = None
    """ServiceAccount; ``None``: the pod gets no token."""
    resources: Resources | None = None
    retries: int = 0
    marks: Mapping[str, str] = field(default_factory=dict)
    """More labels."""
    volumes: Sequence[Object] = ()
    mounts: Sequence[Object] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


def run_folder(experiment: str, arm: str, repetition: int) -> str:
    """Where a run keeps everything, as the harness names it."""
    return f"{RUNS}/{experiment}/{arm}-{repetition:03d}"


def run_claim(name: str, context: JobContext) -> Object:
    """Return the claim of the run volume. Several Jobs of one node may use it at once."""
    spec: Object = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": context.runs_size}},
    }
    if context.runs_storage_class:
        spec["storageClassName"] = context.runs_storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "namespace": context.namespace,
            "labels": {
                "app.kubernetes.io/name": "failback",
                "app.kubernetes.io/component": "runs",
                "app.kubernetes.io/managed-by": "failback-operator",
            },
        },
        "spec": spec,
    }


def metadata(owner: Resource, name: str, component: str, context: JobContext) -> Object:
    """Return the metadata of an object that goes with ``owner``."""
    found = common.labels(owner, component)
    return {
        "name": name,
        "namespace": context.namespace,
        "labels": common.versioned(found, context.version),
        "ownerReferences": common.owned_by(owner),
    }


def job(owner: Resource, name: str, component: str, work: Work, context: JobContext) -> Object:
    """Return the Job of one piece of work."""
    described = metadata(owner, name, component, context)
    described["labels"] |= work.marks
    template = {"metadata": {"labels": dict(described["labels"])}, "spec": _pod(work, context)}
    spec: Object = {
        "backoffLimit": work.retries,
        "activeDeadlineSeconds": work.seconds,
        "template": template,
    }
    if work.retries:  # a bad verdict is an answer too: no second try
        answers = {"containerName": CONTAINER, "operator": "In", "values": list(_ANSWERS)}
        rule = {"action": "FailJob", "onExitCodes": answers}
        spec["podFailurePolicy"] = {"rules": [rule]}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": described, "spec": spec}


def _pod(work: Work, context: JobContext) -> Object:
    found: Object = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": work.grace_seconds,
        "automountServiceAccountToken": work.account is not None,
        "enableServiceLinks": False,
        "securityContext": common.pod_security_of(common.USER),
        "containers": [_container(work, context)],
        "volumes": [
            *work.volumes,
            {"name": "runs", "persistentVolumeClaim": {"claimName": work.claim}},
            {"name": "scratch", "emptyDir": {}},
            {"name": "run", "emptyDir": {"sizeLimit": "16Mi"}},
        ],
    }
    if work.account is not None:
        found["serviceAccountName"] = work.account
    return found


def _container(work: Work, context: JobContext) -> Object:
    resources = work.resources
    return {
        "name": CONTAINER,
        "image": work.image,
        "command": list(common.INIT),
        "args": list(work.args),
        "env": common.variables(
            {
                "HOME": KUBERNETES_HOME,
                "TMPDIR": f"{KUBERNETES_HOME}/scratch",
                "FAILBACK_CLUSTER_DOMAIN": context.domain,
                **work.variables,
            }
        ),
        "ports": [{"name": "http", "containerPort": common.HTTP_PORT}],
        "resources": common.resources_of(resources) if resources is not None else {},
        "securityContext": common.container_security(),
        "terminationMessagePath": "/dev/termination-log",
        "volumeMounts": [
            *work.mounts,
            {"name": "runs", "mountPath": RUNS},
            {"name": "scratch", "mountPath": f"{KUBERNETES_HOME}/scratch"},
            {"name": "run", "mountPath": KUBERNETES_RUN_DIR},
        ],
    }
