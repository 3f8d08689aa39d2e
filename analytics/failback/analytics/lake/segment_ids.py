"""The name of a segment, and the note about it in its metadata. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from failback.client.consumelog.schema import TABLES
from failback.client.consumelog.upload.layout import lake_path

RUN_PATTERN: Final = r"^[A-Za-z0-9_-]{1,128}(\.[A-Za-z0-9_-]{1,128})*$"
"""No slash, no leading dot, no two dots in a row: it becomes the name of a folder."""
RUN_CHARS: Final = 128
PROC_PATTERN: Final = r"^[0-9a-f]{32}$"
INDEX_PATTERN: Final = r"^[0-9]{8}$"
TABLE_PATTERN: Final = "^(" + "|".join(TABLES) + ")$"
SHA256_PATTERN: Final = r"^[0-9a-f]{64}$"
UPLOAD_KEY: Final = "failback.upload_sha256"
"""Where a file of the lake keeps the hash of the upload that it was made from."""

_Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 62))]
_Number = Annotated[int, msgspec.Meta(ge=0, lt=(1 << 23))]  # a did is proc_no << 40


@dataclass(frozen=True, slots=True)
class SegmentId:
    """``<run>/<proc hex>/<index>/<table>``."""

    run: str
    proc: str
    index: int
    table: str

    def __str__(self) -> str:
        return f"{self.run}/{self.proc}/{self.index:08d}/{self.table}"

    def path(self, proc_no: int, day: str | None) -> str:
        """Its file below the lake's root; without a day where it waits for it."""
        return lake_path(self.table, self.run, proc_no, self.index, day)


class SegmentNote(msgspec.Struct, frozen=True):
    """What a segment says about itself under ``failback.segment``."""

    run: str
    proc: str
    proc_no: _Number
    role: str
    host: str
    index: _Count
    seq_lo: _Count
    seq_hi: _Count
    rows: _Count
    records: _Count
    torn: _Count
