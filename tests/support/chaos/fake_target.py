"""A target in memory: records every call, dies as it is told, never touches a process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

from failback.chaos.cluster.clock import now
from failback.chaos.cluster.target import Deadline, FileStat, Injection
from failback.chaos.cluster.view import (
    ClusterView,
    DeathRecord,
    Member,
    Pair,
    ProcessIdentity,
    ProcessState,
    SignalReceipt,
)
from failback.chaos.errors import GuardRefused, TargetError


class FakeTarget:
    """One pair of two brokers. What happens at a signal is ``on_signal``'s to decide.

    ``files`` maps a path below the store to ``(bytes, mtime_ns)``.
    """

    kind: Literal["local"] = "local"

    def __init__(self, addresses: Sequence[str] = ("127.0.0.1:1", "127.0.0.1:2")) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.files: dict[str, tuple[bytes, int]] = {}
        self.held: set[str] = set()
        self.death: DeathRecord | None = None
        self.on_signal: Callable[[ProcessIdentity, int], None] = lambda *_: None
        self.states: dict[str, ProcessState] = {}
        self.members = tuple(
            Member(
                pair="pair-0",
                ordinal=number,
                pod=f"demo-0-{number}",
                broker_name="demo-0",
                broker_id=number,
                role="master" if number == 0 else "slave",
                address=address,
                running=True,
                identity=ProcessIdentity(f"demo-0-{number}", 100 + number, 7, 1_000),
            )
            for number, address in enumerate(addresses)
        )
        self.conflicts: tuple[str, ...] = ()
        self.engine = "failback"
        self.refusal: GuardRefused | None = None

    def view(self) -> ClusterView:
        return ClusterView(
            "demo",
            "lab",
            self.engine,
            ("127.0.0.1:9",),
            (Pair("pair-0", "demo-0", self.members),),
            self.conflicts,
        )

    def replace_member(self, ordinal: int, **changes: Any) -> None:
        self.members = tuple(
            replace(each, **changes) if each.ordinal == ordinal else each for each in self.members
        )

    def identity(self, member: Member) -> ProcessIdentity:
        found = self.members[member.ordinal].identity
        if found is None:
            raise TargetError(f"identity of {member.pod}", "it is Stopped")
        return found

    def signal(self, victim: ProcessIdentity, signum: int) -> SignalReceipt:
        current = next(each.identity for each in self.members if each.pod == victim.pod)
        if current is None or not current.same(victim):
            raise TargetError(f"signal to pid {victim.pid}", "the chosen process is REPLACED")
        issued = now()
        self.calls.append(("signal", victim.pod, signum))
        self.on_signal(victim, signum)
        return SignalReceipt(signum, issued, now())

    def process_state(self, victim: ProcessIdentity) -> ProcessState:
        return self.states.get(victim.pod, ProcessState.RUNNING)

    def await_gone(self, victim: ProcessIdentity, deadline: Deadline) -> DeathRecord:
        if self.death is None:
            raise TargetError(f"death of {victim.pod}", "it lives at the deadline")
        return self.death

    def deaths(self, since: int) -> Sequence[tuple[int, str, DeathRecord]]:
        return []

    def hold(self, member: Member, undo: str) -> None:
        self.calls.append(("hold", member.pod, undo))
        self.held.add(member.pod)

    def release(self, member: Member) -> None:
        self.calls.append(("release", member.pod))
        self.held.discard(member.pod)

    def start(self, member: Member) -> None:
        self.calls.append(("start", member.pod))

    def pod_state(self, pod: str) -> str:
        return "Held" if pod in self.held else "Ready"

    def refuse_unsafe(self, injection: Injection) -> None:
        self.calls.append(("refuse_unsafe", injection))
        if self.refusal is not None:
            raise self.refusal

    def read_store(self, member: Member, path: str) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path][0]

    def stat_store(self, member: Member, path: str) -> FileStat | None:
        if path not in self.files:
            return None
        data, mtime = self.files[path]
        return FileStat(len(data), mtime, hashlib.sha256(data).hexdigest())

    def close(self) -> None:
        pass
