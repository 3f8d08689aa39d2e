"""F11: each sync of a broker's files takes longer.

Only where calls on files can be changed: ``failback up --faults files``, and of a broker that syncs
before it answers (SYNC_FLUSH). Apache's broker syncs what it mapped, which the preload sees as
well. Proof of effect and of heal is how long the broker takes to answer a message.
"""

from __future__ import annotations

import time
from typing import Any, Final

from failback.chaos.cluster import probe
from failback.chaos.cluster.broker_facts import ask_broker
from failback.chaos.cluster.target import Target
from failback.chaos.cluster.view import ClusterView, Member, Role
from failback.chaos.experiment.fault_kinds import AFTER, FaultKind, Parameter
from failback.chaos.experiment.model import Fault as Written
from failback.chaos.faults.fault import Fault, Undo
from failback.chaos.faults.injection import begin_on_broker, returned
from failback.chaos.faults.set_on_broker import Change, Seen, change_for_a_while
from failback.chaos.session import Session
from failback.protocol.errors import FailbackError

DELAY_MS: Final = 500.0
QUICK_MS: Final = 250.0
"""An answer that takes no longer is no sign of a slow disk."""

KIND = FaultKind(
    code="F11",
    name="slow-disk",
    needs="failback up --faults files (a C compiler), flushDiskType SYNC_FLUSH",
    proves="a message takes delayMs; healed below 250 ms",
    action="slow_disk",
    target="broker",
    title="Each sync of a master's files takes delayMs longer",
    parameters=(
        Parameter("delayMs", "milliseconds", "delay_ms", DELAY_MS, always=True),
        Parameter("durationSeconds", "seconds", "duration_seconds", 60.0, always=True),
        AFTER,
    ),
    lasts="durationSeconds",
    supported_by=frozenset({"local"}),
)


def answer_ms(member: Member) -> float | None:
    """How long a broker takes to answer a message; ``None`` when it does not take one."""
    began = time.monotonic()
    try:
        probe.send(member.address)
    except FailbackError:
        return None
    return round((time.monotonic() - began) * 1e3, 1)


def _is_quick(_target: Target, member: Member) -> Seen:
    took = answer_ms(member)
    return {"answer_ms": took} if took is not None and took < QUICK_MS else None


CHANGE: Final = Change("files", "files", "quick-disk", _is_quick)


def slow_disk(
    session: Session,
    pair: str,
    at_seconds: float,
    role: Role = "master",
    delay_ms: float = DELAY_MS,
    duration_seconds: float = 60.0,
    after: str = "",
    fid: str = "",
) -> dict[str, Any]:
    """F11: make each sync of a broker slower; ``delay_ms`` is not scaled. Undone by
    :func:`quick_disk`."""
    record = begin_on_broker(
        session, KIND.name, fid, pair, role, at_seconds, after, lasts=duration_seconds
    )

    def slow(_target: Target, member: Member) -> Seen:
        took = answer_ms(member)
        return {"answer_ms": took} if took is not None and took >= delay_ms else None

    value = {"sync_ms": delay_ms}
    change_for_a_while(session, record, CHANGE, value, duration_seconds, slow)
    return returned(session, record)


def _refuse(target: Target, view: ClusterView, fault: Written) -> str:
    if problem := CHANGE.refuse(target, view, fault):
        return problem
    if float(fault.with_.get("delayMs", DELAY_MS)) <= QUICK_MS:
        return f"slow-disk needs a delayMs above {QUICK_MS:g}: less is no sign of a slow disk"
    for member in view.members:
        flushes = ask_broker(member.address)[0].get("flushDiskType")
        if member.role == "master" and flushes != "SYNC_FLUSH":
            return f"{member.pod} answers before it syncs; slow-disk needs flushDiskType SYNC_FLUSH"
    return ""


FAULT = Fault(KIND, slow_disk, Undo(CHANGE.call, CHANGE.take_back, "quick_disk"), _refuse)
