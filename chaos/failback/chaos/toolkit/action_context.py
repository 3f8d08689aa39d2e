"""What every action does around its own part: find the session, translate errors, show evidence."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final, TypeVar

from chaoslib.exceptions import ActivityFailed
from chaoslib.types import Configuration

from failback.chaos import session as sessions
from failback.chaos.faults.undo import undo_open
from failback.chaos.recorder.fault_record import FaultRecord
from failback.chaos.session import Session
from failback.protocol.errors import FailbackError

_T = TypeVar("_T")

ASSIGNED_SECONDS: Final = 120.0
UNDO_SECONDS: Final = 30.0


def session_of(configuration: Configuration) -> Session:
    """Return the open session that an action belongs to. Raises ``ActivityFailed``."""
    session = sessions.find(configuration)
    if session is None or session.recorder is None:
        raise ActivityFailed("no run is open for this experiment: use failback run")
    return session


def guarded(act: Callable[[], _T]) -> _T:
    """Every error of ours as ActivityFailed, with its own sentence."""
    try:
        return act()
    except FailbackError as error:
        raise ActivityFailed(str(error)) from error


def evidence_of(session: Session, record: FaultRecord) -> dict[str, Any]:
    """What is known when the action returns; a fault that is not honest fails its action."""
    evidence = session.rec.evidence(record, "returned")
    if record.honest is False and session.experiment.spec.on_not_honest == "stop":
        raise ActivityFailed(f"{record.fid} is not honest: {record.why}")
    return evidence


def await_assigned(session: Session, fid: str) -> None:
    """Wait for the consumers of one wave: of a rolling restart, no two are away at a time."""
    observed = session.rec.faults[fid].observed
    if not session.wait_for(lambda: "healed_ns" in observed, ASSIGNED_SECONDS):
        raise ActivityFailed(f"{fid}: not assigned again within {ASSIGNED_SECONDS:g} s")


def undo_open_calls(
    session: Session, call: str, pods: Collection[str] | None = None
) -> dict[str, Any]:
    """Undo what the ledger has open of one kind, on these pods if any are named.

    Safe to repeat. Raises ``ActivityFailed``.
    """

    def act() -> dict[str, Any]:
        names = [
            entry.id
            for entry in session.ledger.open_entries(faults_only=True)
            if entry.call == call and (pods is None or entry.args.get("pod") in pods)
        ]
        result = undo_open(
            session.ledger, session.target, seconds=UNDO_SECONDS, tell=session.progress, only=names
        )
        return {"undone": not result["still_open"], "healed": result}

    return guarded(act)
