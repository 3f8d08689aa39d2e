"""F11: each sync of a broker's files takes longer.

Only where calls on files can be changed: ``failback up --faults files``, and of a broker that syncs
before it answers (SYNC_FLUSH). Apache's broker syncs what it mapped, which the preload sees as
well. Proof of effect and of heal is how long the broker takes to answer a message.
"""

from __future__ import annotations

import time
from typing import Final

from failback.chaos.cluster import probe
from failback.chaos.cluster.broker_facts import ask_broker
from failback.chaos.cluster.target import Target
from failback.chaos.cluster.view import ClusterView, Member
from failback.chaos.experiment.fault_kinds import FaultKind, Parameter, Values
from failback.chaos.experiment.model import Fault as Written
from failback.chaos.faults.set_on_broker import LASTING, Change, Look, Seen, fault_of
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
        *LASTING,
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


def is_quick(_target: Target, member: Member) -> Seen:
    """The broker answers a message at once."""
    took = answer_ms(member)
    return {"answer_ms": took} if took is not None and took < QUICK_MS else None


CHANGE: Final = Change("files", "files", "quick-disk", is_quick)


def is_slow(values: Values) -> Look:
    """Return the look that sees an answer after ``delayMs`` or later."""
    least = float(values["delayMs"])

    def slow(_target: Target, member: Member) -> Seen:
        took = answer_ms(member)
        return {"answer_ms": took} if took is not None and took >= least else None

    return slow


def refuse_unseen(view: ClusterView, fault: Written) -> str:
    """Say why a slow disk could not be seen by answers; empty when it can."""
    if float(fault.with_.get("delayMs", DELAY_MS)) <= QUICK_MS:
        return f"{fault.fault} needs a delayMs above {QUICK_MS:g}: less is no sign of a slow disk"
    for member in view.members:
        flushes = ask_broker(member.address)[0].get("flushDiskType")
        if member.role == "master" and flushes != "SYNC_FLUSH":
            needs = f"{fault.fault} needs flushDiskType SYNC_FLUSH"
            return f"{member.pod} answers before it syncs; {needs}"
    return ""


FAULT = fault_of(
    KIND,
    CHANGE,
    lambda values: {"sync_ms": values["delayMs"]},
    lambda _record, values: is_slow(values),
    lambda target, view, fault: CHANGE.refuse(target, view, fault) or refuse_unseen(view, fault),
)
