"""At most one experiment per cluster: what keeps other runs away."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol


class Lease(Protocol):
    """Held by one run; kept when that run could not be healed."""

    def take(self, run_dir: Path, *, healing: bool = False) -> None:
        """Take the lease for one run.

        Raises:
            GuardRefused: Another run is under way.
            NotHealed: The last run left something behind, and this one is not its heal.
        """

    def require(self) -> None:
        """Raise ``GuardRefused`` when it is not ours any more."""

    def give_back(self, *, healed: bool) -> None:
        """End the lease. A run that is not healed leaves its name, so that no second one starts."""

    def note(self) -> Mapping[str, Any]:
        """What a later heal needs to find the same lease."""
