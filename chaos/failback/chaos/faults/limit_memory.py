"""F23: the memory of a broker is limited to a share of what it uses, as a container's limit does.

Only of pods with a control group of their own: ``failback up --faults memory``. Proof of effect is
what the kernel counts: it killed the broker, or its group asked for more than the limit. Proof of
heal: the group has no limit, and the broker takes a message.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from failback.chaos.cluster.target import Target
from failback.chaos.cluster.view import Member, ProcessState
from failback.chaos.experiment.fault_kinds import FaultKind, Parameter, Values
from failback.chaos.faults.broker_faults import victim_of
from failback.chaos.faults.set_on_broker import LASTING, Change, Look, Seen, accepted, fault_of
from failback.chaos.recorder.fault_record import FaultRecord

RATIO: Final = 0.5
_LEAST_UNLIMITED: Final = 1 << 62
"""cgroup v1 shows such a number of bytes where there is no limit."""

KIND = FaultKind(
    code="F23",
    name="limit-memory",
    needs="failback up --faults memory (root, a memory controller of cgroups)",
    proves="the kernel killed the broker or counted its limit; healed without one",
    action="limit_memory",
    target="broker",
    title="The memory of a broker is limited to ratio of what it uses; dead, it stays down",
    parameters=(
        Parameter("ratio", "ratio", "ratio", RATIO, always=True),
        *LASTING,
    ),
    lasts="durationSeconds",
    supported_by=frozenset({"local"}),
)


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """What the kernel shows of the control group of a process."""

    limit: int | None
    """Bytes; ``None`` without a limit."""
    refusals: int
    """How often the group asked for more than its limit."""


def memory_group(pid: int) -> MemoryGroup | None:
    """Read the group of a process, of cgroup v1 or v2; ``None`` when it cannot be read.

    Source: Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst of Linux.
    """
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        of = {names: path for _, names, path in (each.split(":", 2) for each in lines)}
        top = Path("/sys/fs/cgroup")
        if "memory" in of:
            group = top / f"memory{of['memory']}"
            limit = int((group / "memory.limit_in_bytes").read_text())
            refusals = int((group / "memory.failcnt").read_text())
            return MemoryGroup(limit if limit < _LEAST_UNLIMITED else None, refusals)
        group = top / of[""].removeprefix("/")
        written = (group / "memory.max").read_text().strip()
        events = dict(each.split() for each in (group / "memory.events").read_text().splitlines())
        return MemoryGroup(None if written == "max" else int(written), int(events["max"]))
    except (OSError, ValueError, KeyError):
        return None


def _is_short(record: FaultRecord, _values: Values) -> Look:
    _, identity = victim_of(record)
    before = memory_group(identity.pid)

    def short(target: Target, _member: Member) -> Seen:
        if target.process_state(identity) in (ProcessState.GONE, ProcessState.REPLACED):
            return {"ended": identity.pid}
        found = memory_group(identity.pid)
        if found is None or before is None or found.limit is None:
            return None
        refused = found.refusals - before.refusals
        return {"limit_bytes": found.limit, "refusals": refused} if refused > 0 else None

    return short


def _is_free(target: Target, member: Member) -> Seen:
    found = memory_group(target.identity(member).pid)
    return accepted(target, member) if found is not None and found.limit is None else None


FAULT = fault_of(
    KIND,
    Change("memory", "memory", "lift-memory-limit", _is_free, deadly=True),
    lambda values: {"ratio": values["ratio"]},
    _is_short,
)
