"""The bytes of a hot log file, shared by writer and reader.

::

    | length u32 | crc32 u32 | payload | length u32 | crc32 u32 | payload | ... | 0 u32 | holes

Little-endian. A payload is a MessagePack array. The first one is the file's head
``[format, run, proc, proc_no, role, host, index, seq_lo]``, each other one a record
``[table code, seq, wall_ns, mono_ns, columns...]``, trailing columns left out when unknown.

The writer stores payload and crc first and the length last, so a length of zero ends the file and
a process that dies by any signal loses no record whose length was stored. At most the record being
written is torn: its crc is wrong (or its length still zero) and it is dropped. The pages belong to
the kernel; only the death of the host can lose them, within the second between two syncs.
"""

import struct
from pathlib import Path
from typing import Final

FORMAT: Final = "failback.hotlog/1"
SUFFIX: Final = ".fblog"
SEGMENT_BYTES: Final = 4 * 1024 * 1024
SEGMENT_SECONDS: Final = 5.0
FRAME: Final = struct.Struct("<II")
WORD: Final = struct.Struct("<I")


def file_name(proc: bytes, index: int) -> str:
    """``<proc hex>-<index>.fblog``: sorts by process, then by age."""
    return f"{proc.hex()}-{index:08d}{SUFFIX}"


class ConsumeLogError(Exception):
    """The log cannot take more rows. A consumer must stop: it may not handle unlogged messages."""

    exit_code = 74  # EX_IOERR: what the workload exits with

    def __init__(self, what: str, path: Path) -> None:
        self.path = path
        super().__init__(f"consume log {path}: {what}")


class BadHotLog(ConsumeLogError):
    """A hot log whose head cannot be read: not ours, or damaged before its first row."""
