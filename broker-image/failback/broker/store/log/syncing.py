"""Making written files durable by their paths, so that a thread shares no descriptor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from failback.broker.store.log.files import Files


def sync_files(files: Files, paths: Sequence[Path]) -> None:
    """Make everything written to ``paths`` durable; a file that is gone needs nothing."""
    for path in paths:
        try:
            handle = files.open(path)
        except FileNotFoundError:
            continue
        try:
            handle.sync()
        finally:
            handle.close()
