"""Fields of a server's settings that are options of its command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

METADATA: Final = "option"
"""Key of an :class:`Option` in a field's metadata."""


@dataclass(frozen=True, slots=True)
class Option:
    """How a field is written on a command line."""

    value: str
    """What the help shows for the value: FILE. Empty for a switch."""
    text: str
    name: str = ""
    """Without dashes in front; that of the field where it is empty."""
    unit: int = 1
    """How much of the field one of the option's unit is: 86400 for days of a field in seconds."""
    least: float | None = None
    most: float | None = None
    read: Callable[[Any], Any] | None = None
    """Makes the field's value of the option's, for other types than a path, text or number."""


def option(default: Any, value: str | Option, text: str = "", **further: Any) -> Any:
    """Return a dataclass field that is an option, too.

    Args:
        default: Its default; a function makes one for each instance.
        value: How the option is written, or only what the help shows for its value.
    """
    how = value if isinstance(value, Option) else Option(value, text, **further)
    if callable(default):
        return field(default_factory=default, metadata={METADATA: how})
    return field(default=default, metadata={METADATA: how})


HOST: Final = Option("ADDRESS", "Address to listen on.")
PORT: Final = Option("PORT", "Port to listen on; 0: any that is free.", least=0, most=65_535)
TLS_CERT: Final = Option("FILE", "Certificate to serve HTTPS with, PEM.")
TLS_KEY: Final = Option("FILE", "Private key of --tls-cert, PEM.")
METRICS_HOST: Final = Option("ADDRESS", "Address to listen on for /metrics.")
METRICS_PORT: Final = Option(
    "PORT", "Serve /metrics without a token on this port, too.", least=0, most=65_535
)
