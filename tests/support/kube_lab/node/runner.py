"""The node: registers itself, binds pods, and runs what is bound to it."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any, Final

from tests.support.kube_lab.api import ApiError, Object
from tests.support.kube_lab.node import images, plan
from tests.support.kube_lab.node.addresses import Range
from tests.support.kube_lab.node.api_service import ApiService
from tests.support.kube_lab.node.claims import Claims
from tests.support.kube_lab.node.client import MERGE, Client
from tests.support.kube_lab.node.container import Container, now_text
from tests.support.kube_lab.node.hosts import Hosts
from tests.support.kube_lab.node.kubelet import DECLARED, PORT, Kubelet
from tests.support.kube_lab.node.pod import PodRunner
from tests.support.kube_lab.node.volumes import NotYet

logger = logging.getLogger(__name__)

PRETEND_LABEL: Final = "lab.failback.dev/pods"
_PODS: Final = "/api/v1/pods"
_NODES: Final = "/api/v1/nodes"
_SERVICES: Final = "/api/v1/services"
_AGAIN_SECONDS: Final = 0.5
_CONFLICT, _NOT_FOUND = 409, 404
_FINISHED: Final = ("Succeeded", "Failed")


def _pair_of(pod: Object) -> object:
    """Return what members of one pair have in common; ``None`` for other pods."""
    labels = pod["metadata"].get("labels") or {}
    pair = labels.get("failback.dev/pair")
    return pair and (pod["metadata"]["namespace"], labels.get("failback.dev/cluster"), pair)


class Node:
    """One node, for as long as :meth:`run` runs.

    It runs the pods of further nodes too, those named NAME.NAMESPACE.anything: pods of that
    namespace are bound to these alone, to the one that takes pods and has the fewest of them.
    """

    def __init__(self, name: str, kubeconfig: Path, pki: Path, folder: Path, root: Path) -> None:
        self.name = name
        self.client = Client(kubeconfig, f"kube-lab-node/{name}")
        self._range = Range()
        self.address = self._range.node
        self.hosts = Hosts(folder / "hosts", self.address)
        self._folder = folder
        self._pods: dict[str, PodRunner] = {}
        self._ends: set[asyncio.Task[None]] = set()
        self._claims = Claims(self.client, folder / "claims")
        self._kubelet = Kubelet(
            self.find, self.address_of, pki / "apiserver.crt", pki / "apiserver.key"
        )
        self._api_service = ApiService(self.client.server)
        self._stages = images.read(root / "Dockerfile")
        self._labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
        self._unbound: dict[str, Object] = {}
        self._placed: dict[str, tuple[str, object]] = {}
        """Pods that this process bound → their node."""
        self._pretending: dict[str, bool] = {}

    # --- what pods and the kubelet ask -----------------------------------------------------------

    def image(self, image: str) -> images.Start:
        return images.start_of(image, self._stages)

    def release(self, pod: PodRunner) -> None:
        self._range.release(pod.address)

    def find(self, namespace: str, pod: str, container: str) -> Container:
        for runner in self._pods.values():
            if (runner.namespace, runner.name) == (namespace, pod):
                return runner.container(container)
        raise LookupError(f"pod {namespace}/{pod} does not run on {self.name}")

    def address_of(self, namespace: str, pod: str) -> str:
        for runner in self._pods.values():
            if (runner.namespace, runner.name) == (namespace, pod):
                return runner.address
        raise LookupError(f"pod {namespace}/{pod} does not run on {self.name}")

    # --- life ------------------------------------------------------------------------------------

    async def run(self, stopping: asyncio.Event) -> None:
        """Register, then follow the API server until ``stopping``; then end every process."""
        await self._kubelet.start(self.address)
        await self._api_service.start(self.address)
        await self._claims.create_classes()
        await self._register()
        loops = [self._follow_unbound(), self._bind_again(), self._follow_own(), self._claims.run()]
        tasks = [asyncio.create_task(loop) for loop in (*loops, self._follow_services())]
        stop = asyncio.create_task(stopping.wait())
        try:
            done, _ = await asyncio.wait([*tasks, stop], return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stop}:
                task.result()  # a loop that ended did so by an error of ours
        finally:
            for task in (*tasks, stop):
                task.cancel()
            await asyncio.wait(tasks)
            await asyncio.gather(*(pod.gone() for pod in self._pods.values()))
            self._api_service.stop()
            await self._kubelet.stop()
            await self.client.close()

    async def _register(self) -> None:
        labels = {"metadata": {"name": self.name, "labels": self._labels}}
        manifest: Object = {"apiVersion": "v1", "kind": "Node", **labels}
        try:
            await self.client.request("POST", _NODES, manifest)
        except ApiError as error:
            if error.code != _CONFLICT:
                raise
        now = now_text()
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        resources = {"cpu": "64", "memory": "256Gi", "pods": "1000"}
        status = {
            "addresses": [{"type": "InternalIP", "address": self.address}],
            "capacity": resources,
            "allocatable": resources,
            "conditions": [ready],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": PORT}},
            "declaredFeatures": [DECLARED],
        }
        path = f"{_NODES}/{self.name}"
        await self.client.request("PATCH", path, {"spec": {"taints": None}}, content_type=MERGE)
        await self.client.request("PATCH", f"{path}/status", {"status": status}, content_type=MERGE)

    # --- binding ---------------------------------------------------------------------------------

    async def _follow_unbound(self) -> None:
        async for event, found in self.client.watch(_PODS, {"fieldSelector": "spec.nodeName="}):
            if event == "SYNC":
                self._unbound = {pod["metadata"]["uid"]: pod for pod in found}
            elif event == "DELETED":
                self._unbound.pop(found["metadata"]["uid"], None)
                continue
            else:
                self._unbound[found["metadata"]["uid"]] = found
            await self._bind_all()

    async def _bind_again(self) -> None:
        """Try those that did not fit once more: the node may have been uncordoned."""
        while True:
            await asyncio.sleep(_AGAIN_SECONDS)
            if self._unbound:
                await self._bind_all()

    async def _bind_all(self) -> None:
        fitting = [pod for pod in self._unbound.values() if self._may_bind(pod)]
        if not fitting:
            return
        try:
            listed = (await self.client.request("GET", _NODES))["items"]
        except (ApiError, OSError) as error:
            logger.info("binding: %s", error)
            return
        closed = {each["metadata"]["name"]: each["spec"].get("unschedulable") for each in listed}
        binds = []
        for pod in fitting:
            if node := self._place(pod, closed):
                self._placed[pod["metadata"]["uid"]] = node, _pair_of(pod)
                binds.append(self._bind(pod, node))
        await asyncio.gather(*binds)

    def _place(self, pod: Object, closed: dict[str, bool | None]) -> str:
        """Return the node of ours for a pod; empty while none takes it."""
        namespace = pod["metadata"]["namespace"]
        further = [name for name in closed if name.startswith(f"{self.name}.{namespace}.")]
        fit = [name for name in further or [self.name] if not closed.get(name)]
        taken = list(self._placed.values())
        nodes, pair = [node for node, _ in taken], _pair_of(pod)

        def order(name: str) -> tuple[int, int, str]:
            # Members of a pair apart first, as their anti-affinity wants it.
            return pair is not None and taken.count((name, pair)), nodes.count(name), name

        return min(fit, key=order, default="")

    def _may_bind(self, pod: Object) -> bool:
        deleted = "deletionTimestamp" in pod["metadata"]
        gated = bool(pod["spec"].get("schedulingGates"))
        return not deleted and not gated and plan.fits(pod, self._labels)

    async def _bind(self, pod: Object, node: str) -> None:
        metadata = pod["metadata"]
        self._unbound.pop(metadata["uid"], None)
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/binding"
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": metadata["name"], "uid": metadata["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            await self.client.request("POST", path, body)
        except (ApiError, OSError) as error:
            if not isinstance(error, ApiError) or error.code not in (_CONFLICT, _NOT_FOUND):
                self._unbound.setdefault(metadata["uid"], pod)
                logger.info("binding of %s: %s", metadata["name"], error)

    # --- pods ------------------------------------------------------------------------------------

    async def _follow_own(self) -> None:
        async for event, found in self.client.watch(_PODS, {"fieldSelector": "spec.nodeName!="}):
            if event == "SYNC":
                own = [pod for pod in found if self._is_own(pod)]
                for uid in self._pods.keys() - {pod["metadata"]["uid"] for pod in own}:
                    self._end(uid)
                for pod in own:
                    await self._see(pod)
            elif event == "DELETED":
                self._end(found["metadata"]["uid"])
            elif self._is_own(found):
                await self._see(found)

    def _is_own(self, pod: Object) -> bool:
        node = pod["spec"]["nodeName"]
        return bool(node == self.name or node.startswith(f"{self.name}."))

    async def _see(self, pod: Object) -> None:
        metadata = pod["metadata"]
        runner = self._pods.get(metadata["uid"])
        if runner is not None:
            runner.update(pod)
            return
        if pod.get("status", {}).get("phase") in _FINISHED:
            return  # it ended under a node process before this one
        pretend = await self._pretends(metadata["namespace"])
        folder = self._folder / "pods"
        folder /= f"{metadata['namespace']}_{metadata['name']}_{metadata['uid'][:8]}"
        runner = PodRunner(self, pod, self._range.allocate(), folder, pretend=pretend)
        self._pods[runner.uid] = runner
        runner.start()
        runner.update(pod)

    def _end(self, uid: str) -> None:
        self._placed.pop(uid, None)
        runner = self._pods.pop(uid, None)
        if runner is not None:
            task = asyncio.create_task(runner.gone())
            self._ends.add(task)
            task.add_done_callback(self._ends.discard)

    async def _pretends(self, namespace: str) -> bool:
        """Tell whether pods of a namespace only pretend to run; asked once."""
        if namespace not in self._pretending:
            try:
                found = await self.client.request("GET", f"/api/v1/namespaces/{namespace}")
            except ApiError as error:
                raise NotYet(f"namespace {namespace}: {error}") from error
            labels = found["metadata"].get("labels", {})
            self._pretending[namespace] = labels.get(PRETEND_LABEL) == "pretend"
        return self._pretending[namespace]

    async def _follow_services(self) -> None:
        known: dict[str, Object] = {}
        async for event, found in self.client.watch(_SERVICES):
            listed = {service["metadata"]["uid"]: service for service in _listed(event, found)}
            if event == "SYNC":
                for uid in known.keys() - listed.keys():
                    self.hosts.put_service(known[uid], gone=True)
                known.clear()
            known |= listed
            for service in listed.values():
                self.hosts.put_service(service, gone=event == "DELETED")


def _listed(event: str, found: Any) -> list[Object]:
    return list(found) if event == "SYNC" else [found]
