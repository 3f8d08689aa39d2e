"""A cluster that is made again serves the copy that was master last, or refuses to open.

One pair is switched to member 1, goes on with member 0 held, and is then deleted and applied again
from its own manifest: over kept claims, over claims that were restored, over those of another
cluster, and over claims that say nothing.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from failback.client.model import Message
from failback.client.producer.producer import Producer
from tests.support.common.polling import SCALE as PATIENCE
from tests.support.common.polling import wait_until
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.operator_process import OperatorProcess, condition_of
from tests.support.operator.quick_pair import QuickPair, hasty_operator
from tests.support.operator.resources import resource

pytestmark = pytest.mark.long

TOPIC = "PAID"
CLAIMS = ("data-orders-0-0-0", "data-orders-0-1-0")
EPOCH, LOG_ID = "failback.dev/master-epoch", "failback.dev/log-id"
MANIFEST: Object = resource(
    "BrokerCluster",
    "orders",
    nameServerRef={"name": "main"},
    pairs=1,
    slavesPerPair=1,
    config={"failbackTimeScale": "0.1", "mappedFileSizeCommitLog": str(4 * 1024 * 1024)},
    updateStrategy={"minReadySeconds": 1},
    pairOverrides=[{"index": 0, "config": {"fileReservedTime": "48"}}],
)
"""A user's file; its overrides name no master."""


class RememberedPair(QuickPair):
    """A pair whose operator is asked what it has seen."""

    def __init__(self, namespace: Namespace, operator: OperatorProcess) -> None:
        super().__init__(namespace)
        self._operator = operator

    def is_behind(self, member: int) -> bool:
        """Whether the operator has seen the master's log grow beyond a slave's."""
        lag = rf'slave_lag_bytes{{.*member="{member}".*}} (\S+)'
        found = re.search(lag, self._operator.get("/metrics"))
        return found is not None and float(found[1]) > 0


@pytest.fixture(scope="module")
def pair(control_plane: ControlPlane, node: NodeProcess) -> Iterator[RememberedPair]:
    """The pair, switched to member 1."""
    namespace = Namespace(control_plane)
    try:
        with hasty_operator(namespace) as running:
            found = RememberedPair(namespace, running)
            scale = {"failbackTimeScale": "0.1"}
            found.api.create(resource("NameServer", "main", replicas=1, config=scale))
            apply(found)
            found.create_topic(TOPIC)
            switch = resource(
                "RoleSwitch", "swap", clusterRef={"name": "orders"}, pair="orders-0", targetMember=1
            )
            found.api.create(switch)
            found.api.wait("RoleSwitch", "swap", is_complete, seconds=300)
            found.wait_settled()
            yield found
    finally:
        namespace.clean_up()


def apply(pair: QuickPair, *options: str) -> str:
    """Apply the user's file; return what kubectl says."""
    done = pair.namespace.kubectl("apply", "-f", "-", *options, stdin=json.dumps(MANIFEST))
    return done.out + done.err


def differs(pair: QuickPair, *options: str) -> str:
    """Return what kubectl shows as the difference between the user's file and the cluster."""
    asked = ("diff", "-f", "-", *options)
    return str(pair.namespace.kubectl(*asked, stdin=json.dumps(MANIFEST), check=False).out)


def is_complete(item: Object) -> bool:
    return bool(item.get("status", {}).get("phase") == "Complete")


def is_unclear(item: Object) -> bool:
    return bool(condition_of(item, "Ready").get("reason") == "MasterUnclear")


def delete(pair: QuickPair) -> None:
    """Delete the cluster; its claims stay."""
    pair.api.delete("BrokerCluster", "orders")
    for member in (0, 1):
        pair.api.wait_gone("StatefulSet", f"orders-0-{member}", seconds=60)
        pair.api.wait_gone("Pod", pair.pod(member), seconds=120)


def claim(pair: QuickPair, member: int) -> Object:
    return pair.api.get("PersistentVolumeClaim", CLAIMS[member])


def ours(marks: dict[str, str]) -> dict[str, str]:
    """Return the labels or annotations that a restore keeps: none of the volume's binding."""
    return {key: value for key, value in marks.items() if ".kubernetes.io/" not in key}


def brought_back(
    pair: QuickPair, node: NodeProcess, folder: Path, **metadata: dict[str, str] | None
) -> None:
    """Replace both claims by new ones with the same content, as a restore does.

    Args:
        metadata: Labels and annotations over those that the claims had; ``None`` = without any.
    """
    for member, name in enumerate(CLAIMS):
        have = claim(pair, member)
        copy = folder / name
        shutil.copytree(node.claim_folder(pair.namespace.name, name), copy, dirs_exist_ok=True)
        pair.api.delete("PersistentVolumeClaim", name)
        pair.api.wait_gone("PersistentVolumeClaim", name, seconds=60)
        marks = {
            part: {} if found is None else ours(have["metadata"].get(part, {})) | found
            for part, found in metadata.items()
        }
        spec = {key: have["spec"][key] for key in ("accessModes", "resources", "storageClassName")}
        pair.api.create(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, **marks},
                "spec": spec,
            }
        )
        pair.api.wait(
            "PersistentVolumeClaim",
            name,
            lambda item: item["status"].get("phase") == "Bound",
            seconds=60,
        )
        new = node.claim_folder(pair.namespace.name, name)
        shutil.copytree(copy, new, dirs_exist_ok=True)
        shutil.rmtree(copy)


async def send(pair: QuickPair, count: int) -> None:
    async with Producer("shop", pair.settings()) as producer:
        for number in range(count):
            await producer.send(Message(TOPIC, b"%d" % number), timeout_ms=30_000)


async def only_the_master_has_more(pair: QuickPair) -> int:
    """Send what the held member 0 does not get; return where the master's log ends then."""
    pair.annotate(hold_member="orders-0-0")
    await asyncio.to_thread(pair.api.wait_gone, "Pod", pair.pod(0), seconds=120)
    before = await pair.end_of(1)
    await send(pair, 60)
    end = await pair.end_of(1)
    assert end > before
    return end


async def serves_all(pair: QuickPair, end: int) -> None:
    """Wait until the pair is whole again, and see that nothing was lost."""
    cluster = await asyncio.to_thread(pair.wait_settled)
    assert cluster["status"]["pairs"][0]["masterMember"] == 1
    assert await pair.registered() == {0: pair.address(1), 1: pair.address(0)}
    assert await pair.end_of(1) >= end
    async with asyncio.timeout(60 * PATIENCE):
        while True:
            if await pair.end_of(0) >= end:
                break  # a slave that is some bytes behind is healthy
            await asyncio.sleep(0.1)
    await send(pair, 1)


@pytest.mark.soak
async def test_the_users_file_stays_as_it_was_applied(pair: QuickPair) -> None:
    before = pair.api.get("BrokerCluster", "orders")
    assert before["spec"]["pairOverrides"] == MANIFEST["spec"]["pairOverrides"]
    assert (
        before["status"]["pairs"][0] | {"masterMember": 1, "epoch": 2}
        == (before["status"]["pairs"][0])
    )
    assert differs(pair) == ""
    for options in ((), ("--server-side", "--force-conflicts")):
        apply(pair, *options)
        assert differs(pair, *options) == ""
        after = pair.api.get("BrokerCluster", "orders")
        assert after["metadata"]["generation"] == before["metadata"]["generation"]
        assert after["spec"] == before["spec"]
    assert condition_of(pair.wait_settled(), "Warning")["status"] == "False"
    epochs = [claim(pair, member)["metadata"]["annotations"][EPOCH] for member in (0, 1)]
    assert epochs == ["2", "2"]


@pytest.mark.sample
async def test_deleted_and_applied_again_it_serves_what_was_acknowledged(pair: QuickPair) -> None:
    end = await only_the_master_has_more(pair)
    await asyncio.to_thread(delete, pair)
    apply(pair)
    await serves_all(pair, end)
    assert claim(pair, 1)["metadata"]["annotations"][EPOCH] == "2", "nothing was switched"


@pytest.mark.soak
async def test_with_both_members_held_the_last_master_is_not_forgotten(
    pair: RememberedPair,
) -> None:
    end = await only_the_master_has_more(pair)
    await asyncio.to_thread(wait_until, lambda: pair.is_behind(0), "a look at the master's log")
    pair.annotate(hold_member="orders-0-0,orders-0-1")
    await asyncio.to_thread(pair.api.wait_gone, "Pod", pair.pod(1), seconds=120)
    seen = int(claim(pair, 1)["metadata"]["annotations"]["failback.dev/log-end"])
    assert 0 < seen <= end, "as it was seen last"
    await asyncio.to_thread(delete, pair)
    apply(pair)
    await serves_all(pair, end)


async def test_restored_claims_tell_who_was_master(
    pair: QuickPair, node: NodeProcess, tmp_path: Path
) -> None:
    end = await only_the_master_has_more(pair)
    await asyncio.to_thread(delete, pair)
    await asyncio.to_thread(brought_back, pair, node, tmp_path, labels={}, annotations={})
    apply(pair)
    await serves_all(pair, end)
    found = claim(pair, 1)["metadata"]
    assert found["annotations"]["failback.dev/claim-uid"] == found["uid"]


@pytest.mark.soak
async def test_claims_of_another_cluster_tell_it_and_those_without_marks_open_nobody(
    pair: QuickPair, node: NodeProcess, tmp_path: Path
) -> None:
    end = await only_the_master_has_more(pair)
    await asyncio.to_thread(delete, pair)
    foreign = {"failback.dev/cluster": "billing"}, {LOG_ID: "uid-of-billing-0"}
    labels, annotations = foreign
    await asyncio.to_thread(
        brought_back, pair, node, tmp_path, labels=labels, annotations=annotations
    )
    apply(pair)
    await serves_all(pair, end)
    assert claim(pair, 1)["metadata"]["labels"]["failback.dev/cluster"] == "orders"

    end = await only_the_master_has_more(pair)
    await asyncio.to_thread(delete, pair)
    await asyncio.to_thread(brought_back, pair, node, tmp_path, labels=None, annotations=None)
    apply(pair)
    cluster = await asyncio.to_thread(
        pair.api.wait, "BrokerCluster", "orders", is_unclear, seconds=60
    )
    uid = claim(pair, 1)["metadata"]["uid"]
    assert f"{uid}@1 is {CLAIMS[1]}" in condition_of(cluster, "Ready")["message"]
    await asyncio.sleep(7)  # a pass of every resource lies within
    made = pair.api.list("StatefulSet", labels="failback.dev/cluster=orders")
    marks = [item["spec"]["template"]["metadata"]["annotations"] for item in made]
    assert all("failback.dev/gate" in each for each in marks), "no broker starts"
    cluster = pair.api.get("BrokerCluster", "orders")
    ends = f"{CLAIMS[1]} (without marks, its log ends at {end}"
    assert ends in condition_of(cluster, "Ready")["message"]
    pair.annotate(open_member=f"{uid}@1")
    await serves_all(pair, end)


def test_a_switch_that_is_patched_into_the_status_stops_no_master(pair: QuickPair) -> None:
    cluster = pair.wait_settled()
    pod = pair.api.get("Pod", pair.pod(1))["metadata"]["uid"]
    now = cluster["metadata"]["creationTimestamp"]
    forged: dict[str, Any] = {
        "id": "forged",
        "type": "RoleSwitch",
        "step": "StopOldMaster",
        "pair": 0,
        "member": 0,
        "startedAt": now,
        "stepStartedAt": now,
        "data": {"uid": "of-nobody", "from": 1, "to": 0},
    }
    status = {"status": {"currentOperation": forged}}
    pair.api.patch("BrokerCluster", "orders", status, subresource="status")
    pair.wait_settled()
    assert pair.api.get("Pod", pair.pod(1))["metadata"]["uid"] == pod
    replicas = pair.api.get("StatefulSet", "orders-0-1")["spec"]["replicas"]
    assert replicas == 1
