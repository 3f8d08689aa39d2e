"""What to generate, checked. Pure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields
from typing import Final

from failback.protocol.errors import ConfigError

SHAPES: Final = ("windows", "scattered", "tail")
MAX_CLOCK_ERROR_MS: Final = 400
"""Below the pause between two owners, so that no repeat is ambiguous."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Arguments of a generated run. ``rows`` are deliveries, of all groups and queues."""

    rows: int = 1_000_000
    queues: int = 8
    groups: int = 1
    members: int = 2
    dup_share: float = 0.05
    dup_shape: str = "windows"
    """``windows`` and ``tail``: at a change of owner; ``scattered``: messages sent twice."""
    jumble: int = 32
    """Deliveries are shuffled within so many neighbours."""
    truncations: int = 0
    """So many queues lose the end of their log once, and use its offsets again."""
    rate_skew: str = "none"
    """``zipf:1.1``: queue k gets a share of 1/k**1.1."""
    foreign_share: float = 0.0
    """Messages without a LAB_ID."""
    clock_error_ms: int = 0
    """Above 0 second owners run on another host, whose clock is known with this error."""
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("rows", "queues", "groups", "members", "jumble"):
            if getattr(self, name) < 1:
                raise ConfigError(name, f"must be at least 1, got {getattr(self, name)}")
        for name in ("dup_share", "foreign_share"):
            if not 0 <= getattr(self, name) <= 0.5:
                raise ConfigError(name, f"must be from 0 to 0.5, got {getattr(self, name)}")
        if self.dup_shape not in SHAPES:
            raise ConfigError("dup_shape", f"must be {', '.join(SHAPES)}, got {self.dup_shape!r}")
        if not 0 <= self.truncations <= self.queues:
            raise ConfigError("truncations", f"must be 0 to {self.queues}, got {self.truncations}")
        if not 0 <= self.clock_error_ms < MAX_CLOCK_ERROR_MS:
            problem = f"must be below {MAX_CLOCK_ERROR_MS}, got {self.clock_error_ms}"
            raise ConfigError("clock_error_ms", problem)
        self.zipf_exponent  # noqa: B018 - refuses what it cannot read

    @property
    def zipf_exponent(self) -> float | None:
        """The skew of rates; ``None`` when all queues get the same."""
        if self.rate_skew == "none":
            return None
        name, _, value = self.rate_skew.partition(":")
        try:
            if name == "zipf":
                return float(value)
        except ValueError:
            pass
        raise ConfigError("rate_skew", f"must be none or zipf:NUMBER, got {self.rate_skew!r}")

    @property
    def run(self) -> str:
        """The run's id: equal plans have equal ones."""
        text = json.dumps([getattr(self, field.name) for field in fields(self)])
        return f"bench-{hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}"
