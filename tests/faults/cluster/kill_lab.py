"""A cluster, its runtime and a workload that a test kills at instants drawn from a seed.

Everything is a real process: ``failback up`` with one name server and one pair, a producer and two
consumers of ``failback.chaos.workload`` with the consume log on. :class:`KillLab` kills them and
brings them back; what they left behind is read by :mod:`tests.faults.cluster.kill_evidence`.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from failback.chaos.cluster import processes
from failback.chaos.cluster.wire import WireConnection
from failback.chaos.errors import TargetError
from failback.chaos.targets.local import ControlSocket
from tests.support.common.polling import SCALE, wait_until
from tests.support.processes.child_process import (
    ROOT,
    TestProcess,
    failback_command,
    failback_environment,
)

TIME_SCALE: Final = 0.1
TOPIC: Final = "orders"
GROUP: Final = "billing"
QUEUES: Final = 4
RATE: Final = 150
MEMBERS: Final = 2
RUN: Final = "kills"
NO_ROUTE: Final = "name server could not be asked for the route"
CONSUMED_NOTHING: Final = "consumed nothing"
MASTER, SLAVE, NAMESERVER = "lab-0-0-0", "lab-0-1-0", "ns-ns-0"

RESOURCES: Final = f"""
apiVersion: failback.dev/v1alpha1
kind: NameServer
metadata: {{name: ns}}
spec: {{replicas: 1, config: {{failbackTimeScale: "{TIME_SCALE}"}}}}
---
apiVersion: failback.dev/v1alpha1
kind: BrokerCluster
metadata: {{name: lab}}
spec:
  nameServerRef: {{name: ns}}
  pairs: 1
  slavesPerPair: 1
  slaveReadEnable: true
  flushDiskType: FLUSH
  config: {{failbackTimeScale: "{TIME_SCALE}", mappedFileSizeCommitLog: "1048576"}}
---
apiVersion: failback.dev/v1alpha1
kind: Topic
metadata: {{name: {TOPIC}}}
spec: {{clusterRef: {{name: lab}}, readQueueNums: {QUEUES}, writeQueueNums: {QUEUES}}}
"""


@dataclass(frozen=True)
class Kill:
    """One entry of a schedule: after ``gap_seconds``, SIGKILL for ``victim``.

    A broker or name server is held for ``down_seconds``, or restarted by the runtime's own
    back-off if that is 0. A consumer is replaced after it. ``again`` (runtime only): the next
    runtime is killed too, this long after it took the root, while it starts its children.
    """

    victim: str
    gap_seconds: float
    down_seconds: float
    again: float | None = None


def draw_schedule(seed: int, rounds: int) -> list[Kill]:
    """Return ``rounds`` times the same victims, each round in another order."""
    rng = random.Random(seed)
    schedule: list[Kill] = []
    for number in range(rounds):
        victims = [*[MASTER] * 4, *[SLAVE] * 2, *["consumer"] * 4, NAMESERVER, "runtime"]
        rng.shuffle(victims)
        for victim in victims:
            down = rng.choice([0.0, rng.uniform(0.2, 2.5)])
            again = rng.uniform(0.0, 2.0) if victim == "runtime" and number % 2 else None
            schedule.append(Kill(victim, rng.uniform(0.05, 1.2), down, again))
    return schedule


class KillLab:
    """Use as ``with KillLab(folder, flush, seed) as lab``; ends everything afterwards."""

    def __init__(self, folder: Path, flush: str, seed: int) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.hot = folder / "hot"
        self.seen: dict[tuple[int, int], str] = {}
        """Every process that was part of the lab: pid and start ticks, and what it was."""
        self.kills: list[str] = []
        self.consumers: list[TestProcess | None] = [None] * MEMBERS
        self.producer: TestProcess | None = None
        self.stopped_cleanly: set[int] = set()
        """Numbers (``proc_no``) of consumers that ended in order."""
        self._file = folder / "lab.yaml"
        self._flush = flush
        self._rng = random.Random(seed)
        self._due: list[tuple[float, Callable[[], object]]] = []
        self._next_proc_no = 10
        self._numbers: dict[int, int] = {}
        self._namesrv = ""

    def __enter__(self) -> KillLab:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._file.write_text(RESOURCES.replace("FLUSH", self._flush, 1))
        try:
            self._finish_up(self._begin_up())
            (self._namesrv,) = self.view()["clusters"][0]["nameservers"]
            self.producer = self._start_producer()
            for slot in range(MEMBERS):
                self._start_consumer(slot)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in (self.producer, *self.consumers):
            if process is not None:
                process.dispose()
        self.down()

    # --- the schedule ----------------------------------------------------------------------------

    def play(self, schedule: list[Kill]) -> None:
        """Kill as scheduled, then wait until everything that was down is back."""
        for kill in schedule:
            self._let_pass(kill.gap_seconds)
            if kill.victim == "runtime":
                self._kill_runtime(kill)
            elif kill.victim == "consumer":
                self._kill_consumer(kill)
            else:
                self._kill_pod(kill)
        while self._due:
            self._let_pass(0.1)

    def _let_pass(self, seconds: float) -> None:
        """Spend ``seconds``; whoever is due to return meanwhile returns."""
        end = time.monotonic() + seconds
        while True:
            self._replace_refused_consumers()
            for entry in sorted(self._due, key=lambda each: each[0]):
                if entry[0] <= time.monotonic():
                    self._due.remove(entry)
                    entry[1]()
            left = end - time.monotonic()
            if left <= 0:
                return
            nearest = min((at for at, _ in self._due), default=end)
            time.sleep(max(0.001, min(left, nearest - time.monotonic())))

    def _kill_pod(self, kill: Kill) -> None:
        """Kill a pod's process in whatever state it is, also while it starts."""
        pod = self._wait_for_process(kill.victim)
        if kill.down_seconds:
            self._call("hold", pod=kill.victim, undo="test")
            end = time.monotonic() + kill.down_seconds
            self._due.append((end, partial(self._call, "release", pod=kill.victim)))
        self._sigkill(pod["pid"], pod["ticks"], kill.victim)

    def _wait_for_process(self, pod: str) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def alive() -> bool:
            self._let_pass(0)
            found.update(self.pods()[pod])
            return found["pid"] is not None and processes.alive(found["pid"], found["ticks"])

        wait_until(alive, f"a process of {pod}", 90)
        return found

    def _kill_consumer(self, kill: Kill) -> None:
        slot = self._rng.randrange(MEMBERS)

        def started() -> TestProcess | None:
            self._let_pass(0)
            return self.consumers[slot]

        wait_until(started, "the consumer's turn", 60)
        victim = self.consumers[slot]
        assert victim is not None
        assert victim.alive, f"{victim.name} ended by itself:\n{victim.errors()[-2000:]}"
        victim.kill()
        self.kills.append(victim.name)
        self.consumers[slot] = None
        self._due.append((time.monotonic() + kill.down_seconds, lambda: self._start_consumer(slot)))

    def _replace_refused_consumers(self) -> None:
        """A consumer does not start without a name server, as 4.9.8's; try again in a while."""
        for slot, consumer in enumerate(self.consumers):
            if consumer is None or consumer.alive or NO_ROUTE not in consumer.errors():
                continue
            consumer.dispose()
            self.consumers[slot] = None
            self._due.append((time.monotonic() + 0.3, partial(self._start_consumer, slot)))

    def _kill_runtime(self, kill: Kill) -> None:
        """Kill the runtime, sometimes an orphan of it too, and start another one on its root."""
        while self._due:  # a new runtime waits for held pods for ever
            self._let_pass(0.05)
        self.pods()
        self._sigkill(*self._runtime(), "runtime")
        if kill.down_seconds:
            orphan = json.loads((self.root / "state.json").read_text())["pods"][MASTER]
            if orphan["pid"] is not None and processes.alive(orphan["pid"], orphan["ticks"]):
                self._sigkill(orphan["pid"], orphan["ticks"], f"{MASTER} without a runtime")
        before = self._runtime()
        starting = self._begin_up()
        if kill.again is not None:
            begins = lambda: self._runtime() != before or starting.poll() is not None  # noqa: E731
            wait_until(begins, "a start", 120)
            time.sleep(kill.again)
            self._note_pods_on_disk()
            self._sigkill(*self._runtime(), "starting runtime")
            starting.wait(120 * SCALE)
            starting = self._begin_up()
        self._finish_up(starting)

    def _sigkill(self, pid: int, ticks: int, name: str) -> None:
        self.seen[(pid, ticks)] = name
        try:
            processes.send_signal(pid, ticks, signal.SIGKILL)
        except TargetError:  # it was faster: a failed start, or the other end of a back-off
            return
        assert processes.await_exit(pid, ticks, 30 * SCALE), f"{name} survives SIGKILL"
        self.kills.append(name)

    # --- runtime and pods ------------------------------------------------------------------------

    def view(self) -> dict[str, Any]:
        return ControlSocket.of_root(self.root).call("view")

    def pods(self) -> dict[str, dict[str, Any]]:
        """Return the pods by name; every process seen is remembered."""
        view = self.view()
        members = view["clusters"][0]["pairs"][0]["members"]
        pods = {pod["pod"]: pod for pod in (*view["nameserver_pods"], *members)}
        for name, pod in pods.items():
            if pod["pid"] is not None:
                self.seen[(pod["pid"], pod["ticks"])] = name
        return pods

    def _note_pods_on_disk(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            state = json.loads((self.root / "state.json").read_text())
            for name, pod in state["pods"].items():
                if pod["pid"] is not None:
                    self.seen[(pod["pid"], pod["ticks"])] = name

    def _call(self, command: str, **arguments: Any) -> dict[str, Any]:
        return ControlSocket.of_root(self.root).call(command, **arguments)

    def _runtime(self) -> tuple[int, int]:
        """Identity of the runtime that took the root last, dead or alive."""
        try:
            control = json.loads((self.root / "control.json").read_text())
        except FileNotFoundError:
            return 0, 0
        return control["pid"], control["ticks"]

    def kill_runtime_for_good(self) -> None:
        """Leave the pods without their runtime."""
        self.pods()
        self._sigkill(*self._runtime(), "runtime")

    def wait_ready(self) -> None:
        """Return when all pods are ready and all consumers run."""

        def ready() -> bool:
            self._let_pass(0)
            running = [consumer for consumer in self.consumers if consumer and consumer.alive]
            states = [pod["state"] for pod in self.pods().values()]
            return len(running) == MEMBERS and set(states) == {"Ready"}

        wait_until(ready, "all pods and consumers", 90)

    def _begin_up(self) -> subprocess.Popen[bytes]:
        with (self.folder / "up.log").open("ab") as log:
            return subprocess.Popen(
                failback_command(
                    "cli", "up", "-f", str(self._file), "--root", str(self.root), "--detach"
                ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_environment(),
            )

    def _finish_up(self, starting: subprocess.Popen[bytes]) -> None:
        try:
            code = starting.wait(120 * SCALE)
        except subprocess.TimeoutExpired:
            starting.kill()
            starting.wait()
            code = -1
        assert code == 0, (self.folder / "up.log").read_text()[-3000:]
        self.seen[self._runtime()] = "runtime"

    def down(self) -> str:
        """``failback down``; returns what it printed."""
        done = subprocess.run(
            failback_command("cli", "down", "--root", str(self.root)),
            env=_environment(),
            capture_output=True,
            text=True,
            timeout=180 * SCALE,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def living(self) -> list[str]:
        """Return every pod and runtime there ever was that still runs."""
        return [
            f"{name} (pid {pid})"
            for (pid, ticks), name in self.seen.items()
            if processes.alive(pid, ticks)
        ]

    # --- workload --------------------------------------------------------------------------------

    def _start_producer(self) -> TestProcess:
        own = ["produce", "--rate", str(RATE), "--queues", str(QUEUES), "--body-bytes", "256"]
        process = self._workload(
            "producer", [sys.executable, "-m", "failback.chaos.workload"], own, 1
        )
        process.start()
        return process

    def _start_consumer(self, slot: int) -> None:
        number = self._next_proc_no
        self._next_proc_no += 1
        program = [
            sys.executable,
            "-m",
            "tests.faults.cluster.recording_consumer",
            str(self.notes(number)),
        ]
        # Long enough that a kill finds several handlers under way.
        own = ["consume", "--group", GROUP, "--mean-ms", "50", "--jitter-ms", "45"]
        process = self._workload(f"consumer-{number}", program, own, number)
        process.start()
        self._numbers[process.pid] = number
        self.consumers[slot] = process

    def _workload(self, name: str, program: list[str], own: list[str], number: int) -> TestProcess:
        common = ["--namesrv", self._namesrv, "--topic", TOPIC, "--hot", str(self.hot)]
        common += ["--run", RUN, "--proc-no", str(number), "--time-scale", str(TIME_SCALE)]
        command = [*program, *own, *common]
        return TestProcess(name, command, self.folder, environment=_environment())

    def notes(self, number: int) -> Path:
        return self.folder / f"handled-{number}"

    def consumer_numbers(self) -> list[int]:
        return sorted(self._numbers.values())

    def stop_producer(self) -> None:
        assert self.producer is not None
        assert self.producer.alive, self.producer.errors()[-2000:]
        assert self.producer.stop() == 0, self.producer.errors()[-2000:]

    def stop_consumers(self) -> None:
        for consumer in self.consumers:
            assert consumer is not None
            assert consumer.alive, f"{consumer.name} ended by itself:\n{consumer.errors()[-2000:]}"
            number = self._numbers[consumer.pid]
            pid = consumer.pid
            wait_until(lambda p=pid: _handles_terminate(p), f"{consumer.name} has begun", 60)  # type: ignore[misc]
            code = consumer.stop()
            # One that was started a moment ago may not have found the topic's brokers yet.
            assert code == (CONSUMED_NOTHING in consumer.errors()), consumer.errors()[-2000:]
            self.stopped_cleanly.add(number)

    # --- what the master says --------------------------------------------------------------------

    def master(self) -> WireConnection:
        return WireConnection(self.pods()[MASTER]["address"])

    def wait_drained(self) -> None:
        """Return when the group's committed offset is the end of every queue at the master."""
        shown: list[object] = []

        def drained() -> bool:
            self._let_pass(0)  # a consumer may have asked before the name server came back
            with self.master() as connection:
                ends = {qid: end for qid, (_, end) in connection.topic_stats(TOPIC).items()}
                committed = connection.all_offsets().get(f"{TOPIC}@{GROUP}", {})
            shown[:] = [ends, committed]
            return sum(ends.values()) > 0 and ends == committed

        try:
            wait_until(drained, "the group at the end of every queue", 60)
        except AssertionError as error:
            raise AssertionError(f"{error}: ends and committed offsets {shown}") from None


def _handles_terminate(pid: int) -> bool:
    """Whether a process has got as far as to install its handler of SIGTERM."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.partition(":")[2], 16) & 1 << (signal.SIGTERM - 1))


def _environment() -> dict[str, str]:
    environment = failback_environment()
    environment["PYTHONPATH"] += f":{ROOT}"
    return {**os.environ, **environment}
