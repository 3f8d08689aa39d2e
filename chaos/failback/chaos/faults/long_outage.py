"""F5: an outage in which the slave serves, and whose progress is lost when the master returns.

The consumers end in order while the slave serves: only the slave's table knows what they did. The
master returns with its old file, the slave copies it, and only then new consumers start. Both that
the slave served and that its table was overwritten are observed, or the fault is not proved.
"""

from __future__ import annotations

import signal
import time
from typing import Any

from failback.chaos.errors import TargetError
from failback.chaos.experiment.fault_kinds import AFTER, MILESTONES, FaultKind, Parameter, Values
from failback.chaos.faults import broker_faults, kill
from failback.chaos.faults.fault import Fault
from failback.chaos.faults.injection import (
    Call,
    action_of,
    begin_on_broker,
    returned,
    wait_served,
)
from failback.chaos.faults.kill_consumer import (
    choose_members,
    end_consumers,
    record_of,
    start_consumers_when,
)
from failback.chaos.recorder.fault_record import FaultRecord
from failback.chaos.session import Session


def _owners_end_within_the_outage(values: Values) -> tuple[str, str] | None:
    back, down = float(values["returnAfterStopSeconds"]), float(values["downSeconds"])
    if back > down:
        return "returnAfterStopSeconds", f"must be at most downSeconds, {down:g} (got {back:g})"
    return None


KIND = FaultKind(
    code="F5",
    name="long-outage",
    proves="that of kill, and the slave served minServed messages",
    action="long_outage",
    target="both",
    title="F1; the consumers end on the slave, new ones start after its table was overwritten",
    parameters=(
        Parameter("downSeconds", "seconds", "down_seconds", 300.0, always=True),
        Parameter("stopOwners", "flag", "stop_owners", True),
        Parameter("returnAfterStopSeconds", "seconds", "return_after_stop_seconds", 5.0),
        Parameter("startOwnersSeconds", "seconds", "start_owners_seconds", 60.0),
        Parameter("minServed", "count", "min_served", 100),
        AFTER,
    ),
    lasts="downSeconds",
    milestones=MILESTONES,
    check=_owners_end_within_the_outage,
)


def long_outage(session: Session, call: Call, values: Values) -> dict[str, Any]:
    """Kill the master, end the group in order on the slave, let the master return.

    The consumers end ``returnAfterStopSeconds`` before the master is released, if the slave has
    served ``minServed`` messages by then. New ones start ``startOwnersSeconds`` after it accepts,
    never before the slave was seen to hold its table.
    """
    down_seconds, return_after = values["downSeconds"], float(values["returnAfterStopSeconds"])
    record = begin_on_broker(session, kill.KIND.name, call, values["after"])
    broker_faults.kill_and_hold(session, record)
    broker_faults.finish_effect(session, record, "KILL")
    if not values["stopOwners"]:
        broker_faults.release_later(session, record, down_seconds)
        return returned(session, record)
    end_after = session.scaled(down_seconds - return_after)
    stop_at = broker_faults.issued_ns(record) + round(end_after * 1e9)
    owners = _end_owners(session, record, call.group, stop_at, values)
    broker_faults.release_later(session, record, return_after, from_ns=time.monotonic_ns())
    returned(session, owners)
    return returned(session, record)


def _end_owners(
    session: Session,
    record: FaultRecord,
    group: str,
    stop_at: int,
    values: Values,
) -> FaultRecord:
    """End the group once the slave has served; it starts again when the slave was overwritten."""
    session.sleep_until(stop_at)
    if wait_served(session, record.fid, group, values["minServed"]) is None:
        served = session.rec.served(record.fid, group)
        raise TargetError(record.fid, f"the slave served {served} messages to {group}")
    members = choose_members(session, group, "all", 0)
    owners = record_of(
        session, f"{record.fid}-consumers", f"group={group} mode=all", members, stop_at
    )
    end_consumers(session, owners, members, signal.SIGTERM)
    start_ns = round(session.scaled(values["startOwnersSeconds"]) * 1e9)
    board = session.rec.milestones

    def due() -> bool:
        accepted = board.get(record.fid, "accept")
        return (
            accepted is not None
            and time.monotonic_ns() >= accepted.mono_ns + start_ns
            and board.get(record.fid, "slave-synced") is not None
        )

    start_consumers_when(session, owners, members, due)
    return owners


FAULT = Fault(KIND, action_of(KIND, long_outage))
