"""A pair of real brokers and their name server on Kubernetes, ten times as quick."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from failback.client.admin.admin import AdminClient
from failback.client.remoting.settings import ClientSettings
from failback.protocol.errors import FailbackError
from tests.support.common.polling import SCALE as PATIENCE
from tests.support.common.polling import wait_until
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.namespaces import Namespace
from tests.support.operator.operator_killer import witnessed_operator
from tests.support.operator.operator_process import OperatorProcess, is_true, operator_identity
from tests.support.operator.resources import marks, member_at, name_server_at, resource

SCALE: Final = 0.1
QUICK: Final = {
    "FAILBACK_POLL_SCALE": "0.2",
    "FAILBACK_RESYNC_SECONDS": "5",
    "FAILBACK_ADMIN_TIMEOUT_SECONDS": "10",
}
"""Variables of an operator that looks often, and is patient with brokers of a busy machine: of an
order whose answer it did not wait for, it posts no event."""
WAIT_SCALE: Final = 0.15
_CONDITIONS: Final = (
    "Ready",
    "ConfigApplied",
    "RolesConsistent",
    "ReplicationHealthy",
    "MetadataSynced",
)


@contextmanager
def hasty_operator(
    namespace: Namespace, *settings: str, server: str = ""
) -> Iterator[OperatorProcess]:
    """Run an operator whose waits for clients and for a steady master are short.

    Args:
        settings: Of the chart, for its rights.
        server: Another URL than the API server's, such as a proxy's.
    """
    identity = operator_identity(namespace, *settings, server=server)
    found = witnessed_operator(namespace, identity, WAIT_SCALE, 0, **QUICK)
    try:
        found.start()
        found.wait_until_ready()
        yield found
    finally:
        found.process.dispose()


class QuickPair:
    """BrokerCluster ``orders`` of one pair and NameServer ``main`` in a namespace."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.api = namespace.api
        self.name_server = name_server_at(namespace.name)

    def create(self, *, time_scale: float = SCALE, **spec: Any) -> None:
        """Create both; ``spec`` is more of the cluster's."""
        scale = {"failbackTimeScale": str(time_scale)}
        self.api.create(resource("NameServer", "main", replicas=1, config=scale))
        self.api.create(
            resource(
                "BrokerCluster",
                "orders",
                nameServerRef={"name": "main"},
                pairs=1,
                slavesPerPair=1,
                config={**scale, "mappedFileSizeCommitLog": str(4 * 1024 * 1024)},
                updateStrategy={"minReadySeconds": 1},
                **spec,
            )
        )

    def create_topic(self, topic: str, group: str = "") -> None:
        """Create a topic, and a group if one is named; wait until both members have them."""
        owner: dict[str, Any] = {"clusterRef": {"name": "orders"}}
        self.api.create(resource("Topic", topic.lower(), **owner, topicName=topic))
        if group:
            self.api.create(resource("SubscriptionGroup", group, **owner))
        self.wait_settled()
        self.api.wait("Topic", topic.lower(), is_true("Synced"), seconds=60)
        if group:
            self.api.wait("SubscriptionGroup", group, is_true("Synced"), seconds=60)

    def wait_settled(self) -> Object:
        """Wait until nothing is left to do; return the cluster."""

        def is_settled(item: Object) -> bool:
            whole = all(is_true(kind)(item) for kind in _CONDITIONS)
            return whole and not item["status"].get("currentOperation")

        return self.api.wait("BrokerCluster", "orders", is_settled, seconds=240)

    def address(self, member: int) -> str:
        """Return the address of a member of the pair."""
        return member_at(self.namespace.name, f"orders-0-{member}")

    def admin(self) -> AdminClient:
        return AdminClient([self.name_server])

    def settings(self) -> ClientSettings:
        """Return the settings of producers and consumers of the pair."""
        return ClientSettings(
            namesrv_addrs=(self.name_server,), client_ip="127.0.0.1", time_scale=SCALE
        )

    def events(self, reason: str, about: str = "") -> list[Object]:
        """Return the operator's events of a reason, of one object if one is named."""
        return [
            item
            for item in self.api.list("Event")
            if item["reason"] == reason and item["involvedObject"]["name"].startswith(about)
        ]

    def wait_event(self, reason: str, about: str = "") -> str:
        """Return the message of the first event of a reason."""
        wait_until(lambda: self.events(reason, about), f"event {reason}", 60)
        return str(self.events(reason, about)[0]["message"])

    def annotate(self, **values: str | None) -> None:
        """Set or remove annotations of our prefix; ``_`` in a name is ``-``."""
        self.api.patch("BrokerCluster", "orders", marks(**values))

    # --- members ------------------------------------------------------------------------------

    def pod(self, member: int) -> str:
        return f"orders-0-{member}-0"

    def kill_and_hold(self, member: int) -> None:
        """SIGKILL a broker and keep it down; return when nothing runs in its place."""
        command = ("exec", self.pod(member), "--", "failback-init")
        self.namespace.kubectl(*command, "kill", "9", "--hold", check=False)

        def is_down() -> bool:
            told = self.namespace.kubectl(*command, "status", "--json", check=False)
            if told.code:  # between two containers there is none to ask
                return False
            found = json.loads(told.out)
            return bool(found["held"]) and found["child"] is None

        wait_until(is_down, f"member {member} is held down", 60)

    def release(self, member: int) -> None:
        """Let a broker that is held start again."""
        command = ("exec", self.pod(member), "--", "failback-init", "release")
        wait_until(
            lambda: self.namespace.kubectl(*command, check=False).code == 0,
            f"member {member} is released",
            60,
        )

    async def end_of(self, member: int) -> int:
        """Return where a member's commit log ends, once it answers."""
        async with self.admin() as admin, asyncio.timeout(60 * PATIENCE):
            while True:
                try:
                    runtime = await admin.runtime_info(self.address(member))
                except (FailbackError, OSError):
                    await asyncio.sleep(0.2)
                else:
                    return int(runtime["commitLogMaxOffset"])

    async def offsets(self, member: int, key: str) -> dict[int, int]:
        """Return what a member's table holds of ``topic@group``, by queue."""
        async with self.admin() as admin:
            return (await admin.all_offsets(self.address(member))).get(key, {})

    async def registered(self) -> dict[int, str]:
        """Return the members that the name server lists, by broker id."""
        async with self.admin() as admin:
            return dict((await admin.cluster_info()).broker_addr_table["orders-0"].broker_addrs)

    def verify_exit(self, member: int) -> int | None:
        """Return how a member's init container ended that compares the logs."""
        for status in self.api.get("Pod", self.pod(member))["status"].get(
            "initContainerStatuses", ()
        ):
            if status["name"] == "verify":
                for state in (status.get("state", {}), status.get("lastState", {})):
                    if "terminated" in state:
                        return int(state["terminated"]["exitCode"])
        return None
