"""F12: the disk of a broker's store is full, up to a share of it; later the room is free again.

Only a disk of the store's own is filled: ``failback up --faults disk``. Proof of effect: the broker
answers a message with an error. Proof of heal: it takes one.
"""

from __future__ import annotations

from typing import Any, Final

from failback.chaos.cluster.view import Role
from failback.chaos.experiment.fault_kinds import AFTER, FaultKind, Parameter
from failback.chaos.faults.fault import Fault, Undo
from failback.chaos.faults.injection import begin_on_broker, returned
from failback.chaos.faults.set_on_broker import Change, accepted, change_for_a_while, refused
from failback.chaos.session import Session

RATIO: Final = 0.95
"""Above the 90 % at which 4.9.8 and our broker refuse messages."""

KIND = FaultKind(
    code="F12",
    name="disk-full",
    needs="failback up --faults disk (root, e2fsprogs)",
    proves="a message is refused; healed when one is taken",
    action="fill_disk",
    target="broker",
    title="The disk under a master's store is filled up to ratio",
    parameters=(
        Parameter("ratio", "ratio", "ratio", RATIO, always=True),
        Parameter("durationSeconds", "seconds", "duration_seconds", 60.0, always=True),
        AFTER,
    ),
    lasts="durationSeconds",
    supported_by=frozenset({"local"}),
)
CHANGE: Final = Change("disk-full", "disk", "free-disk", accepted)


def fill_disk(
    session: Session,
    pair: str,
    at_seconds: float,
    role: Role = "master",
    ratio: float = RATIO,
    duration_seconds: float = 60.0,
    after: str = "",
    fid: str = "",
) -> dict[str, Any]:
    """F12: fill the disk of a broker's store. Undone by :func:`free_disk`."""
    record = begin_on_broker(
        session, KIND.name, fid, pair, role, at_seconds, after, lasts=duration_seconds
    )
    change_for_a_while(session, record, CHANGE, {"ratio": ratio}, duration_seconds, refused)
    return returned(session, record)


FAULT = Fault(KIND, fill_disk, Undo(CHANGE.call, CHANGE.take_back, "free_disk"), CHANGE.refuse)
