"""A run counted in plain Python: loops and dicts over the rows, nothing of the engines.

Definitions are those of the report: of the deliveries of one message to one group, the first is
wanted, and so is the first at each retry count whose predecessor failed; every other one is a
duplicate.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from failback.protocol.route import parse_offset_table

Row = dict[str, Any]
FAILED = ("LATER", "EXC", "NULL", "SUSPEND")
STORED = ("OK", "OK_DEGRADED")


class BruteForce:
    """All rows of one closed run folder in memory."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        closed = json.loads((run_dir / "closed.json").read_text())
        zero = json.loads((run_dir / "run.json").read_text())["zero"]["mono_ns"]
        self._warm = zero + closed["phases"]["warmup_end_ns"]
        ends = {row["did"]: row for row in self.rows("deliver_end")}
        self.deliveries = [row | ends.get(row["did"], {}) for row in self.rows("deliver")]
        self.deliveries.sort(key=lambda row: (row["bt"], row["did"]))

    def rows(self, table: str) -> list[Row]:
        files = sorted((self._run_dir / "lake" / f"table={table}").rglob("*.parquet"))
        return [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]

    def duplicates(self) -> list[Row]:
        """Deliveries that nobody wanted, those of the warm-up left out."""
        histories: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
        found = []
        for row in self.deliveries:
            history = histories[(row["grp"], row["lane"], row["lseq"])]
            if history and not _is_retry(row, history):
                found.append(row)
            history.append(row)
        return [row for row in found if row["bt"] >= self._warm]

    def delivered(self) -> int:
        return sum(row["bt"] >= self._warm for row in self.deliveries)

    def distinct(self) -> int:
        return len(
            {
                (row["grp"], row["lane"], row["lseq"])
                for row in self.deliveries
                if row["bt"] >= self._warm
            }
        )

    def lost(self) -> list[tuple[int, int]]:
        """Acknowledged messages of which no delivery ended well, whenever they were sent."""
        acknowledged = {
            (row["lane"], row["lseq"]) for row in self.rows("produce") if row["res"] in STORED
        }
        handled = {
            (row["lane"], row["lseq"]) for row in self.deliveries if row["status"] == "SUCCESS"
        }
        return sorted(acknowledged - handled)

    def consumed(self, topic: str, proc_no: int) -> dict[int, int]:
        """One past the highest offset that a process gave to its handler, by queue."""
        ends: dict[int, int] = {}
        for row in self.deliveries:
            if row["proc_no"] == proc_no and row["ptopic"] == topic:
                ends[row["qid"]] = max(ends.get(row["qid"], 0), row["qoff"] + 1)
        return ends

    def consumers(self) -> list[int]:
        """Numbers of the processes that consumed, in the order of their first delivery."""
        return list(dict.fromkeys(row["proc_no"] for row in self.deliveries))

    def step(self, kind: str) -> Row:
        """Return the one row of the fault table with this step."""
        (row,) = (row for row in self.rows("fault") if row["kind"] == kind)
        return row

    def file_of_dead_master(self, group: str, topic: str) -> dict[int, int]:
        """What the killed master had on disk, by queue: its file, or ``.bak`` as a broker does."""
        (folder,) = self._run_dir.glob("snap/*-gone/*")
        for name in ("consumerOffset.json", "consumerOffset.json.bak"):
            file = folder / name
            if file.exists() and file.stat().st_size:
                return parse_offset_table(file.read_bytes()).get(f"{topic}@{group}", {})
        return {}

    def loaded_by_master(self, group: str, topic: str) -> dict[int, int]:
        """The first answer of the returned master's memory, by queue."""
        booted = self.step("ACCEPT")["boot_ms"]
        found: dict[int, int] = {}
        for row in sorted(self.rows("broker_offset_sample"), key=lambda row: row["t"]):
            own = (row["grp"], row["ptopic"], row["source"]) == (group, topic, "code43")
            if own and row["bid"] == 0 and row["binc"] == booted:
                found.setdefault(row["qid"], row["off"])
        return found


def _is_retry(row: Row, history: list[Row]) -> bool:
    """Wanted again: the first at this retry count, after a failure at the one before."""
    return (
        row["rt"] > 0
        and all(each["rt"] != row["rt"] for each in history)
        and any(each["rt"] == row["rt"] - 1 and each["status"] in FAILED for each in history)
    )
