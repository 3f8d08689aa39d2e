"""F11: a broker's syncs fail, or its opening or renaming of files of its store.

Only where calls on files can be changed: ``failback up --faults files``. Proof of effect: the
broker has ended, refuses a message, or its file of offsets gets no younger while it should. It is
held down if it ends. Proof of heal: it takes a message and writes that file.
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
        Parameter("durationSeconds", "seconds", "duration_seconds", 60.0, always=True),
        AFTER,
    ),
    lasts="durationSeconds",
    supported_by=frozenset({"local"}),
    engines=frozenset({"failback"}),
    why_not_others="Apache appends through mmap, which no preload sees; disk-read-only does it",
)
CHANGE: Final = Change("files", "files", "whole-files", writes, deadly=True)


def fail_files(
    session: Session,
    pair: str,
    at_seconds: float,
    role: Role = "master",
    operation: str = "sync",
    error: str = "EIO",
    duration_seconds: float = 60.0,
    after: str = "",
    fid: str = "",
) -> dict[str, Any]:
    """F11: let a broker's calls on files fail. Undone by :func:`mend_files`."""
    record = begin_on_broker(
        session, KIND.name, fid, pair, role, at_seconds, after, lasts=duration_seconds
    )
    change_for_a_while(session, record, CHANGE, {operation: error}, duration_seconds, hurt(record))
    return returned(session, record)


FAULT = Fault(KIND, fail_files, Undo(CHANGE.call, CHANGE.take_back, "mend_files"), CHANGE.refuse)
