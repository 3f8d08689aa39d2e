"""Which broker or member is hit: a pure choice from a view, a selector and a seed.

The same view, selector and seed always give the same victims, in any order of the view's
members. A member that is not running is never chosen, and a view that contradicts itself
(two masters, broker and name server disagree) is refused rather than interpreted.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import floor
from typing import Literal

from failback.chaos.cluster.view import ClusterView, Member, Role
from failback.chaos.errors import GuardRefused

Mode = Literal["one", "all", "fixed", "fixed-percent", "random-max-percent"]


class NoTarget(GuardRefused):
    """Nothing that runs matches the selector."""

    def __init__(self, why: str) -> None:
        super().__init__("TargetMatches", why)


@dataclass(frozen=True, slots=True)
class Selector:
    """Which brokers: ``pair`` by name, or ``pair_selector`` as a shell pattern over broker names.

    ``value`` is a count for ``fixed`` and a percentage for the two percent modes.
    """

    pair: str = ""
    pair_selector: str = ""
    role: Role | None = "master"
    mode: Mode = "one"
    value: float = 0

    def __str__(self) -> str:
        where = f"pair={self.pair}" if self.pair else f"pairSelector={self.pair_selector or '*'}"
        amount = f" value={self.value:g}" if self.mode not in ("one", "all") else ""
        return f"{where} role={self.role or 'any'} mode={self.mode}{amount}"


def choose(
    view: ClusterView, selector: Selector, seed: int, max_pairs_down: int = 1
) -> tuple[Member, ...]:
    """Return the victims, ordered by pair and ordinal.

    Raises:
        NoTarget: No running member matches.
        GuardRefused: Roles are not consistent, or more pairs would be hit than allowed.
    """
    require_consistent_roles(view)
    matching = sorted(
        (member for member in view.members if _matches(member, selector)),
        key=lambda member: (member.pair, member.ordinal),
    )
    running = [member for member in matching if member.running]
    if not matching:
        raise NoTarget(f"no broker matches {selector}")
    if not running:
        raise GuardRefused("TARGET_ALREADY_DOWN", f"{matching[0].pod} is not running")
    amount = amount_of(selector.mode, selector.value, len(running), seed)
    chosen = random.Random(seed).sample(running, amount)
    pairs = {member.pair for member in chosen}
    if len(pairs) > max_pairs_down:
        raise GuardRefused(
            "maxPairsDown", f"{len(pairs)} pairs would be hit, {max_pairs_down} allowed"
        )
    return tuple(sorted(chosen, key=lambda member: (member.pair, member.ordinal)))


def require_consistent_roles(view: ClusterView) -> None:
    """Raise ``GuardRefused`` when the master of a pair is not certain."""
    for pair in view.pairs:
        masters = [member.pod for member in pair.members if member.role == "master"]
        if len(masters) > 1:
            raise GuardRefused(
                "RolesConsistent", f"pair {pair.name} has two masters: {', '.join(masters)}"
            )
    if view.conflicts:
        raise GuardRefused("RolesConsistent", view.conflicts[0])


def _matches(member: Member, selector: Selector) -> bool:
    if selector.role is not None and member.role != selector.role:
        return False
    if selector.pair:
        return member.pair == selector.pair
    return fnmatchcase(member.broker_name, selector.pair_selector or "*")


def amount_of(mode: str, value: float, available: int, seed: int) -> int:
    """How many of those that run are hit: at least one. ``value`` is a count or a percentage."""
    match mode:
        case "one":
            return 1
        case "all":
            return available
        case "fixed":
            return max(1, min(available, int(value)))
    most = max(1, min(available, floor(available * value / 100)))
    return random.Random(seed ^ 0x5EED).randint(1, most) if mode == "random-max-percent" else most
