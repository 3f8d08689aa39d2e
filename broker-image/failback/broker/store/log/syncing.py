"""Making written files durable in another thread than the one that writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from failback.broker.store.log.files import FileHandle, Files


class ToSync(NamedTuple):
    """A file, and a handle of the writer's for the thread that syncs; None: it opens the file."""

    path: Path
    handle: FileHandle | None = None


def sync_files(files: Files, written: Sequence[ToSync]) -> None:
    """Make everything written durable and close the handles; a file that is gone needs nothing.

    Raises:
        SyncFailed: It may not be on the disk.
        OSError: A file can't be opened.
    """
    left = list(written)
    try:
        while left:
            path, handle = left[-1]
            try:
                handle = handle or files.open(path)
            except FileNotFoundError:
                left.pop()
                continue
            left[-1] = ToSync(path, handle)
            handle.sync()
            handle.close()
            left.pop()
    finally:
        for _, handle in left:
            if handle is not None:
                handle.close()
