"""The condition ``Stalled``: nothing goes on until a person changes something. Pure.

It is what ``kstatus``, and with it Flux and others, take for a failure. They look first whether
the status has observed the newest generation, and then at ``Reconciling``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from failback.operator.planning.plan.encoding import Verdict, find_condition, judged

KIND: Final = "Stalled"
_FOR_GOOD: Final = frozenset(
    {"InvalidSpec", "NameTaken", "Duplicate", "Rejected", "ApplyFailed", "ManifestTooLarge"}
    | {"MasterUnclear"}
)
"""Reasons of ``Ready=False`` that end by a change of the resource, or of what stands in its way."""


def with_stalled(
    before: Mapping[str, Any],
    wanted: Mapping[str, Any],
    *,
    now: float,
    generation: int,
    failure: str = "",
    poison: bool = False,
) -> dict[str, Any]:
    """Return the wanted status with the condition, where it has one to tell of.

    Args:
        before: The status as stored.
        failure: What ended the pass, if something did.
        poison: It is the resource itself that ended it.
    """
    found = dict(wanted)
    reason, message = _cause(found)
    if failure:
        reason, message = "Poison" if poison else "PassFailed", failure
    if not reason and find_condition(before, KIND) is None:
        return found
    stalled = bool(reason)
    news = [Verdict(KIND, stalled, reason, message)]
    if stalled:
        if "observedGeneration" in found:
            found["observedGeneration"] = generation
        if find_condition(found, "Reconciling") is not None:
            news.append(Verdict("Reconciling", False, reason))
    if failure and find_condition(found, "Ready") is not None:
        ended = failure if poison else "the last pass ended before it could tell"
        news.append(Verdict("Ready", False if poison else None, reason, ended))
    found["conditions"] = judged(before, news, now=now, generation=generation, among=found)
    return found


def _cause(status: Mapping[str, Any]) -> tuple[str, str]:
    """Return reason and message of what only a person can end; empty when there is nothing."""
    ready = find_condition(status, "Ready")
    if ready is not None and ready["status"] == "False" and ready["reason"] in _FOR_GOOD:
        return ready["reason"], ready["message"]
    failed = find_condition(status, "Failed")
    if failed is not None and failed["status"] == "True":
        return failed["reason"], failed["message"]
    if status.get("phase") == "Failed":
        complete = find_condition(status, "Complete") or find_condition(status, "Injected") or {}
        return str(complete.get("reason") or "Failed"), str(complete.get("message") or "")
    return "", ""
