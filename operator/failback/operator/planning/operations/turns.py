"""One pass over all operations of a cluster: each in turn, the most urgent first. Pure.

Each sees those before it as they are after their turn. So two that wait for the same cannot both
begin in one pass. At most one of them takes something away, or closes or opens a pair.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from failback.operator.planning import operations
from failback.operator.planning.observed.observed import Key, Object
from failback.operator.planning.operations.step_context import StepContext
from failback.operator.planning.plan.encoding import names, operations_to_status
from failback.operator.planning.plan.types import (
    DISRUPTIVE,
    Action,
    Advance,
    Apply,
    Event,
    MarkClaim,
    Operation,
    SetConfig,
)
from failback.operator.planning.state import precedence
from failback.operator.planning.state.cluster_state import ClusterState
from failback.operator.planning.state.live_keys import PERMISSION

_SOON: Final = 0.05
"""Seconds until the pass after one that opened or moved an operation."""
_OF_THE_PAIR: Final = "PairFree"
_OF_OTHERS: Final = "NoOtherOperation"


@dataclass(frozen=True, slots=True)
class Turn:
    """What all operations together want of a pass."""

    operations: tuple[Operation, ...] = ()
    """After the pass, as the status shows them."""
    actions: tuple[Action, ...] = ()
    lanes: tuple[int | None, ...] = ()
    """The pair of each action."""
    events: tuple[Event, ...] = ()
    wake_after: float | None = None
    begun: tuple[int | None, ...] = ()
    """The pairs whose operation begins; ``None`` = all of them."""
    first: Mapping[str, Any] | None = None
    """What the status must say of the operations before the actions; ``None`` = nothing new."""


@dataclass(slots=True)
class _Pass:
    """What has come of the operations that had their turn."""

    state: ClusterState
    done: list[tuple[Operation | None, Advance]] = field(default_factory=list)
    """Each operation before (``None`` = it begins) and what it wants."""
    disrupts: bool = False

    def note(self, before: Operation | None, advance: Advance) -> None:
        self.done.append((before, advance))
        mine = before or advance.operation
        assert mine is not None
        rest = [item for item in self.state.operations if item.id != mine.id]
        kept = [advance.operation] if advance.operation is not None else []
        self.state = dataclasses.replace(self.state, operations=(*rest, *kept))


def operate(state: ClusterState, desired: Mapping[Key, Object], *, held: str) -> Turn:
    """Let the operations go on, and open those whose cause has come.

    Args:
        held: What all operations wait for, empty for nothing; a RoleSwitch waits in its own way.
            A pair with two masters is such: which of them is right is not for us to say. Live keys
            of other pairs go on then.
    """
    chosen = operations.choose(state)
    before = {item.id: item for item in state.operations}
    kept = {item.id for item in chosen}
    this = _Pass(state)
    for gone in (item for item in state.operations if item.id not in kept):
        this.note(gone, Advance(None, wake_after=_SOON))
    for operation in chosen:
        known = before.get(operation.id)
        this.note(known, _advance(this, desired, operation, known, held=held))
    return _together(state, this)


def _advance(
    this: _Pass,
    desired: Mapping[Key, Object],
    operation: Operation,
    known: Operation | None,
    *,
    held: str,
) -> Advance:
    """Return what one operation wants; what has changed is in the status before it acts."""
    own_way = operation.type == operations.role_switch.TYPE
    live = operation.type == operations.live_config.TYPE and held == "SingleMaster"
    if held and not own_way and not live:
        return Advance(operation.blocked(held))
    if operation.pair in this.state.unclear:
        return Advance(operation.blocked("MasterKnown"))
    if operation != known:
        return Advance(operation, wake_after=_SOON)
    found = operations.advance(StepContext(this.state, desired, operation))
    if not any(map(_disrupts, found.actions)):
        return found
    if this.disrupts:
        return Advance(operation, wake_after=_SOON)  # with the next pass
    this.disrupts = True
    return found


def _disrupts(action: Action) -> bool:
    closes = isinstance(action, SetConfig) and PERMISSION in action.values
    return closes or isinstance(action, DISRUPTIVE)


def _together(state: ClusterState, this: _Pass) -> Turn:
    after = [advance.operation for _, advance in this.done if advance.operation is not None]
    actions: list[Action] = []
    lanes: list[int | None] = []
    events: list[Event] = []
    wakes: list[float] = []
    for before, advance in this.done:
        pair = _after((before, advance))[1].pair
        actions += advance.actions
        lanes += [lane_of(action) if pair is None else pair for action in advance.actions]
        told = [*advance.events, *_events(before, advance, this.state)]
        events += [dataclasses.replace(event, lane=pair) for event in told]
        wakes.append(_SOON if advance.operation != before else advance.wake_after)
    return Turn(
        operations.current_first(state, after),
        tuple(actions),
        tuple(lanes),
        tuple(events),
        min(wakes, default=None),
        tuple(item.pair for before, item in map(_after, this.done) if before is None),
        _first(state, this),
    )


def _after(turn: tuple[Operation | None, Advance]) -> tuple[Operation | None, Operation]:
    """Return an operation before and after its turn, the same where it ends."""
    before, advance = turn
    after = advance.operation or before
    assert after is not None
    return before, after


def lane_of(action: Action) -> int | None:
    """Return the pair that an action belongs to, where the action itself tells."""
    if isinstance(action, SetConfig):
        return action.member[0]
    labels: Mapping[str, str] = {}
    if isinstance(action, Apply):
        labels = action.manifest["metadata"].get("labels", {})
    elif isinstance(action, MarkClaim):
        labels = action.labels
    pair = labels.get("failback.dev/pair", "")
    return int(pair) if pair.isdigit() else None


def _first(state: ClusterState, this: _Pass) -> dict[str, Any] | None:
    """Return the operations as they must be in the status before this pass acts."""
    wanted = []
    changed = False
    for before, advance in this.done:
        late = advance.counts and before is not None
        if not late and _remembered(advance.operation) != _remembered(before):
            changed = True
        kept = before if late else advance.operation
        if kept is not None:
            wanted.append(kept)
    return operations_to_status(operations.current_first(state, wanted)) if changed else None


def _remembered(operation: Operation | None) -> Operation | None:
    """Return what an operation is to remember: its step, its data.

    What it waited for is not of that kind. Written before the action it waited with, it would keep
    operators from that action whose lives end with a write: each next one has to wait again.
    """
    return operation and dataclasses.replace(operation, blocked_by=(), attempts=0)


# --- events -------------------------------------------------------------------------------------


def _events(before: Operation | None, advance: Advance, state: ClusterState) -> tuple[Event, ...]:
    after = advance.operation
    if after is None:
        assert before is not None
        return (Event("OperationFinished", f"{before.type} {before.id}"),)
    found = []
    if before is None:
        found.append(Event("OperationStarted", f"{after.type} {after.id}"))
    if after.blocked_by and set(after.blocked_by) != set(before.blocked_by if before else ()):
        text = f"{titled(state, after)} at {after.step} waits for {waits_for(state, after)}"
        found.append(Event("OperationBlocked", text, warning=True))
    return tuple(found)


def titled(state: ClusterState, operation: Operation) -> str:
    """Return what an operation is and which pair it works on."""
    if operation.pair is None:
        return operation.type
    return f"{operation.type} of {state.cluster.broker_name(operation.pair)}"


def waits_for(state: ClusterState, operation: Operation) -> str:
    """Return what an operation waits for, other operations by their names."""
    others = [item for item in state.operations if item.id != operation.id]
    return names(_explained(state, operation, name, others) for name in operation.blocked_by)


def _explained(
    state: ClusterState, operation: Operation, predicate: str, others: Sequence[Operation]
) -> str:
    found = []
    for other in others:
        same = other.pair == operation.pair
        if predicate == _OF_THE_PAIR and same and precedence.keeps_out(other, operation.type):
            found.append(titled(state, other))
        if predicate == _OF_OTHERS and not same and precedence.disturbs(other, state.now):
            found.append(titled(state, other))
    return f"{predicate} ({', '.join(found)})" if found else predicate
