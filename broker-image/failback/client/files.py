"""Files that are always the old or the new one, whenever the process dies."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def replace_file(path: Path, content: bytes, *, sync: bool = True) -> None:
    """Put ``content`` at ``path``: written beside it, synced, renamed, the folder synced.

    Args:
        sync: ``False`` for what need not outlive the machine: nothing is synced.

    Raises:
        OSError: It can't be written; the old file is as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = f"{os.getpid()}-{threading.get_native_id()}"  # two threads may write the same file
    beside = path.with_name(f".{path.name}.{writer}.tmp")
    place(content, beside, path, sync=sync)


def place(
    content: bytes | memoryview | pa.Buffer, hidden: Path, path: Path, *, sync: bool = True
) -> None:
    """Write ``hidden``, fsync, rename to ``path``, fsync of the folder.

    Raises:
        OSError: The disk is full or fails. ``hidden`` is gone, ``path`` is as it was.
    """
    try:
        with hidden.open("wb") as file:
            file.write(content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        hidden.replace(path)
    except BaseException:
        hidden.unlink(missing_ok=True)
        raise
    if sync:
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make renames and new names in a folder durable."""
    folder = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
