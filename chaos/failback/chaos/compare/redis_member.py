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
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeout
from redis.retry import Retry

from failback.chaos.compare.redis_cluster import client_of, id_of, ordinal_of
from failback.chaos.compare.rows import OK, Holding, Plan, Rows, body_of, lane_of_queue
from failback.chaos.compare.settings import ONCE, UNTIL_TAKEN

_BATCH: Final = 32
_MIN_IDLE_MS: Final = 10_000
_CLAIM_SECONDS: Final = 2.0
_PAUSE: Final = 0.1
_NOT_PENDING: Final = "NOT_PENDING"
"""``XACK`` was answered with 0: the node has no such entry as pending."""
_Refused = (RedisError, OSError)
_Entry = tuple[bytes, dict[bytes, bytes]]


def produce(plan: Plan, rows: Rows, stop: Event) -> None:
    """One thread for each stream: one that stands still does not stop the others."""
    threads = [
        Thread(target=_fill, args=(plan, rows, stop, int(qid), name), daemon=True)
        for qid, name in plan.queues.items()
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def _fill(plan: Plan, rows: Rows, stop: Event, qid: int, stream: str) -> None:
    """Send the backlog, then at a fixed rate; an entry is sent again until it is answered.

    Its id is its ordinal, so one that was stored and is sent again is refused and not stored twice.
    """
    client = _connected(plan, stop)
    count = len(plan.queues)
    backlog, rate = plan.preload // count, plan.per_second / count
    began = due = time.monotonic_ns()
    for lseq in itertools.count():
        if lseq == backlog:
            began = time.monotonic_ns()
        if lseq >= backlog:
            due = began + round((lseq - backlog) / rate * 1e9)
            stop.wait(max(0.0, (due - time.monotonic_ns()) / 1e9))
        if stop.is_set() or client is None:
            return
        body = body_of(lane_of_queue(qid), lseq)
        for attempt in itertools.count(1):
            t0 = time.monotonic_ns()
            result = _add(client, stream, lseq, body)
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
    except _Refused:
        return "CONN"
    return OK


def consume(plan: Plan, rows: Rows, stop: Event) -> None:
    """Handle entries until asked to stop."""
    _Member(plan, rows, stop).run()


class _Member:
    def __init__(self, plan: Plan, rows: Rows, stop: Event) -> None:
        self._plan, self._rows, self._stop = plan, rows, stop
        self._streams = {int(qid): name for qid, name in plan.queues.items()}
        self._name = f"{plan.group}-{plan.proc_no}"
        self._until_taken = plan.client.get("xack") == UNTIL_TAKEN
        self._not_taken: list[tuple[int, int]] = []
        self._held: dict[int, tuple[Holding, int]] = {}
        """By queue what is held, and the port of the node that leads it."""
        self._ports = [int(each.rpartition(":")[2]) for each in plan.servers.split(",")]

    def run(self) -> None:
        further = _no_retry() if self._plan.client.get("xack") == ONCE else {}
        acks = _connected(self._plan, self._stop, **further)
        reads = self._connected_once()
        claimed = time.monotonic()
        while acks is not None and not self._stop.is_set():
            found = False
            for qid in self._streams:
                try:
                    if reads is None:
                        raise OSError
                    self._look(reads, qid)
                    found |= self._handle(acks, qid, self._read(reads, qid))
                except _Refused:  # the node is gone, or another one leads the stream
                    if reads is not None:
                        reads.close()
                    time.sleep(_PAUSE)
                    reads = self._connected_once()
            self._repeat(acks)
            if time.monotonic() - claimed > _CLAIM_SECONDS:
                claimed = time.monotonic()
                for qid in self._held:
                    with contextlib.suppress(*_Refused):
                        self._handle(acks, qid, self._claim(acks, qid))
            if not found:
                time.sleep(_PAUSE / 2)
        for holding, _ in self._held.values():
            self._rows.assign_end(holding, "SHUTDOWN")

    def _connected_once(self) -> Client | None:
        """A client that tries nothing twice: what it answers is of the node that was looked at."""
        with contextlib.suppress(*_Refused):
            return client_of(self._plan.servers, **_no_retry())
        return None

    def _look(self, client: Client, qid: int) -> None:
        """Take the stream where another node leads it: look at the group's state there first."""
        stream = self._streams[qid]
        port = int(client.get_node_from_key(stream).port)
        if qid in self._held and self._held[qid][1] == port:
            return
        with contextlib.suppress(ResponseError):  # it is there already
            client.xgroup_create(stream, self._plan.group, id="0", mkstream=True)
        groups = client.xinfo_groups(stream)
        mine = next(each for each in groups if each["name"] == self._plan.group.encode())
        place = ordinal_of(mine["last-delivered-id"]) + 1
        if qid in self._held:
            self._rows.assign_end(self._held[qid][0], "REBALANCE")
        holding = self._rows.assign(
            qid,
            place - int(mine["pending"]),
            known=True,
            server=self._ports.index(port) + 1,
            client_id=self._name,
        )
        self._held[qid] = holding, port

    def _read(self, client: Client, qid: int) -> Sequence[_Entry]:
        stream = self._streams[qid]
        found: Any = client.xreadgroup(self._plan.group, self._name, {stream: ">"}, count=_BATCH)
        if isinstance(found, dict):  # of protocol 3
            return [entry for batch in found.values() for part in batch for entry in part]
        return [entry for _, batch in found for entry in batch]

    def _claim(self, client: Client, qid: int) -> Sequence[_Entry]:
        found: Any = client.xautoclaim(
            self._streams[qid], self._plan.group, self._name, _MIN_IDLE_MS, count=_BATCH
        )
        entries: Sequence[_Entry] = found[1]
        return entries

    def _handle(self, acks: Client, qid: int, entries: Sequence[_Entry]) -> bool:
        """Handle entries and acknowledge each; whether there was any."""
        holding = self._held[qid][0]
        for entry, fields in entries:
            ordinal = ordinal_of(entry)
            did = self._rows.deliver(holding, ordinal, fields[b"m"], 0, self._name)
            time.sleep(self._plan.handler_ms / 1000)
            self._rows.delivered(did, holding, ordinal)
            if not self._acknowledge(acks, qid, ordinal) and self._until_taken:
                self._not_taken.append((qid, ordinal))
        return bool(entries)

    def _acknowledge(self, acks: Client, qid: int, ordinal: int) -> bool:
        try:
            done = acks.xack(self._streams[qid], self._plan.group, id_of(ordinal))
            result = OK if done else _NOT_PENDING
        except _Refused as error:
            result = type(error).__name__
        self._rows.commit(qid, ordinal + 1, "USER_SYNC", result, self._name)
        return result in (OK, _NOT_PENDING)

    def _repeat(self, acks: Client) -> None:
        """Acknowledge once more what was not taken."""
        again, self._not_taken = self._not_taken, []
        self._not_taken = [
            (qid, ordinal) for qid, ordinal in again if not self._acknowledge(acks, qid, ordinal)
        ]


def _no_retry() -> dict[str, Any]:
    """A client with these settings tries nothing a second time."""
    return {"retry": Retry(NoBackoff(), 0)}


def _connected(plan: Plan, stop: Event, **further: Any) -> Client | None:
    """A client with its own retries; ``None`` when asked to stop before a node answered."""
    while not stop.is_set():
        with contextlib.suppress(*_Refused):
            return client_of(plan.servers, **further)
        time.sleep(_PAUSE)
    return None
