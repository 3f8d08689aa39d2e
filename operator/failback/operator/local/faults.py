"""What an experiment may change around a pod: ``failback up --faults clock,files,disk,memory``.

Such a pod starts with what the change needs: a preload (``preload.c``) that reads what to do from a
file, a disk of its own, control groups of its own. A change ends when it is told to, and by itself
with the pod's limit.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Final

from failback.operator.kinds.base import Resource
from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.local import disks, groups
from failback.operator.local.podspec import PodSpec
from failback.operator.local.root import Root
from failback.operator.render.members import claim_name
from failback.protocol.errors import ConfigError

CLOCK: Final = "clock"
FILES: Final = "files"
DISK: Final = "disk"
MEMORY: Final = "memory"
KINDS: Final = (CLOCK, FILES, DISK, MEMORY)
DISK_FULL: Final = "disk-full"
READ_ONLY: Final = "read-only"
FEW_WRITES: Final = "few-writes"
POSSIBLE: Final = {
    CLOCK: (CLOCK,),
    FILES: (FILES,),
    DISK: (DISK_FULL, READ_ONLY, FEW_WRITES),
    MEMORY: (MEMORY,),
}
"""What a pod may be told, by the words of the option."""
_WHICH: Final = struct.Struct("=q")
_SLOT: Final = struct.Struct("=qqd4i")
_ERRNO: Final = {"": 0, "EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "EROFS": errno.EROFS}


def prepare_faults(kinds: Iterable[str], items: Sequence[Resource], root: Root) -> None:
    """Make what all pods share, before anything starts.

    Raises:
        ConfigError: It says what is missing, and how to get it.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise ConfigError("--faults", f'"{kind}" is none of {", ".join(KINDS)}')
    if MEMORY in kinds and groups.MEMORY.top is None:
        what = "needs root and a memory controller of cgroups that it may write to"
        raise ConfigError("--faults memory", what)
    if CLOCK in kinds or FILES in kinds:
        _compile(_library(root))
    if DISK in kinds:
        disks.refuse_missing()
        for item in items:
            if isinstance(item, BrokerCluster) and item.spec.storage.type != "Persistent":
                problem = "has storage type Ephemeral: its stores get no disk of their own"
                raise ConfigError("--faults disk", f"{item.label} {problem}")
        disks.mount_claims(root, claims_of(items))
    else:
        disks.mount_claims(root, disks.claims_with_disk(root))


def clean_up(root: Root) -> list[str]:
    """Unmount the disks of a root and remove its groups; no pod runs.

    Returns a sentence for each that is still in use.
    """
    return [*disks.unmount_all(root), *groups.remove_groups(root)]


def _compile(library: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise ConfigError("--faults", "needs a C compiler; install it: apt-get install gcc")
    source = resources.files("failback.operator.local").joinpath("preload.c").read_bytes()
    new = library.with_suffix(".new")
    command = [compiler, "-x", "c", "-O2", "-shared", "-fPIC", "-o", str(new), "-", "-ldl"]
    environment = {**os.environ, "PATH": os.environ.get("PATH", os.defpath)}
    done = subprocess.run(command, env=environment, input=source, capture_output=True, check=False)
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip()[-500:].replace("\n", "; ")
        raise ConfigError("--faults", f"{compiler} cannot compile preload.c: {words}")
    new.replace(library)


def _library(root: Root) -> Path:
    return root.path / "preload.so"


def claims_of(items: Sequence[Resource]) -> list[str]:
    """The claims of all brokers."""
    return [
        claim_name(item, pair, ordinal)
        for item in items
        if isinstance(item, BrokerCluster)
        for pair in range(item.spec.pairs)
        for ordinal in item.pair(pair).ordinals
    ]


class PodFaults:
    """The clock, the files, the disk and the memory of one pod."""

    def __init__(self, spec: PodSpec, root: Root, kinds: Iterable[str]) -> None:
        self._root = root
        self._control = root.run_dir(spec.name) / "faults"
        self._store = f"{spec.home}/store/"
        claims = [volume.claim for volume in spec.volumes if volume.claim is not None]
        self._claim = claims[0] if claims and DISK in kinds else None
        self._kinds = [each for each in kinds if each != DISK or self._claim is not None]
        limits = {DISK: groups.DISK, MEMORY: groups.MEMORY}
        controllers = [limits[each] for each in self._kinds if each in limits]
        self._groups = groups.PodGroups(root, spec.name, controllers)

    @property
    def possible(self) -> list[str]:
        """What can be set here."""
        found = [fault for kind in self._kinds for fault in POSSIBLE[kind]]
        return [each for each in found if each != FEW_WRITES or groups.DISK in self._groups]

    @property
    def _is_preloaded(self) -> bool:
        return CLOCK in self._kinds or FILES in self._kinds

    def environment(self) -> dict[str, str]:
        """Variables of each process of the pod."""
        if not self._is_preloaded:
            return {}
        if not self._control.exists():
            self._control.parent.mkdir(parents=True, exist_ok=True)
            self._control.write_bytes(bytes(_WHICH.size + 2 * _SLOT.size))
        return {
            "LD_PRELOAD": str(_library(self._root)),
            "FAILBACK_FAULTS_FILE": str(self._control),
            "FAILBACK_FAULTS_STORE": self._store,
        }

    def enter(self, pid: int) -> None:
        """Limits of the pod count for this process, too."""
        self._groups.enter(pid)

    def set(self, fault: str, value: Mapping[str, Any]) -> None:
        """Change one thing; what the preload was told before ends.

        Args:
            value: ``seconds`` and ``drift`` of the clock; ``sync_ms``, and the name of the error of
                ``sync``, ``open`` and ``rename``, of the files; ``ratio`` of a full disk, and of
                the memory that is used now; ``per_second`` of few writes.

        Raises:
            ConfigError: This cannot be set here.
            DiskError: The disk refused.
            LimitError: The kernel refused.
        """
        if fault not in self.possible:
            raise ConfigError(fault, f"cannot be set here, only {self.possible or 'nothing'} can")
        if fault == DISK_FULL:
            disks.fill(self._place, float(value["ratio"]))
        elif fault == READ_ONLY:
            disks.fail(self._place)
        elif fault == FEW_WRITES:
            self._groups.limit_writes(self._place, int(value["per_second"]))
        elif fault == MEMORY:
            self._groups.limit_memory(float(value["ratio"]))
        else:
            self._tell(value)

    def _tell(self, value: Mapping[str, Any]) -> None:
        """Write the slot that does not count, then let it count: no reader sees half of it."""
        slot = _SLOT.pack(
            round(float(value.get("seconds", 0.0)) * 1e9),
            time.monotonic_ns(),
            float(value.get("drift", 0.0)),
            _ERRNO[str(value.get("sync", ""))],
            round(float(value.get("sync_ms", 0.0))),
            _ERRNO[str(value.get("open", ""))],
            _ERRNO[str(value.get("rename", ""))],
        )
        with self._control.open("r+b") as file, mmap.mmap(file.fileno(), 0) as shared:
            which = 1 - _WHICH.unpack_from(shared)[0]
            place = _WHICH.size + which * _SLOT.size
            shared[place : place + _SLOT.size] = slot
            shared[: _WHICH.size] = _WHICH.pack(which)

    def end(self) -> None:
        """Take back what needs no restart; safe to repeat."""
        if self._is_preloaded and self._control.exists():
            self._tell({})
        if self._claim is not None:
            disks.free_room(self._place)
        if groups.DISK in self._groups:
            self._groups.limit_writes(self._place, 0)
        if groups.MEMORY in self._groups:
            self._groups.lift_memory()

    @property
    def needs_repair(self) -> bool:
        """Whether the disk takes no write, and takes none until it is mounted again."""
        return self._claim is not None and disks.has_failed(self._place)

    def repair(self) -> None:
        """Mount the disk again. No process of the pod may run."""
        assert self._claim is not None
        disks.repair(self._root, self._claim)

    @property
    def _place(self) -> Path:
        assert self._claim is not None
        return self._root.claim_dir(self._claim)
