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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

from failback.chaos.compare.settings import TOPIC
from failback.client.consumelog.lab_id import LAB_ID_CHARS, format_lab_id, lane_of, parse_lab_id
from failback.client.consumelog.writer import ConsumeLog
from failback.common.replacing import replace_file

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
    """File that says twice a second how far it is."""
    proc_no: int
    servers: str
    """Addresses as the engine's client takes them, separated by commas."""
    queues: Sequence[str] = ()
    """What the engine calls each queue."""
    group: str = ""
    client: Mapping[str, str] = field(default_factory=dict)
    handler_ms: float = 0.0
    preload: int = 0
    per_second: float = 0.0

    @property
    def client_id(self) -> str:
        return f"{self.group}-{self.proc_no}"


class Holding(NamedTuple):
    pqe: int
    qid: int


def body_of(qid: int, lseq: int) -> bytes:
    """The body of a message, 256 bytes: its identity and padding."""
    return format_lab_id(lane_of(0, qid), lseq).encode().ljust(256, b".")


def identity_of(body: bytes) -> tuple[int, int]:
    """Lane and lseq of a body. Raises ``ValueError`` of a body that no producer of ours made."""
    found = parse_lab_id(body[:LAB_ID_CHARS].decode())
    if found is None:
        raise ValueError(f"a body without an identity: {body[:40]!r}")
    return found


class Rows:
    """Writes the rows of one process, and into ``plan.status`` how far it is:
    ``{last_seq: number of the last row, reached: {queue: offset + 1}, sent: {result: messages}}``.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.log = ConsumeLog(Path(plan.hot), run=plan.run, proc_no=plan.proc_no, role=plan.role)
        self._reached: dict[int, int] = {}
        self._sent: Counter[str] = Counter()
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

    def handle(self, holding: Holding, offset: int, body: bytes, stored_ms: int) -> None:
        """A message is given to the handler, which takes its time."""
        lane, lseq = identity_of(body)
        plan, copy = self.plan, _copy_id(holding.qid, offset)
        did = self.log.deliver_begin(
            0, plan.group, plan.client_id, holding.pqe, None, plan.engine, TOPIC, holding.qid,
            offset, offset, copy, format_lab_id(lane, lseq), None, lane, lseq, None, None, TOPIC, 0,
            None, stored_ms, stored_ms, 0,
        )  # fmt: skip
        time.sleep(plan.handler_ms / 1000)
        self.log.deliver_end(did, "SUCCESS", True, None)
        self._reached[holding.qid] = max(self._reached.get(holding.qid, 0), offset + 1)

    def assign(self, qid: int, start: int | None, server: int | None = None) -> Holding:
        """A queue was taken.

        Args:
            start: The offset that the group's state says; ``None``: it has none, and the member
                begins with the queue.
            server: Number of the server that said it, where one is known.
        """
        self._holdings += 1
        self.log.write(
            "assign", grp=self.plan.group, inc=self.plan.proc_no, pqe=self._holdings,
            broker=self.plan.engine, ptopic=TOPIC, qid=qid, t=time.monotonic_ns(),
            start_off=start or 0, src="NO_ENTRY" if start is None else "STORE", src_bid=server,
            client_id=self.plan.client_id,
        )  # fmt: skip
        return Holding(self._holdings, qid)

    def assign_end(self, holding: Holding, reason: str) -> None:
        """A queue was given up."""
        self.log.write(
            "assign_end", inc=self.plan.proc_no, pqe=holding.pqe, broker=self.plan.engine,
            ptopic=TOPIC, qid=holding.qid, end_t=time.monotonic_ns(), end_reason=reason,
        )  # fmt: skip

    def commit(self, qid: int, offset: int, kind: str, result: str) -> None:
        """A commit, or an acknowledgement of the entry before ``offset``, was answered.

        A result that begins with ``_`` is the client's own: no request was answered.
        """
        self.log.write(
            "commit", grp=self.plan.group, inc=self.plan.proc_no, broker=self.plan.engine,
            ptopic=TOPIC, qid=qid, off=offset, kind=kind, t=time.monotonic_ns(),
            sent=not result.startswith("_"), result=result, client_id=self.plan.client_id,
        )  # fmt: skip

    def produce(self, qid: int, lseq: int, attempt: int, due: int, t0: int, result: str) -> None:
        """An attempt to send ended; ``result`` is one of ``schema.SEND_RESULTS``."""
        lane = lane_of(0, qid)
        self.log.write(
            "produce", lane=lane, lseq=lseq, att=attempt, ukey=format_lab_id(lane, lseq),
            topic=TOPIC, broker=self.plan.engine, qid=qid, due=due, t0=t0,
            t1=time.monotonic_ns(), res=result,
        )  # fmt: skip
        self._sent[result] += 1

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
        status = {"last_seq": self.log.last_seq, "reached": dict(self._reached)}
        content = json.dumps({**status, "sent": dict(self._sent)}).encode()
        replace_file(Path(self.plan.status), content, sync=False)


def _copy_id(qid: int, offset: int) -> bytes:
    """16 bytes that name a stored copy: its queue and its offset."""
    return blake2b(f"{TOPIC}/{qid}".encode(), digest_size=8).digest() + offset.to_bytes(8, "big")
