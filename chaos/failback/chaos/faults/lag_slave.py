"""F10: the master dies while its slave is behind.

The slave is frozen under load. Then the master gets SIGKILL, and in the same step the slave runs
on. What the slave still finds in its socket is no lag: how far it stays behind is looked up at the
slave itself once its queues stand still.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from failback.chaos.cluster.view import Member
from failback.chaos.cluster.wire import WireConnection
from failback.chaos.experiment.fault_kinds import (
    AFTER,
    DOWN,
    MILESTONES,
    FaultKind,
    Parameter,
    Values,
)
from failback.chaos.faults import kill, pause, proof
from failback.chaos.faults.broker_faults import (
    finish_effect,
    issued_ns,
    kill_and_hold,
    release_later,
    victim_of,
)
from failback.chaos.faults.fault import Fault
from failback.chaos.faults.injection import (
    Call,
    action_of,
    begin_on_broker,
    open_record,
    returned,
)
from failback.chaos.faults.victims import choose
from failback.chaos.recorder.fault_record import FaultRecord
from failback.chaos.session import Session
from failback.protocol.errors import FailbackError

SETTLED_SECONDS: Final = 20.0
KIND = FaultKind(
    code="F10",
    name="lag-slave",
    proves="that of pause and of kill; the slave lacks messages of the master; healed by K7 and K8",
    action="lag_slave_then_kill",
    target="broker",
    title="the slave is frozen for lagSeconds, then F1 of the master as the slave runs on",
    parameters=(Parameter("lagSeconds", "seconds", "lag_seconds", 30.0, always=True), DOWN, AFTER),
    lasts="lagSeconds",
    milestones=MILESTONES,
    supported_by=frozenset({"local"}),
)


def lag_slave_then_kill(session: Session, call: Call, values: Values) -> dict[str, Any]:
    """Freeze a pair's slave, then kill the master and let the slave run on in one step."""
    of_slave = replace(call, fid=f"{call.fid}-slave", role="slave")
    slave = begin_on_broker(session, pause.KIND.name, of_slave, values["after"])
    pause.freeze(session, slave)
    until = issued_ns(slave) + round(session.scaled(values["lagSeconds"]) * 1e9)
    pause.resume_when(session, slave, lambda: False)  # should the run end here
    proof.prove_silence(slave, victim_of(slave)[0], until)
    finish_effect(session, slave, "PAUSE")
    session.sleep_until(until)
    master = choose(session.target.view(), call.pair, call.role, session.schedule.seeds["victims"])
    record = open_record(session, call.fid, kill.KIND.name, master, until)
    kill_and_hold(session, record, with_it=lambda: pause.resume(session, slave))
    prove_lag(session, record, victim_of(slave)[0])
    finish_effect(session, record, "KILL")
    release_later(session, record, values["downSeconds"])
    returned(session, slave)
    return returned(session, record)


def prove_lag(session: Session, record: FaultRecord, slave: Member) -> None:
    """The slave's queues end before those that the master showed last, when nothing moves there."""
    seen: list[int | None] = [None]

    def stands_still() -> bool:
        seen.append(_behind(session, victim_of(record)[0], slave))
        return seen[-1] is not None and seen[-1] == seen[-2]

    session.wait_for(stands_still, SETTLED_SECONDS, period=1.0)
    record.proof["LAG"] = record.observed["lag_messages"] = seen[-1]
    if not seen[-1]:
        record.add_unproved_reason(
            f"{slave.pod} was not seen behind: send more, its socket holds what it has not read"
        )


def _behind(session: Session, master: Member, slave: Member) -> int | None:
    """Messages that the master showed last and the slave lacks; ``None`` without an answer."""
    ends = session.rec.latest_samples.queues_of(master.address)
    behind = 0
    try:
        with WireConnection(slave.address) as connection:
            for topic in {topic for topic, _ in ends}:
                for queue, (_, end) in connection.topic_stats(topic).items():
                    behind += max(0, ends.get((topic, queue), (0, 0))[1] - end)
    except FailbackError:
        return None
    return behind


FAULT = Fault(KIND, action_of(KIND, lag_slave_then_kill))
