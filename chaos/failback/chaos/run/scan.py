"""Read every queue of the run once, from its lowest to its highest offset, committing nothing.

What lies in the stores at the end is the ground truth of loss: a message that was acknowledged and
is not found is lost, one that is found and was never delivered was skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from failback.chaos.cluster.view import Member
from failback.chaos.cluster.wire import WireConnection
from failback.chaos.session import Session
from failback.client.consumelog.lab_id import LAB_ID_PROPERTY, parse_lab_id
from failback.protocol.codes import ResponseCode
from failback.protocol.errors import FailbackError
from failback.protocol.message import UNIQ_KEY, MessageExt


@dataclass(frozen=True, slots=True)
class ScanResult:
    """``complete`` is true when every queue was read to its end."""

    complete: bool
    rows: int
    problems: tuple[str, ...]


def scan_stores(session: Session, timeout_seconds: float) -> ScanResult:
    """Write one row of table ``scan`` per message found on the masters."""
    rows = 0
    problems: list[str] = []
    masters = session.masters()
    if not masters:
        return ScanResult(False, 0, ("no master is known",))
    for master in masters:
        try:
            with WireConnection(master.address) as connection:
                for topic in _topics(session, connection):
                    for queue, limits in sorted(connection.topic_stats(topic).items()):
                        rows += _scan_queue(session, connection, master, topic, queue, limits)
        except FailbackError as error:
            problems.append(f"{master.pod}: {error}")
    return ScanResult(not problems, rows, tuple(problems))


def _topics(session: Session, connection: WireConnection) -> list[str]:
    """Topics of the workload, and what its groups sent back or gave up."""
    existing = connection.topic_names()
    wanted = list(session.topic_names())
    for group in session.group_topics():
        wanted += [f"%RETRY%{group}", f"%DLQ%{group}"]
    return [topic for topic in wanted if topic in existing]


def _scan_queue(
    session: Session,
    connection: WireConnection,
    master: Member,
    topic: str,
    queue: int,
    limits: tuple[int, int],
) -> int:
    """Read one queue from where this run began; what lies before belongs to earlier runs."""
    rows = 0
    begun = session.start_offsets.get((master.broker_name, topic, queue), 0)
    first = max(limits[0], begun)
    for message in _read(session, connection, topic, queue, first, limits[1]):
        lane, sequence = parse_lab_id(message.properties.get(LAB_ID_PROPERTY)) or (None, None)
        session.rec.log.write(
            "scan",
            broker=master.broker_name,
            bid=master.broker_id,
            ptopic=topic,
            qid=queue,
            qoff=message.queue_offset,
            omid=bytes.fromhex(message.offset_msg_id),
            ukey=message.properties.get(UNIQ_KEY),
            lane=lane,
            lseq=sequence,
            rt=message.reconsume_times,
            store_ms=message.store_timestamp,
        )
        rows += 1
    return rows


def _read(
    session: Session,
    connection: WireConnection,
    topic: str,
    queue: int,
    lowest: int,
    highest: int,
) -> Iterator[MessageExt]:
    offset = lowest
    while offset < highest:
        session.check()
        pulled = connection.pull(topic, queue, offset)
        if pulled.messages:
            yield from (each for each in pulled.messages if each.queue_offset < highest)
            following = pulled.messages[-1].queue_offset + 1
        elif pulled.code == ResponseCode.PULL_OFFSET_MOVED or pulled.next_offset > offset:
            following = pulled.next_offset
        else:
            following = offset
        if following <= offset:
            raise _Stuck(topic, queue, offset, pulled.code)
        offset = following


class _Stuck(FailbackError):
    """A queue does not give what it says it has."""

    def __init__(self, topic: str, queue: int, offset: int, code: int) -> None:
        super().__init__(
            f"{topic} queue {queue} gives nothing at offset {offset} (code {code}) before its end"
        )
