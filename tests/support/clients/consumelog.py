"""Rows to write into a consume log where a test needs some, and what a lake holds of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from failback.client.consumelog.schema import TABLES
from failback.client.consumelog.upload.sealing import segment_metadata
from failback.client.consumelog.writer import ConsumeLog


def begin(log: ConsumeLog, n: int, **changed: Any) -> int:
    """Store the begin of a plausible delivery of queue offset ``n``; returns its did."""
    row: dict[str, Any] = {
        "call_id": n,
        "grp": "billing",
        "client_id": "127.0.0.1@1",
        "pqe": 1,
        "pull_id": n // 32,
        "broker": "broker-a",
        "ptopic": "orders",
        "qid": 0,
        "qoff": n,
        "phy": n * 200,
        "omid": n.to_bytes(16, "big"),
        "ukey": f"7F00000100000000000000000000{n:04X}",
        "keys": None,
        "lane": 1,
        "lseq": n,
        "okey": None,
        "kseq": None,
        "ltopic": "orders",
        "rt": 0,
        "origin_id": None,
        "born_ms": 1_700_000_000_000 + n,
        "store_ms": 1_700_000_000_001 + n,
        "crc": 123,
    }
    return log.deliver_begin(**{**row, **changed})


@dataclass(frozen=True, slots=True)
class ProcessRows:
    """What the lake holds of one process."""

    proc_no: int
    proc: str
    role: str
    host: str
    records: int
    last_seq: int
    torn: int

    @property
    def missing(self) -> int:
        """Records below ``last_seq`` that are nowhere; 0 when complete."""
        return self.last_seq - self.records


def processes_in_lake(
    lake: Path, run: str, tables: Iterable[str] = TABLES
) -> dict[int, ProcessRows]:
    """Add up the segment metadata of a run, per process number.

    ``last_seq`` is the highest seq that reached the lake; the tail behind it can only be seen by
    comparing with the writer's own last seq, where that is known.
    """
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for meta in segment_metadata(lake, run, tables):
        found[meta["proc_no"]].append(meta)
    return {
        proc_no: ProcessRows(
            proc_no=proc_no,
            proc=metas[0]["proc"],
            role=metas[0]["role"],
            host=metas[0]["host"],
            records=sum(meta["records"] for meta in metas),
            last_seq=max(meta["seq_hi"] for meta in metas),
            torn=len({meta["index"] for meta in metas if meta["torn"]}),
        )
        for proc_no, metas in sorted(found.items())
    }
