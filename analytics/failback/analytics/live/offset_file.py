"""consumerOffset.json where this machine can read it: what a killed broker would start with."""

from __future__ import annotations

import time
from pathlib import Path

from failback.analytics.live.facts import OffsetFile, table_of
from failback.protocol.errors import ProtocolError
from failback.protocol.route import parse_offset_table


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
