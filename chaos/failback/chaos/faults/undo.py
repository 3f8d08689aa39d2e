"""Take back what the undo ledger has open, and see that it is gone.

Used by the last rollback of a run and by ``failback experiment heal`` after a harness was killed.
Every undo may be repeated. An entry is closed only when the system was seen without the fault.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from failback.chaos.cluster.target import Target
from failback.chaos.cluster.view import Role
from failback.chaos.errors import TargetError
from failback.chaos.faults.catalogue import UNDO
from failback.chaos.faults.fault import Fault
from failback.chaos.run_folder.undo_ledger import STOP_WORKLOAD, UndoEntry, UndoLedger
from failback.chaos.session import Session
from failback.chaos.workload.process import command_of, stop_orphan
from failback.protocol.errors import FailbackError

logger = logging.getLogger(__name__)

UNDO_SECONDS: Final = 30.0
_CONNECT_SECONDS: Final = 1.0
_PEER: Final = struct.Struct("3i")
"""struct ucred of Linux: pid, uid, gid."""


def undo_open(
    ledger: UndoLedger,
    target: Target,
    *,
    seconds: float,
    tell: Callable[[str], None] = lambda _: None,
    faults_only: bool = False,
    only: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Undo every open entry, newest first, again and again with back-off until it is healed.

    Returns ``{"undone": [ids], "still_open": [sentences]}``; never raises for an undo that failed.
    """
    deadline = time.monotonic() + seconds
    done: list[str] = []
    wait = 1.0
    while True:
        left: list[tuple[UndoEntry, str]] = []
        for entry in ledger.open_entries(faults_only=faults_only):
            if only is not None and entry.id not in only:
                continue
            why = _undo_once(ledger, target, entry, deadline)
            if why:
                left.append((entry, why))
            else:
                done.append(entry.id)
        if not left or time.monotonic() >= deadline:
            return {"undone": done, "still_open": [_sentence(*each) for each in left]}
        tell(f"still open: {_sentence(*left[0])}")
        time.sleep(min(wait, max(0.0, deadline - time.monotonic())))
        wait = min(wait * 2, 30.0)


def _undo_once(ledger: UndoLedger, target: Target, entry: UndoEntry, deadline: float) -> str:
    """Undo one entry; return why it is still open, or nothing."""
    try:
        _check_paths(ledger.path.parent, entry)
        if entry.call == STOP_WORKLOAD:
            observation = _stop_workload(entry.args)
        else:
            observation = UNDO[entry.call].take_back(target, entry.args, deadline)
    except FailbackError as error:
        logger.warning("undo of %s failed: %s", entry.id, error)
        return str(error)
    except OSError as error:
        return str(error)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        # The boundary to a ledger that may be another release's, or anybody's.
        return f"no undo of this release is written so ({type(error).__name__}: {error})"
    ledger.mark_undone(entry.id)
    if observation is None:
        return "undone, but not yet seen healed"
    ledger.mark_healed(entry.id, observation)
    return ""


def _check_paths(run_dir: Path, entry: UndoEntry) -> None:
    """Refuse an entry with a path or a socket that is not this run's: the folder may be anybody's.

    Raises:
        TargetError: Names it.
    """
    root = run_dir.resolve()
    paths = [entry.args["plan"]] if entry.call == STOP_WORKLOAD else []
    paths += [each for each in dict(entry.args.get("files") or {}).values() if each is not None]
    for path in paths:
        if not Path(path).resolve().is_relative_to(root):
            raise TargetError(f"undo {entry.id}", f"{path} is not in the run folder {run_dir}")
    sockets = [entry.args["socket"]] if entry.call == STOP_WORKLOAD else []
    for control in map(Path, [*sockets, *(entry.args.get("sockets") or ())]):
        if control.exists() and not _is_served_by_run(control, root):
            raise TargetError(f"undo {entry.id}", f"{control} is no socket of this run's workload")


def _is_served_by_run(control: Path, root: Path) -> bool:
    """Whether a socket is deserted, or of a process that was started with a file of the run."""
    if not control.is_socket():
        return False
    with socket.socket(socket.AF_UNIX) as asked:
        asked.settimeout(_CONNECT_SECONDS)
        try:
            asked.connect(os.fspath(control))
        except OSError:
            return True
        ids = asked.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    words = filter(os.path.isabs, command_of(_PEER.unpack(ids)[0]))
    return any(Path(word).resolve().is_relative_to(root) for word in words)


def _stop_workload(args: Mapping[str, Any]) -> dict[str, Any] | None:
    control = Path(args["socket"])
    if not stop_orphan(Path(args["plan"])):
        return None
    control.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # the folder goes with the last socket in it
        control.parent.rmdir()
    return {"stopped": True}


def _sentence(entry: UndoEntry, why: str) -> str:
    named = ", ".join(f"{key} {value}" for key, value in entry.args.items())
    return f"{entry.call} ({named}): {why}"


def undo_action(fault: Fault) -> Callable[..., dict[str, Any]]:
    """Return the action that undoes what the ledger has open of a fault's kind of entry."""
    undo = fault.undo
    assert undo is not None

    def undo_group(session: Session) -> dict[str, Any]:
        return _undo_calls(session, undo.call, None)

    def undo_broker(session: Session, pair: str, role: Role = "master") -> dict[str, Any]:
        found = session.view.pair(pair) if session.view else None
        members = found.members if found else ()
        return _undo_calls(session, undo.call, {each.pod for each in members if each.role == role})

    chosen = undo_broker if fault.kind.target in ("broker", "both") else undo_group
    chosen.__name__ = undo.action
    chosen.__doc__ = f"Undo of :func:`{fault.kind.action}`; safe to repeat."
    return chosen


def _undo_calls(session: Session, call: str, pods: Collection[str] | None) -> dict[str, Any]:
    """Undo what the ledger has open of one kind, on these pods if any are named."""
    names = [
        entry.id
        for entry in session.ledger.open_entries(faults_only=True)
        if entry.call == call and (pods is None or entry.args.get("pod") in pods)
    ]
    result = undo_open(
        session.ledger, session.target, seconds=UNDO_SECONDS, tell=session.progress, only=names
    )
    return {"undone": not result["still_open"], "healed": result}
