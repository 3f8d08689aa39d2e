"""What a figure has to reach. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A bound for a figure: at least ``limit``, or at most."""

    limit: float
    at_least: bool = False

    def is_met(self, figure: float) -> bool:
        return figure >= self.limit if self.at_least else figure <= self.limit

    def verdict(self, figure: float) -> str:
        """Return the figure, what became of the target, and the target."""
        sign = "≥" if self.at_least else "≤"
        return f"{figure:,.2f} {'met' if self.is_met(figure) else 'missed'} ({sign} {self.limit:g})"


def at_least(limit: float) -> Target:
    return Target(limit, at_least=True)


def at_most(limit: float) -> Target:
    return Target(limit)
