"""Rows to write into a consume log where a test needs some."""

from typing import Any

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
