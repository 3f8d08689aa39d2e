"""Commands inside the brokers' containers, by exec: look, signal, hold, read a file.

Which commands depends on the broker's keeper there. Nothing here waits for anything: every call is
one exec, or two.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from typing import Any, Final

from failback.chaos.cluster.clock import now
from failback.chaos.cluster.view import DeathRecord, ProcessIdentity, SignalReceipt, Stamp
from failback.chaos.errors import TargetError
from failback.chaos.targets.kube import init, shell
from failback.chaos.targets.kube.api import ExecResult, KubeApi
from failback.chaos.targets.kube.init import InitKeeper
from failback.chaos.targets.kube.inside import (
    Inside,
    Keeper,
    announcement,
    death_record,
    to_harness,
)
from failback.chaos.targets.kube.members import CONTAINER, broker_container
from failback.chaos.targets.kube.shell import ShellKeeper

Pod = Mapping[str, Any]

_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
_NO_SUCH_FILE: Final = 44
_KILLED: Final = 128 + signal.SIGKILL
"""What a runtime says of a command that SIGKILL ended."""
_READ: Final = (
    f'[ -e "$1" ] || exit {_NO_SUCH_FILE}; '
    'exec 3<"$1"; stat -L -c "%s %Y %y" /proc/self/fd/3 && exec cat <&3'
)
"""One descriptor for both facts: what is measured is what is read."""


def keeper_of(pod: Pod) -> Keeper:
    """Return the keeper of a pod's broker, by the command of its container.

    Raises:
        TargetError: It has no keeper that could hold it down.
    """
    command = broker_container(pod).get("command") or ()
    if init.COMMAND in command[:1]:
        return InitKeeper()
    if any(shell.HOLD_FILE in word for word in command):
        return ShellKeeper()
    what = f"pod {pod['metadata']['name']}"
    raise TargetError(what, "its command heeds no hold: nothing could be kept down or proved")


class Containers:
    """The brokers' containers of one namespace. Thread-safe."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._same_host: dict[str, bool] = {}

    def look(self, pod: Pod) -> Inside:
        """The process in it, whether it is held, and what is known of earlier deaths."""
        what = f"process of {pod['metadata']['name']}"
        keeper = keeper_of(pod)
        answer = self._run(pod, what, keeper.status())
        try:
            return keeper.read_status(answer)
        except ValueError as error:
            raise TargetError(what, f"the answer is not readable: {error}") from error

    def kill(self, pod: Pod, victim: ProcessIdentity, signum: int) -> SignalReceipt:
        """Signal exactly this process of the container, or raise and signal none."""
        what = f"signal {signum} to pid {victim.pid} of {victim.pod}"
        keeper = keeper_of(pod)
        begun = now()
        result = self._exec(pod, keeper.kill(signum, victim.pid, victim.ticks))
        returned = now()
        if _died_with_its_victim(result, signum, victim):
            return SignalReceipt(signum, begun, returned)
        _require_success(result, what)
        try:
            receipt = keeper.read_receipt(result.stdout)
        except ValueError as error:
            raise TargetError(what, f"the receipt is not readable: {error}") from error
        if receipt is not None and self.is_same_host(pod):
            return SignalReceipt(signum, *receipt)
        return SignalReceipt(signum, begun, returned)

    def hold(self, pod: Pod, by: str) -> None:
        self._run(pod, f"hold {pod['metadata']['name']}", keeper_of(pod).hold(by))

    def renew(self, pod: Pod) -> None:
        """Let a hold and a stop that end by themselves last on."""
        if words := keeper_of(pod).renew():
            self._run(pod, f"renew {pod['metadata']['name']}", words)

    def release(self, pod: Pod) -> None:
        self._run(pod, f"release {pod['metadata']['name']}", keeper_of(pod).release())

    def deaths(self, pod: Pod, found: Inside, heard: Stamp) -> list[DeathRecord]:
        """Return recorded deaths on the harness's clocks."""
        same = self.is_same_host(pod)
        return [
            death_record(each, to_harness(each.stamp, heard, same_host=same))
            for each in found.deaths
        ]

    def is_same_host(self, pod: Pod) -> bool:
        """Whether the pod's clocks are ours: the kernel's boot id is the same."""
        uid = str(pod["metadata"]["uid"])
        if uid not in self._same_host:
            try:
                theirs = self._exec(pod, ["cat", _BOOT_ID]).stdout.strip()
                with open(_BOOT_ID, "rb") as file:
                    self._same_host[uid] = bool(theirs) and theirs == file.read().strip()
            except (TargetError, OSError):  # asked again the next time
                return False
        return self._same_host[uid]

    def read(self, pod: Pod, path: str) -> tuple[int, bytes]:
        """Return modification time in ns and contents of a file.

        Raises:
            FileNotFoundError: There is none.
            TargetError: It could not be read whole.
        """
        what = f"read {path} of {pod['metadata']['name']}"
        result = self._exec(pod, ["sh", "-c", _READ, "sh", path])
        if result.code == _NO_SUCH_FILE:
            raise FileNotFoundError(path)
        _require_success(result, what)
        head, _, data = result.stdout.partition(b"\n")
        size, mtime_ns = parse_stat(head.decode("ascii", "replace"))
        if size != len(data):
            raise TargetError(what, f"{len(data)} of {size} bytes arrived")
        return mtime_ns, data

    def _run(self, pod: Pod, what: str, argv: Sequence[str]) -> bytes:
        result = self._exec(pod, argv)
        _require_success(result, what)
        return result.stdout

    def _exec(self, pod: Pod, argv: Sequence[str]) -> ExecResult:
        return self._api.exec(str(pod["metadata"]["name"]), CONTAINER, argv)


def _died_with_its_victim(result: ExecResult, signum: int, victim: ProcessIdentity) -> bool:
    """Whether the container ended before the command that killed its broker could say so.

    A container ends with its broker, and a runtime then kills every process that was executed in
    it. The command announces a signal only after it has found this very process; the death itself
    is proved elsewhere.
    """
    if result.code != _KILLED or signum != signal.SIGKILL:
        return False
    last = result.stderr.rstrip("\n").rpartition("\n")[2]
    return last.endswith(announcement(signum, victim.pid, victim.ticks))


def _require_success(result: ExecResult, what: str) -> None:
    if result.code:
        raise TargetError(what, result.stderr.strip() or f"exit code {result.code}")


def parse_stat(line: str) -> tuple[int, int]:
    """Size and mtime in ns of ``SIZE SECONDS DATE TIME.FRACTION ZONE``."""
    words = line.split(" ")
    try:
        fraction = words[3].partition(".")[2] if len(words) > 3 else ""
        nanoseconds = int((fraction + "000000000")[:9])
        return int(words[0]), int(words[1]) * 1_000_000_000 + nanoseconds
    except (ValueError, IndexError) as error:
        raise TargetError("stat of a store file", f"not readable: {line!r}") from error
