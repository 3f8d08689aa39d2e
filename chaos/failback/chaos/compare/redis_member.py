"""A producer and a consumer of Redis Streams that write the rows of the consume log.

The consumer is what most applications have: ``XREADGROUP``, one ``XACK`` for each entry with the
client's own retries, and ``XAUTOCLAIM`` of what was pending for 10 s. When another node leads a
stream it looks at the group's state there before it reads on, so that the row has what it found.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Sequence
from threading import Event, Thread
from typing import Any, Final

from redis.backoff import NoBackoff
from redis.cluster import RedisCluster as Client
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeout
from redis.retry import Retry

from failback.chaos.compare.redis_cluster import REFUSED, client_of, id_of, ordinal_of
from failback.chaos.compare.rows import OK, Holding, Plan, Rows, body_of
from failback.chaos.compare.settings import ONCE, QUEUES, UNTIL_TAKEN

_BATCH: Final = 32
_MIN_IDLE_MS: Final = 10_000
_CLAIM_SECONDS: Final = 2.0
_PAUSE: Final = 0.1
_NOT_PENDING: Final = "NOT_PENDING"
"""``XACK`` was answered with 0: the node has no such entry as pending."""
_Entries = Sequence[tuple[bytes, dict[bytes, bytes]]]


def produce(plan: Plan, rows: Rows, stop: Event) -> None:
    """One thread for each stream: one that stands still does not stop the others."""
    threads = [Thread(target=_fill, args=(plan, rows, stop, qid)) for qid in range(QUEUES)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def _fill(plan: Plan, rows: Rows, stop: Event, qid: int) -> None:
    """Send the backlog, then at a fixed rate; an entry is sent again until it is answered.

    Its id is its ordinal, so one that was stored and is sent again is refused and not stored twice.
    """
    client = _connected(plan, stop)
    backlog, rate = plan.preload // QUEUES, plan.per_second / QUEUES
    began = due = time.monotonic_ns()
    for lseq in itertools.count():
        if lseq == backlog:
            began = time.monotonic_ns()
        if lseq >= backlog:
            due = began + round((lseq - backlog) / rate * 1e9)
            stop.wait(max(0.0, (due - time.monotonic_ns()) / 1e9))
        if stop.is_set() or client is None:
            return
        for attempt in itertools.count(1):
            t0 = time.monotonic_ns()
            result = _add(client, plan.queues[qid], lseq, body_of(qid, lseq))
            rows.produce(qid, lseq, attempt, due, t0, result)
            if result == OK or stop.is_set():
                break
            time.sleep(_PAUSE)


def _add(client: Client, stream: str, lseq: int, body: bytes) -> str:
    try:
        client.xadd(stream, {"m": body}, id=id_of(lseq))
    except ResponseError as error:
        return OK if "equal or smaller" in str(error) else "BROKER_ERR"
    except RedisTimeout:
        return "TIMEOUT"
    except REFUSED:
        return "CONN"
    return OK


def consume(plan: Plan, rows: Rows, stop: Event) -> None:
    """Handle entries until asked to stop."""
    _Member(plan, rows, stop).run()


class _Member:
    def __init__(self, plan: Plan, rows: Rows, stop: Event) -> None:
        self._plan, self._rows, self._stop = plan, rows, stop
        self._xack = plan.client.get("xack")
        self._not_taken: list[tuple[int, int]] = []
        self._unsure: set[int] = set()
        """Queues with an acknowledgement that failed since the last look."""
        self._held: dict[int, tuple[Holding, int]] = {}
        """By queue what is held, and the port of the node that leads it."""
        self._ports = [int(each.rpartition(":")[2]) for each in plan.servers.split(",")]

    def run(self) -> None:
        """One client acknowledges, another one reads. The reader tries nothing twice, so that what
        it answers is of the node that was looked at."""
        once = {"retry": Retry(NoBackoff(), 0)}
        acks = _connected(self._plan, self._stop, **(once if self._xack == ONCE else {}))
        reads = _connected(self._plan, self._stop, **once)
        claimed = time.monotonic()
        while not self._stop.is_set():
            found = 0
            for qid in range(QUEUES):
                try:
                    self._look(reads, qid)
                    found += self._handle(acks, qid, self._read(reads, qid))
                except REFUSED:  # the node is gone, or another one leads the stream
                    time.sleep(_PAUSE)
                    reads = _connected(self._plan, self._stop, **once) or reads
            again, self._not_taken = self._not_taken, []
            for qid, ordinal in again:
                self._acknowledge(acks, qid, ordinal, "TIMER")
            if time.monotonic() - claimed > _CLAIM_SECONDS:
                claimed = time.monotonic()
                for qid in self._held:
                    mine = (self._plan.queues[qid], self._plan.group, self._plan.client_id)
                    with contextlib.suppress(*REFUSED):
                        self._look(reads, qid)
                        pending = reads.xautoclaim(*mine, _MIN_IDLE_MS, count=_BATCH)[1]
                        if pending and qid in self._unsure:
                            self._look(reads, qid, again=True)
                        self._handle(acks, qid, pending)
            if not found:
                time.sleep(_PAUSE / 2)
        for holding, _ in self._held.values():
            self._rows.assign_end(holding, "SHUTDOWN")

    def _look(self, client: Client, qid: int, *, again: bool = False) -> None:
        """Take the stream where another node leads it: look at the group's state there first."""
        stream, group = self._plan.queues[qid], self._plan.group
        port = int(client.get_node_from_key(stream).port)
        if not again and qid in self._held and self._held[qid][1] == port:
            return
        self._unsure.discard(qid)
        with contextlib.suppress(ResponseError):  # it is there already
            client.xgroup_create(stream, group, id="0", mkstream=True)
        mine = next(each for each in client.xinfo_groups(stream) if each["name"] == group.encode())
        if qid in self._held:
            self._rows.assign_end(self._held[qid][0], "REBALANCE")
        start = ordinal_of(mine["last-delivered-id"]) + 1 - int(mine["pending"])
        self._held[qid] = self._rows.assign(qid, start, self._ports.index(port) + 1), port

    def _read(self, client: Client, qid: int) -> _Entries:
        asked = {self._plan.queues[qid]: ">"}
        found: Any = client.xreadgroup(self._plan.group, self._plan.client_id, asked, count=_BATCH)
        if isinstance(found, dict):  # of protocol 3
            return [entry for batch in found.values() for part in batch for entry in part]
        return [entry for _, batch in found for entry in batch]

    def _handle(self, acks: Client, qid: int, entries: _Entries) -> int:
        """Handle entries and acknowledge each; how many."""
        for entry, fields in entries:
            ordinal = ordinal_of(entry)
            self._rows.handle(self._held[qid][0], ordinal, fields[b"m"], 0)
            self._acknowledge(acks, qid, ordinal)
        return len(entries)

    def _acknowledge(self, acks: Client, qid: int, ordinal: int, kind: str = "USER_SYNC") -> None:
        try:
            done = acks.xack(self._plan.queues[qid], self._plan.group, id_of(ordinal))
            result = OK if done else _NOT_PENDING
        except REFUSED as error:
            result = type(error).__name__
            self._unsure.add(qid)
            if self._xack == UNTIL_TAKEN:
                self._not_taken.append((qid, ordinal))
        self._rows.commit(qid, ordinal + 1, kind, result)


def _connected(plan: Plan, stop: Event, **further: Any) -> Any:
    """A client, which tries again by itself; ``None`` when asked to stop before a node answered."""
    while not stop.is_set():
        with contextlib.suppress(*REFUSED):
            return client_of(plan.servers, **further)
        time.sleep(_PAUSE)
    return None
