"""One pair of real brokers under a role switch: real planners, processes and admin requests.

The API server is a dictionary and the kubelet starts a process per pod; everything that a broker
or a name server says is asked of the real thing. Brokers run at a tenth of their intervals, and
the clock that planning sees runs ten times as fast, so both keep their proportions.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from failback.client.admin.admin import AdminClient
from failback.client.remoting.settings import ClientSettings
from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import (
    Broker,
    MemberView,
    ObservedCluster,
    Pod,
    Route,
)
from failback.operator.planning.plan import children
from failback.operator.planning.plan.types import CommitOffsets, Evict, SetConfig
from failback.operator.render.context import Context
from failback.operator.render.shape import Member
from failback.protocol.errors import FailbackError
from tests.support.brokers.cluster_processes import BROKER_READY, NAMESRV_READY
from tests.support.net.ports import free_port_block
from tests.support.operator.switch_world import START, Machine, OperatorDied, SwitchWorld
from tests.support.processes.child_process import (
    TestProcess,
    failback_command,
    failback_environment,
)

SCALE: Final = 0.1
_HOST: Final = "127.0.0.1"
_PORTS: Final = 4


class RealPair(SwitchWorld):
    """A :class:`SwitchWorld` whose brokers and name server are processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.first = free_port_block(2 + 2 * _PORTS)
        self.name_server = f"{_HOST}:{self.first}"
        self.name_servers = (self.name_server,)
        self.context = self._places()
        self.pods: dict[int, tuple[str, TestProcess]] = {}
        self.began = time.monotonic()
        self.masters_seen: list[int] = []
        self._namesrv = self._name_server()
        self._pending: list[Any] = []
        self._views: dict[Member, MemberView] = {}
        self._routes: tuple[Route, ...] = ()
        try:
            super().__init__()
        except BaseException:
            self.close()
            raise

    # --- places ---

    def _places(self) -> Context:
        return Context(
            namespace="shop",
            home=lambda pod: str(self.folder / pod),
            run_dir=lambda pod: str(self.folder / pod / "run"),
            address_of=lambda pod, service: _HOST,
            port_of=lambda name, port, default: self.port(int(name[-1])),
            version="0.1.0",
        )

    def port(self, ordinal: int) -> int:
        return self.first + 4 + _PORTS * ordinal

    def address(self, ordinal: int) -> str:
        return f"{_HOST}:{self.port(ordinal)}"

    def settings(self) -> ClientSettings:
        """Return the settings of clients of this pair."""
        return ClientSettings(namesrv_addrs=(self.name_server,), client_ip=_HOST, time_scale=SCALE)

    @property
    def cluster(self) -> BrokerCluster:
        found = super().cluster.model_dump(by_alias=True, exclude_none=True)
        found["spec"]["nameServerAddresses"] = [self.name_server]
        found["spec"]["config"] = {
            "failbackHttpPort": "0",
            "failbackTimeScale": str(SCALE),
            "mappedFileSizeCommitLog": str(4 * 1024 * 1024),
        }
        found["spec"].setdefault("pairOverrides", [])
        return BrokerCluster.model_validate(found)

    # --- processes ---

    def _name_server(self) -> TestProcess:
        self.folder.mkdir(parents=True, exist_ok=True)
        conf = self.folder / "namesrv.conf"
        lines = {
            "listenPort": self.first,
            "bindAddress": _HOST,
            "failbackHttpPort": 0,
            "failbackTimeScale": SCALE,
            "kvConfigPath": self.folder / "kvConfig.json",
        }
        conf.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        return TestProcess(
            "namesrv",
            failback_command("namesrv", "-c", str(conf)),
            self.folder,
            environment=failback_environment(),
        )

    def _deliver(self) -> None:
        self.machines = {ordinal: Machine() for ordinal in range(self.members)}
        self._namesrv.start()
        self._namesrv.wait_for(NAMESRV_READY)
        desired = self.desired(self.cluster, ObservedCluster(at=self.now))
        for manifest in desired.values():
            self._apply(children.finished(manifest))
        self.tick()
        self.effects = 0

    def _control(self, ordinal: int) -> None:
        """Start the pod that a StatefulSet wants, stop the one that it does not."""
        found = self.objects.get(("StatefulSet", f"orders-0-{ordinal}"))
        if found is None:
            return
        wanted = found["spec"]["replicas"]
        if ordinal in self.pods and wanted == 0:
            self._end(ordinal)
        if ordinal not in self.pods and wanted == 1:
            self._begin(ordinal)
        found["status"] = {
            "observedGeneration": found["metadata"]["generation"],
            "replicas": int(ordinal in self.pods),
        }

    def _begin(self, ordinal: int) -> None:
        name = f"orders-0-{ordinal}"
        home = self.folder / f"{name}-0"
        home.mkdir(parents=True, exist_ok=True)
        conf = home / "broker.conf"
        conf.write_text(self.objects[("ConfigMap", name)]["data"]["broker.conf"])
        process = TestProcess(
            name,
            failback_command("broker", "-c", str(conf)),
            home,
            environment=failback_environment(),
        )
        process.start()
        self.pods[ordinal] = (f"pod-{ordinal}-{self._next()}", process)
        process.wait_for(BROKER_READY)

    def _end(self, ordinal: int) -> None:
        _, process = self.pods.pop(ordinal)
        process.stop()

    def _work(self) -> None:
        """Brokers work by themselves."""

    def _watch_routes(self) -> None:
        """Routes are asked, not made."""

    def check(self) -> None:
        """Count the masters among the files that running processes were started from."""
        running = [
            ordinal
            for ordinal, (_, process) in self.pods.items()
            if process.alive and "brokerRole=SLAVE" not in self._conf(ordinal)
        ]
        assert len(running) <= 1, "two masters run"
        self.masters_seen = running

    def _conf(self, ordinal: int) -> str:
        return (self.folder / f"orders-0-{ordinal}-0" / "broker.conf").read_text()

    def close(self) -> None:
        """End all processes."""
        for _, process in self.pods.values():
            process.dispose()
        self._namesrv.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- passes ---

    async def drive(
        self, until: Callable[[RealPair], bool], *, seconds: float = 300.0, dying: bool = False
    ) -> None:
        """Let the operator work until a condition holds.

        Args:
            dying: It is killed after every single effect.
        """
        end = time.monotonic() + seconds
        async with AdminClient([self.name_server]) as admin:
            while not until(self):
                assert time.monotonic() < end, f"stuck: {self.status} {self.switch_status}"
                self.now = START + (time.monotonic() - self.began) / SCALE
                await self._ask(admin)
                self.crash_after = self.effects + 1 if dying else None
                with suppress(OperatorDied):
                    self.reconcile()
                for action in self._pending:
                    await self._order(admin, action)
                self._pending.clear()
                await asyncio.to_thread(self.tick, 0.0)
                await asyncio.sleep(0.05)

    def _carry_out(self, action: Any) -> None:
        match action:
            case Evict(pod, uid):
                ordinal = int(pod.split("-")[2])
                if ordinal in self.pods and self.pods[ordinal][0] == uid:
                    self._end(ordinal)
                self._effect()
            case SetConfig() | CommitOffsets():
                self._pending.append(action)
                self._effect()
            case _:
                super()._carry_out(action)

    async def _order(self, admin: AdminClient, action: SetConfig | CommitOffsets) -> None:
        if isinstance(action, SetConfig):
            await admin.update_broker_config(action.address, action.values)
            return
        have = await admin.all_offsets(action.address)
        for key, queue, offset in action.offsets:
            if have.get(key, {}).get(queue, -1) < offset:
                topic, _, group = key.partition("@")
                await admin.update_offset(action.address, group, topic, queue, offset)

    # --- what is seen ---

    async def _ask(self, admin: AdminClient) -> None:
        """Ask slaves first and masters last, then the name server."""
        order = sorted(range(self.members), key=lambda ordinal: ordinal in self.masters_seen)
        self._views = {}
        for ordinal in order:
            self._views[0, ordinal] = await self._view_of(admin, ordinal)
        masters = [view for view in self._views.values() if facts.says_master(view.broker)]
        assert len(masters) <= 1, "two brokers say that they are master"
        self._routes = (await self._route(admin),)
        said = {(route.brokers or {}).get("orders-0", {}).get(0) for route in self._routes}
        if None in said:
            self._master_since = None
        elif self._master_since is None:
            self._master_since = self.now

    async def _view_of(self, admin: AdminClient, ordinal: int) -> MemberView:
        name = f"orders-0-{ordinal}"
        pod = broker = None
        if ordinal in self.pods:
            uid, process = self.pods[ordinal]
            label = self.machines[ordinal].role_label
            pod = Pod(f"{name}-0", uid, ready=process.alive, role=label)
            broker = await self._broker(admin, self.address(ordinal))
        return MemberView(
            0,
            ordinal,
            self.objects.get(("StatefulSet", name)),
            self.objects.get(("ConfigMap", name)),
            None,
            pod,
            broker,
        )

    async def _broker(self, admin: AdminClient, address: str) -> Broker:
        try:
            topics = (await admin.all_topic_config(address)).topic_config_table
            groups = (await admin.all_groups(address)).subscription_group_table
            return Broker(
                address,
                config=await admin.broker_config(address),
                end=int((await admin.runtime_info(address))["commitLogMaxOffset"]),
                topics={key: msgspec.to_builtins(value) for key, value in topics.items()},
                groups={key: msgspec.to_builtins(value) for key, value in groups.items()},
                offsets=await admin.all_offsets(address),
                offsets_at=self.now,
            )
        except FailbackError:
            return Broker(address)

    async def _route(self, admin: AdminClient) -> Route:
        try:
            table = (await admin.cluster_info()).broker_addr_table
            brokers = {name: dict(data.broker_addrs) for name, data in table.items()}
        except FailbackError:
            return Route(self.name_server)
        try:
            queues = (await admin.route("orders-0")).queue_datas
        except FailbackError:
            queues = []
        shown: Mapping[str, int] = {data.broker_name: data.perm for data in queues}
        return Route(self.name_server, brokers, shown)

    def observe(self) -> ObservedCluster:
        return replace(
            super().observe(),
            members=self._views,
            routes=self._routes,
        )

    def role_of(self, ordinal: int) -> str:
        """Return the role in the file that a member was started from."""
        return facts.properties({"data": {"broker.conf": self._conf(ordinal)}})["brokerRole"]
