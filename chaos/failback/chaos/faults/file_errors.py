"""F11: a broker's syncs fail, or its opening or renaming of files of its store.

Only where calls on files can be changed: ``failback up --faults files``. Proof of effect: the
broker has ended, refuses a message, or its file of offsets gets no younger while it should. It is
held down if it ends. Proof of heal: it takes a message and writes that file.
"""

from __future__ import annotations

from failback.chaos.experiment.fault_kinds import FaultKind, Parameter
from failback.chaos.faults.set_on_broker import LASTING, Change, fault_of, hurt, writes

KIND = FaultKind(
    code="F11",
    name="file-errors",
    needs="failback up --faults files (a C compiler)",
    proves="it has ended, refuses a message or writes no offsets; healed when it does both",
    action="fail_files",
    target="broker",
    title="A master's syncs fail, or its opening or renaming of files",
    parameters=(
        Parameter("operation", "choice", "operation", "sync", ("sync", "open", "rename"), True),
        Parameter("error", "choice", "error", "EIO", ("EIO", "ENOSPC", "EROFS"), True),
        *LASTING,
    ),
    lasts="durationSeconds",
    supported_by=frozenset({"local"}),
    engines=frozenset({"failback"}),
    why_not_others="Apache appends through mmap, which no preload sees; disk-read-only does it",
)
FAULT = fault_of(
    KIND,
    Change("files", "files", "mend-files", writes, deadly=True),
    lambda values: {values["operation"]: values["error"]},
    lambda record, _values: hurt(record),
)
