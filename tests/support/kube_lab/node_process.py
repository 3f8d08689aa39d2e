"""The lab's node as tests use it: a process, and ways to look at and kill what it runs."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.common.polling import SCALE, wait_until
from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.kube_lab.servers import Server
from tests.support.processes.child_process import ROOT, failback_environment

_NEWNS: Final = 0x00020000
_BIND, _REC, _PRIVATE = 0x1000, 0x4000, 0x40000
_DETACH = 2
_STOP_SECONDS: Final = 60


class NodeProcess:
    """Runs pods. All paths are of this machine."""

    def __init__(self, control_plane: ControlPlane, name: str = "node-1") -> None:
        self.name = name
        self.folder = control_plane.folder / name
        self.folder.mkdir(exist_ok=True)
        self._api = control_plane.api
        paths = os.pathsep.join([str(ROOT), failback_environment()["PYTHONPATH"]])
        command = [sys.executable, "-m", "tests.support.kube_lab.node", f"--name={name}"]
        command += [f"--kubeconfig={control_plane.kubeconfig}", f"--pki={control_plane.pki}"]
        command += [f"--folder={self.folder}", f"--root={ROOT}"]
        self.server = Server(name, command, self.folder, {"PYTHONPATH": paths})

    def start(self) -> None:
        """Start it; return when it is registered. It must run as root."""
        assert os.geteuid() == 0, "the node makes mounts and namespaces: run these tests as root"
        self.server.start()
        wait_until(self._is_ready, f"node {self.name} registered", 60)

    def stop(self) -> None:
        """SIGTERM; it ends the processes of all pods first."""
        self.server.stop(_STOP_SECONDS * SCALE)

    @contextmanager
    def further(self, namespace: str, *names: str) -> Iterator[tuple[str, ...]]:
        """Give a namespace nodes of its own, which this process runs; return their names.

        Enter it before the first pod. They can be cordoned without others being concerned.
        """
        found = tuple(f"{self.name}.{namespace}.{name}" for name in names)
        status = self._api.get("Node", self.name)["status"]
        for name in found:
            self._api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
            self._api.patch("Node", name, {"status": status}, subresource="status")
        try:
            yield found
        finally:
            for name in found:
                self._api.delete("Node", name)

    def _is_ready(self) -> bool:
        self.server.check()
        node = self._api.find("Node", self.name)
        return bool(node and node.get("status", {}).get("conditions"))

    # --- processes -------------------------------------------------------------------------------

    def pid(self, namespace: str, pod: str, container: str = "") -> int:
        """Return the pid of a running container's PID 1, as this machine counts.

        Without a name it is a main container's, no init container's and no sidecar's.

        Raises:
            LookupError: It does not run now.
        """
        status = self._api.get("Pod", pod, namespace=namespace)["status"]
        named = status.get("initContainerStatuses", ()) if container else ()
        for item in (*status.get("containerStatuses", ()), *named):
            if container in ("", item["name"]) and "running" in item["state"]:
                return int(item["containerID"].removeprefix("failback://").split("-")[0])
        raise LookupError(f"{namespace}/{pod}: container {container or 'any'} does not run")

    def pids(self, namespace: str, pod: str, container: str = "") -> list[int]:
        """Return the pids of a container, PID 1 first, then what it started, breadth first."""
        found = [self.pid(namespace, pod, container)]
        for pid in found:
            found += _children(pid)
        return found

    def kill_container(self, namespace: str, pod: str, container: str = "") -> int:
        """SIGKILL the container's PID 1, and with it all of it; return the pid."""
        pid = self.pid(namespace, pod, container)
        os.kill(pid, signal.SIGKILL)
        return pid

    def kill_program(self, namespace: str, pod: str, signum: int = signal.SIGKILL) -> int:
        """Signal what the container's init runs (the broker), or PID 1 if it has no child."""
        pid = self.pids(namespace, pod)[:2][-1]
        os.kill(pid, signum)
        return pid

    # --- files -----------------------------------------------------------------------------------

    def pod_folder(self, namespace: str, pod: str) -> Path:
        """Return the node's folder of the pod: CONTAINER/N.log, volumes/NAME."""
        uid = self._api.get("Pod", pod, namespace=namespace)["metadata"]["uid"]
        return self.folder / "pods" / f"{namespace}_{pod}_{uid[:8]}"

    def claim_folder(self, namespace: str, claim: str) -> Path:
        """Return the folder behind a PersistentVolumeClaim."""
        found = self._api.get("PersistentVolumeClaim", claim, namespace=namespace)
        volume = self._api.get("PersistentVolume", found["spec"]["volumeName"])
        return Path(volume["spec"]["hostPath"]["path"])

    @property
    def hosts_file(self) -> Path:
        """The full DNS names of all pods and services."""
        return self.folder / "hosts" / "all"


NSSWITCH: Final = Path(__file__).parent / "node" / "nsswitch.conf"
_HOSTS: Final = b"/etc/hosts"
_NSSWITCH: Final = b"/etc/nsswitch.conf"


def see_names(hosts_file: Path) -> None:
    """Let this process, and those it starts from now on, resolve the names in ``hosts_file``.

    The calling thread leaves the machine's mount namespace for one where the file stands in for
    /etc/hosts, and where no DNS is asked. Call it from the main thread.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    for result in (
        libc.unshare(_NEWNS),
        libc.mount(b"none", b"/", None, ctypes.c_ulong(_REC | _PRIVATE), None),
        *(
            libc.mount(os.fsencode(file), place, None, ctypes.c_ulong(_BIND), None)
            for file, place in ((hosts_file, _HOSTS), (NSSWITCH, _NSSWITCH))
        ),
    ):
        if result:
            number = ctypes.get_errno()
            raise OSError(number, f"cannot see pod names: {os.strerror(number)}")


def forget_names() -> None:
    """Undo the last :func:`see_names`."""
    libc = ctypes.CDLL(None, use_errno=True)
    failed = [libc.umount2(place, _DETACH) for place in (_HOSTS, _NSSWITCH)]
    if any(failed):
        raise OSError(ctypes.get_errno(), "cannot forget pod names")


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(word) for word in (task / "children").read_text().split()]
    except OSError:  # it has ended meanwhile
        return []
    return found
