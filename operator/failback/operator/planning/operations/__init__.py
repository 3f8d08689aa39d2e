"""The operations of a cluster: one module each, which goes first, and what may run beside what.

A pair has one operation at a time, and LiveConfig runs beside all of them. A more urgent cause of
the same pair makes the one that is there give way. Operations of other pairs go on. What each has
to ask before it takes something away keeps two pairs from being disturbed at once
(``state/precedence.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning.operations import (
    live_config,
    resize,
    resync,
    role_switch,
    roll,
    scale_down,
    scale_up,
)
from failback.operator.planning.operations.step_context import StepContext
from failback.operator.planning.plan.types import Advance, Operation
from failback.operator.planning.state import precedence
from failback.operator.planning.state.cluster_state import ClusterState
from failback.operator.render.shape import Shape


class OperationModule(Protocol):
    """What each module of this package offers."""

    @property
    def TYPE(self) -> str:  # noqa: N802 (a constant of the module)
        """Name in the ``type`` of an operation in the status."""

    def causes(self, state: ClusterState) -> Iterator[Operation]:
        """Yield the operations that the observation calls for, each at its first step.

        Those that are under way already may be among them.
        """

    def advance(self, step: StepContext) -> Advance:
        """Return what the operation wants of this pass."""

    def reshape(self, shape: Shape, cluster: BrokerCluster, operation: Operation) -> Shape:
        """Return the shape as the operation at its step needs it."""

    def give_way(
        self, state: ClusterState, operation: Operation, urgent: Operation
    ) -> Operation | None:
        """Return the operation as it goes on although one more urgent waits for its pair.

        ``None`` = it ends here. What it returns changed is on its way out.
        """


_BY_PRIORITY: tuple[OperationModule, ...] = (
    role_switch,
    resync,
    scale_down,
    resize,
    roll,
    scale_up,
    live_config,
)
"""The first that has a cause goes first."""
OPERATIONS: Final[Mapping[str, OperationModule]] = {module.TYPE: module for module in _BY_PRIORITY}
_RANK: Final = {module.TYPE: rank for rank, module in enumerate(_BY_PRIORITY)}


def reshape(shape: Shape, cluster: BrokerCluster, running: Iterable[Operation]) -> Shape:
    """Return the shape as the running operations need it: the one that holds a pair decides
    last."""
    for operation in sorted(running, key=precedence.holds_pair):
        shape = OPERATIONS[operation.type].reshape(shape, cluster, operation)
    return shape


def advance(step: StepContext) -> Advance:
    """Return what a running operation wants of this pass."""
    return OPERATIONS[step.operation.type].advance(step)


def in_order(running: Iterable[Operation]) -> tuple[Operation, ...]:
    """Return operations as they go in a pass: the most urgent first."""
    return tuple(sorted(running, key=lambda item: (*_urgency(item), item.started_at, item.id)))


def current_first(state: ClusterState, running: Iterable[Operation]) -> tuple[Operation, ...]:
    """Return operations as the status shows them: those that work before those that wait."""
    ordered = in_order(running)
    return tuple(sorted(ordered, key=lambda item: precedence.waits(item, state.now)))


def _urgency(operation: Operation) -> tuple[int, bool]:
    return _RANK[operation.type], operation.data.get("mode") != "Forced"


def choose(state: ClusterState) -> tuple[Operation, ...]:
    """Return the operations of this pass: the running ones, and those that begin.

    What a more urgent cause needs the pair of gives way, at once or at the end of its step. On a
    pair whose master cannot be told nothing begins.
    """
    chosen = list(in_order(state.operations))
    for module in _BY_PRIORITY:
        for found in module.causes(state):
            if _is_under_way(found, chosen) or _waits_its_turn(state, found, chosen):
                continue
            if found.pair in state.unclear:
                continue
            chosen = _cleared(state, found, chosen)
            if not any(_is_rival(found, other) for other in chosen):
                chosen.append(found)
    return in_order(chosen)


def _is_under_way(found: Operation, chosen: Sequence[Operation]) -> bool:
    """Tell whether the same work is done already; a RoleSwitch is one work per object."""
    return any(
        (other.type, other.pair, other.data.get("uid"))
        == (found.type, found.pair, found.data.get("uid"))
        for other in chosen
    )


def _waits_its_turn(state: ClusterState, found: Operation, chosen: Sequence[Operation]) -> bool:
    """Tell whether one of its type is at work; a switch asks for itself what runs elsewhere."""
    return found.type != role_switch.TYPE and any(
        other.type == found.type and not precedence.waits(other, state.now) for other in chosen
    )


def _is_rival(found: Operation, other: Operation) -> bool:
    return other.pair == found.pair and precedence.keeps_out(other, found.type)


def _goes_before(found: Operation, other: Operation) -> bool:
    """Tell whether ``other`` is asked to give way: a forced switch asks every other one."""
    if found.type == other.type == role_switch.TYPE:
        return bool(found.data["mode"] == "Forced")
    return _RANK[found.type] < _RANK[other.type]


def _cleared(state: ClusterState, found: Operation, chosen: Iterable[Operation]) -> list[Operation]:
    """Return the operations once those that are less urgent have given way on the pair."""
    kept: list[Operation] = []
    for other in chosen:
        after: Operation | None = other
        if other.pair == found.pair is not None and _goes_before(found, other):
            after = OPERATIONS[other.type].give_way(state, other, found)
        if after is not None:
            kept.append(after)
    return kept
