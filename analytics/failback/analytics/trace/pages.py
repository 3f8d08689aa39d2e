"""What was read from the brokers, on disk: one folder per queue, one Parquet file per stretch.

    trace/source.json                                              what is read, and as which run
    trace/<table>/b=<broker>/t=<topic>/<queue>/<from>-<to>.parquet offsets [from, to) of a queue

``table`` is ``records`` (of trace bodies, :data:`RECORDS`) or ``copies`` (of messages,
:data:`COPIES`). A file is there whole or not at all and its name says what it covers, so a reader
that was killed goes on where the names end. Names of brokers and topics are percent-encoded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

import pyarrow as pa

from failback.analytics.errors import ReportInputError
from failback.analytics.lake.lake import parquet_bytes
from failback.analytics.lake.parquet_guard import read_table
from failback.client.consumelog.schema import schema_of
from failback.common.files import open_file, read_object
from failback.common.replacing import replace_file
from failback.common.text import why

SOURCE_SCHEMA: Final = "failback.trace/1"
DAMAGED: Final = "Damaged"

RECORDS: Final = schema_of(
    """broker s, topic s, qid i, qoff l, host s, born_ms l, store_ms l, kind s, number i, copy i,
    message_id s, time_ms l, group s, traced_topic s, request_id s, retry_times l, keys s,
    cost_ms l, success b, code l, store_host s, offset_message_id s, unread_fields i, problem s"""
)
"""A record of a trace body and the trace message that carried it (``broker`` to ``store_ms``).

``host`` is the client's address; ``kind`` is ``Damaged`` where ``problem`` says why.
"""

COPIES: Final = schema_of(
    """broker s, bid i, ptopic s, ltopic s, qid i, qoff l, phy l, omid x, message_id s, ukey s,
    keys s, lane l, lseq l, rt i, born_ms l, store_ms l, crc l"""
)
"""A message as it lies in a queue.

``message_id`` is what a trace calls it, ``ltopic`` the topic that a retry copy was sent to first.
"""

SCHEMAS: Final = {"records": RECORDS, "copies": COPIES}
_QUEUE: Final = re.compile(r"[0-9]{1,10}")
_PAGE: Final = re.compile(r"([0-9]{20})-([0-9]{20})\.parquet")


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A queue of a topic on a broker."""

    broker: str
    topic: str
    qid: int

    def __str__(self) -> str:
        return f"{self.topic} {self.broker}/{self.qid}"


class Pages:
    """The ``trace`` folder of a run."""

    def __init__(self, run_dir: Path) -> None:
        self.folder = run_dir / "trace"

    def open(self, source: Mapping[str, Any]) -> dict[str, Any]:
        """Begin a reading, or go on with that of the folder; return what it holds.

        Raises:
            ReportInputError: The folder was begun with another value of some field of ``source``.
        """
        path = self.folder / "source.json"
        if not path.exists():
            whole = {"schema": SOURCE_SCHEMA, **source}
            replace_file(path, json.dumps(whole, indent=1).encode() + b"\n")
            return whole
        try:
            known = read_object(path)
        except (OSError, ValueError) as error:
            raise ReportInputError(f"cannot be read: {why(error)}", path) from error
        if known.get("schema") != SOURCE_SCHEMA:
            raise ReportInputError(f"schema is {known.get('schema')!r}, not {SOURCE_SCHEMA}", path)
        for name, value in source.items():
            if known.get(name) != value:
                raise ReportInputError(
                    f"was begun with {name} {known.get(name)!r}, not {value!r}: "
                    "choose another folder to read something else",
                    path,
                )
        return known

    def read_to(self, table: str, place: Place) -> int | None:
        """The offset behind the last one that is on disk; ``None`` where nothing is."""
        ends = [end for _, end, _ in self._files(self._queue(table, place))]
        return max(ends, default=None)

    def read_from(self, table: str, place: Place) -> int | None:
        """The first offset that is on disk; ``None`` where nothing is."""
        return min((first for first, _, _ in self._files(self._queue(table, place))), default=None)

    def write(
        self, table: str, place: Place, first: int, end: int, rows: Sequence[Mapping[str, Any]]
    ) -> None:
        """Keep what offsets [``first``, ``end``) of a queue gave."""
        found = pa.Table.from_pylist(list(rows), SCHEMAS[table])
        path = self._queue(table, place) / f"{first:020}-{end:020}.parquet"
        replace_file(path, parquet_bytes(found))

    def places(self, table: str) -> list[Place]:
        """The queues of which something is on disk."""
        found = []
        for folder in (self.folder / table).glob("b=*/t=*/*"):
            if _QUEUE.fullmatch(folder.name):
                broker, topic = folder.parent.parent.name[2:], folder.parent.name[2:]
                found.append(Place(unquote(broker), unquote(topic), int(folder.name)))
        return sorted(found)

    def read(self, table: str) -> pa.Table:
        """All rows of a table, by broker, topic, queue and offset."""
        pieces = list(self.pieces(table))
        return pa.concat_tables(pieces) if pieces else SCHEMAS[table].empty_table()

    def pieces(self, table: str) -> Iterator[pa.Table]:
        """The same, a file at a time.

        Raises:
            ReportInputError: A file is damaged. Without it offsets would be missing in silence.
        """
        for place in self.places(table):
            for _, _, path in self._files(self._queue(table, place)):
                try:
                    with open_file(path) as file:
                        yield read_table(file, SCHEMAS[table])
                except (OSError, ValueError, pa.ArrowException) as error:
                    raise ReportInputError(
                        f"cannot be read ({why(error)}); delete it and those of its folder that "
                        "follow, to read them again",
                        path,
                    ) from error

    def holes(self, table: str) -> list[tuple[Place, int, int]]:
        """Offsets between two files of a queue that no file covers."""
        found = []
        for place in self.places(table):
            following: int | None = None
            for first, end, _ in self._files(self._queue(table, place)):
                if following is not None and first > following:
                    found.append((place, following, first))
                following = max(following or 0, end)
        return found

    def _queue(self, table: str, place: Place) -> Path:
        broker, topic = f"b={quote(place.broker, safe='')}", f"t={quote(place.topic, safe='')}"
        return self.folder / table / broker / topic / str(place.qid)

    def _files(self, folder: Path) -> list[tuple[int, int, Path]]:
        # Another name is a write that was cut short.
        named = ((_PAGE.fullmatch(path.name), path) for path in folder.glob("*.parquet"))
        return sorted((int(page[1]), int(page[2]), path) for page, path in named if page)
