"""The reserve: a file of the store that is there to be given up when the disk is full.

Messages are refused then. What was acknowledged before still needs its queue entries on the disk,
and tables go on being written: they get the room of this file. Messages are accepted again only
when the disk has room for the reserve once more.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from failback.broker.store.log.files import Files

RESERVE_BYTES: Final = 1 << 20


class Reserve:
    """The file. It holds nothing but room.

    Attributes:
        is_held: Whether it has its room.
    """

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._path = path
        self.is_held = False

    def take(self) -> None:
        """Get the room. Safe to repeat.

        Raises:
            OSError: The disk has too little room; none is reserved.
        """
        if self.is_held:
            return
        if self._files.size(self._path) != RESERVE_BYTES:
            self._files.delete(self._path)
            self._files.create(self._path, RESERVE_BYTES, durable=False)
        handle = self._files.open(self._path)
        try:
            handle.allocate(0, RESERVE_BYTES)
        except OSError:
            self._files.delete(self._path)
            raise
        finally:
            handle.close()
        self.is_held = True

    def give_up(self) -> bool:
        """Release the reserved room; return whether there was any."""
        was_held, self.is_held = self.is_held, False
        self._files.delete(self._path)
        return was_held
