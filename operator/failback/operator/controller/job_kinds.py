"""ChaosExperiment and ReconsumptionReport: kinds that are carried out by Jobs."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

import aiohttp

from failback.kube.asynchronous import Kube
from failback.kube.errors import ApiError
from failback.operator.brokers.http_answers import read_bounded
from failback.operator.controller.cluster_kinds import Dependencies
from failback.operator.controller.outcome import Outcome
from failback.operator.controller.passes import Decision
from failback.operator.controller.refused_pods import Missing, refused_pods
from failback.operator.kinds.chaos_experiment import ChaosExperiment
from failback.operator.kinds.reconsumption_report import ReconsumptionReport
from failback.operator.kubernetes.store import Store, where_of
from failback.operator.planning.jobs.experiment import OVER, plan_experiment
from failback.operator.planning.jobs.report import claim_of, plan_report
from failback.operator.planning.jobs.results import end_of
from failback.operator.planning.observed.observed import (
    Key,
    Object,
    ObservedExperiment,
    ObservedReport,
)
from failback.operator.planning.plan.types import Plan
from failback.operator.planning.state.decode import is_owned
from failback.operator.render.experiment_jobs import config_map_name
from failback.operator.render.jobs import JobContext
from failback.operator.render.report_jobs import report_job_name

_PROGRESS_PORT: Final = 8088
_PROGRESS_SECONDS: Final = 2.0
_MOST_PROGRESS_BYTES: Final = 1024**2
_SEED_BITS: Final = 63
"""What the field of the seed holds, and the harness takes."""


class _JobKind:
    """What both kinds share: their context, and their Jobs with the newest pod of each."""

    def __init__(self, dependencies: Dependencies, store: Store, kube: Kube) -> None:
        self._dependencies = dependencies
        self._store = store
        self._kube = kube
        self._missing: dict[tuple[str, str], Missing] = {}

    async def _refused(
        self, resource: Object, jobs: Mapping[str, Object], pods: Mapping[str, Object]
    ) -> dict[str, str]:
        """Return the running Jobs whose pod was refused, and by what."""
        known = self._missing.setdefault(where_of(resource), {})
        begun = {name: job for name, job in jobs.items() if end_of(job) is None}
        makers = {name: job for name, job in begun.items() if name not in pods}
        return await refused_pods(self._kube, known, makers)

    def _context(self, namespace: str) -> JobContext:
        settings = self._dependencies.settings
        return JobContext.of_environment(
            settings.environment, namespace, settings.version, settings.domain
        )

    def _jobs(self, resource: Object) -> tuple[dict[str, Object], dict[str, Object]]:
        """Return the Jobs a resource owns, and the newest pod of each."""
        children = self._children(resource)
        jobs: dict[str, Object] = {
            name: item for (kind, name), item in self._known(resource).items() if kind == "Job"
        }
        pods: dict[str, Object] = {}
        by_age = sorted(
            (item for item in children if item["kind"] == "Pod"),
            key=lambda item: str(item["metadata"].get("creationTimestamp", "")),
        )
        for item in by_age:
            job = item["metadata"].get("labels", {}).get("batch.kubernetes.io/job-name", "")
            if job in jobs and is_owned(item, jobs[job]["metadata"]["uid"]):
                pods[job] = item
        return jobs, pods

    def _known(self, resource: Object) -> dict[Key, Object]:
        return {
            (item["kind"], item["metadata"]["name"]): item
            for item in self._children(resource)
            if is_owned(item, resource["metadata"]["uid"])
        }

    def _children(self, resource: Object) -> Sequence[Object]:
        namespace, name = where_of(resource)
        return self._store.children(namespace, resource["kind"], name)

    async def refresh(self, resource: Object) -> bool:
        """Nothing that is not asked in the pass itself."""
        return False

    def after(self, resource: Object, plan: Plan, outcome: Outcome) -> None:
        """Show the gauges."""
        where, cluster = where_of(resource), resource["spec"].get("clusterRef") or {}
        self._dependencies.metrics.show(
            resource["kind"], *where, plan.status, cluster=cluster.get("name", "")
        )

    def forget(self, namespace: str, name: str) -> None:
        """Drop what is remembered of a resource that is gone."""
        self._missing.pop((namespace, name), None)


class ExperimentKind(_JobKind):
    """ChaosExperiment."""

    async def decide(self, resource: Object) -> Decision:
        """Observe and plan."""
        model = ChaosExperiment.model_validate(resource)
        status = resource.get("status", {})
        context = self._context(model.namespace)
        observed = await self._observe(model, resource, status)
        plan = plan_experiment(
            model,
            status,
            observed,
            context,
            self._dependencies.clock(),
            drawn_seed=random.getrandbits(_SEED_BITS),
            deleting="deletionTimestamp" in resource["metadata"],
        )
        return Decision(plan, self._known(resource))

    async def _observe(
        self, model: ChaosExperiment, resource: Object, status: Mapping[str, Any]
    ) -> ObservedExperiment:
        now = self._dependencies.clock()
        jobs, pods = self._jobs(resource)
        name, namespace = model.spec.cluster_ref.name, model.namespace
        cluster = self._store.resource("BrokerCluster", namespace, name)
        children = self._store.children(namespace, "BrokerCluster", name)
        over = status.get("phase") in OVER and "deletionTimestamp" not in resource["metadata"]
        if over:
            return ObservedExperiment(at=now, cluster=cluster, jobs=jobs, pods=pods)
        claim = model.spec.job.run_volume.claim_name
        return ObservedExperiment(
            at=now,
            settings=self._known(resource).get(("ConfigMap", config_map_name(model.name))),
            namespace_labels=await self._namespace_labels(namespace),
            cluster=cluster,
            config_maps={
                item["metadata"]["name"]: item
                for item in children
                if item["kind"] == "ConfigMap"
                and "failback.dev/member" in item["metadata"].get("labels", {})
            },
            broker_pods=[
                item
                for item in children
                if item["kind"] == "Pod"
                and "failback.dev/member" in item["metadata"].get("labels", {})
            ],
            lease=await self._kube.lease(namespace, f"failback-{name}-chaos"),
            jobs=jobs,
            pods=pods,
            refused_pods=await self._refused(resource, jobs, pods),
            claim=await self._kube.get("PersistentVolumeClaim", namespace, claim),
            progress=await _progress(jobs, pods),
        )

    async def _namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        try:
            found = await self._kube.get("Namespace", "", namespace)
        except ApiError as error:
            if error.code == 403:
                return None
            raise
        return (found or {"metadata": {}})["metadata"].get("labels") or {}


async def _progress(
    jobs: Mapping[str, Object], pods: Mapping[str, Object]
) -> Mapping[str, Any] | None:
    """Return how far the running Job says it is; ``None`` when none answers."""
    running = [
        pod["status"]["podIP"]
        for name, pod in pods.items()
        if not jobs[name].get("status", {}).get("completionTime")
        and pod.get("status", {}).get("phase") == "Running"
        and pod["status"].get("podIP")
    ]
    if not running:
        return None
    limit = aiohttp.ClientTimeout(total=_PROGRESS_SECONDS)
    url = f"http://{running[-1]}:{_PROGRESS_PORT}/run"
    try:
        async with aiohttp.ClientSession(timeout=limit) as session, session.get(url) as answer:
            if answer.status != 200:
                return None
            found = json.loads(await read_bounded(answer, _MOST_PROGRESS_BYTES))
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


class ReportKind(_JobKind):
    """ReconsumptionReport."""

    async def decide(self, resource: Object) -> Decision:
        """Observe and plan."""
        model = ReconsumptionReport.model_validate(resource)
        status = resource.get("status", {})
        context = self._context(model.namespace)
        observed = await self._observe(model, resource, context)
        plan = plan_report(model, status, observed, context, self._dependencies.clock())
        return Decision(plan, self._known(resource))

    async def _observe(
        self, model: ReconsumptionReport, resource: Object, context: JobContext
    ) -> ObservedReport:
        jobs, pods = self._jobs(resource)
        namespace, name = model.namespace, report_job_name(model.name)
        experiment = None
        if model.spec.experiment_ref is not None:
            experiment = self._store.resource(
                "ChaosExperiment", namespace, model.spec.experiment_ref.name
            )
        served = await self._dependencies.observer.served_kinds()
        application = None
        if "SparkApplication" in served:
            application = await self._kube.get("SparkApplication", namespace, name)
        claim = claim_of(model, experiment, context)
        refused = await self._refused(resource, jobs, pods)
        return ObservedReport(
            at=self._dependencies.clock(),
            experiment=experiment,
            job=jobs.get(name),
            pod=pods.get(name),
            refused_pod=refused.get(name, ""),
            application=application,
            claim=await self._kube.get("PersistentVolumeClaim", namespace, claim),
            served_kinds=served,
        )
