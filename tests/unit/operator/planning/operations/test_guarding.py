"""Access control and TLS are switched on and off while members go on talking with each other."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

from failback.operator.planning.plan.types import Plan
from failback.operator.render.members import ACL_MODE, APACHE_TLS, FAILBACK_TLS
from tests.support.operator.planning_run import Run, steady
from tests.support.operator.planning_world import World
from tests.support.operator.simulated_machines import SimPod

ACL = {"secretRef": {"name": "keys"}}
TLS = {"secretRef": {"name": "certificates"}}
ENGINES: tuple[dict[str, Any], ...] = (
    {"type": "Failback", "version": "0.2.0"},
    {"type": "Apache", "version": "4.9.7"},
)
ON: dict[str, Any] = {"acl": {**ACL, "mode": "Enforce"}, "tls": {**TLS, "mode": "Enforcing"}}
OFF: dict[str, Any] = {"acl": {**ACL, "mode": "Off"}, "tls": {**TLS, "mode": "Disabled"}}
NONE: dict[str, Any] = {"acl": None, "tls": None}


def condition(world: World, kind: str) -> tuple[str, str]:
    found = {item["type"]: item for item in world.status["conditions"]}
    return found[kind]["status"], found[kind]["reason"]


def mounted(pod: SimPod) -> set[str]:
    """Return the names of the Secrets that a pod has."""
    volumes = pod.template["spec"]["volumes"]
    sources = [each["projected"]["sources"] for each in volumes if "projected" in each]
    return {each["secret"]["name"] for found in sources for each in found if "secret" in each}


def edit(world: World, **spec: Any) -> None:
    world.edit(**{name: value for name, value in spec.items() if value is not None})
    for name, value in spec.items():
        if value is None:
            del world.document["spec"][name]


class Talks:
    """Sees at each pass that slaves reach their masters."""

    def __init__(self, world: World, run: Run) -> None:
        self.world = world
        self.seen: list[tuple[str, ...]] = []
        """Mode of access control, of TLS, and own TLS, of the master of pair 0, as they changed."""
        apaches = world.document["spec"]["engine"]["type"] == "Apache"
        self.mode, self.own = APACHE_TLS if apaches else FAILBACK_TLS

        run.check = self.check

    def check(self, plan: Plan) -> None:
        for pair in range(2):
            master = self.world.master(pair)
            if master is None:
                continue
            self._note(pair, master)
            takes = master.config.get(self.mode, "file")
            assert takes in ("disabled", "file") or "certificates" in mounted(master)
            if takes == "file":
                takes = "permissive" if "certificates" in mounted(master) else "disabled"
            for slave in self.world.pods.values():
                if slave.up and slave.member[0] == pair and slave is not master:
                    speaks = slave.config.get(self.own) == "true"
                    assert not speaks or "certificates" in mounted(slave)
                    taken = ("permissive", "enforcing") if speaks else ("permissive", "disabled")
                    assert takes in taken, (takes, speaks)
                    assert not self._checks(master) or "keys" in mounted(slave)

    def _checks(self, master: SimPod) -> bool:
        enforces = master.config.get(ACL_MODE, "enforce") == "enforce"
        return master.config.get("aclEnable") == "true" and enforces

    def _note(self, pair: int, master: SimPod) -> None:
        names = (self.mode, self.own)
        acl = master.config.get(ACL_MODE, master.config.get("aclEnable", "-"))
        found = (acl, *(master.config.get(name, "-") for name in names))
        if pair == 0 and (not self.seen or self.seen[-1] != found):
            self.seen.append(found)


def test_members_talk_at_every_moment_of_a_switch_and_of_the_way_back() -> None:
    for engine in ENGINES:
        world = steady(pairs=2, slavesPerPair=1, engine=engine)
        run = Run(world)
        talks = Talks(world, run)
        for spec, said in ((ON, ("Enforce", "Enforcing")), (OFF, ("Off", "Disabled"))):
            edit(world, **spec)
            run.until_steady()
            for kind, word in zip(("AccessControl", "TLS"), said, strict=True):
                assert condition(world, kind) == ("True", word), (engine, kind)
        edit(world, **NONE)
        run.until_steady()
        assert not any(mounted(pod) for pod in world.pods.values())
        assert {"permissive", "enforcing", "disabled"} <= {mode for _, mode, _ in talks.seen}


def test_a_member_that_dies_in_the_middle_takes_nothing_back() -> None:
    for engine in ENGINES:
        begun = steady(pairs=2, slavesPerPair=1, engine=engine)
        edit(begun, **ON)
        for after in (5, 40, 120, 250):
            world = copy.deepcopy(begun)
            run = Run(world)
            Talks(world, run)
            for _ in range(after):
                run.one_pass()
                world.tick()
            if world.pod(0, 1) is not None:
                world.kill(0, 1)
            run.until_steady()
            assert condition(world, "TLS") == ("True", "Enforcing"), (engine, after)
            before = dict(world.objects)
            world.kill(1, 0)
            run.until_steady()
            assert world.objects.keys() == before.keys()
            assert condition(world, "TLS") == ("True", "Enforcing"), (engine, after)


def test_a_field_that_is_removed_while_it_is_on_stays_in_force() -> None:
    world = steady(pairs=2, slavesPerPair=1, engine=ENGINES[0], **ON)
    for field in ("acl", "tls"):
        given = world.document["spec"][field]
        edit(world, **{field: None})
        run = Run(world)
        Talks(world, run)
        run.until_steady()
        ready = next(each for each in world.status["conditions"] if each["type"] == "Ready")
        assert (ready["reason"], f"spec.{field}" in ready["message"]) == ("InvalidSpec", True)
        assert all(len(mounted(pod)) == 2 for pod in world.pods.values())
        world.edit(**{field: given})
        run.until_steady()


def test_without_a_key_of_the_operator_and_without_tls_of_name_servers_the_switch_waits() -> None:
    world = steady(pairs=2, slavesPerPair=1, engine=ENGINES[0])
    observe = world.observe
    blind: dict[str, Any] = {"has_key": False, "name_servers_take_tls": False}

    world.observe = lambda: dataclasses.replace(observe(), **blind)  # type: ignore[method-assign]
    edit(world, **ON)
    run = Run(world)
    Talks(world, run)
    run.until_steady()
    assert condition(world, "AccessControl") == ("False", "NoOwnKey")
    assert condition(world, "TLS") == ("False", "NameServersPlain")
    files = [pod.config for pod in world.pods.values()]
    assert {each[ACL_MODE] for each in files} == {"warn"}
    assert {each["useTLS"] for each in files} == {"false"}
    assert world.status["observedGeneration"] != world.document["metadata"]["generation"]
    blind.clear()
    run.until_steady()
    assert condition(world, "AccessControl") == ("True", "Enforce")
    assert condition(world, "TLS") == ("True", "Enforcing")


def test_a_new_cluster_is_guarded_from_its_first_start() -> None:
    world = steady(pairs=2, slavesPerPair=1, engine=ENGINES[0], **ON)
    assert condition(world, "TLS") == ("True", "Enforcing")
    assert {pod.uid for pod in world.pods.values()} == {
        pod.uid for pod in steady(pairs=2, slavesPerPair=1, engine=ENGINES[0], **ON).pods.values()
    }
    assert all(pod.config["failbackTlsMode"] == "enforcing" for pod in world.pods.values())
    assert not [event for event in world.events if event.reason == "PodRestart"]
