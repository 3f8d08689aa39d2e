"""F12: the file system of a broker's store takes no write any more, as after an error.

Only a disk of the store's own: ``failback up --faults disk``. Proof of effect: the broker has
ended, as ours does, or its file of offsets is written no more: Apache's broker goes on, and what it
acknowledges until then is lost. The disk is checked and mounted again, which no process survives.
Proof of heal: another process takes a message and writes that file.
"""

from __future__ import annotations

from typing import Any, Final

from failback.chaos.cluster.view import Role
from failback.chaos.experiment.fault_kinds import AFTER, FaultKind, Parameter
from failback.chaos.faults.fault import Fault, Undo
from failback.chaos.faults.injection import begin_on_broker, returned
from failback.chaos.faults.set_on_broker import Change, change_for_a_while, hurt, writes
from failback.chaos.session import Session

KIND = FaultKind(
    code="F12",
    name="disk-read-only",
    needs="failback up --faults disk (root, e2fsprogs)",
    proves="it has ended, refuses a message or writes no offsets; healed when it does both",
    action="fail_disk",
    target="broker",
    title="The disk under a master's store takes no write; it is mounted again for a new process",
    parameters=(
        Parameter("durationSeconds", "seconds", "duration_seconds", 60.0, always=True),
        AFTER,
    ),
    lasts="durationSeconds",
    supported_by=frozenset({"local"}),
)


CHANGE: Final = Change("read-only", "disk", "mount-disk", writes, deadly=True)


def fail_disk(
    session: Session,
    pair: str,
    at_seconds: float,
    role: Role = "master",
    duration_seconds: float = 60.0,
    after: str = "",
    fid: str = "",
) -> dict[str, Any]:
    """F12: make the disk of a broker's store read-only. Undone by :func:`mount_disk`."""
    record = begin_on_broker(
        session, KIND.name, fid, pair, role, at_seconds, after, lasts=duration_seconds
    )
    change_for_a_while(session, record, CHANGE, {}, duration_seconds, hurt(record))
    return returned(session, record)


FAULT = Fault(KIND, fail_disk, Undo(CHANGE.call, CHANGE.take_back, "mount_disk"), CHANGE.refuse)
