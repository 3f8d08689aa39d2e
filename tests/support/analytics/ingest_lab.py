"""A real collector that has received something of everything, and what it must say of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from failback.client.consumelog.upload.segments import SEGMENT_KEY
from tests.support.analytics.collector_lab import (
    CollectorLab,
    Upload,
    path_now,
    running_collector,
    uploads_of,
    write_log,
)

WHOLE_RUN, OPEN_RUN = "trial-6", "trial-7"
BACKLOG: Final = 4096


@dataclass(frozen=True)
class Received:
    """What was sent of one process; ``left_out`` was not."""

    sent: list[Upload]
    left_out: list[Upload]
    last_seq: int

    def figures(self, lake: Path) -> dict[str, int]:
        """What a collector must say of it."""
        return {
            "segments": len(self.sent),
            "bytes": sum(map(partial(_bytes_in, lake), self.sent)),
            "deliveries": sum(
                each.table.num_rows for each in self.sent if each.id.endswith("/deliver")
            ),
            "records": sum(map(records_of, self.sent)),
            "missing": sum(map(records_of, self.left_out)),
            "last_seq": self.last_seq,
        }


def _bytes_in(lake: Path, upload: Upload) -> int:
    return (lake / path_now(lake, upload, upload.id.partition("/")[0])).stat().st_size


def records_of(upload: Upload) -> int:
    note = json.loads((upload.table.schema.metadata or {})[SEGMENT_KEY.encode()])
    return int(note["records"])


@dataclass(frozen=True)
class IngestLab:
    """The collector and the truth by (run, process number)."""

    collector: CollectorLab
    truth: dict[tuple[str, int], Received]


@contextmanager
def filled_collector(folder: Path) -> Iterator[IngestLab]:
    """One run is whole and closed. Of the other, process 2 misses a file in the middle, has one
    segment in quarantine, and its shipper has more to send."""
    with running_collector(folder) as collector:
        truth = {
            (WHOLE_RUN, 1): _send(collector, folder, WHOLE_RUN, 1, deliveries=60),
            (OPEN_RUN, 1): _send(collector, folder, OPEN_RUN, 1, deliveries=40),
            (OPEN_RUN, 2): _send(collector, folder, OPEN_RUN, 2, deliveries=80, leave_out=True),
        }
        client = collector.client()
        answer = client.close_run(WHOLE_RUN, {1: truth[WHOLE_RUN, 1].last_seq})
        client.close()
        assert answer.status == 200, answer
        second = b"something else under a known name"
        status, _ = collector.send(
            truth[OPEN_RUN, 2].sent[0], body=second,
            X_Content_SHA256=hashlib.sha256(second).hexdigest(),
        )  # fmt: skip
        assert status == 409
        yield IngestLab(collector, truth)


def _send(
    collector: CollectorLab, folder: Path, run: str, proc_no: int, *, deliveries: int,
    leave_out: bool = False,
) -> Received:  # fmt: skip
    hot = folder / "hot" / f"{run}-{proc_no}"
    last_seq = write_log(hot, proc_no=proc_no, deliveries=deliveries, run=run)
    uploads = uploads_of(hot)
    middle = uploads[len(uploads) // 2].id.split("/")[2]
    left_out = [each for each in uploads if leave_out and each.id.split("/")[2] == middle]
    sent = [each for each in uploads if each not in left_out]
    for each in sent:
        headers = {"X_Failback_Backlog_Bytes": str(BACKLOG)} if leave_out else {}
        status, document = collector.send(each, body=each.body, **headers)
        assert status == 201, document
    return Received(sent, left_out, last_seq)


def proc_of(document: dict[str, Any], number: int) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in document["procs"] if each["proc_no"] == number)
    return found
