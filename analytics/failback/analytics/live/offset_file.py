"""Reads consumerOffset.json on this machine: a killed broker would start with it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from failback.analytics.live.facts import OffsetFile, table_of
from failback.common.files import open_file
from failback.protocol.errors import ProtocolError
from failback.protocol.route import parse_offset_table

_MOST_BYTES: Final = 64 << 20
"""Of a table: 60,000 offsets take 0.8 MB."""


def of_broker(address: str, config: Mapping[str, str]) -> OffsetFile | None:
    """Return the file of a broker on this machine; ``None`` for others, and without its store.

    Args:
        address: HOST:PORT as name servers list it.
        config: The broker's live settings.
    """
    store = config.get("storePathRootDir")
    return in_store(store) if store and _is_here(address.rpartition(":")[0]) else None


@lru_cache(maxsize=1024)
def _is_here(host: str) -> bool:
    """Return whether an address is one of this machine."""
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, number) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True


def in_store(store: str | Path) -> OffsetFile | None:
    """Return the file of a store, or its backup as a broker would load it; ``None`` if damaged."""
    return read(Path(store) / "config" / "consumerOffset.json")


def read(path: Path) -> OffsetFile | None:
    """Return the file at a path, or its backup; ``None`` if both are damaged."""
    for each in (path, path.with_name(path.name + ".bak")):
        try:
            with open_file(each) as file:  # a broker's word chose it: it may be a pipe or a disk
                if os.fstat(file.fileno()).st_size > _MOST_BYTES:
                    continue
                content = file.read(_MOST_BYTES)
                age = max(0.0, time.time() - os.fstat(file.fileno()).st_mtime)
            return OffsetFile(str(each), table_of(parse_offset_table(content)), age)
        except (OSError, ProtocolError):
            continue
    return None
