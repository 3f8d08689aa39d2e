"""F5: an outage in which the slave serves, and whose progress is lost when the master returns.

The consumers end in order while the slave serves: only the slave's table knows what they did. The
master returns with its old file, the slave copies it, and only then new consumers start. Both that
the slave served and that its table was overwritten are observed, or the fault is not honest.
"""

from __future__ import annotations

import signal
import time

from failback.chaos.errors import TargetError
from failback.chaos.faults import broker_faults
from failback.chaos.faults.consumer_faults import (
    choose_members,
    end_consumers,
    record_of,
    start_consumers_when,
)
from failback.chaos.recorder.fault_record import FaultRecord
from failback.chaos.session import Session


def long_outage(
    session: Session,
    record: FaultRecord,
    group: str,
    *,
    down_seconds: float,
    stop_owners: bool,
    return_after_stop_seconds: float,
    start_owners_seconds: float,
    min_served: int,
) -> FaultRecord | None:
    """Inject it; return once the consumers have ended and the release is in the recorder's hands.

    Returns:
        The record of the consumers' end; ``None`` when they stay.
    """
    broker_faults.kill_and_hold(session, record)
    broker_faults.finish_effect(session, record, "KILL")
    member, _ = broker_faults.victim_of(record)
    assert record.issued is not None
    issued = record.issued[0].mono_ns
    if not stop_owners:
        broker_faults.release_later(session, record, member, issued, down_seconds)
        return None
    stop_at = issued + round(session.scaled(down_seconds - return_after_stop_seconds) * 1e9)
    session.sleep_until(stop_at)
    if broker_faults.wait_served(session, record.fid, group, min_served) is None:
        served = session.rec.served(record.fid, group)
        raise TargetError(record.fid, f"the slave served {served} messages to {group}")
    members = choose_members(session, group, "all", 0)
    owners = record_of(
        session, f"{record.fid}-consumers", f"group={group} mode=all", members, stop_at
    )
    end_consumers(session, owners, members, signal.SIGTERM)
    broker_faults.release_later(
        session, record, member, time.monotonic_ns(), return_after_stop_seconds
    )
    start_ns = round(session.scaled(start_owners_seconds) * 1e9)
    board = session.rec.board

    def due() -> bool:
        accepted = board.get(record.fid, "accept")
        return (
            accepted is not None
            and time.monotonic_ns() >= accepted.mono_ns + start_ns
            and board.get(record.fid, "slave-synced") is not None
        )

    start_consumers_when(session, owners, members, due)
    return owners
