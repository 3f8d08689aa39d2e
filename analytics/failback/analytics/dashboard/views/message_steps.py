"""A message's story: every attempt to send it, every delivery, every offset around it, in order.

Read from the run's own Parquet files on demand; only the rows of the one message are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from failback.analytics.lake.parquet_guard import check_files
from failback.analytics.lake.store import readable
from failback.analytics.run.lake_sql import plain_schema
from failback.client.consumelog.lab_id import format_lab_id, parse_lab_id
from failback.common.files import has_rows

Json = dict[str, Any]
MOST_STEPS: Final = 200
MESSAGE_PATTERN: Final = r"^[A-Za-z0-9%_.:@-]{1,128}$"
_PRODUCE: Final = ("t0", "t1", "att", "topic", "broker", "qid", "res", "queue_offset", "ukey",
                   "lane", "lseq", "okey")  # fmt: skip
_DELIVER: Final = ("bt", "et", "did", "grp", "client_id", "broker", "ptopic", "qid", "qoff", "rt",
                   "status", "ukey", "keys", "lane", "lseq", "proc_no")  # fmt: skip


def messages_of(
    lake: Path, group: str, broker: str, topic: str, qid: int, limit: int
) -> list[Json]:
    """Messages of a queue that a group was given more than once, those of the lowest offsets.

    Raises ``ReportInputError`` where a file cannot be read.
    """
    table = _read(lake, "deliver", ("qoff", "ukey", "lane", "lseq"), (
        (pc.field("grp") == group) & (pc.field("broker") == broker)
        & (pc.field("ptopic") == topic) & (pc.field("qid") == qid)
    ))  # fmt: skip
    counted = table.group_by("qoff").aggregate([("qoff", "count"), ("lane", "min"),
                                                ("lseq", "min"), ("ukey", "min")])  # fmt: skip
    again = counted.filter(pc.field("qoff_count") > 1).sort_by("qoff").slice(0, limit)
    return [
        {"offset": row["qoff"], "deliveries": row["qoff_count"],
         "message": name_of(row["lane_min"], row["lseq_min"], row["ukey_min"])}
        for row in again.to_pylist()
    ]  # fmt: skip


def name_of(lane: int | None, lseq: int | None, ukey: str | None) -> str | None:
    """A message's name: lane and sequence if it is the workload's own, else UNIQ_KEY."""
    if lane is not None and lane >= 0 and lseq is not None:
        return format_lab_id(lane, lseq)
    return ukey


def story(lake: Path, message: str, zero_mono_ns: int) -> list[Json]:
    """Return all events of one message, by time. ``message`` as :func:`name_of` says.

    Raises ``ReportInputError`` where a file cannot be read.
    """
    own = parse_lab_id(message)
    if own is not None:
        condition = (pc.field("lane") == own[0]) & (pc.field("lseq") == own[1])
    else:
        condition = pc.field("ukey") == message
    steps: list[Json] = []
    for row in _read(lake, "produce", _PRODUCE, condition).to_pylist():
        where = f"{row['topic']} {row['broker']}/{row['qid']}"
        place = "" if row["queue_offset"] is None else f", stored at offset {row['queue_offset']}"
        steps.append(_step(row["t0"], zero_mono_ns, "sent",
                           f"attempt {row['att']} to {where}: {row['res']}{place}"))  # fmt: skip
    given: dict[tuple[str, str, str, int, int], int] = {}
    deliveries = _read(lake, "deliver", _DELIVER, condition).to_pylist()
    for row in sorted(deliveries, key=lambda each: each["bt"]):
        place_key = (row["grp"], row["broker"], row["ptopic"], row["qid"], row["qoff"])
        given[place_key] = given.get(place_key, 0) + 1
        where = f"offset {row['qoff']} of {row['ptopic']} {row['broker']}/{row['qid']}"
        time = given[place_key]
        kind = "delivered" if time == 1 else "delivered again"
        text = f"to {row['grp']} ({row['client_id']}, process {row['proc_no']}) from {where}"
        steps.append(_step(row["bt"], zero_mono_ns, kind, text))
        if row["et"] is not None:
            steps.append(
                _step(row["et"], zero_mono_ns, "handled", f"{row['grp']}: {row['status']}")
            )
    steps.sort(key=lambda each: each["t_ns"])
    return steps[:MOST_STEPS]


def _step(mono_ns: int, zero: int, kind: str, text: str) -> Json:
    at = mono_ns - zero
    return {"t_ns": at, "seconds": round(at / 1e9, 3), "kind": kind, "text": text}


def _read(lake: Path, name: str, columns: Sequence[str], condition: pc.Expression) -> pa.Table:
    """Raises ``ReportInputError`` where a file cannot be read."""
    files = sorted(
        each for each in (lake / f"table={name}").rglob("*.parquet") if has_rows(each.name)
    )
    if not files:
        return plain_schema(name).empty_table().select(columns)
    with readable():
        check_files(files)
        found = ds.dataset([str(each) for each in files], plain_schema(name), "parquet")
        return found.to_table(columns=list(columns), filter=condition)
