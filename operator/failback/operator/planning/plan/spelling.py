"""What a resource writes as an earlier release did: read, and told in the condition ``Warning``."""

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

REASON: Final = "FormerSpelling"


def with_former_words(resource: Object, wanted: Mapping[str, Any], *, now: float) -> dict[str, Any]:
    """Return the wanted status with a warning about each value in an earlier spelling."""
    found = dict(wanted)
    text = names([str(each) for each in former_words(KINDS[resource["kind"]], resource)], 3)
    said = find_condition(found, "Warning") or {}
    if not text and said.get("reason") != REASON:
        return found
    others = said.get("status") == "True" and said.get("reason") != REASON
    if others:
        reason, message = str(said["reason"]), f"{said['message']}; {REASON}: {text}"
    else:
        reason, message = (REASON, f"{REASON}: {text}") if text else ("None", "")
    made = condition(
        resource.get("status") or {},
        "Warning",
        bool(text) or others,
        reason,
        message,
        now=now,
        generation=resource["metadata"].get("generation", 1),
    )
    found["conditions"] = merge_conditions(found, [made])
    return found


def spelling_events(have: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[Event, ...]:
    """Return the event of a warning about a spelling that was not there before."""
    before, after = (
        str((find_condition(status, "Warning") or {}).get("message")).partition(f"{REASON}: ")[2]
        for status in (have, wanted)
    )
    return (Event(REASON, after, warning=True),) if after and after != before else ()
