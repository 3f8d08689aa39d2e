"""One container of a pod: started, probed, started again, ended."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from failback.operator.local.pod import BackOff
from failback.operator.local.probes import Probe
from failback.operator.local.process import Child, Death, Identity
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.node import plan
from tests.support.kube_lab.node.status import ContainerState

if TYPE_CHECKING:
    from tests.support.kube_lab.node.pod import PodRunner

logger = logging.getLogger(__name__)

_LAUNCHER: Final = Path(__file__).with_name("launcher.py")
_NSSWITCH: Final = Path(__file__).with_name("nsswitch.conf")
_FIRST_BACK_OFF_SECONDS: Final = 0.5
_STARTUP_POLL_SECONDS: Final = 0.2
_UNREADY_POLL_SECONDS: Final = 0.5
_MESSAGE_BYTES: Final = 4096
_LOG_MESSAGE_BYTES: Final = 2048


def now_text() -> str:
    """Return the time as the API writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Container:
    """Runs one container for as long as its pod wants it."""

    def __init__(self, pod: PodRunner, manifest: Object, folder: Path, *, init: bool) -> None:
        self.manifest = manifest
        self.sidecar = init and manifest.get("restartPolicy") == "Always"
        self.state = ContainerState(manifest["name"], manifest.get("image", ""), self.sidecar)
        self.started = asyncio.Event()
        self.stopping = asyncio.Event() if self.sidecar else pod.stopping
        self._pod = pod
        self._folder = folder
        if self.sidecar or not init:
            field = "initContainerStatuses" if init else "containerStatuses"
            self.state.take_over(pod.pod.get("status", {}).get(field, ()))
        self._policy = pod.pod["spec"].get("restartPolicy", "Always")
        if init:
            self._policy = "Always" if self.sidecar else self._policy.replace("Always", "OnFailure")
        self._child: Child | None = None
        self._back_off = BackOff(_FIRST_BACK_OFF_SECONDS)
        self._runs = 0
        folder.mkdir(parents=True, exist_ok=True)

    # --- for the kubelet -------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        return "running" in self.state.state

    def log_file(self, *, previous: bool = False) -> Path:
        """Return the output of this run, or of the one before."""
        return self._folder / f"{max(self._runs - (1 if previous else 0), 0)}.log"

    def pid(self) -> int | None:
        """Return the machine's pid of the container's PID 1, once all its volumes are mounted."""
        if self._child is None or not self._mounted_file().stat().st_size:
            return None
        guardian = self._child.identity.pid
        with suppress(OSError):
            words = Path(f"/proc/{guardian}/task/{guardian}/children").read_text().split()
            return int(words[0]) if words else None
        return None

    # --- life ------------------------------------------------------------------------------------

    async def run(self) -> int | None:
        """Run until it has ended for good; return its exit code, ``None`` if it never started."""
        if not plan.can_pull(self.manifest):
            image = self.manifest["image"]
            self.state.waits("ImagePullBackOff", f'Back-off pulling image "{image}"')
            self._pod.changed()
            await self.stopping.wait()
            return None
        while not self.stopping.is_set():
            started = time.monotonic()
            code = await self._run_once()
            if self.stopping.is_set() or not plan.restarts(self._policy, code):
                return code
            await self._wait_back_off(time.monotonic() - started)
            self.state.restarts += 1
        return self.state.code

    async def terminate(self, grace_seconds: float) -> None:
        """SIGTERM, then SIGKILL; does nothing when it does not run."""
        if self._child is not None:
            await self._child.terminate(grace_seconds)

    def kill(self) -> None:
        """SIGKILL now, for good."""
        self.stopping.set()
        if self._child is not None:
            self._child.signal(signal.SIGKILL)

    async def _run_once(self) -> int:
        await self._pod.refresh(self.manifest)
        self._runs += 1
        child = self._spawn()
        self._child = child
        child.open_gate()
        self.state.runs(await self._container_id(child), now_text())
        self._pod.changed()
        watcher = asyncio.create_task(self._probe(child))
        if self.stopping.is_set():  # told while the process was being made
            await child.terminate(self._pod.grace_seconds)
        try:
            death = await child.wait()
        finally:
            self._child = None
            watcher.cancel()
            await asyncio.wait([watcher])
        code = _exit_code(death)
        self.state.ended(code, self._message(code), now_text())
        logger.info("pod %s: container %s: %s", self._pod.label, self.state.name, death.text)
        self._pod.changed()
        return code

    async def _wait_back_off(self, ran_seconds: float) -> None:
        seconds = self._back_off.after(ran_seconds)
        if self.state.restarts:  # the first restart comes at once, as a kubelet's
            self.state.waits("CrashLoopBackOff", f"back-off {seconds:g}s restarting container")
            self._pod.changed()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self.stopping.wait()

    def _spawn(self) -> Child:
        environment = self._pod.environment(self.manifest)
        message = self._message_file()
        message.write_bytes(b"")
        mounts = [
            {"source": str(source), "target": target, "read_only": True}
            for target, source in self._pod.image(self.manifest).files.items()
        ]
        mounts += self._pod.volumes.mounts(self.manifest)
        path = self.manifest.get("terminationMessagePath", plan.TERMINATION_LOG)
        if path != plan.TERMINATION_LOG:
            mounts.append({"source": str(message), "target": path, "read_only": False})
        hosts = {"source": str(self._pod.hosts_file), "target": "/etc/hosts", "read_only": False}
        switch = {"source": str(_NSSWITCH), "target": "/etc/nsswitch.conf", "read_only": True}
        spec = {
            "argv": self._argv(environment),
            "pause": bool(self._pod.pod["spec"].get("shareProcessNamespace")),
            "working_folder": self.manifest.get("workingDir", str(self._folder)),
            "hostname": self._pod.pod["spec"].get("hostname", self._pod.name),
            "dev": str(self._folder / "dev"),
            "termination_log": str(message),
            "mounted": str(self._mounted_file()),
            "mounts": [hosts, switch, *mounts],
        }
        self._mounted_file().write_bytes(b"")
        file = self._folder / "launch.json"
        file.write_text(json.dumps(spec, indent=1))
        command = [sys.executable, "-I", "-S", str(_LAUNCHER), str(file)]
        return Child.spawn(command, environment, self._folder, self.log_file())

    def _argv(self, environment: dict[str, str]) -> list[str]:
        image = self._pod.image(self.manifest)
        words = plan.command_of(self.manifest, image.entrypoint, image.command)
        # Pods share the machine's network here, so that a pod listens at its own address alone.
        words = [
            word.replace("=0.0.0.0", f"={self._pod.address}") if word.startswith("--") else word
            for word in words
        ]
        return plan.local_argv([plan.expand(word, environment) for word in words], environment)

    async def _container_id(self, child: Child) -> str:
        """Return ``failback://PID-TICKS`` of the container's PID 1, once it is there."""
        while child.identity.alive():
            pid = self.pid()
            identity = Identity.of(pid) if pid is not None else None
            if identity is not None:
                return f"failback://{identity.pid}-{identity.ticks}"
            await asyncio.sleep(0.005)
        return f"failback://{child.identity.pid}-{child.identity.ticks}"

    def _mounted_file(self) -> Path:
        return self._folder / "mounted"

    def _message_file(self) -> Path:
        return self._folder / "termination-log"

    def _message(self, code: int) -> str:
        with suppress(OSError):
            text = self._message_file().read_bytes()[:_MESSAGE_BYTES].decode(errors="replace")
            if text:
                return text
        fallback = self.manifest.get("terminationMessagePolicy") == "FallbackToLogsOnError"
        if not (fallback and code):
            return ""
        return self.log_file().read_bytes()[-_LOG_MESSAGE_BYTES:].decode(errors="replace")

    # --- health ----------------------------------------------------------------------------------

    async def _probe(self, child: Child) -> None:
        if not await self._passes_startup():
            logger.info("pod %s: startup probe of %s failed", self._pod.label, self.state.name)
            await child.terminate(self._pod.grace_seconds)
            return
        self.state.started = True
        self.started.set()
        self._pod.changed()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_readiness())
            group.create_task(self._watch_liveness(child))

    async def _passes_startup(self) -> bool:
        probe = self._decoded("startupProbe")
        if probe is None:
            return True
        seconds = probe.initial_delay_seconds + probe.period_seconds * probe.failure_threshold
        deadline = time.monotonic() + seconds
        while await self._failure("startupProbe", probe) is not None:
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(min(_STARTUP_POLL_SECONDS, probe.period_seconds))
        return True

    async def _watch_readiness(self) -> None:
        probe = self._decoded("readinessProbe")
        failures = 0
        while probe is not None:
            failure = await self._failure("readinessProbe", probe)
            failures = 0 if failure is None else failures + 1
            if failure is None:
                self._set_ready(True)
            elif failures >= probe.failure_threshold:
                self._set_ready(False)
            period = probe.period_seconds
            await asyncio.sleep(period if self.state.ready else min(period, _UNREADY_POLL_SECONDS))
        self._set_ready(True)

    async def _watch_liveness(self, child: Child) -> None:
        probe = self._decoded("livenessProbe")
        failures = 0
        while probe is not None:
            await asyncio.sleep(probe.period_seconds)
            failure = await self._failure("livenessProbe", probe)
            failures = 0 if failure is None else failures + 1
            if failures >= probe.failure_threshold:
                logger.info("pod %s: liveness of %s: %s", self._pod.label, self.state.name, failure)
                await child.terminate(self._pod.grace_seconds)
                return

    def _set_ready(self, ready: bool) -> None:
        if self.state.ready != ready:
            self.state.ready = ready
            self._pod.changed()

    def _decoded(self, which: str) -> Probe | None:
        """Return period, timeout and thresholds; an exec probe has no port."""
        manifest = plan.numbered(self.manifest.get(which), self.manifest)
        if manifest is not None and "exec" in manifest:
            manifest = {**manifest, "tcpSocket": {"port": 0}}
        return Probe.of(manifest)

    async def _failure(self, which: str, probe: Probe) -> str | None:
        command = self.manifest[which].get("exec", {}).get("command")
        if command is None:
            return await probe.failure(self._pod.address)
        try:
            async with asyncio.timeout(probe.timeout_seconds):
                process = await self.execute(command, asyncio.subprocess.DEVNULL)
                try:
                    code = await process.wait()
                finally:
                    kill_all(process)
        except (TimeoutError, ProcessLookupError) as error:
            return f"{type(error).__name__} of {command[0]}"
        return None if code == 0 else f"{command[0]}: exit code {code}"

    # --- exec ------------------------------------------------------------------------------------

    async def execute(
        self, command: Sequence[str], stdin: int = asyncio.subprocess.PIPE
    ) -> asyncio.subprocess.Process:
        """Start a command in the container's namespaces.

        Raises:
            ProcessLookupError: The container does not run.
        """
        pid = self.pid()
        if pid is None:
            raise ProcessLookupError(f"container {self.state.name} is not running")
        environment = self._pod.environment(self.manifest)
        argv = plan.local_argv(command, environment)
        enter = ["nsenter", f"--target={pid}", "--mount", "--pid", "--uts"]
        folder = self.manifest.get("workingDir", str(self._folder))
        with_parent = ["setpriv", "--pdeathsig", "KILL", "--"]
        output = asyncio.subprocess.DEVNULL if stdin == asyncio.subprocess.DEVNULL else -1
        return await asyncio.create_subprocess_exec(
            *[*with_parent, *enter, f"--wdns={folder}", "--", *argv],
            stdin=stdin,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )


def kill_all(process: asyncio.subprocess.Process) -> None:
    """SIGKILL a command of :meth:`Container.execute`, with what entered the namespaces for it."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _exit_code(death: Death) -> int:
    """Return the code as a container runtime reports it: 128 + n for a signal."""
    code = os.waitstatus_to_exitcode(death.wstatus)
    return code if code >= 0 else 128 - code
