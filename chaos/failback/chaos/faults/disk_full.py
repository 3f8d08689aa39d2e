"""F12: the disk of a broker's store is full, up to a share of it; later the room is free again.

Only a disk of the store's own is filled: ``failback up --faults disk``. Proof of effect: the broker
answers a message with an error. Proof of heal: it takes one.
"""

from __future__ import annotations

from typing import Final

from failback.chaos.experiment.fault_kinds import FaultKind, Parameter
from failback.chaos.faults.set_on_broker import LASTING, Change, accepted, fault_of, refused

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
        *LASTING,
    ),
    lasts="durationSeconds",
    supported_by=frozenset({"local"}),
)
FAULT = fault_of(
    KIND,
    Change("disk-full", "disk", "free-disk", accepted),
    lambda values: {"ratio": values["ratio"]},
    lambda _record, _values: refused,
)
