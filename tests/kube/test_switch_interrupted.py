"""Whoever dies in a step of a role switch, or takes it back: never two masters, always an end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from failback.client.model import Message
from failback.client.producer.producer import Producer
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.kube_lab.proxy import MisbehavingProxy, Write
from tests.support.operator.masters_watch import MastersWatch
from tests.support.operator.operator_process import condition_of
from tests.support.operator.quick_pair import QuickPair, hasty_operator
from tests.support.operator.resources import resource

TOPIC, GROUP = "PAID", "billing"
STEPS = (  # without DrainWrites: no other pair takes the messages
    "Preflight",
    "TakeLease",
    "Replicate",
    "SyncOffsets",
    "StopOldMaster",
    "StartNewMaster",
    "ApplyOffsets",
    "OpenWrites",
    "RejoinOldMaster",
    "Verify",
)
FORWARD = STEPS[STEPS.index("StopOldMaster") :]
"""Steps that are not undone."""
WITHOUT_OLD_MASTER = STEPS[STEPS.index("StartNewMaster") : STEPS.index("Verify")]
"""At the begin of these steps no process of the old master runs."""
OLD, NEW, SWITCH = "the old master", "the new master", "the switch"
USUAL = [("StopOldMaster", SWITCH)]
ALL = [
    (step, what)
    for what in (OLD, NEW, SWITCH)
    for step in STEPS
    if not (what == OLD and step in WITHOUT_OLD_MASTER)
]


@dataclass
class Lab:
    """A pair whose roles are switched again and again, and what its operator writes."""

    pair: QuickPair
    node: NodeProcess
    proxy: MisbehavingProxy

    def kill(self, member: int) -> None:
        self.node.kill_program(self.pair.namespace.name, self.pair.pod(member))


@pytest.fixture(scope="module")
def lab(control_plane: ControlPlane, node: NodeProcess) -> Iterator[Lab]:
    namespace, proxy = Namespace(control_plane), MisbehavingProxy(control_plane)
    proxy.start()
    try:
        with hasty_operator(namespace, server=proxy.url):
            pair = QuickPair(namespace)
            pair.create()
            pair.create_topic(TOPIC, GROUP)
            yield Lab(pair, node, proxy)
    finally:
        proxy.stop()
        namespace.clean_up()


@dataclass
class AtStep:
    """Does something once, when a step stands in the status and before the operator goes on."""

    pair: QuickPair
    step: str
    act: Callable[[], object]
    done: bool = False
    errors: list[Exception] = field(default_factory=list)

    def __call__(self, write: Write) -> None:
        if self.done or not write.resource.startswith("brokerclusters"):
            return
        try:
            operation = self.pair.api.get("BrokerCluster", "orders")["status"]["currentOperation"]
            if operation["step"] != self.step or operation["type"] != "RoleSwitch":
                return
            self.done = True
            self.act()
        except KeyError:  # no operation runs
            return
        except Exception as error:  # of the proxy's thread; the test tells it
            self.errors.append(error)


@pytest.mark.parametrize(("step", "what"), USUAL)
@pytest.mark.soak
async def test_an_interrupted_switch_ends_with_one_master(lab: Lab, step: str, what: str) -> None:
    await interrupted(lab, step, what)


@pytest.mark.soak
@pytest.mark.parametrize(("step", "what"), [case for case in ALL if case not in USUAL])
async def test_a_switch_interrupted_in_any_step_ends_with_one_master(
    lab: Lab, step: str, what: str
) -> None:
    await interrupted(lab, step, what)


async def interrupted(lab: Lab, step: str, what: str) -> None:
    """Switch the roles, interrupt it, and look at what comes of it."""
    pair = lab.pair
    old = int(pair.wait_settled()["status"]["pairs"][0]["masterMember"])
    new = 1 - old
    name = f"{step.lower()}-{[OLD, NEW, SWITCH].index(what)}"
    blow: dict[str, Callable[[], object]] = {
        OLD: lambda: lab.kill(old),
        NEW: lambda: lab.kill(new),
        SWITCH: lambda: pair.api.delete("RoleSwitch", name),
    }
    interruption = lab.proxy.after_write = AtStep(pair, step, blow[what])
    with MastersWatch(pair.namespace.name, ["orders-0"]) as watch:
        spec = {"clusterRef": {"name": "orders"}, "pair": "orders-0", "targetMember": new}
        pair.api.create(resource("RoleSwitch", name, **spec))
        switched = await asyncio.to_thread(end_of, pair, name, step, what)
        cluster = await asyncio.to_thread(pair.wait_settled)
    lab.proxy.after_write = None
    assert (interruption.done, interruption.errors) == (True, [])
    assert watch.doubles == []
    assert watch.rounds > 0

    master, slave = (new, old) if switched else (old, new)
    assert cluster["status"]["pairs"][0]["masterMember"] == master
    assert await pair.registered() == {0: pair.address(master), 1: pair.address(slave)}
    lease = pair.api.find("Lease", "failback-orders-0") or {"spec": {}}
    assert not lease["spec"].get("holderIdentity")
    assert pair.api.find("ConfigMap", f"fbs-{name}") is None
    async with Producer("shop", pair.settings()) as producer:
        for number in range(10):
            await producer.send(Message(TOPIC, b"%d" % number))


def end_of(pair: QuickPair, name: str, step: str, what: str) -> bool:
    """Wait for the end of a switch; tell whether the roles have changed."""
    if what == SWITCH:
        pair.api.wait_gone("RoleSwitch", name, seconds=300)
        return step in FORWARD
    found = pair.api.wait("RoleSwitch", name, is_over, seconds=300)
    if found["status"]["phase"] == "Failed":
        assert step not in FORWARD
        assert condition_of(found, "Failed")["reason"] == "RolledBack", json.dumps(found["status"])
    return bool(found["status"]["phase"] == "Complete")


def is_over(item: Object) -> bool:
    return item.get("status", {}).get("phase") in ("Complete", "Failed")
