"""The runtime's folder: everything that is read again after the runtime was killed.

lock            held while a runtime lives; one runtime per root
control.json    {"socket", "pid", "ticks"} of the live runtime
resources.json  the custom resources as given
state.json      every process: pid, start ticks, grace, and the order of stopping
status.json     status of every custom resource
ports.json      the port block of every StatefulSet, kept for ever
network.json    the bridge and the network namespaces, while there are any
deaths.jsonl    one wait status per death of a child
pods/POD/home   what the pod sees; claims/CLAIM outlives it; logs/POD.log its output
secrets/SECRET/FILE  what guarded clusters mount, readable by the owner only
preload.so      what ``failback up --faults`` puts before the C library of pods
disks/CLAIM.img the file system that is mounted at claims/CLAIM, with ``failback up --faults disk``
claims/CLAIM/mark.json  the member of that log: its role, and epoch of the master
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from failback.common.files import state_folder
from failback.common.replacing import replace_file
from failback.common.text import typed
from failback.protocol.errors import FailbackError


class RootInUse(FailbackError):
    """Another runtime holds the root."""

    exit_code: ClassVar[int] = 4
    """Of the command line: a guard refused."""

    def __init__(self, root: Path, pid: int | None) -> None:
        who = f"by the runtime with pid {pid}" if pid else "by another runtime"
        command = typed("failback", "down", "--root", root)
        super().__init__(f"{root} is in use {who}; stop it with: {command}")
        self.root = root
        self.pid = pid


def default_root() -> Path:
    """Return the folder used when none is named: ``$XDG_STATE_HOME/failback/local``."""
    return state_folder() / "local"


class Root:
    """Paths under one root, and its small JSON files."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).expanduser().absolute()
        self.control_file = self.path / "control.json"
        self.resources_file = self.path / "resources.json"
        self.state_file = self.path / "state.json"
        self.status_file = self.path / "status.json"
        self.ports_file = self.path / "ports.json"
        self.deaths_file = self.path / "deaths.jsonl"
        self.secrets = self.path / "secrets"
        self.network_file = self.path / "network.json"
        self.runtime_log = self.path / "runtime.log"

    def create(self) -> None:
        """Make the folders, readable by their owner only."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.chmod(0o700)
        for name in ("pods", "claims", "logs"):
            (self.path / name).mkdir(exist_ok=True)

    def pod_dir(self, pod: str) -> Path:
        return self.path / "pods" / pod

    def home(self, pod: str) -> Path:
        """Return what the pod has as its home folder."""
        return self.pod_dir(pod) / "home"

    def run_dir(self, pod: str) -> Path:
        """Return the folder of the pod's hold file."""
        return self.pod_dir(pod) / "run"

    def hold_file(self, pod: str) -> Path:
        return self.run_dir(pod) / "hold"

    def claim_dir(self, claim: str) -> Path:
        return self.path / "claims" / claim

    def log_file(self, pod: str) -> Path:
        return self.path / "logs" / f"{pod}.log"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the root while the block runs.

        Raises:
            RootInUse: Another process holds it.
        """
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                control = read_json(self.control_file) or {}
                raise RootInUse(self.path, control.get("pid")) from None
            yield
        finally:
            os.close(descriptor)

    def is_locked(self) -> bool:
        """Tell whether a runtime holds the root now."""
        if not (self.path / "lock").exists():
            return False
        try:
            with self.lock():
                return False
        except RootInUse:
            return True


def read_json(path: Path) -> Any:
    """Return what a JSON file holds, or ``None`` when there is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file in one step: readers see the old or the new one.

    Not fsynced: what it describes are processes, which do not outlive the machine either.
    """
    replace_file(path, json.dumps(value, indent=1).encode() + b"\n", sync=False)
