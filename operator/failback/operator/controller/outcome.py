"""How far carrying out a plan got, why it stopped, and what the status says of that."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeGuard

from failback.kube.errors import ApiError
from failback.operator.planning.observed.observed import Key, Object
from failback.operator.planning.plan.encoding import (
    Verdict,
    find_condition,
    judged,
    operation_on,
    operations_from_status,
    operations_to_status,
)
from failback.operator.planning.plan.stalled import with_stalled
from failback.operator.planning.plan.types import Action, Apply, Event, Evict, Plan, SetConfig
from failback.protocol.errors import FailbackError

_LOOK_FAILED: Final = "LookFailed: "
"""How the warning of a look at the peers that failed begins."""


class NameTaken(FailbackError):
    """An object of a name we need belongs to another owner."""

    def __init__(self, key: Key) -> None:
        super().__init__(f"{key[0]}/{key[1]} belongs to somebody else")
        self.key = key


class ManifestTooLarge(FailbackError):
    """An object would be larger than the API server keeps."""

    def __init__(self, key: Key, size: int, limit: int) -> None:
        super().__init__(f"{key[0]}/{key[1]} would have {size} bytes, at most {limit} are kept")


class NotReadBack(FailbackError):
    """A peer acknowledged a change that its next answer does not show."""


def is_refusal(error: Exception | None) -> TypeGuard[ApiError]:
    """Tell whether the API server refused something for what it is: time does not change that."""
    return isinstance(error, ApiError) and error.code in (400, 403, 422)


@dataclass(slots=True)
class Outcome:
    """How far a plan got."""

    done: int = 0
    failed: Action | None = None
    error: Exception | None = None
    ended: set[int | None] = field(default_factory=set)
    """The lanes that a failure ended."""
    rejected: list[tuple[Apply, ApiError]] = field(default_factory=list)
    """Objects that the API server refused."""
    events: list[Event] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    """Broker address → why it refused a topic or group for good."""
    blocked_by: tuple[str, ...] = ()
    retry_after: float | None = None
    look_again_after: float | None = None
    """Seconds until something that was put off is due."""

    @property
    def ok(self) -> bool:
        """Everything was carried out."""
        return self.failed is None


def with_outcome(
    resource: Object, plan: Plan, outcome: Outcome, *, blind: str = ""
) -> dict[str, Any]:
    """Return the status to write, with what could not be carried out.

    Args:
        blind: Why its peers could not be looked at.
    """
    wanted = _with_failure(resource, plan, outcome)
    wanted = _with_failed_look(resource, wanted, blind)
    return with_stalled(
        resource.get("status", {}),
        wanted,
        now=time.time(),
        generation=resource["metadata"].get("generation", 1),
    )


def _with_failed_look(resource: Object, wanted: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Return the wanted status with the warning ``LookFailed`` behind the warnings that it has.

    Args:
        text: Why the look at the peers failed; empty: it did not, and the warning goes.
    """
    said = find_condition(wanted, "Warning")
    parts = said["message"].split("; ") if said and said["status"] == "True" else []
    kept = [part for part in parts if not part.startswith(_LOOK_FAILED)]
    if not text and kept == parts:
        return dict(wanted)
    warnings = [*kept, f"{_LOOK_FAILED}{text}"] if text else kept
    reason = warnings[0].partition(":")[0] if warnings else ""
    verdict = Verdict("Warning", bool(warnings), reason, "; ".join(warnings))
    return _with_verdict(resource, wanted, verdict)


def after_exception(resource: Object, failure: str, *, poison: bool = False) -> dict[str, Any]:
    """Return the status of a resource whose pass an exception ended."""
    status = resource.get("status", {})
    return with_stalled(
        status,
        status,
        now=time.time(),
        generation=resource["metadata"].get("generation", 1),
        failure=failure,
        poison=poison,
    )


def _with_failure(resource: Object, plan: Plan, outcome: Outcome) -> dict[str, Any]:
    wanted = dict(plan.status)
    if outcome.ok:
        return wanted
    if isinstance(outcome.failed, Evict) and outcome.blocked_by:
        wanted |= _blocked(wanted, outcome.failed.pod, outcome.blocked_by)
    error = outcome.error
    if isinstance(error, NameTaken):
        return ready_false(resource, "NameTaken", str(error), wanted)
    if isinstance(error, ManifestTooLarge):
        return ready_false(resource, "ManifestTooLarge", str(error), wanted)
    if is_refusal(error):
        return ready_false(resource, "ApplyFailed", _apply_failed(outcome, error), wanted)
    if isinstance(outcome.failed, SetConfig) and isinstance(error, NotReadBack):
        verdict = Verdict("ConfigApplied", False, "RejectedKey", str(error))
        return _with_verdict(resource, wanted, verdict)
    return wanted


def _blocked(status: Mapping[str, Any], pod: str, predicates: tuple[str, ...]) -> dict[str, Any]:
    """Return the operations of a status, the one that evicts ``pod`` blocked by predicates."""
    mine = operation_on(status, pod)
    found = [
        replace(item, blocked_by=tuple(sorted({*item.blocked_by, *predicates})))
        if mine is not None and item.id == mine["id"]
        else item
        for item in operations_from_status(status)
    ]
    return operations_to_status(found)


def _apply_failed(outcome: Outcome, error: ApiError) -> str:
    told = [_refused(apply, each) for apply, each in outcome.rejected]
    return "; ".join(told) or _refused(outcome.failed, error)


def _refused(action: Action | None, error: ApiError) -> str:
    name = ""
    if isinstance(action, Apply):
        name = f" {action.manifest['metadata']['name']}"
    words = error.message
    if error.code == 422 and error.causes:
        words = "; ".join(f"{item.get('field')}: {item.get('message')}" for item in error.causes)
    return f"{error.verb} {error.resource}{name}: {words}"


def _with_verdict(resource: Object, status: Mapping[str, Any], verdict: Verdict) -> dict[str, Any]:
    before, generation = resource.get("status") or {}, resource["metadata"].get("generation", 1)
    found = judged(before, [verdict], now=time.time(), generation=generation, among=status)
    return {**status, "conditions": found}


def ready_false(
    resource: Object, reason: str, message: str, status: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a status, the resource's own or another, with ``Ready`` false."""
    found = resource.get("status", {}) if status is None else status
    return _with_verdict(resource, found, Verdict("Ready", False, reason, message))


def failure_events(have: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[Event, ...]:
    """Return the events of refusals that this pass saw first: one per message."""
    found = [*_failed_look_events(have, wanted)]
    for kind, reason, event in (
        ("Ready", "ApplyFailed", "ApplyFailed"),
        ("ConfigApplied", "RejectedKey", "ConfigRejected"),
    ):
        before, now = find_condition(have, kind), find_condition(wanted, kind)
        if now is None or now["reason"] != reason:
            continue
        if before is None or (before["reason"], before["message"]) != (reason, now["message"]):
            found.append(Event(event, now["message"], warning=True))
    return tuple(found)


def _failed_look_events(have: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[Event]:
    """Return the events of looks that failed and whose warning was not there before."""
    before, after = (
        str((find_condition(status, "Warning") or {}).get("message")).split("; ")
        for status in (have, wanted)
    )
    return [
        Event("LookFailed", part.removeprefix(_LOOK_FAILED), warning=True)
        for part in after
        if part.startswith(_LOOK_FAILED) and part not in before
    ]
