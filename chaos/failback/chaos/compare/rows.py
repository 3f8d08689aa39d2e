"""The rows that a client of another engine writes: those of the consume log, by its writer.

A partition of Kafka and a stream of Redis are a queue, at a broker named after the engine, because
a queue keeps its name when another server leads it. The identity of a message is (lane, lseq): a
lane is one producer's sequence in one queue, and the low 16 bits of its number are the queue.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Self

from failback.chaos.compare.settings import TOPIC
from failback.client.consumelog.lab_id import format_lab_id, lane_of
from failback.client.consumelog.writer import ConsumeLog
from failback.common.replacing import replace_file

BODY_BYTES: Final = 256
OK: Final = "OK"


@dataclass(frozen=True, slots=True)
class Plan:
    """What one client process does; written as JSON for it."""

    engine: str
    role: str
    """``producer`` or ``consumer``."""
    run: str
    hot: str
    status: str
    """File that says each second how far it is."""
    proc_no: int
    servers: str
    """Addresses as the engine's client takes them, separated by commas."""
    queues: Mapping[str, str] = field(default_factory=dict)
    """What the engine calls each queue, by its number."""
    group: str = ""
    client: Mapping[str, str] = field(default_factory=dict)
    handler_ms: float = 0.0
    preload: int = 0
    per_second: float = 0.0

    @classmethod
    def read(cls, path: Path) -> Self:
        return cls(**json.loads(path.read_bytes()))

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))


@dataclass(frozen=True, slots=True)
class Holding:
    """One queue in this member's hands."""

    pqe: int
    qid: int


def body_of(lane: int, lseq: int) -> bytes:
    """The body of a message: its identity and padding."""
    return format_lab_id(lane, lseq).encode().ljust(BODY_BYTES, b".")


def identity_of(body: bytes) -> tuple[int, int]:
    """Lane and lseq of a body."""
    lane, _, lseq = body[:20].decode().partition("-")
    return int(lane, 16), int(lseq, 16)


def lane_of_queue(qid: int) -> int:
    """The lane of the one producer in a queue."""
    return lane_of(0, qid)


class Rows:
    """Writes the rows of one process, and each second how far it is."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.log = ConsumeLog(Path(plan.hot), run=plan.run, proc_no=plan.proc_no, role=plan.role)
        self.reached: dict[int, int] = {}
        """Per queue the highest offset that was finished, plus one."""
        self.sent: Counter[str] = Counter()
        """Messages by result."""
        self._holdings = 0
        self._ended = threading.Event()
        self._beat = threading.Thread(target=self._tell, name="status", daemon=True)
        self._beat.start()

    def close(self) -> None:
        """Close the log and say the last row's number."""
        self._ended.set()
        self._beat.join()
        self.log.close()
        self._write_status()

    def deliver(
        self, holding: Holding, offset: int, body: bytes, stored_ms: int, client_id: str
    ) -> int:
        """A message is about to be handled; return the delivery's id."""
        lane, lseq = identity_of(body)
        plan = self.plan
        return self.log.deliver_begin(
            0, plan.group, client_id, holding.pqe, None, plan.engine, TOPIC, holding.qid, offset,
            offset, _copy_id(holding.qid, offset), format_lab_id(lane, lseq), None, lane, lseq,
            None, None, TOPIC, 0, None, stored_ms, stored_ms, 0,
        )  # fmt: skip

    def delivered(self, did: int, holding: Holding, offset: int) -> None:
        """The handler returned."""
        self.log.deliver_end(did, "SUCCESS", True, None)
        self.reached[holding.qid] = max(self.reached.get(holding.qid, 0), offset + 1)

    def assign(
        self, qid: int, start: int, *, known: bool, server: int | None, client_id: str
    ) -> Holding:
        """A queue was taken.

        Args:
            start: The offset that the group's state says.
            known: Whether the group had any; else ``start`` is the begin of the queue.
            server: Number of the server that said it, where one is known.
        """
        self._holdings += 1
        holding = Holding(self._holdings, qid)
        self.log.write(
            "assign", grp=self.plan.group, inc=self.plan.proc_no, pqe=holding.pqe,
            broker=self.plan.engine, ptopic=TOPIC, qid=qid, t=time.monotonic_ns(), start_off=start,
            src="STORE" if known else "NO_ENTRY", src_bid=server, client_id=client_id,
        )  # fmt: skip
        return holding

    def assign_end(self, holding: Holding, reason: str) -> None:
        """A queue was given up."""
        self.log.write(
            "assign_end", inc=self.plan.proc_no, pqe=holding.pqe, broker=self.plan.engine,
            ptopic=TOPIC, qid=holding.qid, end_t=time.monotonic_ns(), end_reason=reason,
        )  # fmt: skip

    def commit(self, qid: int, offset: int, kind: str, result: str, client_id: str) -> None:
        """A commit, or an acknowledgement of the entry before ``offset``, was answered.

        A result that begins with ``_`` is the client's own: no request was answered.
        """
        self.log.write(
            "commit", grp=self.plan.group, inc=self.plan.proc_no, broker=self.plan.engine,
            ptopic=TOPIC, qid=qid, off=offset, kind=kind, t=time.monotonic_ns(),
            sent=not result.startswith("_"), result=result, client_id=client_id,
        )  # fmt: skip

    def produce(self, qid: int, lseq: int, attempt: int, due: int, t0: int, result: str) -> None:
        """An attempt to send ended; ``result`` is one of ``schema.SEND_RESULTS``."""
        lane = lane_of_queue(qid)
        self.log.write(
            "produce", lane=lane, lseq=lseq, att=attempt, ukey=format_lab_id(lane, lseq),
            topic=TOPIC, broker=self.plan.engine, qid=qid, due=due, t0=t0,
            t1=time.monotonic_ns(), res=result,
        )  # fmt: skip
        self.sent[result] += 1

    def scan(self, qid: int, offset: int, body: bytes, stored_ms: int) -> None:
        """A message was found after the run."""
        lane, lseq = identity_of(body)
        self.log.write(
            "scan", broker=self.plan.engine, bid=0, ptopic=TOPIC, qid=qid, qoff=offset,
            omid=_copy_id(qid, offset), ukey=format_lab_id(lane, lseq), lane=lane, lseq=lseq, rt=0,
            store_ms=stored_ms,
        )  # fmt: skip

    def _tell(self) -> None:
        while not self._ended.wait(0.5):
            self._write_status()

    def _write_status(self) -> None:
        status: dict[str, Any] = {
            "last_seq": self.log.last_seq,
            "reached": {str(qid): offset for qid, offset in list(self.reached.items())},
            "sent": dict(self.sent),
        }
        replace_file(Path(self.plan.status), json.dumps(status).encode(), sync=False)


def _copy_id(qid: int, offset: int) -> bytes:
    """16 bytes that name a stored copy: its queue and its offset."""
    return blake2b(f"{TOPIC}/{qid}".encode(), digest_size=8).digest() + offset.to_bytes(8, "big")
