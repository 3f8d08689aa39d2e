"""consumerOffset.json where this machine can read it: what a killed broker would start with."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from failback.analytics.live.facts import OffsetFile, table_of
from failback.protocol.errors import ProtocolError
from failback.protocol.route import parse_offset_table


def of_broker(address: str, config: Mapping[str, str]) -> OffsetFile | None:
    """The file of a broker that runs on this machine; ``None``: it does not, or hides its store.

    Args:
        address: HOST:PORT as name servers list it.
        config: The broker's live settings.
    """
    store = config.get("storePathRootDir")
    return in_store(store) if store and _is_here(address.rpartition(":")[0]) else None


@lru_cache(maxsize=1024)
def _is_here(host: str) -> bool:
    """Whether an address is one of this machine, whose files can be looked into."""
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, number) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True


def in_store(store: str | Path) -> OffsetFile | None:
    """The file of a store, or its backup as a broker would load it; ``None``: neither is whole."""
    return read(Path(store) / "config" / "consumerOffset.json")


def read(path: Path) -> OffsetFile | None:
    """The file at a path, or its backup."""
    for each in (path, path.with_name(path.name + ".bak")):
        try:
            with each.open("rb") as file:
                content = file.read()
            age = max(0.0, time.time() - each.stat().st_mtime)
            return OffsetFile(str(each), table_of(parse_offset_table(content)), age)
        except (OSError, ProtocolError):
            continue
    return None
