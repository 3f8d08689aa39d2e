"""What processes that were killed left behind: consume logs, notes, and the stores' queues."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from failback.chaos.cluster.wire import WireConnection
from failback.client.consumelog.lab_id import LAB_ID_PROPERTY, parse_lab_id
from failback.client.consumelog.reader import read_hot
from failback.client.consumelog.schema import TABLE_OF_CODE, order

Place = tuple[str, int, int]
"""Topic, queue, queue offset."""
Lid = tuple[int, int]
"""Lane and lane sequence."""


@dataclass
class ProcessLog:
    """All rows that one process stored, and what is wrong with their numbering."""

    number: int
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    seqs: list[int] = field(default_factory=list)
    torn: int = 0

    def rows(self, table: str) -> list[dict[str, Any]]:
        return self.tables.get(table, [])

    def holes(self) -> list[tuple[int, int]]:
        """Return pairs of neighbouring ``seq`` that are not one apart; it begins at 1."""
        return [
            (before, after)
            for before, after in zip([0, *self.seqs], self.seqs, strict=False)
            if after != before + 1
        ]

    def begun(self) -> Counter[Place]:
        return Counter(_place(row) for row in self.rows("deliver"))

    def ended(self) -> Counter[Place]:
        """Deliveries whose end row was stored too."""
        ends = {row["did"] for row in self.rows("deliver_end")}
        return Counter(_place(row) for row in self.rows("deliver") if row["did"] in ends)


def _place(row: dict[str, Any]) -> Place:
    return row["ptopic"], row["qid"], row["qoff"]


def read_logs(hot: Path) -> dict[int, ProcessLog]:
    """Return the logs of all processes by their number in the run."""
    logs: dict[int, ProcessLog] = {}
    files = [read_hot(path) for path in hot.glob("*.fblog")]
    for file in sorted(files, key=lambda each: (each.head.proc_no, each.head.index)):
        log = logs.setdefault(file.head.proc_no, ProcessLog(file.head.proc_no))
        log.torn += file.torn
        for code, seq, _, _, *values in file.records:
            log.seqs.append(seq)
            name = TABLE_OF_CODE[code].name
            log.tables.setdefault(name, []).append(dict(zip(order(name), values, strict=False)))
    return logs


def read_notes(path: Path) -> tuple[Counter[Place], Counter[Place]]:
    """Return what a handler noted at its begin and at its end."""
    begun: Counter[Place] = Counter()
    ended: Counter[Place] = Counter()
    if path.exists():
        for line in path.read_text().splitlines():
            kind, topic, queue, offset = line.split()
            (begun if kind == "b" else ended)[(topic, int(queue), int(offset))] += 1
    return begun, ended


def acknowledged(logs: dict[int, ProcessLog]) -> set[Lid]:
    """Messages of which a producer was told that they are stored, as configured."""
    return {
        (row["lane"], row["lseq"])
        for log in logs.values()
        for row in log.rows("produce")
        if row["res"] == "OK"
    }


def scan(connection: WireConnection, topic: str) -> dict[Place, Lid]:
    """Read every queue of ``topic`` once, from its lowest to its highest offset.

    Fails if a queue has a hole.
    """
    found: dict[Place, Lid] = {}
    for queue, (lowest, highest) in connection.topic_stats(topic).items():
        offset = lowest
        while offset < highest:
            pulled = connection.pull(topic, queue, offset)
            assert pulled.messages, (topic, queue, offset, pulled.code)
            for message in pulled.messages:
                assert message.queue_offset == offset, (topic, queue, offset, message)
                lid = parse_lab_id(message.properties[LAB_ID_PROPERTY])
                assert lid is not None
                found[(topic, queue, offset)] = lid
                offset += 1
    return found
