"""One pod as a process: start, probe, restart, hold, stop.

A *new pod* has fresh folders (claims excepted) and runs its init containers. A *restart* of its
container has neither, as on Kubernetes. A broker restarted in place reads the configuration file
that it rewrote itself.

States:

    Starting   init containers run, or the startup probe has not passed yet
    Ready      probes pass                      Running    alive, but not ready
    BackOff    died, waits 1, 2, 4 … 60 s       Held       died or new, a hold file is there
    Stopped    told to stop; stays so until told to start
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

from failback.carry.starts import read_last
from failback.operator.local.addresses import check_free
from failback.operator.local.disks import DiskError
from failback.operator.local.faults import PodFaults
from failback.operator.local.network import within
from failback.operator.local.podspec import ContainerSpec, PodSpec, Volume
from failback.operator.local.process import Child, Death, Identity
from failback.operator.local.root import Root, read_json, write_json
from failback.protocol.errors import ConfigError

logger = logging.getLogger(__name__)

FIRST_BACK_OFF_SECONDS: Final = 1.0
LONGEST_BACK_OFF_SECONDS: Final = 60.0
CALM_SECONDS: Final = 600.0
"""A process that ran this long starts with the first back-off again."""
_HOLD_POLL_SECONDS: Final = 0.2
_REPAIR_POLL_SECONDS: Final = 5.0
_REPAIR: Final = "repair of the disk"
"""Names a hold that is ours: without its disk a broker would begin with an empty store."""
# Kubernetes probes once a period; this is more often, for the same time in all.
_STARTUP_POLL_SECONDS: Final = 0.1


class Observer(Protocol):
    """Listens to the states of a pod. Calls must not block."""

    def changed(self, pod: Pod) -> None:
        """State, identity or readiness is another than before."""

    def died(self, pod: Pod, death: Death) -> None:
        """The pod's container ended."""


class BackOff:
    """Delays 1, 2, 4 … 60 s; from the start again after a calm time."""

    def __init__(self, first_seconds: float = FIRST_BACK_OFF_SECONDS) -> None:
        self._first = first_seconds
        self._next = first_seconds

    def after(self, ran_seconds: float) -> float:
        """Return how long to wait after a run of ``ran_seconds``."""
        if ran_seconds >= CALM_SECONDS:
            self._next = self._first
        delay = self._next
        self._next = min(delay * 2, LONGEST_BACK_OFF_SECONDS)
        return delay


class Pod:
    """Runs one pod until it is told to stop."""

    def __init__(
        self,
        spec: PodSpec,
        root: Root,
        observer: Observer,
        *,
        first_back_off_seconds: float = FIRST_BACK_OFF_SECONDS,
        fault_kinds: Iterable[str] = (),
    ) -> None:
        self.spec = spec
        self.faults = PodFaults(spec, root, fault_kinds)
        self.state = "Stopped"
        self.reason = ""
        """Why it is not ready; empty when it is."""
        self.restarts = 0
        self._root = root
        self._observer = observer
        self._child: Child | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._grace_seconds = spec.grace_seconds
        self._woken = asyncio.Event()
        self._first_back_off_seconds = first_back_off_seconds
        self._back_off = BackOff(first_back_off_seconds)
        self._limit: asyncio.TimerHandle | None = None
        """When a hold, a stop and a fault end by themselves."""
        self._ending: asyncio.Task[None] | None = None
        self._log_start = 0
        self._started_ns = 0

    @property
    def identity(self) -> Identity | None:
        """The process that runs now."""
        return self._child.identity if self._child is not None else None

    @property
    def ready(self) -> bool:
        """Whether a process runs and its probes say that it is ready."""
        return self._child is not None and self.state == "Ready"

    @property
    def held(self) -> bool:
        return self._root.hold_file(self.spec.name).exists()

    @property
    def carried(self) -> dict[str, Any] | None:
        """What its sidecar said of the last start, empty before it; ``None`` without a sidecar."""
        return read_last(self._root.run_dir(self.spec.name)) if self.spec.has_carry else None

    # --- orders ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start a new pod. Does nothing when one runs."""
        if self._task is not None and not self._task.done():
            return
        self._stopping = False
        self._back_off = BackOff(self._first_back_off_seconds)
        self._task = asyncio.create_task(self._run(), name=f"pod {self.spec.name}")

    async def stop(self, grace_seconds: float | None = None) -> None:
        """SIGTERM, grace, SIGKILL; it stays stopped."""
        self._stopping = True
        if grace_seconds is not None:
            self._grace_seconds = grace_seconds
        self._woken.set()
        if self._child is not None:
            await self._child.terminate(self._grace_seconds)
        if self._task is not None:
            await asyncio.wait([self._task])
        self._grace_seconds = self.spec.grace_seconds
        self._set("Stopped", "stopped on request")

    def kill(self) -> None:
        """SIGKILL the process now, for a runtime that must go."""
        self._stopping = True
        self._woken.set()
        if self._child is not None:
            self._child.signal(signal.SIGKILL)

    def hold(self, undo: str) -> None:
        """From now on do not start the container again. Survives this runtime."""
        self._root.run_dir(self.spec.name).mkdir(parents=True, exist_ok=True)
        write_json(self._root.hold_file(self.spec.name), {"undo": undo})

    def limit(self, seconds: float) -> None:
        """Let a hold, a stop by SIGSTOP and a fault end in ``seconds``; 0: not by themselves.

        The program that made them repeats the call before that, as long as it lives.
        """
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
        if seconds > 0:
            self._limit = asyncio.get_running_loop().call_later(seconds, self._end_by_itself)

    def _end_by_itself(self) -> None:
        self._limit = None
        self._ending = asyncio.create_task(self._end_all(), name=f"limit of {self.spec.name}")

    async def _end_all(self) -> None:
        if self._child is not None:
            self._child.signal(signal.SIGCONT)
        while True:
            try:
                await self.end_faults()
                break
            except DiskError as error:
                logger.warning("pod %s: %s", self.spec.name, error)
                await asyncio.sleep(_REPAIR_POLL_SECONDS)
        self.release()

    async def end_faults(self) -> None:
        """Take back what was set. A disk that failed costs the process its life.

        Raises:
            DiskError: The disk could not be mounted again.
        """
        self.faults.end()
        if not self.faults.needs_repair:
            return
        held = read_json(self._root.hold_file(self.spec.name))
        if held is None:
            self.hold(_REPAIR)
        while self._child is not None:
            self._child.signal(signal.SIGKILL)
            await asyncio.sleep(_HOLD_POLL_SECONDS)
        await asyncio.to_thread(self.faults.repair)
        if held in (None, {"undo": _REPAIR}):
            self.release()

    def release(self) -> None:
        """Undo :meth:`hold`; a container that is down starts at once."""
        self._root.hold_file(self.spec.name).unlink(missing_ok=True)
        self._woken.set()

    # --- life ------------------------------------------------------------------------------------

    async def _run(self) -> None:
        prepare_folders(self.spec, self._root)
        try:
            await self._run_inits()
            while await self._may_start():
                if (taken := self._taken_port()) is not None:
                    await self._wait_back_off(self._back_off.after(0), taken)
                    continue
                death, seconds = await self._run_container()
                if not self._stopping and not self.held:
                    await self._wait_back_off(self._back_off.after(seconds), death.text)
                self.restarts += not self._stopping
        except Exception as error:
            # A pod that fails in an unforeseen way must not end the others.
            logger.exception("pod %s", self.spec.name)
            self._set("Stopped", f"{type(error).__name__}: {error}")

    async def _run_inits(self) -> None:
        for init in self.spec.inits:
            back_off = BackOff(self._first_back_off_seconds)
            while await self._may_start():
                self._set("Starting", f"init container {init.name}")
                death = await self._run_process(init)
                if death.wstatus == 0:
                    break
                why = f"init container {init.name}: {death.text}{self._last_words()}"
                await self._wait_back_off(back_off.after(0), why)

    async def _may_start(self) -> bool:
        """Wait while held; return whether the pod is still wanted."""
        while self.held and not self._stopping:
            self._set("Held", "held")
            self._woken.clear()
            with suppress(TimeoutError):  # the hold file may be removed by hand
                async with asyncio.timeout(_HOLD_POLL_SECONDS):
                    await self._woken.wait()
        return not self._stopping

    async def _wait_back_off(self, seconds: float, why: str) -> None:
        self._set("BackOff", f"{why}, starts again in {seconds:g} s")
        self._woken.clear()
        if self._stopping:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()

    def _taken_port(self) -> str | None:
        if self.spec.network_namespace:
            return None  # nobody else is there
        try:
            check_free(self.spec.ports, self.spec.address)
        except ConfigError as error:
            return str(error)
        return None

    async def _run_container(self) -> tuple[Death, float]:
        self._set("Starting", "starting")
        death = await self._run_process(self.spec.container, self._probe)
        self._observer.died(self, death)
        return death, (death.mono_ns - self._started_ns) / 1e9

    async def _run_process(
        self, container: ContainerSpec, beside: Callable[[Child], Any] | None = None
    ) -> Death:
        log = self._root.log_file(self.spec.name)
        self._log_start = log.stat().st_size if log.exists() else 0
        environment = {**container.environment, **self.faults.environment()}
        argv = within(self.spec.network_namespace, container.argv)
        child = Child.spawn(argv, environment, Path(self.spec.home), log)
        self._child = child
        self.faults.enter(child.identity.pid)
        self._started_ns = time.monotonic_ns()
        self._observer.changed(self)  # the identity is on disk before the gate opens
        child.open_gate()
        watcher = asyncio.create_task(beside(child)) if beside is not None else None
        try:
            return await child.wait()
        finally:
            self._child = None
            if watcher is not None:
                watcher.cancel()
                await asyncio.wait([watcher])

    # --- health ----------------------------------------------------------------------------------

    async def _probe(self, child: Child) -> None:
        if not await self._await_startup():
            logger.warning("pod %s: startup probe failed for good: %s", self.spec.name, self.reason)
            await child.terminate(self.spec.grace_seconds)
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_readiness())
            group.create_task(self._watch_liveness(child))

    async def _await_startup(self) -> bool:
        probe = self.spec.container.startup
        if probe is None:
            return True
        loop = asyncio.get_running_loop()
        deadline = (
            loop.time()
            + probe.initial_delay_seconds
            + probe.period_seconds * probe.failure_threshold
        )
        while (failure := await probe.failure(self.spec.address, self.spec.prober)) is not None:
            self._set("Starting", failure)
            if loop.time() >= deadline:
                return False
            await asyncio.sleep(_STARTUP_POLL_SECONDS)
        return True

    async def _watch_readiness(self) -> None:
        spec, probe = self.spec, self.spec.container.readiness
        failures = 0
        while True:
            failure = await probe.failure(spec.address, spec.prober) if probe is not None else None
            failures = failures + 1 if failure is not None else 0
            if failure is None or probe is None:
                self._set("Ready", "")
            elif failures >= probe.failure_threshold or not self.ready:
                self._set("Running", failure)
            pace = probe.period_seconds if probe is not None else 1.0
            await asyncio.sleep(pace if self.ready else min(pace, 0.5))

    async def _watch_liveness(self, child: Child) -> None:
        probe = self.spec.container.liveness
        failures = 0
        while probe is not None:
            await asyncio.sleep(probe.period_seconds)
            failure = await probe.failure(self.spec.address, self.spec.prober)
            failures = failures + 1 if failure is not None else 0
            if failures >= probe.failure_threshold:
                logger.warning("pod %s: liveness: %s; ending it", self.spec.name, failure)
                await child.terminate(self.spec.grace_seconds)
                return

    def _last_words(self) -> str:
        with self._root.log_file(self.spec.name).open("rb") as log:
            log.seek(self._log_start)
            lines = log.read()[-4096:].decode(errors="replace").strip().splitlines()
        return f" ({lines[-1][:256]})" if lines else ""

    def _set(self, state: str, reason: str) -> None:
        if (state, reason) != (self.state, self.reason):
            changed = state != self.state
            self.state, self.reason = state, reason
            if changed:
                logger.info("pod %s: %s%s", self.spec.name, state, f" ({reason})" if reason else "")
            self._observer.changed(self)


def prepare_folders(spec: PodSpec, root: Root) -> None:
    """Lay out a new pod: empty folders, files of ConfigMaps, links to claims, a kept hold."""
    held = read_json(root.hold_file(spec.name))
    shutil.rmtree(root.pod_dir(spec.name), ignore_errors=True)
    Path(spec.home).mkdir(parents=True)
    for volume in spec.volumes:
        _mount(volume, root)
    if held is not None:
        root.run_dir(spec.name).mkdir(parents=True, exist_ok=True)
        write_json(root.hold_file(spec.name), held)


def _mount(volume: Volume, root: Root) -> None:
    path = Path(volume.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if volume.claim is not None:
        claim = root.claim_dir(volume.claim)
        claim.mkdir(parents=True, exist_ok=True)
        path.symlink_to(claim, target_is_directory=True)
        return
    path.mkdir(exist_ok=True)
    for name, text in (volume.files or {}).items():
        (path / name).write_text(text, encoding="utf-8")
    for name, file in (volume.links or {}).items():
        (path / name).symlink_to(file)
