"""One pair of real brokers under a role switch: real planners, processes and admin requests.

The API server is a dictionary and the kubelet starts a process per pod; everything that a broker
or a name server says is asked of the real thing. Brokers run at a tenth of their intervals, and
the clock that planning sees runs ten times as fast, so both keep their proportions.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Self

import msgspec

from failback.client.admin.admin import AdminClient
from failback.client.remoting.settings import ClientSettings
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import Broker, Route
from failback.operator.planning.plan import children
from failback.operator.planning.plan.types import Action, Apply, CommitOffsets, SetConfig
from failback.operator.render.context import Context
from failback.operator.render.objects import render_cluster
from failback.operator.render.shape import Member
from failback.protocol.errors import FailbackError
from tests.support.brokers.cluster_processes import BROKER_READY, NAMESRV_READY
from tests.support.net.ports import free_port_block
from tests.support.operator.planning_run import EVERY_WRITE
from tests.support.operator.simulated_machines import START, SimPod
from tests.support.operator.switch_world import SwitchWorld
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
        config = {
            "failbackTimeScale": str(SCALE),
            "mappedFileSizeCommitLog": str(4 * 1024 * 1024),
        }
        super().__init__(self._places(), nameServerAddresses=[self.name_server], config=config)
        self.name_servers = [self.name_server]
        self.start_seconds = self.stop_seconds = 0.0
        self.began = time.monotonic()
        self._namesrv = self._name_server()
        self._processes: dict[Member, TestProcess] = {}
        self._pending: list[SetConfig | CommitOffsets] = []
        self._answers: dict[Member, Broker] = {}
        self._said = Route(self.name_server)
        try:
            self._deliver()
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
        self._namesrv.start()
        self._namesrv.wait_for(NAMESRV_READY)
        rendered = render_cluster(self.cluster, self.name_servers, self.operator.context)
        for manifest in rendered:
            self.carry_out(Apply(children.finished(manifest)))
        self.tick(0.0)
        self.tick(0.0)

    def _start(self, pod: SimPod) -> None:
        home = self.folder / f"{pod.statefulset}-0"
        home.mkdir(parents=True, exist_ok=True)
        conf = home / "broker.conf"
        conf.write_text(self.objects["ConfigMap", pod.statefulset]["data"]["broker.conf"])
        process = TestProcess(
            pod.statefulset,
            failback_command("broker", "-c", str(conf)),
            home,
            environment={**failback_environment(), "FAILBACK_HTTP_PORT": "0"},
        )
        process.start()
        self._processes[pod.member] = process
        process.wait_for(BROKER_READY)
        pod.config = dict(facts.properties(self.objects["ConfigMap", pod.statefulset]))
        pod.up, pod.ready_since = True, self.now

    def _end(self, pod: SimPod) -> None:
        self._processes.pop(pod.member).stop()
        super()._end(pod)

    def _work(self, seconds: float) -> None:
        """Brokers work by themselves."""

    def begin_to_look(self) -> None:
        """The next operator goes on with the watch: the renewal of a lease ends one in a minute."""

    def close(self) -> None:
        """End all processes."""
        for process in self._processes.values():
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
        self.operator.crashes = EVERY_WRITE if dying else ()
        async with AdminClient([self.name_server]) as admin:
            while not until(self):
                assert time.monotonic() < end, f"stuck: {self.status} {self.switch_status}"
                self.now = START + (time.monotonic() - self.began) / SCALE
                await self._ask(admin)
                self.reconcile()
                for action in self._pending:
                    await self._order(admin, action)
                self._pending.clear()
                await asyncio.to_thread(self.tick, 0.0)
                await asyncio.sleep(0.05)

    def carry_out(self, action: Action) -> None:
        if isinstance(action, (SetConfig, CommitOffsets)):
            self._pending.append(action)
        else:
            super().carry_out(action)

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
        self._answers = {
            pod.member: await self._ask_broker(admin, pod.address)
            for pod in sorted(self.pods.values(), key=lambda pod: pod.is_master)
        }
        masters = [broker for broker in self._answers.values() if facts.says_master(broker)]
        assert len(masters) <= 1, "two brokers say that they are master"
        self._said = await self._ask_name_server(admin)
        self.registered = {name: dict(ids) for name, ids in (self._said.brokers or {}).items()}
        self._look("orders-0")

    async def _ask_broker(self, admin: AdminClient, address: str) -> Broker:
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

    async def _ask_name_server(self, admin: AdminClient) -> Route:
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

    def _route(self, server: str) -> Route:
        return self._said

    def _broker(self, member: Member, pod: SimPod) -> Broker:
        return self._answers.get(member, Broker(pod.address))

    def role_of(self, ordinal: int) -> str:
        """Return the role in the file that a member was started from."""
        text = (self.folder / f"orders-0-{ordinal}-0" / "broker.conf").read_text()
        return facts.properties({"data": {"broker.conf": text}})["brokerRole"]
