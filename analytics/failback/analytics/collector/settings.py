"""The settings of a collector."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from failback.client.remoting.http_limits import HttpBounds
from failback.common.options import (
    HOST,
    METRICS_HOST,
    METRICS_PORT,
    PORT,
    TLS_CERT,
    TLS_KEY,
    option,
)

_DAY_SECONDS: Final = 86_400
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

    root: Path = option(Path("collected"), "FOLDER", "Holds lake/, incoming/ and quarantine/.")
    """Unfinished writes are in ``incoming/``; all three are on one file system."""
    tokens: Path = option(Path("tokens"), "FILE", "The token file.")
    """A collector without a token file doesn't start."""
    lake: str | None = option(
        None, "LAKE", "Where the lake is: a folder or s3://bucket/prefix (default: in --root)."
    )
    host: str = option("127.0.0.1", HOST)
    port: int = option(8095, PORT)
    limits: Limits = Limits()
    max_uploads: int = 64
    """Uploads under way at the same time; the next one is refused for now."""
    queue_bytes: int = option(
        256 * MIB, "MIB", "Most that may wait in memory.", name="queue-mib", unit=MIB
    )
    """Bodies held in memory until they are stored; above three quarters come 429s."""
    upload_seconds: float = 60.0
    """How long one upload may take; a slower one is cut off; its shipper repeats it."""
    writers: int = 4
    """Threads that check, pack and sync; they wait for the disk more than they work."""
    min_free_bytes: int = option(
        256 * MIB, "MIB", "Take nothing when less is free.", name="min-free-mib", unit=MIB
    )
    """Below this much free space nothing is taken (507), so that what is there can be read."""
    max_store_bytes: int | None = option(
        None,
        "MIB",
        "Most that the lake may hold (default: all there is).",
        name="max-store-mib",
        unit=MIB,
    )
    quarantine_bytes: int = 1024 * MIB
    """How much of what contradicts a stored segment is kept; the mark is made in any case."""
    keep_seconds: float | None = option(
        None,
        "DAYS",
        "Delete runs without news for so long (default: never).",
        name="keep-days",
        unit=_DAY_SECONDS,
    )
    retention_period_seconds: float = 60.0
    open_after_seconds: float = 600.0
    """A run that nobody opened for so long is opened by its first row."""
    bounds: HttpBounds = _BOUNDS
    """How many connections there may be, in all and from one address: a shipper has one."""
    tls_cert: Path | None = option(None, TLS_CERT)
    tls_key: Path | None = option(None, TLS_KEY)
    metrics_host: str = option("127.0.0.1", METRICS_HOST)
    metrics_port: int | None = option(None, METRICS_PORT)
