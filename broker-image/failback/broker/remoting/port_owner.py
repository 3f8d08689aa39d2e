"""The error for a port that could not be opened: who holds it, and which setting to change."""

from __future__ import annotations

import errno
import os

from failback.client.remoting.port_owner import port_owner
from failback.protocol.errors import ConfigError


def bind_error(host: str, port: int, error: OSError, *, port_key: str) -> ConfigError:
    """Explain why ``host:port`` could not be opened.

    Names the process that listens there, and the setting to change: ``port_key`` when the port
    is taken, the address otherwise.
    """
    if error.errno == errno.EADDRINUSE:
        owner = port_owner(host, port) or "a process of another user"
        return ConfigError(port_key, f"cannot listen on {host}:{port}: it is held by {owner}")
    is_known = error.errno is not None and error.errno > 0  # name resolution has numbers below 0
    reason = os.strerror(error.errno) if is_known and error.errno else str(error)
    return ConfigError("failbackBindAddress", f"cannot listen on {host}:{port}: {reason}")
