"""Access from outside: addresses come back from Services, and nobody starts without one."""

from __future__ import annotations

from typing import Any

import pytest

from failback.operator.planning.observed.facts import properties
from failback.operator.planning.plan.encoding import find_condition
from failback.operator.render.service import OUTSIDE
from tests.support.operator.planning_run import Run, steady
from tests.support.operator.planning_world import World

BALANCED = {"type": "LoadBalancer", "annotations": {"example.org/kind": "tcp"}}
PORTS = {"type": "NodePort", "nodeAddresses": ["10.1.0.1", "10.1.0.2"], "firstNodePort": 30911}


def services(world: World) -> dict[str, dict[str, Any]]:
    """The Services for clients outside, by name."""
    return {
        name: item
        for (kind, name), item in world.objects.items()
        if kind == "Service" and OUTSIDE in item["metadata"]["labels"]
    }


def give(world: World, name: str, **entry: str) -> None:
    """Write a Service's status as a cloud's controller does; without an entry take it away."""
    ingress = [entry] if entry else []
    item = world.objects["Service", name]
    world.put({**item, "status": {"loadBalancer": {"ingress": ingress}}})


def give_all(world: World) -> None:
    for number, name in enumerate(sorted(services(world))):
        give(world, name, ip=f"192.0.2.{number + 1}")


def condition(world: World, kind: str) -> tuple[str, str, str]:
    found = find_condition(world.status, kind)
    assert found is not None, kind
    return found["status"], found["reason"], found["message"]


def announced(world: World) -> dict[str, tuple[str, str]]:
    """Member → host and port that its file announces."""
    files = {
        name: properties(item)
        for (kind, name), item in world.objects.items()
        if kind == "ConfigMap" and "broker.conf" in item["data"]
    }
    return {name: (each["brokerIP1"], each["listenPort"]) for name, each in files.items()}


def members(world: World) -> list[str]:
    return sorted(name for kind, name in world.objects if kind == "StatefulSet")


@pytest.fixture
def balanced() -> World:
    """A cluster that has come to rest behind load balancers."""
    world = World(external=BALANCED)
    run = Run(world)
    run.for_passes(3)
    give_all(world)
    run.until_steady()
    return world


def test_no_member_starts_before_its_balancer_has_an_address() -> None:
    world = World(external=BALANCED)
    run = Run(world)
    run.for_passes(20)
    assert sorted(services(world)) == ["orders-0-0-external", "orders-0-1-external"]
    assert members(world) == []
    assert condition(world, "ExternalAccess")[:2] == ("False", "WaitingForAddress")
    assert "orders-0-0, orders-0-1" in condition(world, "ExternalAccess")[2]
    assert condition(world, "Ready")[:2] == ("False", "Creating")

    give(world, "orders-0-0-external", hostname="lb.example.org")
    run.for_passes(20)
    assert members(world) == ["orders-0-0"]
    assert "orders-0-1" in condition(world, "ExternalAccess")[2]

    give(world, "orders-0-1-external", ip="192.0.2.2")
    run.until_steady()
    assert condition(world, "ExternalAccess")[:2] == ("True", "Announced")
    assert condition(world, "Ready")[0] == "True"
    assert announced(world) == {
        "orders-0-0": ("lb.example.org", "10911"),
        "orders-0-1": ("192.0.2.2", "10911"),
    }


def test_members_bind_and_replicate_inside(balanced: World) -> None:
    conf = properties(balanced.objects["ConfigMap", "orders-0-0"])
    assert conf["failbackBindAddress"] == "${POD_IP}"
    assert conf["brokerIP2"] == "orders-0-0-0.orders-brokers.shop.svc.cluster.local"
    (service,) = (each for name, each in services(balanced).items() if "-0-0-" in name)
    assert service["spec"]["type"] == "LoadBalancer"
    assert [(each["name"], each["port"]) for each in service["spec"]["ports"]] == [
        ("remoting", 10911),
        ("fast", 10909),
    ]
    assert service["metadata"]["annotations"]["example.org/kind"] == "tcp"
    selected = service["spec"]["selector"]
    pods = [item for (kind, _), item in balanced.objects.items() if kind == "StatefulSet"]
    labels = [each["spec"]["template"]["metadata"]["labels"] for each in pods]
    assert sum(selected.items() <= each.items() for each in labels) == 1


def test_an_address_that_is_lost_stays_announced(balanced: World) -> None:
    before = announced(balanced)
    balanced.log.clear()
    give(balanced, "orders-0-0-external")
    run = Run(balanced)
    run.for_passes(20)
    assert announced(balanced) == before
    assert condition(balanced, "ExternalAccess")[1] == "WaitingForAddress"
    assert balanced.log == []


def test_another_address_is_announced_after_a_roll(balanced: World) -> None:
    give(balanced, "orders-0-0-external", ip="192.0.2.77")
    Run(balanced).until_steady()
    assert announced(balanced)["orders-0-0"] == ("192.0.2.77", "10911")
    assert balanced.violations == []


def test_a_running_cluster_goes_outside_and_back() -> None:
    world = steady()
    inside = announced(world)
    world.edit(external=BALANCED)
    run = Run(world)
    run.for_passes(20)
    assert announced(world) == inside
    give_all(world)
    run.until_steady()
    assert {host for host, _ in announced(world).values()} == {"192.0.2.1", "192.0.2.2"}
    world.edit(external=None)
    run.until_steady()
    assert announced(world) == inside
    assert services(world) == {}
    assert condition(world, "ExternalAccess")[:2] == ("True", "NotAsked")
    assert world.violations == []


def test_the_service_of_a_member_that_leaves_goes(balanced: World) -> None:
    balanced.edit(slavesPerPair=0)
    Run(balanced).until_steady()
    assert list(services(balanced)) == ["orders-0-0-external"]


def test_with_node_ports_each_member_listens_where_it_announces() -> None:
    world = World(external=PORTS, pairs=2)
    Run(world).until_steady()
    assert announced(world) == {
        "orders-0-0": ("10.1.0.1", "30911"),
        "orders-0-1": ("10.1.0.2", "30915"),
        "orders-1-0": ("10.1.0.1", "30927"),
        "orders-1-1": ("10.1.0.2", "30931"),
    }
    for name, item in services(world).items():
        member = name.removesuffix("-external")
        port = int(announced(world)[member][1])
        assert [(each["port"], each["nodePort"]) for each in item["spec"]["ports"]] == [
            (port, port),
            (port - 2, port - 2),
        ]
        template = world.objects["StatefulSet", member]["spec"]["template"]["spec"]
        assert {"name": "remoting", "containerPort": port} in template["containers"][0]["ports"]
    assert condition(world, "ExternalAccess")[:2] == ("True", "Announced")


def test_a_template_needs_no_service() -> None:
    external = {"type": "Template", "template": "{pair}-{ordinal}.mq.example.org"}
    world = World(external=external)
    Run(world).until_steady()
    assert services(world) == {}
    assert announced(world)["orders-0-1"] == ("0-1.mq.example.org", "10911")
    assert condition(world, "ExternalAccess")[:2] == ("True", "Announced")


def test_a_new_pair_waits_and_the_old_one_keeps_its_members(balanced: World) -> None:
    balanced.edit(pairs=2)
    run = Run(balanced)
    run.for_passes(30)
    assert members(balanced) == ["orders-0-0", "orders-0-1"]
    assert "orders-1-0, orders-1-1" in condition(balanced, "ExternalAccess")[2]
    give(balanced, "orders-1-0-external", ip="192.0.2.9")
    give(balanced, "orders-1-1-external", ip="192.0.2.10")
    run.until_steady()
    assert announced(balanced)["orders-1-1"] == ("192.0.2.10", "10911")
    assert condition(balanced, "Ready")[0] == "True"
