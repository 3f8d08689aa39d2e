"""The operator against a real API server: what it writes, how soon, and what it costs.

``python -m tests.benchmarks.bench_operator [--phases many,rest,reaction,live] [--clusters N]``

* *many*: N BrokerClusters found at start, pods that are marked Ready without a process: seconds
  until all children exist; then, once nothing has changed for two and a half minutes, RSS, CPU
  and writes of a minute at rest (no broker answers).
* *growth*: 100 clusters whose pods are all deleted again and again: RSS after the second and after
  the fourth thousand pods.
* *rest*: clusters with real brokers at rest: writes within a minute.
* *reaction*: deletion of a child until it is there again, change of a spec until the first write.
* *live*: ``slaveReadEnable`` on ten pairs with real brokers, until every broker was read back.
* *outage*: the only pair of a cluster under traffic, while a key that needs a restart changes and
  while its roles are switched: the longest time between two acknowledged sends of a producer that
  asks for its route every second.
* *drain*: ``kubectl drain`` of the node of the only pair's master, engine by engine, first as the
  budget allows it (``onDrain: Allow``), then with a switch before: how long nobody takes messages.
* *forced*: a forced switch beside a drain that does not end: seconds until its first step.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil

from failback.client.model import Message
from failback.client.producer.producer import Producer
from failback.client.remoting.settings import ClientSettings
from failback.operator.planning.state.predicates import STABLE_MASTER_SECONDS
from failback.protocol.errors import FailbackError
from tests.kube.test_scaling import drain_is_blocked, leave_unread
from tests.support.java.apache import LOG_FILE_BYTES
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.control_plane import ControlPlane, OwnControlPlane
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess, see_names
from tests.support.operator.operator_process import (
    READS_NODES,
    OperatorProcess,
    is_true,
    operator_identity,
)
from tests.support.operator.real_cluster import CONFIG, TOPIC, LivedCluster
from tests.support.operator.resources import resource

REST_SECONDS = 60.0
QUIET_SECONDS = 150.0
"""After the last change: no rule of time is pending then, and silent brokers are asked rarely."""
_POLL_SECONDS = 0.01
_GROWING = 100
"""Clusters of phase growth."""
_ENGINES: dict[str, Object] = {
    "failback": {},
    "apache 4.9.7": {
        "engine": {
            "type": "Apache",
            "version": "4.9.7",
            "javaOptions": "-Xms256m -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        },
        "config": {"mappedFileSizeCommitLog": str(LOG_FILE_BYTES)},
    },
}
"""Engine → more of a cluster's spec."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--phases", default="many,growth,rest,reaction,live,outage,drain,forced")
    parser.add_argument("--clusters", type=int, default=200, help="of phase many")
    parser.add_argument("--resting", type=int, default=50, help="clusters of phase rest")
    parser.add_argument("--pairs", type=int, default=10, help="of phase live")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plane = OwnControlPlane(Path(folder) / "kube")
        try:
            plane.start()
            node = NodeProcess(plane)
            try:
                node.start()
                see_names(node.hosts_file)
                for phase in options.phases.split(","):
                    getattr(Bench(plane), phase)(options)
            finally:
                node.stop()
        finally:
            plane.stop()
    return 0


class Bench:
    """The phases; each has a namespace and an operator of its own."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    def many(self, options: argparse.Namespace) -> None:
        """Reconcile many clusters from cold, then look at the cost of rest."""
        namespace = Namespace(self._plane)
        namespace.pretend_pods()
        namespace.api.create(_name_server())
        for number in range(options.clusters):
            namespace.api.create(_cluster(f"c{number:03d}", pairs=1, slaves=1))
        with Running(namespace) as running:
            begun = time.monotonic()
            wanted = 2 * options.clusters + 1
            _until(lambda: len(namespace.api.list("StatefulSet")) >= wanted, 600)
            _until(lambda: _all_have_status(namespace), 600)
            _say(f"{options.clusters} clusters from cold", time.monotonic() - begun, "s", "< 60")
            time.sleep(QUIET_SECONDS)
            writes, cpu = running.at_rest(REST_SECONDS)
            _say(f"RSS with {options.clusters} clusters", running.rss_mib(), "MiB", "< 200")
            _say("CPU at rest", 100 * cpu / REST_SECONDS, "% of a core", "< 2")
            _say("writes in a minute at rest", writes, "", "0")
        namespace.clean_up()

    def growth(self, options: argparse.Namespace) -> None:
        """Replace all pods again and again; every new one has an address of its own."""
        namespace = Namespace(self._plane)
        namespace.pretend_pods()
        namespace.api.create(_name_server())
        for number in range(_GROWING):
            namespace.api.create(_cluster(f"c{number:03d}", pairs=1, slaves=1))
        with Running(namespace) as running:
            _until(lambda: len(_brokers(namespace)) >= 2 * _GROWING, 600)
            sizes = []
            for _ in range(2):
                for _ in range(1000 // _GROWING):
                    old = _brokers(namespace)
                    for pod in old.values():
                        namespace.api.delete("Pod", pod)
                    _until(partial(_are_new, namespace, old), 600)
                time.sleep(REST_SECONDS)
                sizes.append(running.rss_mib())
            _say("RSS after 2,000 pods", sizes[0], "MiB", "< 200")
            _say("growth to 4,000 pods", sizes[1] - sizes[0], "MiB", "0")
        namespace.clean_up()

    def rest(self, options: argparse.Namespace) -> None:
        """Count the writes of clusters whose brokers are real."""
        namespace = Namespace(self._plane)
        namespace.api.create(_name_server())
        for number in range(options.resting):
            namespace.api.create(_cluster(f"c{number:03d}", pairs=1, slaves=0))
        with Running(namespace) as running:
            _until(lambda: _all_ready(namespace), 900)
            time.sleep(30)
            writes, cpu = running.at_rest(REST_SECONDS)
            per_hour = writes * 3600 / REST_SECONDS
            _say(f"writes per hour at rest, {options.resting} clusters", per_hour, "", "0")
            _say("CPU at rest", 100 * cpu / REST_SECONDS, "% of a core", "< 2")
        namespace.clean_up()

    def reaction(self, options: argparse.Namespace) -> None:
        """How soon a deleted child is back, and a changed spec written."""
        namespace = Namespace(self._plane)
        namespace.api.create(_name_server())
        namespace.api.create(_cluster("orders", pairs=1, slaves=1))
        with Running(namespace):
            namespace.api.wait("BrokerCluster", "orders", is_true("Ready"), seconds=120)
            time.sleep(5)
            back = [_seconds_until_back(namespace, "Service", "orders-brokers") for _ in range(10)]
            _say("deleted child back, median of 10", statistics.median(back), "s", "< 1")
            _say("deleted child back, worst", max(back), "s", "< 1")
            first = [self._seconds_to_first_write(namespace, str(n % 2 + 70)) for n in range(10)]
            _say("spec change to first write, median of 10", statistics.median(first), "s", "< 0.5")
            _say("spec change to first write, worst", max(first), "s", "< 0.5")
        namespace.clean_up()

    def _seconds_to_first_write(self, namespace: Namespace, hours: str) -> float:
        mark = self._plane.audit.mark()
        begun = time.monotonic()
        body = {"spec": {"config": {"fileReservedTime": hours}}}
        namespace.api.patch("BrokerCluster", "orders", body)
        user = f"system:serviceaccount:{namespace.name}:op"
        _until(lambda: bool(self._plane.audit.writes(since=mark, user=user)), 60)
        seconds = time.monotonic() - begun
        time.sleep(5)
        return seconds

    def live(self, options: argparse.Namespace) -> None:
        """Switch slaveReadEnable on many pairs at once."""
        namespace = Namespace(self._plane)
        namespace.api.create(_name_server())
        namespace.api.create(_cluster("orders", pairs=options.pairs, slaves=1))
        with Running(namespace):
            namespace.api.wait("BrokerCluster", "orders", is_true("Ready"), seconds=300)
            time.sleep(15)
            taken = []
            for wanted in (True, False, True):
                begun = time.monotonic()
                body = {"spec": {"slaveReadEnable": wanted}}
                generation = namespace.api.patch("BrokerCluster", "orders", body)["metadata"][
                    "generation"
                ]
                _until(partial(_verified, namespace, generation, wanted), 120)
                taken.append(time.monotonic() - begun)
                time.sleep(5)
            text = f"slaveReadEnable on {options.pairs} pairs verified, median of {len(taken)}"
            _say(text, statistics.median(taken), "s", "< 3")
        namespace.clean_up()

    def outage(self, options: argparse.Namespace) -> None:
        """How long nobody takes the messages of a single pair."""
        namespace = Namespace(self._plane)
        with Running(namespace):
            cluster = LivedCluster(namespace, pairs=1, slavesPerPair=1)
            cluster.wait_settled()
            with Sending(cluster.name_server) as sending:
                cluster.change(config={**CONFIG, "defaultQueryMaxNum": "33"})
                cluster.wait_settled()
                _say("a key that needs a restart: writes out", sending.gap(), "s", "<= 5")
                time.sleep(STABLE_MASTER_SECONDS + 5)
                begun = time.monotonic()
                where = {"clusterRef": {"name": "orders"}, "pair": "orders-0", "targetMember": 1}
                namespace.api.create(resource("RoleSwitch", "planned", **where))
                is_complete = _in_phase("Complete")
                namespace.api.wait("RoleSwitch", "planned", is_complete, seconds=240)
                _say("planned switch: complete after", time.monotonic() - begun, "s", "<= 20")
                cluster.wait_settled()
                _say("planned switch: writes out", sending.gap(), "s", "<= 15")
        namespace.clean_up()

    def drain(self, options: argparse.Namespace) -> None:
        """How long nobody takes the messages of a single pair whose master's node is drained."""
        for engine, spec in _ENGINES.items():
            for on_drain, aim in (("Allow", "-"), ("Switch", "<= 15")):
                namespace = Namespace(self._plane)
                node = NodeProcess(self._plane)
                with (
                    node.further(namespace.name, "a", "b", "c") as names,
                    Running(namespace, READS_NODES),
                ):
                    failover = {"onDrain": on_drain}
                    cluster = LivedCluster(namespace, pairs=1, failover=failover, **spec)
                    cluster.wait_settled()
                    time.sleep(STABLE_MASTER_SECONDS + 5)
                    with Sending(cluster.name_server) as sending:
                        begun = time.monotonic()
                        drained = namespace.api.get("Pod", "orders-0-0-0")["spec"]["nodeName"]
                        assert drained in names
                        flags = ("--ignore-daemonsets", "--delete-emptydir-data", "--force")
                        namespace.kubectl("drain", drained, *flags, seconds=300)
                        ended = time.monotonic() - begun
                        namespace.api.wait("Pod", "orders-0-0-0", is_true("Ready"), seconds=240)
                        cluster.wait_settled()
                        time.sleep(5)
                        text = f"{engine}, {on_drain}"
                        _say(f"drain, {text}: node empty after", ended, "s", "-")
                        _say(f"drain, {text}: writes out", sending.gap(), "s", aim)
                namespace.clean_up()

    def forced(self, options: argparse.Namespace) -> None:
        """How soon a forced switch begins while another pair waits for its readers."""
        namespace = Namespace(self._plane)
        with Running(namespace):
            cluster = LivedCluster(namespace, pairs=2, slavesPerPair=1, failover={"mode": "Manual"})
            cluster.wait_settled()
            asyncio.run(leave_unread(cluster, "orders-1-0"))
            cluster.change(pairs=1)
            drain_is_blocked(cluster)
            cluster.annotate(hold_member="orders-0-0")
            namespace.api.wait_gone("Pod", "orders-0-0-0", seconds=120)
            begun = time.monotonic()
            where = {"clusterRef": {"name": "orders"}, "pair": "orders-0", "targetMember": 1}
            namespace.api.create(resource("RoleSwitch", "lost", mode="Forced", **where))
            begins = _in_phase("Running", "Complete")
            namespace.api.wait("RoleSwitch", "lost", begins, seconds=120)
            seconds = time.monotonic() - begun
            _say("forced switch beside a drain: begins after", seconds, "s", "<= 10")
        namespace.clean_up()


def _in_phase(*phases: str) -> Callable[[Object], bool]:
    return lambda item: item.get("status", {}).get("phase") in phases


class Sending:
    """A producer of ORDER_PAID that sends one message after another, in a thread of its own."""

    def __init__(self, name_server: str) -> None:
        self._settings = ClientSettings(
            namesrv_addrs=(name_server,),
            send_timeout_ms=1_000,
            connect_timeout_ms=1_000,
            api_timeout_ms=1_000,
            poll_name_server_interval_ms=1_000,
        )
        self._ends = threading.Event()
        self._lock = threading.Lock()
        self._last, self._worst = time.monotonic(), 0.0
        self._thread = threading.Thread(target=lambda: asyncio.run(self._send()))

    def __enter__(self) -> Sending:
        self._thread.start()
        time.sleep(2)
        self.gap()
        return self

    def __exit__(self, *error: object) -> None:
        self._ends.set()
        self._thread.join()

    def gap(self) -> float:
        """Return the longest time between two acknowledged sends since the last call, in s."""
        with self._lock:
            worst, self._worst = self._worst, 0.0
        return worst

    async def _send(self) -> None:
        async with Producer("shop", self._settings) as producer:
            while not self._ends.is_set():
                with contextlib.suppress(FailbackError, OSError):
                    await producer.send(Message(TOPIC, b"paid"))
                    with self._lock:
                        now = time.monotonic()
                        self._worst, self._last = max(self._worst, now - self._last), now
                await asyncio.sleep(0.01)


class Running:
    """An operator process under the chart's rights, and what it uses."""

    def __init__(self, namespace: Namespace, *settings: str) -> None:
        self._namespace = namespace
        self._operator = OperatorProcess(namespace, operator_identity(namespace, *settings))

    def __enter__(self) -> Running:
        self._operator.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._operator.process.dispose()

    @property
    def _process(self) -> psutil.Process:
        return psutil.Process(self._operator.process.pid)

    def rss_mib(self) -> float:
        return float(self._process.memory_info().rss) / 2**20

    def at_rest(self, seconds: float) -> tuple[int, float]:
        """Return the operator's write requests and CPU seconds of a while without any change."""
        audit = self._namespace.control_plane.audit
        mark, before = audit.mark(), self._process.cpu_times()
        time.sleep(seconds)
        after = self._process.cpu_times()
        user = f"system:serviceaccount:{self._namespace.name}:op"
        used = after.user + after.system - before.user - before.system
        return len(audit.writes(since=mark, user=user)), used


def _brokers(namespace: Namespace) -> dict[str, str]:
    """Return uid → name of the brokers' pods."""
    found = namespace.api.list("Pod", labels="app.kubernetes.io/component=broker")
    return {item["metadata"]["uid"]: item["metadata"]["name"] for item in found}


def _are_new(namespace: Namespace, old: dict[str, str]) -> bool:
    now = _brokers(namespace)
    return len(now) >= len(old) and now.keys().isdisjoint(old)


def _name_server() -> Object:
    return _resource("NameServer", "main", {"replicas": 1})


def _cluster(name: str, *, pairs: int, slaves: int) -> Object:
    spec = {
        "nameServerRef": {"name": "main"},
        "pairs": pairs,
        "slavesPerPair": slaves,
        "podDisruptionBudget": {"enabled": True},
    }
    return _resource("BrokerCluster", name, spec)


def _resource(kind: str, name: str, spec: Object) -> Object:
    api_version = "failback.dev/v1alpha1"
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _all_have_status(namespace: Namespace) -> bool:
    clusters = namespace.api.list("BrokerCluster")
    return all(item.get("status", {}).get("conditions") for item in clusters)


def _all_ready(namespace: Namespace) -> bool:
    return all(is_true("Ready")(item) for item in namespace.api.list("BrokerCluster"))


def _verified(namespace: Namespace, generation: int, wanted: bool) -> bool:
    """Whether the status shows the value as read back from every member."""
    cluster = namespace.api.get("BrokerCluster", "orders")
    status = cluster["status"]
    members = [member for pair in status["pairs"] for member in pair["members"]]
    return (
        status.get("observedGeneration") == generation
        and is_true("ConfigApplied")(cluster)
        and all(member.get("slaveReadEnable") == wanted for member in members)
    )


def _seconds_until_back(namespace: Namespace, kind: str, name: str) -> float:
    old = namespace.api.get(kind, name)["metadata"]["uid"]
    begun = time.monotonic()
    namespace.api.delete(kind, name)

    def is_back() -> bool:
        found = namespace.api.find(kind, name)
        return found is not None and found["metadata"]["uid"] != old

    _until(is_back, 60)
    seconds = time.monotonic() - begun
    time.sleep(1)
    return seconds


def _until(holds: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s")
        time.sleep(_POLL_SECONDS)


def _say(what: str, value: float, unit: str, aim: str) -> None:
    print(f"{what:58} {value:10.3f} {unit:14} aim {aim}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
