"""What a condition means and what to do about it, by the page of all reasons. Pure but for it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from failback.cli.shared.bundled import conditions_page

Condition = Mapping[str, Any]
_SAYS_SO_WHEN_TRUE: Final = frozenset(
    {"Warning", "Paused", "ScalingDown", "Shrinking", "Failed", "Reconciling", "Stalled"}
)
"""Conditions that are about something unusual; all others are to be True."""
_ROW: Final = re.compile(r"^\| (?P<reasons>.+?) \| (?P<means>.+?) \| (?P<do>.+?) \|$")
_LINK: Final = re.compile(r"\[([^\]]+)\]\([^)]*\)")
_REASON: Final = re.compile(r"`(\w+)`")


class Advice(NamedTuple):
    """What a reason means, and what to do."""

    means: str
    do: str


def unwell(conditions: Iterable[Condition]) -> list[Condition]:
    """Return the conditions that are not as a healthy object has them, Ready first."""
    found = [each for each in conditions if not is_well(each)]
    return sorted(found, key=lambda each: each.get("type") not in ("Ready", "Complete"))


def is_well(condition: Condition) -> bool:
    """Tell whether a condition says that all is as wanted."""
    value = str(condition.get("status"))
    if condition.get("type") in _SAYS_SO_WHEN_TRUE:
        return value != "True"
    return value == "True"


def condition_of(state: Mapping[str, Any], kind: str) -> Condition:
    """Return a condition of a status; an empty one where the status has none of that type."""
    return next((each for each in state.get("conditions") or () if each["type"] == kind), {})


def advice(condition: str, reason: str) -> Advice | None:
    """Return what a reason of a condition means; ``None`` for one that the page does not have."""
    rows = _table().get(reason, ())
    named = [each for types, each in rows if condition in types]
    return next(iter([*named, *(each for _, each in rows)]), None)


def waits(predicate: str) -> str:
    """Return the name of a predicate as words: ``LagAcceptable`` is ``lag acceptable``."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z]*|[a-z0-9]+", predicate)
    return " ".join(word if word.isupper() else word.lower() for word in words) or predicate


@cache
def _table() -> dict[str, list[tuple[str, Advice]]]:
    """Return the rows of the page by reason, each with the words that name its conditions."""
    found: dict[str, list[tuple[str, Advice]]] = {}
    for line in conditions_page().splitlines():
        row = _ROW.match(line)
        if row is None:
            continue
        for part in row["reasons"].split("; "):
            types = part.partition("`")[0]
            for reason in _REASON.findall(part):
                entry = Advice(_plain(row["means"]), _plain(row["do"]))
                found.setdefault(reason, []).append((types, entry))
    return found


def _plain(text: str) -> str:
    return _LINK.sub(r"\1", text).replace("`", "")
