"""The points in time that planning remembers, moved together when a clock turns out wrong. Pure."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from failback.operator.planning.observed.observed import Broker, ObservedCluster
from failback.operator.planning.plan.types import Operation

Change = Callable[[float], float]
_SMALL_SECONDS: Final = 1.0
_NAMED: Final = re.compile(r"(^at|At|^since|Since)$")
"""How operations name the points in time in their data, by convention."""


def moved(operation: Operation, change: Change) -> Operation:
    """Return an operation with every point in time that it remembers changed."""
    return dataclasses.replace(
        operation,
        started_at=change(operation.started_at),
        step_started_at=change(operation.step_started_at),
        data=_moved_data(operation.data, change),
    )


def not_after(operation: Operation, now: float) -> Operation:
    """Return an operation with nothing in the future: a negative age counts as 0."""
    return moved(operation, lambda at: min(at, now))


def _moved_data(data: Mapping[str, Any], change: Change) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping):
            found[key] = _moved_data(value, change)
        elif _is_number(value) and _NAMED.search(key):
            found[key] = change(value)
        else:
            found[key] = value
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def shifted(observed: ObservedCluster, seconds: float) -> ObservedCluster:
    """Return an observation whose own points in time are so much later.

    What other programs wrote (objects, pods, leases) stays as it is.
    """
    if abs(seconds) < _SMALL_SECONDS:
        return observed
    return dataclasses.replace(
        observed,
        at=observed.at + seconds,
        members={
            member: dataclasses.replace(
                view, broker=None if view.broker is None else _shifted_broker(view.broker, seconds)
            )
            for member, view in observed.members.items()
        },
        master_since={pair: at + seconds for pair, at in observed.master_since.items()},
        masterless_since={pair: at + seconds for pair, at in observed.masterless_since.items()},
    )


def _shifted_broker(broker: Broker, seconds: float) -> Broker:
    def later(at: float | None) -> float | None:
        return None if at is None else at + seconds

    return dataclasses.replace(
        broker,
        end_at=later(broker.end_at),
        end_changed_at=later(broker.end_changed_at),
        stalled_since=later(broker.stalled_since),
        offsets_at=later(broker.offsets_at),
    )
