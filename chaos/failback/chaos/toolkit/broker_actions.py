"""Actions on brokers: they are killed, stopped, paused, and find another offset file."""

from __future__ import annotations

from typing import Any

from chaoslib.exceptions import ActivityFailed
from chaoslib.types import Configuration, Secrets

from failback.chaos.cluster.view import Role
from failback.chaos.faults import broker_faults
from failback.chaos.faults.long_outage import long_outage as end_on_the_slave
from failback.chaos.faults.offset_file import replace_offset_file as kill_and_replace
from failback.chaos.toolkit.action_context import evidence_of, guarded, session_of


def kill_broker(
    pair: str,
    at_seconds: float,
    role: Role = "master",
    signal: str = "KILL",
    down_seconds: float | None = None,
    after: str = "",
    fid: str = "",
    configuration: Configuration = None,
    secrets: Secrets = None,
) -> dict[str, Any]:
    """F1: SIGKILL a broker and hold it down. Without ``down_seconds`` it may start again at once.

    Undone by :func:`release_broker`. Returns the evidence known so far.
    """
    if signal != "KILL":
        raise ActivityFailed(f"kill_broker sends KILL, not {signal}: use terminate_broker")
    session = session_of(configuration)

    def act() -> dict[str, Any]:
        intended = broker_faults.wait_for_time(session, fid, at_seconds, after)
        session.refuse_unsafe("kill")
        victim = broker_faults.pick(session, pair, role)
        record = broker_faults.open_record(session, fid, "kill", victim, intended)
        broker_faults.kill_broker(session, record, down_seconds)
        return evidence_of(session, record)

    return guarded(act)


def terminate_broker(
    pair: str,
    at_seconds: float,
    role: Role = "master",
    grace_seconds: float = 60.0,
    restart: bool = True,
    down_seconds: float | None = None,
    after: str = "",
    fid: str = "",
    configuration: Configuration = None,
    secrets: Secrets = None,
) -> dict[str, Any]:
    """F2: SIGTERM a broker. One that needs SIGKILL after the grace makes the fault not honest.

    Undone by :func:`start_broker`.
    """
    session = session_of(configuration)

    def act() -> dict[str, Any]:
        intended = broker_faults.wait_for_time(session, fid, at_seconds, after)
        session.refuse_unsafe("terminate")
        victim = broker_faults.pick(session, pair, role)
        record = broker_faults.open_record(session, fid, "terminate", victim, intended)
        broker_faults.terminate_broker(session, record, grace_seconds, down_seconds, restart)
        return evidence_of(session, record)

    return guarded(act)


def pause_broker(
    pair: str,
    at_seconds: float,
    role: Role = "master",
    duration_seconds: float = 60.0,
    after: str = "",
    fid: str = "",
    configuration: Configuration = None,
    secrets: Secrets = None,
) -> dict[str, Any]:
    """F6: SIGSTOP a broker; SIGCONT after ``duration_seconds``. Undone by :func:`resume_broker`."""
    session = session_of(configuration)

    def act() -> dict[str, Any]:
        intended = broker_faults.wait_for_time(session, fid, at_seconds, after)
        session.refuse_unsafe("pause", duration_seconds)
        victim = broker_faults.pick(session, pair, role)
        record = broker_faults.open_record(session, fid, "pause", victim, intended)
        broker_faults.pause_broker(session, record, duration_seconds)
        return evidence_of(session, record)

    return guarded(act)


def long_outage(
    pair: str,
    at_seconds: float,
    down_seconds: float,
    stop_owners: bool = True,
    return_after_stop_seconds: float = 5.0,
    start_owners_seconds: float = 60.0,
    fid: str = "",
    role: Role = "master",
    group: str = "",
    min_served: int = 100,
    after: str = "",
    configuration: Configuration = None,
    secrets: Secrets = None,
) -> dict[str, Any]:
    """F5: kill the master, end the group in order on the slave, let the master return.

    The master is down for ``down_seconds``; the consumers end ``return_after_stop_seconds`` before
    its release, if the slave has served ``min_served`` messages by then. New ones start
    ``start_owners_seconds`` after it accepts, never before the slave was seen to hold its table.
    """
    session = session_of(configuration)

    def act() -> dict[str, Any]:
        intended = broker_faults.wait_for_time(session, fid, at_seconds, after)
        session.refuse_unsafe("kill")
        record = broker_faults.open_record(
            session, fid, "kill", broker_faults.pick(session, pair, role), intended
        )
        owners = end_on_the_slave(
            session,
            record,
            group,
            down_seconds=down_seconds,
            stop_owners=stop_owners,
            return_after_stop_seconds=return_after_stop_seconds,
            start_owners_seconds=start_owners_seconds,
            min_served=min_served,
        )
        if owners is not None:
            evidence_of(session, owners)
        return evidence_of(session, record)

    return guarded(act)


def replace_offset_file(
    pair: str,
    at_seconds: float,
    role: Role = "master",
    content: str = "older",
    age_seconds: float = 60.0,
    bak: str = "same",
    fid: str = "",
    down_seconds: float | None = None,
    after: str = "",
    configuration: Configuration = None,
    secrets: Secrets = None,
) -> dict[str, Any]:
    """F19: kill a broker and change its offset file before it starts again.

    ``older`` is what its table held ``age_seconds`` before. Offsets heal by commits;
    :func:`restore_offset_file` puts the file back while the broker is still held.
    """
    session = session_of(configuration)

    def act() -> dict[str, Any]:
        intended = broker_faults.wait_for_time(session, fid, at_seconds, after)
        session.refuse_unsafe("replace-offset-file")
        victim = broker_faults.pick(session, pair, role)
        record = broker_faults.open_record(session, fid, "replace-offset-file", victim, intended)
        kill_and_replace(
            session,
            record,
            content=content,
            age_seconds=age_seconds,
            bak=bak,
            down_seconds=down_seconds,
        )
        return evidence_of(session, record)

    return guarded(act)
