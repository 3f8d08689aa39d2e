"""Between values and the JSON of a status: times, operations, conditions. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from failback.operator.planning.plan.types import Operation

MAX_MESSAGE: Final = 512
OPERATION_FIELDS: Final = ("currentOperation", "otherOperations")
"""The fields of a status that hold operations. They are written together."""


def to_time(seconds: float) -> str:
    """Return RFC 3339 text of a Unix time, in UTC and whole seconds."""
    moment = datetime.datetime.fromtimestamp(int(seconds), datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def from_time(text: str | None) -> float | None:
    """Return the Unix time of RFC 3339 text, or ``None`` when it is none."""
    if not text:
        return None
    try:
        return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


def operation_to_status(operation: Operation) -> dict[str, Any]:
    """Return an operation as a status holds it; what is unset is left out."""
    found: dict[str, Any] = {
        "id": operation.id,
        "type": operation.type,
        "step": operation.step,
        "pair": operation.pair,
        "member": operation.member,
        "startedAt": to_time(operation.started_at),
        "stepStartedAt": to_time(operation.step_started_at),
        "attempts": operation.attempts,
        "blockedBy": list(operation.blocked_by),
        "data": dict(operation.data),
    }
    return {key: value for key, value in found.items() if value is not None}


def operations_to_status(operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the fields of a status that hold its operations; a field without any is left out."""
    found = [operation_to_status(operation) for operation in operations]
    fields: dict[str, Any] = {}
    if found:
        fields["currentOperation"] = found[0]
    if found[1:]:
        fields["otherOperations"] = found[1:]
    return fields


def stored_operations(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return every operation of a status as it is stored, the current one first."""
    current = status.get("currentOperation")
    return [*([current] if current else []), *(status.get("otherOperations") or ())]


def operation_on(status: Mapping[str, Any], pod: str) -> Mapping[str, Any] | None:
    """Return the stored operation that works on the pair of a broker's pod, or ``None``."""
    pair = pod.split("-")[-3:-2]
    for operation in stored_operations(status):
        if [str(operation.get("pair"))] == pair:
            return operation
    return None


def operations_from_status(status: Mapping[str, Any]) -> tuple[Operation, ...]:
    """Return every operation that a status tells of, the current one first."""
    return tuple(map(_operation, stored_operations(status)))


def _operation(found: Mapping[str, Any]) -> Operation:
    return Operation(
        id=found["id"],
        type=found["type"],
        step=found["step"],
        pair=found.get("pair"),
        member=found.get("member"),
        started_at=from_time(found.get("startedAt")) or 0.0,
        step_started_at=from_time(found.get("stepStartedAt")) or 0.0,
        attempts=found.get("attempts", 0),
        blocked_by=tuple(found.get("blockedBy", ())),
        data=dict(found.get("data", {})),
    )


def find_condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    """Return the condition of a type in a status, or ``None``."""
    return next((each for each in status.get("conditions") or () if each["type"] == kind), None)


def true_since(status: Mapping[str, Any], kind: str) -> float | None:
    """Return the Unix time since which a condition is True, or ``None`` when it is not."""
    found = find_condition(status, kind)
    if found is None or found["status"] != "True":
        return None
    return from_time(found["lastTransitionTime"])


def is_true(status: Mapping[str, Any], kind: str) -> bool:
    """Tell whether a status has a condition that is True."""
    found = find_condition(status, kind)
    return found is not None and found["status"] == "True"


_AT_REST: Final[Mapping[str, tuple[str, str]]] = {
    "ExternalAccess": ("NotAsked", "clients outside Kubernetes have no address"),
    "Failed": ("NotFailed", "nothing has failed"),
    "Paused": ("NotRequested", "nothing is paused"),
    "Reconciling": ("UpToDate", "every object is as wanted"),
    "ScalingDown": ("NotScalingDown", "no pair or slave leaves"),
    "Shrinking": ("NotShrinking", "nothing leaves"),
    "Stalled": ("NotStalled", "nothing waits for a person"),
    "Warning": ("NoWarning", "there is nothing to warn of"),
}
"""Type → reason and message of a condition that has nothing to tell."""


class Verdict(NamedTuple):
    """What one condition says; ``value`` ``None`` is ``Unknown``."""

    type: str
    value: bool | None
    reason: str
    message: str = ""


def condition(
    previous: Mapping[str, Any],
    kind: str,
    value: bool | None,
    reason: str,
    message: str = "",
    *,
    now: float,
    generation: int,
) -> dict[str, Any]:
    """Return one ``metav1.Condition``; ``lastTransitionTime`` moves only with the status.

    Args:
        previous: The status before, whose condition of this type is looked up.
        value: ``None`` is ``Unknown``.
        reason: Empty: there is nothing to tell, and the type says how that is put.
    """
    if not reason:
        reason, quiet = _AT_REST[kind]
        message = message or quiet
    text = {True: "True", False: "False", None: "Unknown"}[value]
    old = find_condition(previous, kind)
    since = old["lastTransitionTime"] if old and old["status"] == text else to_time(now)
    return {
        "type": kind,
        "status": text,
        "reason": reason,
        "message": message[:MAX_MESSAGE],
        "observedGeneration": generation,
        "lastTransitionTime": since,
    }


def merge_conditions(
    previous: Mapping[str, Any], new: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the conditions by type: the new ones over those that the status had before."""
    found = {item["type"]: dict(item) for item in previous.get("conditions") or ()}
    found.update({item["type"]: dict(item) for item in new})
    return [found[kind] for kind in sorted(found)]


def judged(
    previous: Mapping[str, Any],
    verdicts: Iterable[Verdict],
    *,
    now: float,
    generation: int,
    among: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Return the conditions of a status with what the verdicts say.

    Args:
        among: The status whose other conditions are kept; ``None``: the one before.
    """
    made = [condition(previous, *each, now=now, generation=generation) for each in verdicts]
    return merge_conditions(previous if among is None else among, made)


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch that turns ``old`` into ``new``; empty when they are equal.

    Lists are replaced whole; a key that is gone becomes ``None``. A ``None`` in ``new`` is a key
    that is not there, as no stored status holds one: to write it would be a write for nothing.
    """
    patch: dict[str, Any] = {key: None for key in old if new.get(key) is None}
    for key, value in new.items():
        have = old.get(key)
        if value is None:
            continue
        if isinstance(value, Mapping) and isinstance(have, Mapping):
            if inner := difference(have, value):
                patch[key] = inner
        elif key not in old or have != value:
            patch[key] = value
    return patch


def with_reasons(text: str, problems: Iterable[str]) -> str:
    """Return a message with the reasons that are known, each once."""
    known = list(dict.fromkeys(filter(None, problems)))
    return f"{text}: {'; '.join(known[:3])}" if known else text


def names(items: Iterable[str], limit: int = 5) -> str:
    """Return a list for a message: at most ``limit`` items, and how many more there are."""
    found = list(items)
    more = f" and {len(found) - limit} more" if len(found) > limit else ""
    return ", ".join(found[:limit]) + more
