"""F21: all members of a group drop their subscription, and take it up again.

A client that unsubscribes gives its queues up at its next rebalance and commits nothing of them:
what it had handled since its last commit comes again once it subscribes anew. Proof of effect: no
member holds a queue of the topic. Proof of heal: the members hold as many as before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from failback.chaos import member_faults
from failback.chaos.errors import TargetError
from failback.chaos.failpoints import crash_point
from failback.chaos.fault_record import FaultRecord
from failback.chaos.ledger import SUBSCRIBE
from failback.chaos.session import Session
from failback.chaos.wire import now
from failback.chaos.workload_process import CONSUMER, WorkloadProcess

REBALANCE_SECONDS: Final = 20.0
EFFECT_SECONDS: Final = 30.0


def unsubscribe(session: Session, record: FaultRecord, group: str, duration_seconds: float) -> None:
    """Have all members unsubscribe, prove it, and have them subscribe after the time."""
    members = member_faults.members_of(session, group)
    before = _queues(session, members)
    if not before:
        raise TargetError(f"subscriptions of {group}", "no member holds a queue of its topic")
    member_faults.begin(session, record, members, SUBSCRIBE, {})
    record.observed["queues_before"] = before
    member_faults.tell_all(session, record, members, {"op": "unsubscribe"})
    crash_point("unsubscribed")
    session.progress(f"{record.fid}: members of {group} unsubscribed")
    patience = EFFECT_SECONDS + session.scaled(REBALANCE_SECONDS)
    gone = session.wait_for(lambda: _queues(session, members) == 0, patience)
    record.rungs["GIVEN_UP"] = gone
    if gone:
        stamp = now()
        record.observed["gone_ns"] = stamp
        session.rec.board.post(record.fid, "gone", stamp)
    else:
        record.doubt(f"members of {group} still hold queues {patience:g} s later")
    member_faults.effect_seen(session, record, "UNSUBSCRIBE", {"queues": before})
    member_faults.undo_after(
        session, record, duration_seconds, lambda: subscribe(session, record, group, before)
    )


def subscribe(session: Session, record: FaultRecord, group: str, before: int) -> None:
    """Have the members subscribe; healed once they hold as many queues as before."""
    for process in session.load.of_role(CONSUMER, group=group):
        member_faults.tell(session, process, {"op": "subscribe"})
    session.ledger.mark_undone(record.undo)
    session.rec.fault_row(record, "SUBSCRIBE", observed=now(), observer="harness")
    session.progress(f"{record.fid}: members of {group} subscribe again")
    session.rec.later(
        lambda: _is_back(session, group, before),
        lambda: member_faults.heal_seen(session, record, {"queues": before}),
    )


def _is_back(session: Session, group: str, before: int) -> bool:
    """As many queues are held as before. Who has not subscribed is told once more."""
    members = session.load.of_role(CONSUMER, group=group)
    shown = [member_faults.stats_of(session, each) for each in members]
    for process, said in zip(members, shown, strict=True):
        if not said.get("subscribed"):
            member_faults.tell(session, process, {"op": "subscribe"})
    held = _sum_of_queues(shown)
    return held is not None and held >= before


def _queues(session: Session, members: list[WorkloadProcess]) -> int | None:
    return _sum_of_queues([member_faults.stats_of(session, each) for each in members])


def _sum_of_queues(shown: Sequence[Mapping[str, Any]]) -> int | None:
    """Queues of the topic that members hold together; ``None`` when one did not answer."""
    held = [int(each["topic_queues"]) for each in shown if "topic_queues" in each]
    return sum(held) if len(held) == len(shown) else None
