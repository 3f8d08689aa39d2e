"""Limits that the kernel sets one pod: of its memory, and of how often it writes to its disk.

The processes of a pod are in a control group of their own, below the top of the hierarchies of
cgroup v1, or of that of v2. A group limits nothing until a fault sets a limit. Memory that was
given up to the store's files counts too, and goes first.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from failback.operator.local.root import Root
from failback.protocol.errors import FailbackError

_TOP: Final = Path("/sys/fs/cgroup")
_PROCESSES: Final = "cgroup.procs"
_TRIES: Final = 20


class LimitError(FailbackError):
    """The kernel did not take a limit."""


@dataclass(frozen=True, slots=True)
class Controller:
    """One resource: its names in v2 and in v1, and the files of a group, of v2 and of v1."""

    name: str
    old_name: str
    limit: tuple[str, str]
    used: tuple[str, str] = ("", "")

    @property
    def top(self) -> Path | None:
        """Where groups can be made; ``None`` where the kernel or its mount does not allow it."""
        old = _TOP / self.old_name
        if (old / _PROCESSES).exists():
            return old if os.access(old / _PROCESSES, os.W_OK) else None
        with suppress(OSError):  # read-only, not offered, or a container's group with processes
            if self.name in (_TOP / "cgroup.controllers").read_text().split():
                (_TOP / "cgroup.subtree_control").write_text(f"+{self.name}")
                return _TOP
        return None


MEMORY: Final = Controller(
    name="memory",
    old_name="memory",
    limit=("memory.max", "memory.limit_in_bytes"),
    used=("memory.current", "memory.usage_in_bytes"),
)
DISK: Final = Controller(
    name="io", old_name="blkio", limit=("io.max", "blkio.throttle.write_iops_device")
)


def _prefix(root: Root) -> str:
    return f"failback-{hashlib.sha256(os.fsencode(root.path)).hexdigest()[:8]}-"


def remove_groups(root: Root) -> list[str]:
    """Remove the groups of a root's pods; return a sentence for each that has processes still."""
    problems = []
    for top in (_TOP, *(_TOP / each.old_name for each in (MEMORY, DISK))):
        for group in top.glob(f"{_prefix(root)}*"):
            try:
                group.rmdir()
            except OSError as error:
                problems.append(f"{group} could not be removed: {error.strerror}")
    return problems


class PodGroups:
    """The groups of one pod, one for each controller that can be used here."""

    def __init__(self, root: Root, pod: str, controllers: Iterable[Controller]) -> None:
        tops = {each: each.top for each in controllers}
        name = f"{_prefix(root)}{pod}"
        self._groups = {each: top / name for each, top in tops.items() if top is not None}

    def __contains__(self, controller: Controller) -> bool:
        return controller in self._groups

    def enter(self, pid: int) -> None:
        """Put a process in, and all that it starts from then on."""
        for group in self._groups.values():
            group.mkdir(exist_ok=True)
            (group / _PROCESSES).write_text(str(pid))

    def limit_memory(self, ratio: float) -> None:
        """Limit the memory to this share of what is used now.

        The kernel kills a pod that cannot do with it. With v1 it refuses a limit below what cannot
        be given up: the limit is what is used then, and the next page is one too many.

        Raises:
            LimitError: The kernel did not take it.
        """
        share = ratio
        for _ in range(_TRIES):
            used = int(self._file(MEMORY, MEMORY.used).read_text())
            try:
                self._file(MEMORY, MEMORY.limit).write_text(str(int(used * share)))
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise LimitError(f"the memory could not be limited: {error}") from error
                share = 1.0
            else:
                return
        raise LimitError("the memory could not be limited: the pod uses more at each try")

    def limit_writes(self, place: Path, per_second: int) -> None:
        """Let no more writes of the pod reach the disk at a place; 0: as many as it makes.

        Raises:
            LimitError: The kernel did not take it.
        """
        device = place.stat().st_dev
        disk = f"{os.major(device)}:{os.minor(device)}"
        file = self._file(DISK, DISK.limit)
        limit = f"wiops={per_second or 'max'}" if file.name == DISK.limit[0] else str(per_second)
        try:
            file.write_text(f"{disk} {limit}")
        except OSError as error:
            raise LimitError(f"writes to {disk} could not be limited: {error}") from error

    def lift_memory(self) -> None:
        """Undo :meth:`limit_memory`; safe to repeat."""
        file = self._file(MEMORY, MEMORY.limit)
        file.write_text("max" if file.name == MEMORY.limit[0] else "-1")

    def _file(self, controller: Controller, names: tuple[str, str]) -> Path:
        group = self._groups[controller]
        return group / names[group.parent != _TOP]
