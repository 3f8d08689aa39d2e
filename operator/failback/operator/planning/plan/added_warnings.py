"""What every pass adds to the condition ``Warning`` of a resource of any kind. Pure.

A value that is spelled as an earlier release spelled it is read and told. A look at a resource's
peers that failed is told as well: the pass went on by what was known before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from failback.operator.planning.observed.observed import Object
from failback.operator.planning.plan.encoding import (
    condition,
    find_condition,
    merge_conditions,
    names,
)
from failback.operator.planning.plan.types import Event
from failback.operator.schema.decoding import KINDS
from failback.protocol.words.formerly import former_words

FORMER_SPELLING: Final = "FormerSpelling"
LOOK_FAILED: Final = "LookFailed"


def with_former_words(resource: Object, wanted: Mapping[str, Any], *, now: float) -> dict[str, Any]:
    """Return the wanted status with a warning about each value in an earlier spelling."""
    text = names([str(each) for each in former_words(KINDS[resource["kind"]], resource)], 3)
    return with_warning(resource, wanted, FORMER_SPELLING, text, now=now)


def with_warning(
    resource: Object, wanted: Mapping[str, Any], reason: str, text: str, *, now: float
) -> dict[str, Any]:
    """Return the wanted status with one more warning, behind those that it has.

    Args:
        text: Empty = there is nothing to warn of; a warning of this reason goes.
    """
    found = dict(wanted)
    said = find_condition(found, "Warning")
    parts = said["message"].split("; ") if said and said["status"] == "True" else []
    kept = [part for part in parts if not part.startswith(f"{reason}: ")]
    if not text and kept == parts:
        return found
    told = [*kept, f"{reason}: {text}"] if text else kept
    made = condition(
        resource.get("status") or {},
        "Warning",
        bool(told),
        told[0].partition(":")[0] if told else "None",
        "; ".join(told),
        now=now,
        generation=resource["metadata"].get("generation", 1),
    )
    found["conditions"] = merge_conditions(found, [made])
    return found


def warning_events(have: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[Event, ...]:
    """Return the events of warnings of these reasons that were not there before."""
    before, after = (
        str((find_condition(status, "Warning") or {}).get("message")).split("; ")
        for status in (have, wanted)
    )
    found = []
    for part in after:
        reason, _, text = part.partition(": ")
        if reason in (FORMER_SPELLING, LOOK_FAILED) and part not in before:
            found.append(Event(reason, text, warning=True))
    return tuple(found)
