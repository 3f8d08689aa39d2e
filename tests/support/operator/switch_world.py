"""A :class:`World` of two pairs, or one, whose user asks for role switches of the first.

Time moves only by :meth:`SwitchWorld.tick`. One pass of the operator is
:meth:`SwitchWorld.reconcile`. ``operator.crashes`` says after which of its writes it dies.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from failback.operator.planning.plan.encoding import find_condition, stored_operations, to_time
from failback.operator.planning.state import predicates
from failback.operator.render.context import Context
from tests.support.operator.planning_run import CONTEXT, EVERY_WRITE, Run
from tests.support.operator.planning_world import World

STEADY_IN_SHORT_LIVES: Final = 9.0


class SwitchWorld(World):
    """A cluster under traffic; member 0 of each pair is master."""

    def __init__(self, context: Context = CONTEXT, **spec: Any) -> None:
        super().__init__(**spec)
        self.start_seconds, self.stop_seconds = 6.0, 4.0
        self.traffic = 100
        self.operator = Run(self, context=context)

    def ask(self, name: str = "swap", **spec: Any) -> None:
        """Create a RoleSwitch."""
        self.switches[name] = {
            "apiVersion": "failback.dev/v1alpha1",
            "kind": "RoleSwitch",
            "metadata": {
                "name": name,
                "namespace": "shop",
                "uid": f"uid-{name}",
                "creationTimestamp": to_time(self.now),
            },
            "spec": {
                "clusterRef": {"name": "orders"},
                "pair": "orders-0",
                "targetMember": 1,
                **spec,
            },
            "status": {},
        }

    def delete(self, name: str = "swap") -> None:
        """Ask for the deletion of a RoleSwitch: its finalizer decides when it goes."""
        found = self.switches[name]
        if not found["metadata"].get("finalizers"):
            del self.switches[name]
            return
        metadata = {"deletionTimestamp": to_time(self.now), **found["metadata"]}
        self.switches[name] = {**found, "metadata": metadata}

    # --- what a test asks ---

    @property
    def switch_status(self) -> Mapping[str, Any]:
        return dict(self.switches.get("swap", {}).get("status") or {})

    @property
    def phase(self) -> str:
        return str(self.switch_status.get("phase", ""))

    def reason(self, kind: str) -> str:
        """Return the reason of a condition of the RoleSwitch."""
        found = find_condition(self.switch_status, kind)
        return "" if found is None else str(found["reason"])

    def says(self, kind: str) -> str:
        """Return status and reason of a condition of the cluster."""
        found = find_condition(self.status, kind)
        return "" if found is None else f"{found['status']} {found['reason']}"

    @property
    def step(self) -> str:
        return str(self.status.get("currentOperation", {}).get("step", ""))

    @property
    def steps_seen(self) -> list[str]:
        return [step.partition("/")[2] for step in self.operator.steps]

    @property
    def effects(self) -> int:
        """How often the operator has written anything."""
        return self.operator.writes

    @property
    def recorded(self) -> int:
        """The master member that the claims name."""
        return self.state().master_member(0)

    @property
    def shown_permission(self) -> int | None:
        return (self.observe().routes[0].permissions or {}).get("orders-0")

    # --- letting it run ---

    def reconcile(self) -> None:
        """Plan and carry out once for the cluster and for every RoleSwitch."""
        self.operator.one_pass()

    def run(
        self,
        *,
        until: Callable[[SwitchWorld], bool] | None = None,
        seconds: float = 3000.0,
        tick: float = 2.0,
    ) -> None:
        """Let the operator work until the switch is over and the cluster has no operation."""
        end = self.now + seconds
        stop = until or is_over
        while not stop(self):
            assert self.now < end, f"stuck: {self.status} {self.switch_status}"
            self.reconcile()
            self.tick(tick)

    def settle(self, seconds: float = 120.0, tick: float = 2.0) -> None:
        """Let the operator work for a while."""
        end = self.now + seconds
        self.run(until=lambda at: at.now >= end, tick=tick)

    def run_in_short_lives(
        self, *, until: Callable[[SwitchWorld], bool] | None = None, tick: float = 2.0
    ) -> None:
        """Like :meth:`run`, with an operator that dies after each of its effects.

        To these operators a master is steady sooner: the renewal of a lease is an effect as well,
        so that none of them lives for a minute.
        """
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(predicates, "STABLE_MASTER_SECONDS", STEADY_IN_SHORT_LIVES)
            self.operator.crashes = EVERY_WRITE
            self.run(until=until, tick=tick)
            self.operator.crashes = ()


def is_over(world: SwitchWorld) -> bool:
    """Tell whether no switch runs or waits."""
    phases = [(item["status"] or {}).get("phase") for item in world.switches.values()]
    running = {item["type"] for item in stored_operations(world.status)}
    return "RoleSwitch" not in running and all(phase in ("Complete", "Failed") for phase in phases)


@functools.cache
def _delivered(members: int, failover: str, pairs: int) -> SwitchWorld:
    world = SwitchWorld(pairs=pairs, slavesPerPair=members - 1, failover={"mode": failover})
    world.settle(200, tick=2.0)
    assert world.says("Ready") == "True AllReady"
    world.log.clear()
    world.events.clear()
    world.operator.writes = 0
    world.operator.steps.clear()
    return world


def delivered(members: int = 2, *, failover: str = "None", pairs: int = 2) -> SwitchWorld:
    """Return a world of its own whose cluster is at rest, made once for each kind."""
    return copy.deepcopy(_delivered(members, failover, pairs))


def roles(world: World) -> dict[int, str]:
    """Return what each running member of the first pair is, and its permission."""
    first = [pod for pod in world.pods.values() if pod.up and pod.member[0] == 0]
    found = {pod.member[1]: pod.config for pod in first}
    return {
        ordinal: f"{config['brokerRole']} {config['brokerId']} {config['brokerPermission']}"
        for ordinal, config in sorted(found.items())
    }
