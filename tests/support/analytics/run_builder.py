"""Builds run folders out of literal rows, times in milliseconds after run zero."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from failback.client.consumelog.schema import TABLES, arrow_schema
from failback.client.consumelog.upload.lake_files import lake_rows
from failback.client.consumelog.upload.layout import day_of, lake_path

MS = 1_000_000
ZERO_WALL_NS = 1_700_000_000_000 * MS
ZERO_MONO_NS = 5_000_000 * MS
SLAVE = 1


class RunBuilder:
    """Rows of one run. Defaults: group ``g``, topic ``T``, broker-a, queue 0, process 1."""

    def __init__(self, name: str = "case", *, ordered: bool = False, broadcasting: bool = False):
        self.name = name
        self.rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._seq: dict[int, int] = defaultdict(int)
        self._did: dict[int, int] = defaultdict(int)
        self.run: dict[str, Any] = {
            "schema": "failback.run/1",
            "run": name,
            "experiment": "cases",
            "arm": "base",
            "repetition": 0,
            "seed": "1",
            "rule_set": "4.9.8",
            "engine": "failback",
            "time_scale": 1.0,
            "log_mode": "full",
            "zero": {"wall_ns": ZERO_WALL_NS, "mono_ns": ZERO_MONO_NS},
            "warmup_end_ns": None,
            "switches": {},
            "topology": {"pairs": [{"name": "pair-0", "broker": "broker-a", "members": []}]},
            "system": {
                "slave_read_enable": True,
                "flush_interval_ms": 5000,
                "slave_sync_interval_ms": 10000,
                "delay_flush_interval_ms": 10000,
                "client_commit_interval_ms": 5000,
            },
            "topics": [{"name": "T", "queues": 1, "ordered": ordered}],
            "groups": [
                {
                    "name": "g",
                    "topic": "T",
                    "members": 1,
                    "model": "push",
                    "orderly": False,
                    "messageModel": "BROADCASTING" if broadcasting else "CLUSTERING",
                }
            ],
            "procs": [],
            "expect": [],
        }
        self.closed: dict[str, Any] | None = {
            "schema": "failback.closed/1",
            "drained": True,
            "scan": True,
            "exits": {},
            "gaps": [],
            "clock": {"steps": 0, "hosts": []},
            "phases": {},
        }

    def add(self, table: str, *, proc: int = 1, host: str = "h", **columns: Any) -> None:
        """A row; ``T`` columns are ms after run zero, everything else is taken as it is."""
        self._seq[proc] += 1
        row = {
            "run": self.name,
            "proc": proc.to_bytes(16, "big"),
            "proc_no": proc,
            "seq": self._seq[proc],
            "wall_ns": ZERO_WALL_NS,
            "mono_ns": ZERO_MONO_NS,
            "host": host,
        }
        for column in TABLES[table].own:
            value = columns.pop(column.name, None)
            if value is not None and column.kind == "T":
                value = round(value * MS) + ZERO_MONO_NS
            row[column.name] = value
        assert not columns, f"{table} has no {columns}"
        self.rows[table].append(row)

    def deliver(
        self,
        qoff: int,
        bt: float,
        et: float | None = None,
        *,
        proc: int = 1,
        pqe: int = 1,
        status: str | None = None,
        lid: int | None = None,
        rt: int = 0,
        topic: str = "T",
        omid: int | None = None,
        **changed: Any,
    ) -> int:
        """A delivery; without ``et`` it was abandoned. ``lid`` and ``omid`` follow the offset."""
        self._did[proc] += 1
        did = proc << 40 | self._did[proc]
        lid = qoff if lid is None else lid
        place = hashlib.blake2b(f"{topic}/{changed.get('qid', 0)}".encode(), digest_size=8).digest()
        columns = {
            "did": did,
            "call_id": did,
            "grp": "g",
            "client_id": f"c{proc}",
            "inc": proc,
            "pqe": pqe,
            "broker": "broker-a",
            "ptopic": topic,
            "qid": 0,
            "qoff": qoff,
            "phy": qoff * 100,
            "omid": place + (qoff if omid is None else omid).to_bytes(8, "big", signed=True),
            "ukey": f"U{lid}",
            "lane": 7,
            "lseq": lid,
            "ltopic": "T",
            "rt": rt,
            "born_ms": ZERO_WALL_NS // MS,
            "store_ms": ZERO_WALL_NS // MS,
            "crc": 0,
            "bt": bt,
            "et": et,
            "status": ("ABANDONED" if et is None else "SUCCESS") if status is None else status,
            "applied": None if et is None else True,
        }
        self.add("deliver", proc=proc, **{**columns, **changed})
        return did

    def run_of(
        self, offsets: Iterable[int], bt: float, *, step: float = 10, took: float = 5, **more: Any
    ) -> None:
        """Successful deliveries one after the other."""
        for number, qoff in enumerate(offsets):
            self.deliver(qoff, bt + number * step, bt + number * step + took, **more)

    def assign(
        self,
        t: float,
        start: int,
        *,
        proc: int = 1,
        pqe: int = 1,
        at: tuple[int, int] | None = (0, 1),
        src: str = "STORE",
        end: tuple[float, str] | None = None,
        **changed: Any,
    ) -> None:
        """``at`` is (broker id, incarnation) of who answered, ``end`` (time, reason)."""
        columns = {
            "grp": "g",
            "inc": proc,
            "pqe": pqe,
            "broker": "broker-a",
            "ptopic": "T",
            "qid": 0,
            "t": t,
            "start_off": start,
            "src": src,
            "src_bid": at[0] if at else None,
            "src_binc": at[1] if at else None,
            "client_id": f"c{proc}",
            "end_t": end[0] if end else None,
            "end_reason": end[1] if end else None,
        }
        self.add("assign", proc=proc, **{**columns, **changed})

    def commit(
        self,
        t: float,
        off: int,
        *,
        proc: int = 1,
        at: tuple[int | None, int | None] = (0, 1),
        sent: bool = True,
        kind: str = "TIMER",
        **changed: Any,
    ) -> None:
        columns = {
            "grp": "g",
            "inc": proc,
            "broker": "broker-a",
            "ptopic": "T",
            "qid": 0,
            "off": off,
            "kind": kind,
            "bid": at[0],
            "binc": at[1],
            "t": t,
            "sent": sent,
            "client_id": f"c{proc}",
        }
        self.add("commit", proc=proc, **{**columns, **changed})

    def produce(
        self,
        lid: int,
        t0: float,
        t1: float,
        res: str = "OK",
        *,
        att: int = 1,
        ukey: str | None = None,
        proc: int = 90,
        **changed: Any,
    ) -> None:
        columns = {
            "lane": 7,
            "lseq": lid,
            "att": att,
            "ukey": ukey or f"U{lid}",
            "topic": "T",
            "broker": "broker-a",
            "qid": 0,
            "bid": 0,
            "due": t0,
            "t0": t0,
            "t1": t1,
            "res": res,
        }
        self.add("produce", proc=proc, **{**columns, **changed})

    def sendback(
        self,
        lid: int,
        t0: float,
        *,
        rt_next: int = 1,
        reason: str = "FAIL",
        path: str = "BROKER",
        ok: bool = True,
        proc: int = 1,
        **changed: Any,
    ) -> None:
        columns = {
            "lane": 7,
            "lseq": lid,
            "grp": "g",
            "rt_next": rt_next,
            "reason": reason,
            "path": path,
            "ok": ok,
            "t0": t0,
            "t1": t0 + 1,
            "client_id": f"c{proc}",
        }
        self.add("sendback", proc=proc, **{**columns, **changed})

    def pull(
        self, t0: float, t1: float, res: str = "FOUND", *, bid: int = 0, **changed: Any
    ) -> None:
        columns = {
            "pull_id": 1,
            "grp": "g",
            "inc": 1,
            "pqe": 1,
            "broker": "broker-a",
            "ptopic": "T",
            "qid": 0,
            "req_offset": 0,
            "commit_bit": False,
            "bid": bid,
            "t0": t0,
            "t1": t1,
            "res": res,
        }
        self.add("pull", **{**columns, **changed})

    def fault(
        self, kind: str, t: float, *, fid: str = "f1", proc: int = 99, **changed: Any
    ) -> None:
        columns = {
            "fid": fid,
            "kind": kind,
            "pair": "pair-0",
            "broker": "broker-a",
            "bid": 0,
            "role": "master",
            "addr": "127.0.0.1:10911",
            "intended": t,
            "issued": t,
            "issued_end": t,
            "observed": t,
            "observer": "witness",
            "honest": True,
        }
        self.add("fault", proc=proc, **{**columns, **changed})

    def scan(self, qoff: int, *, lid: int | None = None, topic: str = "T", **changed: Any) -> None:
        columns = {
            "broker": "broker-a",
            "bid": 0,
            "ptopic": topic,
            "qid": 0,
            "qoff": qoff,
            "omid": qoff.to_bytes(16, "big"),
            "lane": 7,
            "lseq": qoff if lid is None else lid,
            "rt": 0,
            "store_ms": ZERO_WALL_NS // MS,
        }
        self.add("scan", proc=98, **{**columns, **changed})

    def sample(
        self,
        t: float,
        off: int,
        *,
        bid: int = 0,
        binc: int = 1,
        source: str = "code43",
        qid: int = 0,
        **changed: Any,
    ) -> None:
        columns = {
            "addr": f"127.0.0.{bid + 1}:10911",
            "broker": "broker-a",
            "bid": bid,
            "binc": binc,
            "source": source,
            "grp": "g",
            "ptopic": "T",
            "qid": qid,
            "off": off,
            "t": t,
        }
        self.add("broker_offset_sample", proc=99, **{**columns, **changed})

    def queue_sample(
        self, t: float, highest: int, *, bid: int = 0, binc: int = 1, **changed: Any
    ) -> None:
        columns = {
            "addr": f"127.0.0.{bid + 1}:10911",
            "broker": "broker-a",
            "bid": bid,
            "binc": binc,
            "ptopic": "T",
            "qid": 0,
            "min": 0,
            "max": highest,
            "t": t,
        }
        self.add("broker_queue_sample", proc=99, **{**columns, **changed})

    def write(self, folder: Path, *, parts: int = 1, manifest: bool = True) -> Path:
        """Write the run folder; every table is split over ``parts`` files."""
        folder.mkdir(parents=True, exist_ok=True)
        for table, rows in self.rows.items():
            for part in range(min(parts, len(rows))):
                self._write_part(folder, table, rows[part::parts], part)
        (folder / "run.json").write_text(json.dumps(self.run))
        if self.closed is not None:
            closed = {"procs": {str(proc): seq for proc, seq in self._seq.items()}, **self.closed}
            (folder / "closed.json").write_text(json.dumps(closed))
        if manifest:
            write_manifest(folder)
        return folder

    def _write_part(self, folder: Path, table: str, rows: list[dict[str, Any]], part: int) -> None:
        by_proc: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for row in rows:
            by_proc[row["proc_no"]].append(row)
        for proc, mine in by_proc.items():
            schema = arrow_schema(table)
            plain = pa.schema([pa.field(f.name, _plain(f.type)) for f in schema])
            found = pa.Table.from_pylist(mine, plain).cast(schema.remove_metadata())
            seqs = [row["seq"] for row in mine]
            segment = {
                "run": self.name,
                "proc": mine[0]["proc"].hex(),
                "proc_no": proc,
                "role": "test",
                "host": mine[0]["host"],
                "index": part,
                "seq_lo": min(seqs),
                "seq_hi": max(seqs),
                "rows": len(mine),
                "records": len(mine),
                "torn": 0,
            }
            meta = {**(schema.metadata or {}), b"failback.segment": json.dumps(segment).encode()}
            day = day_of(self.run["zero"]["wall_ns"])
            path = folder / "lake" / lake_path(table, self.name, proc, part, day)
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(lake_rows(found.replace_schema_metadata(meta), table), path)


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def merged(builders: Sequence[RunBuilder], name: str = "merged") -> RunBuilder:
    """All histories as one run: each gets its own group, topic, broker, lanes and processes.

    History i is group ``g<i>`` on topic ``T<i>``. Their warm-ups must be equal.
    """
    whole = RunBuilder(name)
    whole.run |= {"groups": [], "topics": [], "warmup_end_ns": builders[0].run["warmup_end_ns"]}
    assert whole.closed is not None
    for i, b in enumerate(builders):
        whole.run["topics"] += [{**t, "name": f"T{i}"} for t in b.run["topics"]]
        whole.run["groups"] += [{**g, "name": f"g{i}", "topic": f"T{i}"} for g in b.run["groups"]]
        topics = {"T": f"T{i}", "%RETRY%g": f"%RETRY%g{i}", "%DLQ%g": f"%DLQ%g{i}"}
        for table, rows in b.rows.items():
            for row in rows:
                moved = {**row, "run": name, "proc_no": row["proc_no"] + 100 * i}
                moved["proc"] = moved["proc_no"].to_bytes(16, "big")
                for column in ("topic", "ptopic", "ltopic"):
                    if column in moved:
                        moved[column] = topics.get(row[column], row[column])
                for column, value in (
                    ("grp", f"g{i}"),
                    ("broker", f"broker-{i}"),
                    ("addr", f"127.1.0.{i}:{row.get('bid')}"),
                    ("src_addr", f"127.1.0.{i}:{row.get('src_bid')}"),
                    ("fid", f"{i}-{row.get('fid')}"),
                    ("client_id", f"{i}-{row.get('client_id')}"),
                    ("lane", i),
                    ("inc", moved["proc_no"]),
                ):
                    if moved.get(column) is not None:
                        moved[column] = value
                if "did" in moved:
                    moved["did"] = moved["proc_no"] << 40 | row["did"] & ((1 << 40) - 1)
                whole.rows[table].append(moved)
        exits = (b.closed or {})["exits"]
        whole.closed["exits"] |= {str(int(p) + 100 * i): end for p, end in exits.items()}
        for proc, seq in b._seq.items():
            whole._seq[proc + 100 * i] = seq
    return whole


def write_manifest(folder: Path) -> None:
    """List and hash every file but the manifest and the report."""
    files: dict[str, Mapping[str, Any]] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name != "manifest.json" and not name.startswith("report/"):
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            files[name] = {"bytes": path.stat().st_size, "sha256": digest}
    lines = "".join(f"{files[name]['sha256']}  {name}\n" for name in sorted(files))
    manifest = {
        "schema": "failback.manifest/1",
        "files": files,
        "run_sha256": hashlib.sha256(lines.encode()).hexdigest(),
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
