"""F12: the file system of a broker's store takes no write any more, as after an error.

Only a disk of the store's own: ``failback up --faults disk``. Proof of effect: the broker has
ended, as ours does, or its file of offsets is written no more: Apache's broker goes on, and what it
acknowledges until then is lost. The disk is checked and mounted again, which no process survives.
Proof of heal: another process takes a message and writes that file.
"""

from __future__ import annotations

from failback.chaos.experiment.fault_kinds import FaultKind
from failback.chaos.faults.set_on_broker import LASTING, Change, fault_of, hurt, writes

KIND = FaultKind(
    code="F12",
    name="disk-read-only",
    needs="failback up --faults disk (root, e2fsprogs)",
    proves="it has ended, refuses a message or writes no offsets; healed when it does both",
    action="fail_disk",
    target="broker",
    title="The disk under a master's store takes no write; it is mounted again for a new process",
    parameters=LASTING,
    lasts="durationSeconds",
    supported_by=frozenset({"local"}),
)
FAULT = fault_of(
    KIND,
    Change("read-only", "disk", "mount-disk", writes, deadly=True),
    lambda _values: {},
    lambda record, _values: hurt(record),
)
