"""Notices that a folder of the store is not mounted, before a start changes anything.

Log, queues, index and settings may each be a volume of its own. ``failback.folders`` in the root
names each of them that had content, with what identifies the folder. One that is empty now and
another folder than it was is the place where its volume is not mounted.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from failback.broker.store.config import StoreConfig
from failback.broker.store.log.files import Files
from failback.protocol.errors import StoreError

NOTE: Final = "failback.folders"
_FOREIGN: Final = frozenset({"lost+found"})
"""What a new file system has."""


@dataclass(slots=True)
class StoreFolders:
    """The folders of one store."""

    files: Files
    config: StoreConfig

    def check_log(self, *, had_records: bool) -> None:
        """Refuse an empty log where queues or the checkpoint say that it had records.

        Raises:
            StoreError: Names the folder.
        """
        if had_records:
            raise StoreError(
                f"{self.config.commit_log_directory} has no log file, and queues or checkpoint in "
                f"{self.config.root} say that it had: mount the folder that belongs there; nothing "
                "was changed. To begin with an empty log, move all of the store away"
            )

    def check_others(self) -> None:
        """Refuse a folder beside the log that is not the one that had content.

        Raises:
            StoreError: Names the folder.
        """
        for name, known in self._known().items():
            folder = self._folders()[name]
            now = _identity(folder)
            if self._content(folder) or now == known or (not now and name != "config"):
                continue  # queues and index that were removed are made again from the log
            raise StoreError(
                f"{folder} is empty, and is not the folder that it was at the last start: mount "
                f"the one that belongs there; nothing was changed. If it is to be empty, remove "
                f"{self.config.root / NOTE}"
            )

    def remember(self) -> None:
        """Note the folders that have content; OSError where the disk does not take it."""
        found = {
            name: _identity(folder)
            for name, folder in self._folders().items()
            if self._content(folder) and _identity(folder)
        }
        if found and found != self._known():
            self.files.write_small(self.config.root / NOTE, json.dumps(found).encode())

    def _folders(self) -> dict[str, Path]:
        return {
            "queues": self.config.consume_queue_directory,
            "index": self.config.index_directory,
            "config": self.config.root / "config",
        }

    def _content(self, folder: Path) -> bool:
        return not _FOREIGN.issuperset(self.files.names(folder))

    def _known(self) -> dict[str, str]:
        try:
            known = json.loads(self.files.read_small(self.config.root / NOTE) or b"{}")
        except ValueError:
            return {}
        names = self._folders() if isinstance(known, dict) else ()
        return {name: str(known[name]) for name in names if name in known}


def _identity(folder: Path) -> str:
    """What tells a folder from another at the same path; empty where it is none."""
    try:
        return f"{folder.stat().st_ino}:{os.statvfs(folder).f_fsid}"
    except OSError:
        return ""
