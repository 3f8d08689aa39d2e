"""F21: all members of a group drop their subscription, and take it up again.

A client that unsubscribes gives its queues up at its next rebalance and commits nothing of them:
what it had handled since its last commit is redelivered once it subscribes again. Proof of effect:
no member holds a queue of the topic. Proof of heal: all are subscribed, and hold the queues that
they held before; which of them holds which does not matter, nor that two held one while it
changed hands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from failback.chaos.cluster.clock import now
from failback.chaos.cluster.target import Target
from failback.chaos.errors import TargetError
from failback.chaos.experiment.fault_kinds import AFTER, FaultKind, Parameter, Values
from failback.chaos.failpoints import crash_point
from failback.chaos.faults import member_faults
from failback.chaos.faults.fault import Fault, Undo
from failback.chaos.faults.injection import group_action, undone
from failback.chaos.recorder.fault_record import FaultRecord
from failback.chaos.session import Session
from failback.chaos.workload.process import CONSUMER, WorkloadProcess

SUBSCRIBE: Final = "subscribe"
REBALANCE_SECONDS: Final = 20.0
EFFECT_SECONDS: Final = 30.0
Queues: TypeAlias = frozenset[str]

KIND = FaultKind(
    code="F21",
    name="unsubscribe",
    proves="none holds a queue; healed when the queues are held again",
    action="unsubscribe_consumers",
    target="group",
    title="members drop their subscription and subscribe again after durationSeconds",
    parameters=(
        Parameter("durationSeconds", "seconds", "duration_seconds", 60.0, always=True),
        AFTER,
    ),
    lasts="durationSeconds",
    modes=("all",),
    milestones=("gone",),
)


def unsubscribe(session: Session, record: FaultRecord, group: str, values: Values) -> None:
    """Have all members unsubscribe, prove it, and have them subscribe after the time.

    All of them: one alone would leave its queues without a member, because members of a group are
    expected to subscribe to the same.
    """
    members = member_faults.members_of(session, group)
    before = _held_now(session, group, members)
    undo = {"sockets": member_faults.sockets_of(members)}
    member_faults.begin(session, record, SUBSCRIBE, undo)
    record.observed["queues_before"] = len(before)
    member_faults.tell_all(session, record, members, {"op": "unsubscribe"})
    crash_point("unsubscribed")
    session.progress(f"{record.fid}: members of {group} unsubscribed")
    patience = EFFECT_SECONDS + session.scaled(REBALANCE_SECONDS)
    gone = session.wait_for(lambda: _held(session, members) == frozenset(), patience)
    record.proof["GIVEN_UP"] = gone
    if gone:
        session.rec.gone(record, now())
    else:
        record.add_unproved_reason(f"members of {group} still hold queues {patience:g} s later")
    member_faults.effect_seen(session, record, "UNSUBSCRIBE", {"queues": len(before)})
    lasts = float(values["durationSeconds"])
    member_faults.undo_after(
        session, record, lasts, lambda: subscribe(session, record, group, before)
    )


def subscribe(session: Session, record: FaultRecord, group: str, before: Queues) -> None:
    """Have the members subscribe; healed once they hold the queues of before."""
    for process in session.load.of_role(CONSUMER, group=group):
        member_faults.tell(session, process, {"op": "subscribe"})
    undone(session, record, "SUBSCRIBE", f"members of {group} subscribe again")
    session.rec.later(
        lambda: _is_back(session, group, before),
        lambda: member_faults.heal_seen(session, record, {"queues": len(before)}),
    )


def _is_back(session: Session, group: str, before: Queues) -> bool:
    """The queues are held again. A member that has not subscribed gets the request once more."""
    members = session.load.of_role(CONSUMER, group=group)
    shown = [member_faults.stats_of(session, each) for each in members]
    others = [each for each, said in zip(members, shown, strict=True) if not said.get("subscribed")]
    for process in others:
        member_faults.tell(session, process, {"op": "subscribe"})
    if others or not shown:
        return False
    if _is_broadcasting(session, group):  # each has all of them
        return all(before <= _queues_in([each]) for each in shown)
    return before <= _queues_in(shown)


def _is_broadcasting(session: Session, group: str) -> bool:
    found = next(each for each in session.arm.workload.groups if each.name == group)
    return found.message_model == "BROADCASTING"


def _held_now(session: Session, group: str, members: Sequence[WorkloadProcess]) -> Queues:
    """Queues of the topic that members hold. Raises ``TargetError`` when there is none."""
    found: Queues | None = None

    def all_answer() -> bool:
        nonlocal found
        found = _held(session, members)
        return found is not None

    session.wait_for(all_answer, EFFECT_SECONDS)
    if not found:
        why = "no member holds a queue of its topic" if found is not None else "one is silent"
        raise TargetError(f"subscriptions of {group}", why)
    return found


def _held(session: Session, members: Sequence[WorkloadProcess]) -> Queues | None:
    """Queues of the topic that members hold; ``None`` when one did not answer."""
    shown = [member_faults.stats_of(session, each) for each in members]
    return _queues_in(shown) if all("topic_queues" in each for each in shown) else None


def _queues_in(shown: Sequence[Mapping[str, Any]]) -> Queues:
    return frozenset(queue for each in shown for queue in each["topic_queues"])


def _subscribe(_target: Target, args: Mapping[str, Any], _deadline: float) -> dict[str, Any] | None:
    """Have members subscribe; the queues come back to a process that is gone with its next life."""
    shown = member_faults.ask_sockets(args["sockets"], {"op": "subscribe"})
    healed = all(each.get("subscribed") for each in shown)
    return {"answered": len(shown)} if healed else None


FAULT = Fault(
    KIND, group_action(KIND, unsubscribe), Undo(SUBSCRIBE, _subscribe, "subscribe_consumers")
)
