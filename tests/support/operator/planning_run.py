"""Passes of the operator over a :class:`World`, as ``carry_out`` does them, stopped at will."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from failback.operator.kinds.base import FINALIZER
from failback.operator.kinds.role_switch import RoleSwitch, RoleSwitchStatus
from failback.operator.planning.cluster.cluster import plan_cluster
from failback.operator.planning.observed.observed import ObservedCluster
from failback.operator.planning.operations.switching import snapshot
from failback.operator.planning.plan.encoding import (
    OPERATION_FIELDS,
    difference,
    operations_from_status,
)
from failback.operator.planning.plan.memory import Memory
from failback.operator.planning.plan.types import Action, Plan, SetConfig
from failback.operator.planning.role_switch.switch_object import plan_role_switch
from failback.operator.render.context import Context, kubernetes_context
from tests.support.operator.merge_patch import merged
from tests.support.operator.planning_world import Refused, World, notes_the_spec

CONTEXT = kubernetes_context("shop", "0.1.0")
MAX_PASSES = 3000
EVERY_WRITE = range(1, 1_000_000)


class Crashed(Exception):
    """The operator was ended here."""


@functools.cache
def _steady(spec: str) -> World:
    world = World(**json.loads(spec))
    Run(world).until_steady()
    world.log.clear()
    world.events.clear()
    return world


def steady(**spec: Any) -> World:
    """Return a cluster of this spec that has come to rest, with nothing in its log."""
    return copy.deepcopy(_steady(json.dumps(spec, sort_keys=True)))


class Run:
    """The operator's passes. Everything it remembers is the status in the world.

    Args:
        crashes: Numbers of writes after which the operator dies; a new one goes on.
        late: Of each pass in turn: how many passes old its observation is.
        context: Of the operator; another release has another.
    """

    def __init__(
        self,
        world: World,
        *,
        crashes: Collection[int] = (),
        late: Sequence[int] = (),
        context: Context = CONTEXT,
    ) -> None:
        self.world = world
        self.context = context
        self.crashes = crashes
        self.late = late
        self.seen: list[ObservedCluster] = []
        self.writes = 0
        self.memory = Memory()
        self.passes = 0
        self.plan = Plan()
        self.switches_first = False
        """In which order a pass looks at its objects: no order is promised."""
        self.steps: list[str] = []
        """``Type/Step`` of the operations, as each changed."""
        self._last: dict[str, str] = {}
        self.check: Callable[[Plan], None] = lambda plan: None

    def one_pass(self) -> Plan:
        """Observe, plan, carry out, write the status. A crash ends the pass, not the run."""
        parts = [self.cluster_pass, self.switch_passes]
        with suppress(Crashed):
            for part in reversed(parts) if self.switches_first else parts:
                part()
        return self.plan

    def cluster_pass(self) -> None:
        """Plan and carry out once for the cluster."""
        world = self.world
        observed = self._observe()
        self.plan = plan_cluster(
            world.cluster, world.status, observed, self.context, world.now, self.memory
        )
        self.passes += 1
        self.check(self.plan)
        try:
            self._carry_out(self.plan)
        finally:
            self._note()

    def switch_passes(self) -> None:
        """Plan and carry out once for every RoleSwitch."""
        for name in sorted(self.world.switches):
            self._switch_pass(name)

    def _switch_pass(self, name: str) -> None:
        world = self.world
        found = world.switches[name]
        plan = plan_role_switch(
            RoleSwitch.model_validate(found),
            found["status"],
            world.observe(),
            world.cluster.model_copy(update={"status": world.status}),
            world.now,
            deleting="deletionTimestamp" in found["metadata"],
        )
        RoleSwitchStatus.model_validate(plan.status)
        if plan.status != found["status"]:
            self._write()
            world.switches[name] = {**found, "status": dict(plan.status)}
            self._written()
        world.events += plan.events
        self._act(plan)
        self._set_finalizer(name, plan)
        if "deletionTimestamp" in found["metadata"] and plan.finalizer is False:
            self._write()
            del world.switches[name]
            owned = snapshot.name_of(name)
            world.snapshots.pop(owned, None)  # the garbage collector takes what the object owns
            self._written()

    def _set_finalizer(self, name: str, plan: Plan) -> None:
        if name not in self.world.switches:  # its time had come
            return
        metadata = self.world.switches[name]["metadata"]
        wanted = [FINALIZER] if plan.finalizer else []
        if plan.finalizer is None or metadata.get("finalizers", []) == wanted:
            return
        if "deletionTimestamp" in metadata:
            return  # none may be added then; that one goes says the caller
        self._write()
        switch = self.world.switches[name]
        self.world.switches[name] = {**switch, "metadata": {**metadata, "finalizers": wanted}}
        self._written()

    def _observe(self) -> ObservedCluster:
        if not self.late:
            return self.world.observe()
        self.seen.append(self.world.observe())
        age = self.late[self.passes] if self.passes < len(self.late) else 0
        return self.seen[max(0, len(self.seen) - 1 - age)]

    def _carry_out(self, plan: Plan) -> None:
        world = self.world
        if plan.operations_first is not None:
            self._patch(_operations(world.status), plan.operations_first)
        world.events += plan.events
        self._act(plan)
        self._patch(world.status, plan.status)

    def _act(self, plan: Plan) -> None:
        ended = set()
        for action, lane in zip(
            plan.actions, plan.lanes or [None] * len(plan.actions), strict=True
        ):
            if lane in ended:
                continue
            self._write()
            try:
                self.world.carry_out(action)
            except Refused:
                ended.add(lane)  # the rest of its lane is left out; the status is written
                continue
            self._written()

    def _patch(self, have: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
        """Write the difference, if there is one, as the server takes it."""
        patch = difference(have, wanted)
        if patch:
            self._write()
            self.world.status = merged(self.world.status, json.loads(json.dumps(patch)))
            self._written()

    def _write(self) -> None:
        self.writes += 1

    def _written(self) -> None:
        if self.writes in self.crashes:
            self.memory = Memory()
            self.world.begin_to_look()
            raise Crashed

    def _note(self) -> None:
        steps = {}
        for operation in operations_from_status(self.world.status):
            steps[operation.id] = f"{operation.type}/{operation.step}"
            if self._last.get(operation.id) != steps[operation.id]:
                self.steps.append(steps[operation.id])
        self._last = steps

    def until_steady(self) -> Run:
        """Pass and tick until nothing is left to do; fails when that never comes."""
        quiet = 0
        while quiet < 3:
            assert self.passes < MAX_PASSES, f"no end in sight: {self.steps[-6:]}"
            before = self.world.status
            plan = self.one_pass()
            same = not plan.actions and before == self.world.status
            quiet = quiet + 1 if same and plan.wake_after is None else 0
            self.world.tick(_pause(plan, same))
        return self

    def until(self, reached: Callable[[], bool]) -> Run:
        """Pass and tick until a condition holds."""
        while not reached():
            assert self.passes < MAX_PASSES, f"never came: {self.steps[-6:]}"
            before = self.world.status
            plan = self.one_pass()
            self.world.tick(_pause(plan, not plan.actions and before == self.world.status))
        return self

    def for_passes(self, count: int) -> Run:
        """Pass and tick so many times."""
        for _ in range(count):
            self.world.tick(_pause(self.one_pass(), same=False))
        return self

    def at_step(self, step: str) -> bool:
        """Tell whether an operation is at ``Type/Step``."""
        found = operations_from_status(self.world.status)
        return any(f"{operation.type}/{operation.step}" == step for operation in found)


def _pause(plan: Plan, same: bool) -> float:
    """Return the seconds until the next pass: as planned, longer while everything only waits."""
    return 10.0 if same else min(plan.wake_after or 5.0, 5.0) + 0.2


def _operations(status: Mapping[str, Any]) -> dict[str, Any]:
    return {key: status[key] for key in OPERATION_FIELDS if key in status}


def changes(plan: Plan) -> tuple[Action, ...]:
    """Return the actions of a plan, without the note of the spec that it carries out."""
    return tuple(item for item in plan.actions if not notes_the_spec(item))


def disruptions(plan: Plan) -> int:
    """Return how many actions of a plan take something away: at most one is allowed."""
    kinds = [type(action).__name__ for action in plan.actions]
    closing = [
        a for a in plan.actions if isinstance(a, SetConfig) and "brokerPermission" in a.values
    ]
    return sum(kind in ("Evict", "DeletePod") for kind in kinds) + len(closing)
