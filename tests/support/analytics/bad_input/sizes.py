"""Numbers of any size: offsets, sequences, processes and histories beyond what packs into one."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from failback.client.consumelog.schema import arrow_schema
from failback.client.consumelog.upload.lake_files import lake_rows
from failback.client.consumelog.upload.layout import lake_path
from tests.support.analytics.bad_input.outcome import Case, Document, Told
from tests.support.analytics.run_builder import ZERO_MONO_NS, ZERO_WALL_NS, RunBuilder

LARGEST_INT: Final = (1 << 31) - 1
MANY: Final = (1 << 19) + 5
"""Histories: more than one packed number has room for."""


def _far(folder: Path, far: int) -> Told:
    """A queue, a lane and broker tables that begin at ``far``; one handover repeats one message."""
    b = RunBuilder("far")
    b.queue_sample(2, far + 3)
    b.sample(5, far)
    b.assign(10, far, end=(90, "SHUTDOWN"), src_addr="127.0.0.1:10911")
    for number, lid in enumerate((1, far, far + 1)):
        b.produce(lid, number, number + 1)
        b.scan(far + number, lid=lid)
    b.deliver(far, 20, 30, lid=1, phy=far)
    b.deliver(far + 1, 40, 50, lid=far, phy=far)
    b.commit(60, far + 2)
    b.sample(95, far)
    b.assign(100, far + 1, proc=2, src_addr="127.0.0.1:10911")
    b.deliver(far + 1, 110, 120, lid=far, proc=2, phy=far)
    b.sample(130, far)
    b.write(folder)

    def told(document: Document) -> None:
        assert document["totals"]["dup"] == document["totals"]["dup_after_success"] == 1
        (group,) = document["groups"]
        assert group["causes"] == {"ROLLBACK_OVERWRITTEN": 1}
        (queue,) = document["queues"]
        again = {"lo": far + 1, "hi": far + 2, "depth": 2, "epoch": 0}
        assert queue["depth_ranges"] == [again]
        assert [(w["lo"], w["hi"], w["size"]) for w in queue["windows"]] == [(far + 1, far + 2, 1)]
        assert queue["master_offset"] == far
        assert queue["safe_offset"] == far + 2
        (rollback,) = document["rollbacks"]
        assert (rollback["start"], rollback["committed"]) == (far + 1, far + 2)
        assert (rollback["d_commit"], rollback["d_proc"], rollback["redelivered"]) == (1, 1, 1)
        assert document["loss"]["fates"]["SKIPPED"] == document["totals"]["lost"] == 1
        assert document["loss"]["intervals"]["SKIPPED"] == {"7": [[far + 1, far + 2]]}
        noted = any("2^44" in note for note in document["quality"]["notes"])
        assert noted == (far >= 1 << 44)

    return told


def offsets_beyond_31_bits(folder: Path) -> Told:
    return _far(folder, (1 << 31) + 7)


def offsets_beyond_44_bits(folder: Path) -> Told:
    return _far(folder, (1 << 45) + 7)


def offsets_beyond_53_bits(folder: Path) -> Told:
    return _far(folder, (1 << 53) + 7)


def offsets_of_62_bits(folder: Path) -> Told:
    return _far(folder, (1 << 62) + 7)


def an_offset_below_and_one_far_above(folder: Path) -> Told:
    """One history that spans more than half of what a number can be."""
    b = RunBuilder("span")
    b.assign(0, 0, end=(90, "SHUTDOWN"))
    far = (1 << 62) + (1 << 61)
    for at, qoff in enumerate((0, far, 1 << 40)):
        b.deliver(qoff, 10 + at, 11 + at, lid=at, phy=0)
    b.assign(100, 0, proc=2)
    for at, qoff in enumerate((far, 0)):
        b.deliver(qoff, 110 + at, 111 + at, lid=1 - at, proc=2, phy=0)
    b.write(folder)

    def told(document: Document) -> None:
        assert document["totals"]["dup"] == 2
        assert [(r["lo"], r["depth"]) for r in document["queues"][0]["depth_ranges"]] == [
            (0, 2),
            (far, 2),
        ]

    return told


def the_largest_small_integers(folder: Path) -> Told:
    """Queue ids, holders and processes of 31 bits, in several queues and an outage."""
    b = RunBuilder("large")
    top = LARGEST_INT
    b.run["topics"][0]["queues"] = 2
    for number, qid in enumerate((top, top - 1)):
        b.assign(0, 0, qid=qid, proc=3, pqe=top - number, inc=top, end=(40, "SHUTDOWN"))
        b.deliver(0, 10, 11, qid=qid, proc=3, pqe=top - number, inc=top, lid=number)
        b.assign(50, 0, qid=qid, proc=4, pqe=top - number, inc=top - 1)
        b.deliver(0, 60, 61, qid=qid, proc=4, pqe=top - number, inc=top - 1, lid=number)
    b.fault("KILL", 20)
    b.fault("ACCEPT", 30)
    b.fault("HEALED", 35)
    b.produce(0, 1, 2, proc=top)
    b.produce(1, 3, 4, proc=top)
    b.produce(1, 31, 32, proc=top - 1)
    b.produce(1, 31, 32, proc=top)
    b.write(folder)

    def told(document: Document) -> None:
        assert document["totals"]["dup"] == 2
        assert sorted(queue["qid"] for queue in document["queues"]) == [top - 1, top]
        (rto,) = document["rto"]
        assert rto["phase_rows"]["first_send_ok"] == f"produce/{top - 1}/1"

    return told


def more_histories_than_pack(folder: Path) -> Told:
    """Every message has a lane of its own; five of them are re-consumed."""
    b = RunBuilder("many")
    b.assign(0, 0, end=(90, "SHUTDOWN"))
    b.assign(100, MANY - 5, proc=2, at=(0, 1))
    b.write(folder)
    qoff = np.concatenate((np.arange(MANY), np.arange(MANY - 5, MANY)))
    again = np.arange(qoff.size) >= MANY
    _write_deliveries(folder, "many", qoff, again)

    def told(document: Document) -> None:
        totals = document["totals"]
        assert (totals["delivered"], totals["distinct"]) == (MANY + 5, MANY)
        assert totals["dup"] == totals["dup_after_success"] == 5
        assert document["groups"][0]["redelivery_counts"] == {"1": MANY - 5, "2": 5}
        assert any("2^19" in note for note in document["quality"]["notes"])

    return told


def _write_deliveries(folder: Path, run: str, qoff: Any, again: Any) -> None:
    """Rows of ``deliver`` from arrays: the lane of each is its offset."""
    count, process = qoff.size, again.astype(np.int64) + 1
    begin = np.where(again, 200_000_000, 10_000_000) + np.arange(count) + ZERO_MONO_NS
    number = np.arange(1, count + 1)
    numbers = {
        "proc_no": process, "seq": 1000 + number, "did": process << 40 | number, "call_id": number,
        "inc": process, "pqe": np.ones(count), "qid": np.zeros(count), "qoff": qoff, "phy": qoff,
        "lane": qoff, "lseq": np.zeros(count), "rt": np.zeros(count), "crc": np.zeros(count),
        "bt": begin, "et": begin + 1, "wall_ns": np.full(count, ZERO_WALL_NS),
        "mono_ns": np.full(count, ZERO_MONO_NS),
        "born_ms": np.full(count, ZERO_WALL_NS // 1_000_000),
        "store_ms": np.full(count, ZERO_WALL_NS // 1_000_000),
    }  # fmt: skip
    names = {"run": run, "host": "h", "grp": "g", "client_id": "c", "broker": "broker-a",
             "ptopic": "T", "ltopic": "T", "status": "SUCCESS"}  # fmt: skip
    ids = [
        hashlib.blake2b(number.to_bytes(8, "big"), digest_size=16).digest()
        for number in range(MANY)
    ]
    schema = arrow_schema("deliver")
    columns = []
    for field in schema:
        if field.name in numbers:
            column = pa.array(numbers[field.name].astype(np.int64)).cast(field.type)
        elif field.name in names:
            code = pa.array(np.zeros(count, np.int32))
            column = pa.DictionaryArray.from_arrays(code, pa.array([names[field.name]]))
        elif field.name == "omid":
            column = pa.array(ids, pa.binary()).take(pa.array(qoff))
        elif field.name == "proc":
            column = pa.array([bytes(16)] * count, field.type)
        else:
            column = pa.nulls(count, field.type)
        columns.append(column)
    path = folder / "lake" / lake_path("deliver", run, 1, 0, "2026-01-01")
    path.parent.mkdir(parents=True)
    pq.write_table(lake_rows(pa.table(columns, schema=schema), "deliver"), path)
    (folder / "manifest.json").unlink()


CASES: Final[tuple[Case, ...]] = (
    offsets_beyond_31_bits,
    offsets_beyond_44_bits,
    offsets_beyond_53_bits,
    offsets_of_62_bits,
    an_offset_below_and_one_far_above,
    the_largest_small_integers,
    more_histories_than_pack,
)
