"""The operations of a cluster: one module each, which goes first, and the choice of the next.

At most one runs at a time; its step is in ``status.currentOperation``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
from failback.operator.planning.state.cluster_state import ClusterState
from failback.operator.render.shape import Shape


class OperationModule(Protocol):
    """What each module of this package offers."""

    @property
    def TYPE(self) -> str:  # noqa: N802 (a constant of the module)
        """Name in ``status.currentOperation.type``."""

    @property
    def ABANDONABLE(self) -> bool:  # noqa: N802
        """Whether a more urgent cause may end it, to be planned afresh later."""

    def cause(self, state: ClusterState) -> Operation | None:
        """Return the operation that the observation calls for, at its first step."""

    def advance(self, step: StepContext) -> Advance:
        """Return what the operation wants of this pass."""

    def reshape(self, shape: Shape, cluster: BrokerCluster, operation: Operation) -> Shape:
        """Return the shape as the operation at its step needs it."""


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


def reshape(shape: Shape, cluster: BrokerCluster, operation: Operation) -> Shape:
    """Return the shape as the running operation needs it."""
    return OPERATIONS[operation.type].reshape(shape, cluster, operation)


def advance(step: StepContext) -> Advance:
    """Return what the running operation wants of this pass."""
    return OPERATIONS[step.operation.type].advance(step)


def choose(state: ClusterState) -> Operation | None:
    """Return the operation of this pass: the running one, or the most urgent cause.

    A running operation that may be abandoned gives way to a more urgent cause at the end of its
    step. ``data.giveWay`` asks one that closed a pair to open it first.
    """
    running = state.running
    if running is None:
        return _cause(state, _BY_PRIORITY)
    module = OPERATIONS[running.type]
    if not module.ABANDONABLE or running.data.get("giveWay"):
        return running
    urgent = _cause(state, _BY_PRIORITY[: _BY_PRIORITY.index(module)])
    if urgent is not None and running.type == roll.TYPE:
        return roll.give_way(state, running, urgent) or urgent
    waits = running.type == scale_up.TYPE and scale_up.only_waits(state, running)
    if urgent is None and waits:
        urgent = live_config.cause(state)
    return urgent or running


def _cause(state: ClusterState, modules: Iterable[OperationModule]) -> Operation | None:
    for module in modules:
        found = module.cause(state)
        if found is not None:
            return found
    return None
