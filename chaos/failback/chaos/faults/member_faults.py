"""What faults of a group's members share: which members run, and how their heal is noted.

Members that run on receive requests over control sockets. A member answers what it is set to; what
its work looks like since then is the proof.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from failback.chaos.cluster.clock import now
from failback.chaos.cluster.target import Target
from failback.chaos.cluster.unix_socket import is_deserted
from failback.chaos.errors import TargetError
from failback.chaos.faults.injection import enter
from failback.chaos.recorder.fault_record import FaultRecord
from failback.chaos.session import Session
from failback.chaos.workload.process import ANSWER_SECONDS, CONSUMER, WorkloadProcess, ask

Request = Mapping[str, Any]


def members_of(session: Session, group: str) -> list[WorkloadProcess]:
    """The running members of a group. Raises ``TargetError`` when there is none."""
    members = session.load.of_role(CONSUMER, group=group)
    if not members:
        raise TargetError(f"members of {group}", "none is running")
    return members


def sockets_of(members: list[WorkloadProcess]) -> list[str]:
    """Where members are asked, as the ledger names them."""
    return [str(each.socket_path) for each in members]


def begin(session: Session, record: FaultRecord, call: str, args: Mapping[str, Any]) -> None:
    """K1, with the undo in the ledger before anything is done to a member."""
    enter(session, record, call, args)
    record.proof["K1"] = True
    begun = now()
    record.issued = (begun, begun)
    session.phases.fault_begun(begun.mono_ns)


def tell_all(
    session: Session, record: FaultRecord, members: list[WorkloadProcess], request: Request
) -> None:
    """K2: every member takes the request, or the fault is doubted."""
    assert record.issued is not None
    refused = [each.name for each in members if not tell(session, each, request)]
    record.issued = (record.issued[0], now())
    record.proof["K2"] = not refused
    if refused:
        record.add_unproved_reason(f"{', '.join(refused)} did not take {request['op']}")


def tell(session: Session, process: WorkloadProcess, request: Request) -> bool:
    """Whether a member took a request."""
    return bool(session.load.ask(process, request).get("ok"))


def stats_of(session: Session, process: WorkloadProcess) -> dict[str, Any]:
    """What a member says of itself now; empty when it does not answer."""
    return session.load.ask(process, {"op": "stats"})


def effect_seen(
    session: Session,
    record: FaultRecord,
    kind: str,
    detail: Mapping[str, Any],
    observer: str = "workload",
) -> None:
    """The effect is proved, or doubted: say so in rows and evidence."""
    record.observed.setdefault("effect_ns", now())
    record.settle()
    session.rec.fault_row(record, kind, observed=record.effect, observer=observer, detail=detail)
    session.rec.evidence(record, "effect")


def undo_after(
    session: Session, record: FaultRecord, seconds: float, undo: Callable[[], None]
) -> None:
    """Have the recorder undo it ``seconds`` (unscaled) after its begin, or when the run ends."""
    assert record.issued is not None
    due = record.issued[0].mono_ns + round(session.scaled(seconds) * 1e9)
    session.undo_at(due, undo)


def heal_seen(session: Session, record: FaultRecord, observation: Mapping[str, Any]) -> None:
    """K8: the members were seen without the fault. The ledger gets the time beside the rest."""
    stamp = now()
    record.proof["K8"] = True
    session.rec.healed(record, stamp)
    seen_ns = stamp.mono_ns - session.zero.mono_ns
    session.ledger.mark_healed(record.undo, {**observation, "seen_ns": seen_ns})
    session.phases.fault_healed(stamp.mono_ns)


def leave(_target: Target, args: Mapping[str, Any], _deadline: float) -> dict[str, Any] | None:
    """A run that is being undone starts no consumers and scales none: they end with it."""
    return {"ended_with": "the run", "members": args.get("members")}


def ask_sockets(sockets: Sequence[str], request: Request) -> list[dict[str, Any]]:
    """Send workload processes a request; return what those that live say of themselves then.

    One that lives and is silent says nothing: that is not seen healed.
    """
    shown = []
    for socket in map(Path, sockets):
        if not is_deserted(socket, ANSWER_SECONDS):
            ask(socket, request)
            shown.append(ask(socket, {"op": "stats"}))
    return shown
