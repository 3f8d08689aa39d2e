"""The termination message of a container, which is kept when its logs may already be gone.

The kubelet reads up to 4096 bytes of ``/dev/termination-log`` into the container's status. The
file is never created: on a machine without it no message is written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

VARIABLE: Final = "FAILBACK_TERMINATION_LOG"
"""Environment variable that names another file; that one is created."""
DEFAULT_PATH: Final = "/dev/termination-log"
MAX_BYTES: Final = 4096


def write_termination(
    document: Mapping[str, Any], environment: Mapping[str, str] = os.environ
) -> bool:
    """Write ``document`` as one line of JSON; false where there is no such file to write.

    Raises:
        ValueError: It is longer than the kubelet reads.
    """
    line = _line(document)
    if len(line) > MAX_BYTES:
        raise ValueError(f"a termination message has at most {MAX_BYTES} bytes, not {len(line)}")
    named = environment.get(VARIABLE)
    path = Path(named or DEFAULT_PATH)
    if named is None and not path.exists():
        return False
    try:
        path.write_bytes(line)
    except OSError:
        return False
    return True


def fit(document: Mapping[str, Any], trimmable: Sequence[str]) -> dict[str, Any]:
    """Shorten lists of ``document`` until it has room; ``truncated`` says that it was done.

    The first of ``trimmable`` loses all its entries before the next one loses any.
    """
    found = dict(document)
    for name in trimmable:
        while len(_line(found)) > MAX_BYTES and found.get(name):
            found[name] = found[name][:-1]
            found["truncated"] = True
    return found


def _line(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"
