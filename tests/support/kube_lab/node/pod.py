"""One pod: from its binding to the end of its deletion."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

import aiohttp

from tests.support.kube_lab.api import ApiError, Object
from tests.support.kube_lab.node import plan
from tests.support.kube_lab.node.client import STRATEGIC, Client
from tests.support.kube_lab.node.container import Container, now_text
from tests.support.kube_lab.node.environment import Environment
from tests.support.kube_lab.node.hosts import Hosts
from tests.support.kube_lab.node.images import Start
from tests.support.kube_lab.node.status import ContainerState, final_phase, pod_status
from tests.support.kube_lab.node.volumes import NotYet, Volumes

logger = logging.getLogger(__name__)

_AGAIN_SECONDS: Final = 0.3
_REFRESH_SECONDS: Final = 5.0
"""A kubelet takes up to a minute."""
_GONE: Final = (404, 409)
_CLIENT_ERRORS: Final = range(400, 500)


class Machine(Protocol):
    """What a pod needs of its node."""

    client: Client
    hosts: Hosts
    address: str

    def image(self, image: str) -> Start:
        """Return what containers of an image start with."""

    def release(self, pod: PodRunner) -> None:
        """Take note that the pod has ended and its address is free."""


class PodRunner:
    """Runs one pod. ``pod`` is the newest manifest seen."""

    def __init__(
        self, machine: Machine, pod: Object, address: str, folder: Path, *, pretend: bool
    ) -> None:
        metadata = pod["metadata"]
        self.pod = pod
        self.uid: str = metadata["uid"]
        self.name: str = metadata["name"]
        self.namespace: str = metadata["namespace"]
        self.label = f"{self.namespace}/{self.name}"
        self.address = address
        self.node_address = machine.address
        self.stopping = asyncio.Event()
        self._machine = machine
        self._pretend = pretend
        self._folder = folder
        self._started = now_text()
        self._phase = "Pending"
        self._dirty = asyncio.Event()
        self._told: Object | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._grace: asyncio.Task[None] | None = None
        self._beside: list[tuple[Container, asyncio.Task[int | None]]] = []
        self.volumes = Volumes(machine.client, folder / "volumes", self)
        self._environment = Environment(machine.client, self)
        self.inits = self._containers("initContainers", init=True)
        self.containers = self._containers("containers", init=False)

    def _containers(self, field: str, *, init: bool) -> list[Container]:
        return [
            Container(self, manifest, self._folder / manifest["name"], init=init)
            for manifest in self.pod["spec"].get(field, ())
        ]

    # --- what containers ask ---------------------------------------------------------------------

    @property
    def grace_seconds(self) -> float:
        return plan.grace_seconds(self.pod)

    @property
    def hosts_file(self) -> Path:
        return self._machine.hosts.file(self.namespace, self.uid)

    def image(self, container: Object) -> Start:
        return self._machine.image(container.get("image", ""))

    async def refresh(self, container: Object) -> None:
        """Read again what the container mounts and what its variables refer to."""
        await self.volumes.refresh()
        await self._environment.refresh(container)

    def environment(self, container: Object) -> dict[str, str]:
        """Return the variables of a container, for its process and for those beside it."""
        return self._environment.of(container, self.image(container))

    def container(self, name: str) -> Container:
        """Return a container by name; raises :class:`LookupError`."""
        for found in (*self.containers, *self.inits):
            if found.state.name == name:
                return found
        raise LookupError(f"pod {self.label} has no container {name}")

    def changed(self) -> None:
        """Something that the API server is to be told has changed."""
        self._dirty.set()

    # --- orders of the node ----------------------------------------------------------------------

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._run(), name=f"pod {self.label}"),
            asyncio.create_task(self._report(), name=f"status of {self.label}"),
            asyncio.create_task(self._refresh(), name=f"volumes of {self.label}"),
        ]

    def update(self, pod: Object) -> None:
        """Take a newer manifest: readiness gates may have opened, or it is to be deleted."""
        shortened = plan.grace_seconds(pod) < self.grace_seconds
        self.pod = pod
        self.changed()
        if "deletionTimestamp" in pod["metadata"]:
            if not self.stopping.is_set():
                logger.info("pod %s: deleted, %g s grace", self.label, self.grace_seconds)
                self.stopping.set()
                self._grace = asyncio.create_task(self._terminate(self.grace_seconds))
            elif shortened:
                self._tasks.append(asyncio.create_task(self._terminate(self.grace_seconds)))

    async def gone(self) -> None:
        """The object is gone: end everything at once and clean up."""
        self.stopping.set()
        for container in (*self.inits, *self.containers):
            container.kill()
        if self._tasks:
            await asyncio.wait(self._tasks[:1])
        for task in (*self._tasks, self._grace):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        self._machine.hosts.remove_pod(self.namespace, self.uid)
        self._machine.release(self)
        await asyncio.to_thread(shutil.rmtree, self._folder / "volumes", ignore_errors=True)

    # --- life ------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            self._machine.hosts.add_pod(self.pod, self.address)
            self.changed()
            if self._pretend:
                await self._play()
            elif await self._set_up() and await self._run_inits():
                self._phase = "Running"
                await asyncio.gather(*(container.run() for container in self.containers))
            await self._end_sidecars()
            self._finish()
        except Exception as error:
            # The pod's own boundary: the other pods of the node go on.
            logger.exception("pod %s", self.label)
            for container in self.containers:
                container.state.waits("CreateContainerError", f"{type(error).__name__}: {error}")
            self.changed()
            await self.stopping.wait()
            await self._end_sidecars()
        if self.stopping.is_set():
            await self._delete_object()

    async def _refresh(self) -> None:
        """Write what has changed of ConfigMaps and Secrets while the pod runs."""
        while not self._pretend:
            await asyncio.sleep(_REFRESH_SECONDS)
            if self._phase == "Running" and not self.stopping.is_set():
                with suppress(NotYet, ApiError, KeyError, aiohttp.ClientError, OSError):
                    await self.volumes.refresh()

    async def _play(self) -> None:
        """Become Ready without running anything."""
        now = now_text()
        beside = [container for container in self.inits if container.sidecar]
        for container in self.inits:
            container.state.ended(0, "", now)
        for container in (*beside, *self.containers):
            container.state.runs(f"failback://pretended-{self.uid}", now)
            container.state.started = container.state.ready = True
        self._phase = "Running"
        self.changed()
        await self.stopping.wait()
        for container in (*beside, *self.containers):
            container.state.ended(0, "", now_text())

    async def _set_up(self) -> bool:
        """Make the volumes; return whether the pod is still wanted."""
        while not self.stopping.is_set():
            try:
                await self.volumes.set_up()
                return True
            except (NotYet, ApiError, aiohttp.ClientError) as error:
                for container in self.containers:
                    container.state.waits("ContainerCreating", str(error))
                self.changed()
            with suppress(TimeoutError):
                async with asyncio.timeout(_AGAIN_SECONDS):
                    await self.stopping.wait()
        return False

    async def _run_inits(self) -> bool:
        """Run init containers in order, let sidecars start; return whether all succeeded."""
        for container in self.inits:
            if container.sidecar:
                task = asyncio.create_task(container.run())
                self._beside.append((container, task))
                await _first(task, container.started, self.stopping)
            elif await container.run() != 0:
                return False
            if self.stopping.is_set():
                return False
        return not self.stopping.is_set()

    async def _end_sidecars(self) -> None:
        """End them in reverse order, as a kubelet does once the main containers have ended."""
        for container, task in reversed(self._beside):
            container.stopping.set()
            await container.terminate(self.grace_seconds)
            await asyncio.wait([task])

    def _finish(self) -> None:
        """Set the final phase when nothing will run any more."""
        states = [container.state for container in (*self.inits, *self.containers)]
        self._phase = final_phase(states)
        self.changed()

    async def _terminate(self, grace_seconds: float) -> None:
        inits = (container for container in self.inits if not container.sidecar)
        containers = (*inits, *self.containers)
        await asyncio.gather(*(container.terminate(grace_seconds) for container in containers))

    # --- what the API server is told -------------------------------------------------------------

    async def _report(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            await self._tell()

    async def _tell(self) -> None:
        """Patch the status unless the API server has it."""
        status = self._status()
        ready = any(
            item["type"] == "Ready" and item["status"] == "True" for item in status["conditions"]
        )
        self._machine.hosts.set_ready(self.namespace, self.uid, ready)
        if status == self._told:
            return
        body = {"metadata": {"uid": self.uid}, "status": status}
        path = f"{self._path}/status"
        try:
            await self._machine.client.request("PATCH", path, body, content_type=STRATEGIC)
            self._told = status
        except ApiError as error:
            if error.code not in _GONE:
                logger.warning("pod %s: status: %s", self.label, error)
            if error.code not in _CLIENT_ERRORS:
                await self._later()
        except (aiohttp.ClientError, OSError) as error:
            logger.info("pod %s: status: %s", self.label, error)
            await self._later()

    async def _later(self) -> None:
        await asyncio.sleep(_AGAIN_SECONDS)
        self._dirty.set()

    def _status(self) -> Object:
        def states(containers: Sequence[Container]) -> list[ContainerState]:
            return [container.state for container in containers]

        status = pod_status(
            self.pod,
            states(self.inits),
            states(self.containers),
            phase=self._phase,
            address=self.address,
            node_address=self.node_address,
            started=self._started,
            now=now_text(),
        )
        if self._told is not None:  # an unchanged condition keeps the time it was told with
            _keep_times(status, self._told)
        return status

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"

    async def _delete_object(self) -> None:
        """Tell how it ended, then let the API server forget it."""
        if self._grace is not None:
            await asyncio.wait([self._grace])
        body: dict[str, Any] = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}}
        while True:
            try:
                await self._tell()
                await self._machine.client.request("DELETE", self._path, body)
                return
            except ApiError as error:
                if error.code in _GONE:
                    return
                logger.warning("pod %s: deletion: %s", self.label, error)
            except (aiohttp.ClientError, OSError) as error:
                logger.info("pod %s: deletion: %s", self.label, error)
            await asyncio.sleep(_AGAIN_SECONDS)


async def _first(task: asyncio.Task[int | None], *events: asyncio.Event) -> None:
    """Wait until the task has ended or one of the events is set."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait([task, *waits], return_when=asyncio.FIRST_COMPLETED)
    for each in waits:
        each.cancel()


def _keep_times(status: Object, told: Object) -> None:
    before = {item["type"]: item for item in told["conditions"]}
    for item in status["conditions"]:
        old = before.get(item["type"])
        if old is not None and old["status"] == item["status"]:
            item["lastTransitionTime"] = old["lastTransitionTime"]
