"""A thread that samples one broker: its offset tables, offset files and queue limits."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Final

from failback.chaos.cluster.broker_facts import boot_time
from failback.chaos.cluster.clock import now
from failback.chaos.cluster.target import Target
from failback.chaos.cluster.view import Member, Stamp
from failback.chaos.cluster.wire import WireConnection
from failback.chaos.recorder.witness import Listener, OffsetEvent, QueueEvent, RowWriter, Watcher
from failback.protocol.calls import create_group, create_topic
from failback.protocol.errors import BrokerError, FailbackError, ProtocolError
from failback.protocol.route import (
    SubscriptionGroupConfig,
    TopicConfig,
    parse_offset_table,
    split_offset_key,
)

MARKER_TOPIC: Final = "failback-witness"
MARKER_GROUP: Final = "FAILBACK_WITNESS"
MARKER_KEY: Final = f"{MARKER_TOPIC}@{MARKER_GROUP}"
OFFSET_FILE: Final = "config/consumerOffset.json"
OFFSET_FILES: Final = (("file", OFFSET_FILE), ("bak", f"{OFFSET_FILE}.bak"))
ALL_QUEUES: Final = -1
"""``qid`` of the row that carries the number of entries of a sampled table."""


class Sampler(Watcher):
    """Offset tables, offset files and queue limits of one broker.

    It also commits a marker at a master, a time that the slave's table shows after its next
    synchronisation: the only way to see a Java slave's synchronisation from outside.
    """

    def __init__(
        self,
        member: Member,
        *,
        target: Target,
        topics: Sequence[str],
        groups: Sequence[str],
        log: RowWriter,
        listener: Listener,
        period_seconds: float = 1.0,
    ) -> None:
        super().__init__(f"sampler-{member.address}", period_seconds, period_seconds)
        self.member = member
        self._target = target
        self._topics = tuple(topics)
        self._groups = frozenset(groups)
        self._log = log
        self._listener = listener
        self._boot_ms: int | None = None
        self._marker_is_known = False
        self._files: dict[str, tuple[int, str]] = {}
        self.samples = 0
        self.spent_seconds = 0.0

    def look(self) -> None:
        started = time.monotonic()
        self._sample_files()
        try:
            if self._connection is None:
                self._connection = WireConnection(self.member.address)
                # A connection ends with the process behind it, so this holds until it does.
                self._boot_ms = boot_time(self._connection.runtime_info(timeout=1.0))
            self._mark()
            self._sample_offsets(self._connection)
            self._sample_queues(self._connection)
        except FailbackError:
            self.close()  # dead, paused or starting: the wire watch says which
        self.samples += 1
        self.spent_seconds += time.monotonic() - started

    def _slow_matters(self) -> bool:
        return self._connection is not None

    def _mark(self) -> None:
        if self.member.role == "master" and self._connection is not None:
            marker = time.monotonic_ns() // 1_000_000
            try:
                self._connection.commit_offset(MARKER_GROUP, MARKER_TOPIC, 0, marker)
            except BrokerError:
                # From 5.0 on a broker takes offsets only of a topic and of a group that it has.
                if not self._marker_is_known:
                    self._marker_is_known = True
                    with contextlib.suppress(BrokerError):
                        self._connection.ask(create_topic(TopicConfig(MARKER_TOPIC, 1, 1)))
                        self._connection.ask(create_group(SubscriptionGroupConfig(MARKER_GROUP)))

    def _sample_offsets(self, connection: WireConnection) -> None:
        table = connection.all_offsets(timeout=1.0)
        stamp = now()
        marker = table.pop(MARKER_KEY, {}).get(0)
        offsets = self._write_table("code43", table, stamp, None)
        self._listener(OffsetEvent(self.member.address, offsets, marker, stamp))

    def _sample_files(self) -> None:
        """Both offset files, whenever one of them changed."""
        for source, path in OFFSET_FILES:
            try:
                status = self._target.stat_store(self.member, path)
                if status is None or self._files.get(source) == (status.mtime_ns, status.sha256):
                    continue
                table = parse_offset_table(self._target.read_store(self.member, path))
            except (OSError, FailbackError) as error:
                if isinstance(error, ProtocolError):
                    self.notes.append(f"{self.member.pod} {path}: {error}")
                continue
            self._files[source] = (status.mtime_ns, status.sha256)
            table.pop(MARKER_KEY, None)
            self._write_table(source, table, now(), status.mtime_ns)

    def _write_table(
        self, source: str, table: Mapping[str, Mapping[int, int]], stamp: Stamp, mtime: int | None
    ) -> dict[tuple[str, str, int], int]:
        offsets: dict[tuple[str, str, int], int] = {}
        for key, queues in table.items():
            topic, group = split_offset_key(key)
            if group in self._groups:
                offsets.update({(group, topic, queue): off for queue, off in queues.items()})
        common = {
            "addr": self.member.address,
            "broker": self.member.broker_name,
            "bid": self.member.broker_id,
            "binc": self._boot_ms,
            "source": source,
            "file_mtime_ns": mtime,
            "t": stamp.mono_ns,
        }
        for (group, topic, queue), offset in offsets.items():
            self._log.write(
                "broker_offset_sample", grp=group, ptopic=topic, qid=queue, off=offset, **common
            )
        entries = sum(len(queues) for queues in table.values())
        self._log.write(
            "broker_offset_sample", grp="", ptopic="", qid=ALL_QUEUES, off=entries, **common
        )
        return offsets

    def _sample_queues(self, connection: WireConnection) -> None:
        queues: dict[tuple[str, int], tuple[int, int]] = {}
        for topic in self._topics:
            for queue, limits in connection.topic_stats(topic, timeout=1.0).items():
                queues[topic, queue] = limits
        stamp = now()
        for (topic, queue), (lowest, highest) in queues.items():
            self._log.write(
                "broker_queue_sample",
                addr=self.member.address,
                broker=self.member.broker_name,
                bid=self.member.broker_id,
                binc=self._boot_ms,
                ptopic=topic,
                qid=queue,
                min=lowest,
                max=highest,
                t=stamp.mono_ns,
            )
        self._listener(QueueEvent(self.member.address, queues, stamp))
