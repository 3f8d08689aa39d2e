"""Which broker or member is hit: a pure choice from a view, a name and a seed.

The same view, name and seed always give the same victim, in any order of the view's members. A
member that is not running is never chosen, and a view that contradicts itself (two masters, broker
and name server disagree) is refused rather than interpreted.
"""

from __future__ import annotations

import random
from fnmatch import fnmatchcase
from math import floor

from failback.chaos.cluster.view import ClusterView, Member, Role
from failback.chaos.errors import GuardRefused


def choose(view: ClusterView, pair: str, role: Role, seed: int) -> Member:
    """Return the victim: a running broker of this role in the pair that is named.

    Args:
        pair: A broker name, or a shell pattern over broker names.

    Raises:
        GuardRefused: No broker matches, none of them runs, or roles are not consistent.
    """
    require_consistent_roles(view)
    matching = sorted(
        (each for each in view.members if each.role == role and _is_named(each, pair)),
        key=lambda each: (each.pair, each.ordinal),
    )
    running = [each for each in matching if each.running]
    if not matching:
        raise GuardRefused("TargetMatches", f"no broker matches pair={pair} role={role} mode=one")
    if not running:
        raise GuardRefused("TARGET_ALREADY_DOWN", f"{matching[0].pod} is not running")
    return random.Random(seed).sample(running, 1)[0]


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


def _is_named(member: Member, pair: str) -> bool:
    return member.broker_name == pair or fnmatchcase(member.broker_name, pair)


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
