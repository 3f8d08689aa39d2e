"""Every status that the operator writes fits the schema: nothing refused, nothing pruned."""

from __future__ import annotations

from pathlib import Path

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.kinds.name_server import NameServer
from failback.operator.local.status import PodFact, cluster_status, name_server_status
from failback.operator.planning.plan.types import Plan
from failback.operator.schema.crds import schema_of
from failback.operator.schema.loading import load_resources
from tests.support.operator.planning_run import Run
from tests.support.operator.planning_world import World
from tests.support.operator.switch_world import delivered, is_over
from tests.unit.operator.crd_schema import problems

ROOT = Path(__file__).parents[3]
CLUSTER = schema_of("BrokerCluster")["properties"]["status"]
SWITCH = schema_of("RoleSwitch")["properties"]["status"]


def test_the_status_of_the_local_runtime_fits() -> None:
    now = "2026-01-01T00:00:00Z"
    name_server, cluster = load_resources([ROOT / "examples/two-pairs.yaml"]).items[:2]
    said = {"outcome": "Carried", "at": now, "offsets": 4, "line": "raised", "sources": ["s:1"]}
    facts = {"orders-0-0-0": PodFact("Running", True, "127.0.0.1:1", 0, carried=said)}
    assert isinstance(name_server, NameServer)
    assert isinstance(cluster, BrokerCluster)
    servers = schema_of("NameServer")["properties"]["status"]
    assert problems(servers, name_server_status(name_server, ["a:1"], facts, {}, now)) == []
    assert problems(CLUSTER, cluster_status(cluster, facts, {}, now)) == []


def test_the_status_of_a_cluster_fits_all_its_life() -> None:
    found: set[str] = set()

    def check(plan: Plan) -> None:
        found.update(problems(CLUSTER, dict(plan.status)))

    world = World()
    run = Run(world)
    run.check = check
    run.for_passes(30)
    world.edit(slaveReadEnable=True, config={"flushConsumerOffsetInterval": "1000"})
    run.until(lambda: any(step.startswith("Roll") for step in run.steps)).for_passes(10)
    world.take_pod(0, 1)
    run.for_passes(10)
    assert {step.partition("/")[0] for step in run.steps} >= {"LiveConfig", "Roll"}
    assert found == set()


def test_the_status_of_a_role_switch_fits_all_its_life() -> None:
    world = delivered()
    world.ask()
    found: set[str] = set()
    while not is_over(world):
        world.reconcile()
        world.tick()
        found.update(problems(SWITCH, dict(world.switch_status)))
        found.update(problems(CLUSTER, dict(world.status)))
    assert world.phase == "Complete"
    assert found == set()


def test_what_does_not_fit_is_seen() -> None:
    status = {
        "pairs": [{"name": "a", "index": "0", "members": [{"ordinals": 1}]}],
        "currentOperation": {"id": "1", "type": "Roll", "pair": "orders-0", "data": {"x": 1}},
        "conditions": [{"type": "Ready", "status": "Yes"}, {"type": "Ready", "status": "True"}],
        "readyPairs": None,
        "pendingRestarts": None,
    }
    assert sorted(problems(CLUSTER, status)) == sorted(
        [
            "status.pairs[0].index: '0' is no integer",
            "status.pairs[0].members[0].ordinal: is required",
            "status.pairs[0].members[0].ordinals: unknown",
            "status.currentOperation.pair: 'orders-0' is no integer",
            "status.conditions[0].reason: is required",
            "status.conditions[0].lastTransitionTime: is required",
            "status.conditions[0].status: 'Yes' is none of ['True', 'False', 'Unknown']",
            "status.conditions[1].reason: is required",
            "status.conditions[1].lastTransitionTime: is required",
            "status.conditions: twice the same ['type']",
        ]
    )
