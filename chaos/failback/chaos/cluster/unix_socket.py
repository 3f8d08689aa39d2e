"""One line to a Unix socket, one line back: how the runtime and the workload are asked."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_PIECE_BYTES = 1 << 16


def exchange(path: Path, request: Mapping[str, Any], timeout: float) -> Any:
    """Send a JSON object and return the JSON value that comes back.

    Raises:
        OSError: No process listens, or none answers within ``timeout`` seconds.
        ValueError: The answer is not JSON.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout)
        connection.connect(str(path))
        connection.sendall(json.dumps(request).encode() + b"\n")
        data = bytearray()
        while not data.endswith(b"\n"):
            piece = connection.recv(_PIECE_BYTES)
            if not piece:
                break
            data += piece
    return json.loads(data)


def is_deserted(path: Path, timeout: float) -> bool:
    """Whether no process listens there: it is gone. One that is only silent still listens."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout)
        try:
            connection.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return True
        except OSError:
            return False
    return False
