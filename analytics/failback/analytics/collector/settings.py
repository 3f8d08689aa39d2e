"""The settings of a collector."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from failback.client.remoting.http_limits import HttpBounds

MIB: Final = 1024 * 1024
_BOUNDS: Final = HttpBounds(connections=1024, per_address=256)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one segment may be. Each is there because an upload is untrusted input."""

    body_bytes: int = 16 * MIB
    """A hot file is 4 MiB and shrinks when packed, so a larger body is not one of ours."""
    decoded_bytes: int = 256 * MIB
    """Checked before anything is unpacked: a body of 16 MiB can say that it is terabytes."""
    rows: int = 4_000_000
    dictionary_entries: int = 1_000_000


@dataclass(frozen=True, slots=True)
class CollectorSettings:
    """One collector."""

    root: Path
    """Holds ``lake/``, ``incoming/`` (unfinished writes) and ``quarantine/``; one file system."""
    tokens: Path
    """The token file, see ``tokens``. There is no collector without one."""
    lake: str | None = None
    """Where the lake is if not below ``root``: ``s3://bucket/prefix``."""
    host: str = "127.0.0.1"
    port: int = 8095
    limits: Limits = Limits()
    max_uploads: int = 64
    """Uploads under way at the same time; the next one is refused for now."""
    queue_bytes: int = 256 * MIB
    """Bodies held in memory until they are stored; above three quarters come 429s."""
    upload_seconds: float = 60.0
    """How long one upload may take; a slower one is cut off; its shipper repeats it."""
    writers: int = 4
    """Threads that check, pack and sync; they wait for the disk more than they work."""
    min_free_bytes: int = 256 * MIB
    """Below this much free space nothing is taken (507), so that what is there can be read."""
    max_store_bytes: int | None = None
    """Upper bound of what the lake may hold; ``None``: only the disk bounds it."""
    quarantine_bytes: int = 1024 * MIB
    """How much of what contradicts a stored segment is kept; the mark is made in any case."""
    keep_seconds: float | None = None
    """Runs that nothing was added to for so long are deleted; ``None`` keeps them."""
    retention_period_seconds: float = 60.0
    open_after_seconds: float = 600.0
    """A run that nobody opened for so long is opened by its first row."""
    bounds: HttpBounds = _BOUNDS
    """How many connections there may be, in all and from one address: a shipper has one."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None
    """A second port for ``/metrics`` without a token; ``None``: only the first, with one."""
