"""Wait until everything produced has been handled, or say exactly what is left.

A group has drained when, on every master, each queue's committed offset is its end, nothing waits
in ``%RETRY%`` or in a delay level, and no handler is unfinished, all for a quiet time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from failback.chaos.cluster.view import Member
from failback.chaos.cluster.wire import WireConnection
from failback.chaos.session import Session
from failback.chaos.workload.process import CONSUMER
from failback.common.numbers import counted
from failback.protocol import calls
from failback.protocol.codes import SCHEDULE_TOPIC, ResponseCode
from failback.protocol.errors import FailbackError


@dataclass(frozen=True, slots=True)
class DrainResult:
    """``open`` names what was left, one sentence each; empty when drained."""

    drained: bool
    open: tuple[str, ...]
    seconds: float


def stop_producers(session: Session, timeout: float = 30.0) -> bool:
    """Stop sending and wait for what is under way; true when nothing is."""
    session.load.stop_sending()

    def done() -> bool:
        session.load.refresh()
        return session.load.producers_done()

    return session.wait_for(done, timeout, period=0.2)


def drain(session: Session, timeout_seconds: float, quiet_seconds: float) -> DrainResult:
    """Stop the producers, then wait until every group is quiet at its end."""
    started = time.monotonic()
    if not stop_producers(session, min(30.0, timeout_seconds)):
        return DrainResult(False, ("producers did not stop",), time.monotonic() - started)
    quiet = session.scaled(quiet_seconds)
    deadline = started + timeout_seconds
    calm_since: float | None = None
    left: tuple[str, ...] = ()
    said = started
    while time.monotonic() < deadline:
        session.check()
        session.load.refresh()
        left = tuple(what_is_open(session))
        if left:
            calm_since = None
        elif calm_since is None:
            calm_since = time.monotonic()
        elif time.monotonic() - calm_since >= quiet:
            return DrainResult(True, (), time.monotonic() - started)
        if left and time.monotonic() - said > 5:
            said = time.monotonic()
            session.progress(f"draining: {left[0]}")
        time.sleep(min(0.5, max(0.05, quiet / 4)))
    return DrainResult(False, left or ("not quiet for long enough",), time.monotonic() - started)


def what_is_open(session: Session) -> Iterator[str]:
    """Sentences about what keeps the run from being drained, measured now.

    What waits in brokers comes first: a busy handler has more to come while there is some.
    """
    masters = session.masters()
    if not masters:
        yield "no master is known"
    for master in masters:
        try:
            yield from _open_at(session, master)
        except FailbackError as error:
            yield f"{master.pod}: {error}"
    for group in session.group_topics():
        unfinished = session.load.unfinished(group)
        if unfinished:
            yield f"{group}: {counted(unfinished, 'message')} in handlers"


def _open_at(session: Session, master: Member) -> Iterator[str]:
    with WireConnection(master.address) as connection:
        offsets = connection.all_offsets()
        own = {g.name for g in session.arm.workload.groups if g.message_model == "BROADCASTING"}
        for group, topic in session.group_topics().items():
            if group in own:
                yield from _open_at_members(session, connection, master, group, topic)
                continue
            for name in (topic, f"%RETRY%{group}"):
                committed = offsets.get(f"{name}@{group}", {})
                for queue, (lowest, highest) in sorted(connection.topic_stats(name).items()):
                    lag = highest - max(lowest, committed.get(queue, 0))
                    if lag > 0:
                        yield (
                            f"{group}: {counted(lag, 'message')} left in {name} queue {queue} "
                            f"of {master.broker_name}"
                        )
        yield from _delayed(connection, master)


def _open_at_members(
    session: Session, connection: WireConnection, master: Member, group: str, topic: str
) -> Iterator[str]:
    """Where every member gets everything, each knows for itself how far it is."""
    limits = connection.topic_stats(topic)
    for process in session.load.of_role(CONSUMER, group=group):
        offsets = (process.stats.get("offsets") or {}).get(master.broker_name, {})
        for queue, (lowest, highest) in sorted(limits.items()):
            lag = highest - max(lowest, int(offsets.get(str(queue), 0)))
            if lag > 0:
                yield (
                    f"{process.name}: {counted(lag, 'message')} left in {topic} queue {queue} "
                    f"of {master.broker_name}"
                )


def _delayed(connection: WireConnection, master: Member) -> Iterator[str]:
    stats = connection.topic_stats(SCHEDULE_TOPIC)
    if not stats:
        return
    # A broker that keeps none yet answers SYSTEM_ERROR.
    call = calls.delay_offsets().otherwise(ResponseCode.SYSTEM_ERROR, dict[int, int]())
    served = connection.ask(call)
    for queue, (lowest, highest) in sorted(stats.items()):
        # Queue n of the schedule topic holds delay level n + 1.
        waiting = highest - max(lowest, served.get(queue + 1, 0))
        if waiting > 0:
            found = counted(waiting, "message")
            yield f"{found} waiting for delay level {queue + 1} of {master.broker_name}"
