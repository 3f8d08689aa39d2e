"""Which errors of the disk pass, and which end the broker.

A disk that is full, a quota that is used up, a limit of the size of a file or of open files: the
request that needed the place is refused, and the place is asked for again. Broken hardware and a
file system that went read-only do not mend themselves. Neither does a failed sync: what was written
before it may be lost, and the next sync would not say so.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
FATAL: Final = frozenset({errno.EIO, errno.EROFS})


class SyncFailed(OSError):
    """A sync failed. Every reason is fatal."""


def is_fatal(error: OSError) -> bool:
    """Whether nothing may be written after ``error``; one that names no reason counts as such."""
    return isinstance(error, SyncFailed) or error.errno is None or error.errno in FATAL


def sync_failed(error: OSError, path: Path) -> SyncFailed:
    """Return ``error`` as that of a sync of ``path``."""
    return SyncFailed(error.errno, error.strerror, str(path))
