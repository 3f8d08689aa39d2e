"""Live changes: the order of files and requests, drift, members that do not answer."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import pytest

from failback.operator.planning.observed import facts
from failback.operator.planning.plan.types import Apply, Evict, SetConfig
from tests.support.operator.planning_run import Run, steady
from tests.support.operator.planning_world import World

READ = "slaveReadEnable"


def done(world: World) -> list[str]:
    """Return files and requests in the order they were made: ``file 0-1``, ``25 0-1``."""
    found = []
    for action in world.log:
        if isinstance(action, Apply) and action.manifest["kind"] == "ConfigMap":
            found.append("file " + action.manifest["metadata"]["name"].removeprefix("orders-"))
        if isinstance(action, SetConfig):
            found.append("25 {}-{}".format(*action.member))
    return found


def file(world: World, pair: int, ordinal: int) -> Mapping[str, str]:
    return facts.properties(world.objects["ConfigMap", f"orders-{pair}-{ordinal}"])


def told(world: World, reason: str) -> list[str]:
    return [event.message for event in world.events if event.reason == reason]


def condition(world: World, kind: str) -> tuple[str, str]:
    found = {item["type"]: item for item in world.status["conditions"]}
    return found[kind]["status"], found[kind]["reason"]


def test_reads_are_enabled_at_slaves_before_masters_and_each_file_before_its_process() -> None:
    world = steady(pairs=2, slavesPerPair=2)
    world.edit(slaveReadEnable=True)
    Run(world).until_steady()
    pair = ["file {}-2", "25 {}-2", "file {}-1", "25 {}-1", "file {}-0", "25 {}-0"]
    assert done(world) == [line.format(p) for p in (0, 1) for line in pair]
    assert told(world, "ConfigUpdated") == [
        "slaveReadEnable false -> true on orders-0-2, orders-0-1, orders-0-0, "
        "orders-1-2, orders-1-1, orders-1-0"
    ]
    assert condition(world, "ConfigApplied") == ("True", "Verified")


def test_reads_are_disabled_at_masters_first() -> None:
    world = steady(slavesPerPair=2, slaveReadEnable=True)
    world.edit(slaveReadEnable=False)
    Run(world).until_steady()
    assert done(world) == ["file 0-0", "25 0-0", "file 0-2", "25 0-2", "file 0-1", "25 0-1"]


def test_no_pod_restarts_and_no_template_changes() -> None:
    world = steady(pairs=2)
    before = {name: (pod.uid, pod.revision, pod.created_at) for name, pod in world.pods.items()}
    sets = {k: v["spec"] for k, v in world.objects.items() if k[0] == "StatefulSet"}
    world.edit(slaveReadEnable=True)
    Run(world).until_steady()
    after = {name: (pod.uid, pod.revision, pod.created_at) for name, pod in world.pods.items()}
    assert after == before
    assert {k: v["spec"] for k, v in world.objects.items() if k[0] == "StatefulSet"} == sets


def test_a_live_value_survives_a_new_pod() -> None:
    world = steady()
    world.edit(slaveReadEnable=True, config={"fileReservedTime": "24"})
    Run(world).until_steady()
    world.take_pod(0, 0)
    Run(world).until_steady()
    config = world.running(0, 0).config
    assert (config[READ], config["fileReservedTime"]) == ("true", "24")


def test_a_line_that_goes_sets_the_brokers_default() -> None:
    world = steady(config={"fileReservedTime": "24"})
    world.edit(config={})
    Run(world).until_steady()
    assert "fileReservedTime" not in file(world, 0, 0)
    assert world.running(0, 0).config["fileReservedTime"] == "72"
    assert told(world, "ConfigUpdated") == ["fileReservedTime 24 -> 72 on orders-0-1, orders-0-0"]


def test_a_line_that_goes_while_the_broker_is_silent_sets_the_default_when_it_answers() -> None:
    world = steady(config={"fileReservedTime": "24"})
    world.silent.add((0, 1))
    world.edit(config={})
    run = Run(world).for_passes(30)
    assert (file(world, 0, 1)["fileReservedTime"], file(world, 0, 0).get("fileReservedTime")) == (
        "72",
        None,
    )
    world.silent.clear()
    run.until_steady()
    assert "fileReservedTime" not in file(world, 0, 1)
    assert world.running(0, 1).config["fileReservedTime"] == "72"


def test_of_a_repaired_file_the_value_that_was_in_it_is_told() -> None:
    world = steady(slaveReadEnable=True)
    key = ("ConfigMap", "orders-0-0")
    found = copy.deepcopy(world.objects[key])
    text = found["data"]["broker.conf"]
    found["data"]["broker.conf"] = text.replace(f"{READ}=true", f"{READ}=false")
    world.put(found)
    Run(world).until_steady()
    assert f"{READ}=true" in world.objects[key]["data"]["broker.conf"]
    assert told(world, "ConfigUpdated") == [f"{READ} false -> true on orders-0-0"]


@pytest.mark.parametrize(
    ("key", "value", "right"),
    [(READ, "true", "false"), ("brokerPermission", "4", "6"), ("namesrvAddr", "x:1", None)],
)
def test_somebodys_mqadmin_is_repaired_and_told(key: str, value: str, right: str | None) -> None:
    world = steady(pairs=2)
    right = right or world.running(0, 0).config[key]
    world.running(1, 0).config[key] = value
    Run(world).until_steady()
    assert world.running(1, 0).config[key] == right
    assert done(world) == ["25 1-0"]
    assert told(world, "ConfigUpdated") == [f"{key} {value} -> {right} on orders-1-0 (drift)"]


def test_a_key_that_is_not_ours_is_left_alone() -> None:
    world = steady()
    world.running(0, 0).config["maxTransferCountOnMessageInDisk"] = "99"
    Run(world).until_steady()
    assert done(world) == []


def test_a_container_that_restarted_from_an_older_file_is_brought_up_to_date() -> None:
    world = steady(slaveReadEnable=True)
    world.running(0, 1).config[READ] = "false"  # the file inside the pod was older
    Run(world).until_steady()
    assert world.running(0, 1).config[READ] == "true"


def test_a_new_name_server_reaches_every_broker_live() -> None:
    world = steady()
    world.name_servers = ["ns-0:9876", "ns-1:9876", "ns-2:9876"]
    Run(world).until_steady()
    assert world.running(0, 0).config["namesrvAddr"] == "ns-0:9876;ns-1:9876;ns-2:9876"
    assert file(world, 0, 1)["namesrvAddr"].endswith("ns-2:9876")
    assert not [action for action in world.log if isinstance(action, Evict)]


def test_enabling_waits_with_the_master_for_a_silent_slave() -> None:
    world = steady(pairs=2, slavesPerPair=2)
    world.silent.add((0, 2))
    world.edit(slaveReadEnable=True, config={"fileReservedTime": "24"})
    Run(world).for_passes(30)
    assert file(world, 0, 2)[READ] == "true"  # a new pod starts right
    assert world.running(0, 1).config[READ] == "true"
    assert world.running(0, 0).config[READ] == "false"
    assert file(world, 0, 0)[READ] == "false"
    assert world.running(0, 0).config["fileReservedTime"] == "24"  # other keys wait for nobody
    assert world.running(1, 0).config[READ] == "true"  # nor does another pair
    world.silent.clear()
    Run(world).until_steady()
    assert world.running(0, 0).config[READ] == "true"


def test_disabling_waits_with_the_slaves_for_a_silent_master() -> None:
    world = steady(pairs=2, slaveReadEnable=True)
    world.silent.add((0, 0))
    world.edit(slaveReadEnable=False)
    Run(world).for_passes(30)
    assert file(world, 0, 0)[READ] == "false"
    assert world.running(0, 1).config[READ] == "true"
    assert world.running(1, 1).config[READ] == "false"
    world.silent.clear()
    Run(world).until_steady()
    assert world.running(0, 1).config[READ] == "false"


def test_enabling_waits_for_equal_metadata_and_says_so() -> None:
    world = steady()
    slave = world.running(0, 1)
    slave.store.topics = {}
    slave.synced_at = world.now + 1000  # the slave copies nothing for a while
    world.edit(slaveReadEnable=True)
    Run(world).for_passes(10)
    assert done(world) == []
    assert world.status["currentOperation"]["blockedBy"] == ["MetadataEqual"]
    Run(world).until_steady()
    assert slave.config[READ] == "true"


def test_an_engine_that_loses_topics_needs_a_word_of_consent() -> None:
    world = steady(engine={"type": "Apache", "version": "5.3.3"})
    world.edit(slaveReadEnable=True)
    Run(world).for_passes(10)
    assert done(world) == []
    assert world.status["currentOperation"]["blockedBy"] == ["EngineQuirk"]
    world.annotate(accept_quirk="dropsTopicsOnSync")
    Run(world).until_steady()
    assert world.running(0, 0).config[READ] == "true"


def test_a_value_that_a_broker_refuses_is_taken_back_from_its_file_and_told_once() -> None:
    world = steady(config={"fileReservedTime": "48"})
    world.stubborn[(0, 1), "fileReservedTime"] = "48"
    world.edit(config={"fileReservedTime": "24"})
    run = Run(world)
    run.until(lambda: bool(told(world, "ConfigRejected")))
    run.for_passes(60)
    assert told(world, "ConfigRejected") == ["orders-0-1 does not take fileReservedTime=24"]
    assert file(world, 0, 1)["fileReservedTime"] == "48"
    assert world.running(0, 0).config["fileReservedTime"] == "24"
    assert world.status["currentOperation"]["blockedBy"] == ["RejectedKey"]
    world.stubborn.clear()
    world.edit(config={"fileReservedTime": "24"})  # a new generation is tried again
    run.until_steady()
    assert world.running(0, 1).config["fileReservedTime"] == "24"
    assert file(world, 0, 1)["fileReservedTime"] == "24"


def test_the_same_request_is_not_repeated_at_once() -> None:
    world = steady()
    world.stubborn[(0, 1), READ] = "false"
    world.edit(slaveReadEnable=True)
    run = Run(world).for_passes(3)  # opened, sent, not seen yet
    assert done(world).count("25 0-1") == 1
    run.for_passes(1)
    assert done(world).count("25 0-1") == 2


def test_a_live_and_a_roll_key_change_live_first() -> None:
    world = steady()
    world.edit(slaveReadEnable=True, config={"flushConsumerOffsetInterval": "4000"})
    Run(world).until_steady()
    reads = [i for i, a in enumerate(world.log) if isinstance(a, SetConfig) and READ in a.values]
    first_eviction = next(i for i, a in enumerate(world.log) if isinstance(a, Evict))
    assert max(reads) < first_eviction
    config = world.running(0, 0).config
    assert (config[READ], config["flushConsumerOffsetInterval"]) == ("true", "4000")


def test_a_live_key_that_a_broker_refuses_does_not_hold_a_roll_up_for_ever() -> None:
    world = steady()
    world.stubborn[(0, 1), READ] = "false"
    world.edit(slaveReadEnable=True, config={"flushConsumerOffsetInterval": "4000"})
    run = Run(world)
    run.until(lambda: any(isinstance(action, Evict) for action in world.log))
    run.until(lambda: len([a for a in world.log if isinstance(a, Evict)]) == 2)


# --- failover SlaveReadOnly ---------------------------------------------------------------------


def test_reads_are_forced_while_the_master_is_gone_and_given_back_after() -> None:
    world = steady(failover={"mode": "SlaveReadOnly"})
    world.annotate(hold_member="orders-0-0")  # an outage of chosen length
    run = Run(world)
    run.until(lambda: world.pod(0, 0) is None)
    gone = world.now
    run.until(lambda: world.running(0, 1).config[READ] == "true")
    assert world.now - gone >= 30
    assert file(world, 0, 0)[READ] == "false"
    assert world.cluster.spec.slave_read_enable is False
    assert "SlaveReadForced" in str(world.status["conditions"])
    world.annotate(hold_member="")
    run.until_steady()
    assert world.running(0, 1).config[READ] == "false"
    assert file(world, 0, 1)[READ] == "false"


@pytest.mark.parametrize("rules", ["compat", "guarded"])
def test_what_a_broker_refuses_by_request_it_takes_from_its_mounted_file(rules: str) -> None:
    world = steady(engine={"rules": rules, "version": "0.2.0"})
    world.mount_seconds = 600.0
    world.edit(config={"failbackMaxTopics": "900", "fileReservedTime": "24"})
    world.name_servers = ["ns-0:9876", "ns-1:9876", "ns-2:9876"]
    run = Run(world)
    run.until(lambda: world.status.get("currentOperation") is not None)
    run.for_passes(30)
    assert world.status["currentOperation"]["blockedBy"] == ["ConfigMount"]
    assert world.running(0, 1).config.get("failbackMaxTopics") is None
    assert file(world, 0, 1)["failbackMaxTopics"] == "900"
    asked = {key for each in world.log if isinstance(each, SetConfig) for key in each.values}
    assert asked == {"fileReservedTime"} | ({"namesrvAddr"} if rules == "compat" else set())
    run.until_steady()
    for ordinal in range(2):
        config = world.running(0, ordinal).config
        assert config["failbackMaxTopics"] == "900"
        assert config["namesrvAddr"].count(";") == 2
    assert condition(world, "ConfigApplied") == ("True", "Verified")
    assert not world.taken_away()


def test_without_the_mode_nothing_is_forced() -> None:
    world = steady()
    world.annotate(hold_member="orders-0-0")
    Run(world).for_passes(60)
    assert world.running(0, 1).config[READ] == "false"


def test_the_members_of_a_guarded_pair_are_left_to_rendering() -> None:
    world = steady(slavesPerPair=1, engine={"rules": "guarded", "version": "0.2.0"})
    assert file(world, 0, 0)["failbackMembers"].count(";") == 1
    assert condition(world, "ConfigApplied") == ("True", "Verified")
    world.edit(slavesPerPair=2)
    Run(world).until_steady()
    assert [file(world, 0, ordinal)["failbackMembers"].count(";") for ordinal in range(3)] == [
        2
    ] * 3
    assert "25 0-0" not in done(world)
    assert condition(world, "ConfigApplied") == ("True", "Verified")
