"""One run of a comparison: cluster, clients, one kill, the return, and the closed run folder."""

from __future__ import annotations

import json
import platform
import secrets
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import failback.chaos as package
from failback.chaos.cluster.clock import now
from failback.chaos.cluster.view import MASTER, Member
from failback.chaos.compare.rows import Plan, Rows, lane_of_queue
from failback.chaos.compare.servers import Child, Server, accepts
from failback.chaos.compare.settings import (
    EARLY,
    EARLY_SECONDS,
    KAFKA,
    NEW_MEMBER_SECONDS,
    QUEUES,
    STAY,
    TOPIC,
    GroupPlan,
    Setting,
)
from failback.chaos.errors import Aborted, TargetError
from failback.chaos.recorder.fault_log import FaultLog
from failback.chaos.recorder.fault_record import FaultRecord
from failback.chaos.run.closing import lake_rows, seal
from failback.chaos.run_folder.run_folder import CLOSED_SCHEMA, RUN_SCHEMA, RunFolder

FID: Final = "kill"
RECORDER: Final = 0
_BACK_SECONDS: Final = 150.0
_DRAIN_SECONDS: Final = 300.0
_LEAVE_SECONDS: Final = 120.0
_STEADY_MESSAGES: Final = 200
"""Each group has handled so many before the kill."""
Tell = Callable[[str], None]


class Cluster(Protocol):
    """What a run needs of an engine's cluster."""

    version: str
    servers: str
    """Addresses as a client takes them."""
    nodes: list[Server]

    @property
    def victim(self) -> Server: ...
    def start(self) -> None: ...
    def queues(self) -> Mapping[int, str]: ...
    def group_name(self, label: str, on_victim: bool) -> str: ...
    def before_kill(self, tell: Tell) -> None: ...
    def serves(self) -> bool: ...
    def ends(self) -> dict[int, int]: ...
    def is_drained(self, group: str) -> bool: ...
    def scan(self, rows: Rows, ends: Mapping[int, int]) -> bool: ...
    def end(self) -> None: ...


def cluster_of(setting: Setting, folder: Path, tell: Tell) -> Cluster:
    """Make the cluster of a setting; nothing is started.

    Raises:
        ConfigError: Something is missing: names what to install.
        ModuleNotFoundError: The engine's client is not installed.
    """
    if setting.engine == KAFKA:
        from failback.chaos.compare.kafka_cluster import KafkaCluster

        return KafkaCluster(setting, folder, tell)
    from failback.chaos.compare.redis_cluster import RedisCluster

    return RedisCluster(setting, folder, tell)


def run_setting(setting: Setting, path: Path, tell: Tell) -> None:
    """Run one setting and close its run folder, whatever became of it but Ctrl-C and SIGTERM.

    Raises:
        ConfigError: Something is missing: names what to install. There is no run folder then.
        ModuleNotFoundError: The engine's client is not installed; likewise.
        RunFolderError: The run folder cannot be made.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    data = path.parent / f".{path.name}-cluster"
    data.mkdir(parents=True)
    folder = RunFolder(path)
    try:
        cluster = cluster_of(setting, data, tell)
        folder.create()
        folder.open()
        run = Run(setting, folder, cluster, tell)
        run.carry_out()
        for log in data.glob("*.log"):
            shutil.copy(log, path / "logs" / log.name)
        run.close()
    finally:
        folder.release()
        shutil.rmtree(data, ignore_errors=True)


@dataclass(slots=True)
class Client:
    """A client process of the run."""

    plan: Plan
    child: Child
    label: str = ""
    ended: int | None = None
    """When it had ended, ns of the monotonic clock."""

    def status(self) -> dict[str, Any]:
        """What it said last; empty before it did."""
        try:
            found: dict[str, Any] = json.loads(Path(self.plan.status).read_bytes())
        except FileNotFoundError:
            return {}
        return found


class Run:
    """A run in progress."""

    def __init__(self, setting: Setting, folder: RunFolder, cluster: Cluster, tell: Tell) -> None:
        self._setting, self._folder, self._cluster, self._tell = setting, folder, cluster, tell
        self._name = f"{setting.engine}-{setting.name}-{secrets.token_hex(4)}"
        self._status = folder.path.parent / f".{folder.path.name}-cluster"
        self._clients: list[Client] = []
        self._groups: dict[str, GroupPlan] = {}
        self._zero = now()
        self._phases: dict[str, int] = {}
        self._steady = self._drained = self._scanned = False
        self._returned: bool | None = None
        """Whether the victim serves again; ``None`` while it was not killed."""
        self._aborted = ""
        self._rows = Rows(self._plan(RECORDER, "recorder"))
        self._faults = FaultLog(folder, self._rows.log)

    # --- the course of a run -----------------------------------------------------------------

    def carry_out(self) -> None:
        """Everything up to the last row; the cluster is gone at the end."""
        try:
            self._tell(f"starting {self._setting.engine} {self._cluster.version}")
            self._cluster.start()
            self._zero = self._faults.zero = now()
            self._measure()
        except (TargetError, Aborted) as error:
            self._aborted = str(error)
            self._tell(f"the run ends early: {error}")
        finally:
            for client in self._clients:
                client.child.ask_to_end()
            for client in self._clients:
                client.child.end()
                client.ended = client.ended or time.monotonic_ns()
            self._cluster.end()
            self._rows.close()

    def _measure(self) -> None:
        load = self._setting.load
        producer = self._start_client("producer", preload=load.preload, per_second=load.per_second)
        self._tell(f"a backlog of {load.preload} messages")
        self._wait(lambda: sum(producer.status().get("sent", {}).values()) >= load.preload, 120)
        for each in self._setting.groups:
            self._groups[self._cluster.group_name(each.label, each.on_victim)] = each
        for name in self._groups:
            self._start_member(name)
        self._wait(lambda: all(map(self._handled, self._groups)), 120)
        self._sleep(load.before_kill_seconds)
        self._steady = all(self._handled(name) >= _STEADY_MESSAGES for name in self._groups)
        killed = self._kill()
        self._hold(killed)
        self._return()
        self._sleep(NEW_MEMBER_SECONDS)
        for name, each in self._groups.items():
            if each.arm != STAY:
                self._wait(lambda name=name: not self._members(name), _LEAVE_SECONDS)  # type: ignore[misc]
                self._start_member(name)
        self._sleep(2 * NEW_MEMBER_SECONDS)
        self._end(producer)
        self._drain()
        self._phase("drain_end_ns")
        for client in self._clients:
            client.child.ask_to_end()
        for client in self._clients:
            self._end(client)
        self._scanned = self._cluster.scan(self._rows, self._cluster.ends())

    def _kill(self) -> int:
        """Kill the victim; when, ns of the monotonic clock."""
        self._cluster.before_kill(self._tell)
        victim = self._cluster.victim
        record = FaultRecord(FID, "kill", "the first server", 0, victim=self._member(victim))
        record.intended_ns = now().mono_ns
        self._faults.open_fault(record)
        self._tell(f"kill -9 of {victim.name}, pid {victim.pid}")
        death = victim.kill()
        self._returned = False
        record.issued, record.signum = (death.issued, death.returned), 9
        record.proof = {"K3": death.status, "K6": death.refuses}
        self._phases["first_fault_ns"] = self._after_zero(death.issued.mono_ns)
        if death.doubt:
            record.add_unproved_reason(death.doubt)
        record.settle()
        detail = {"proof": dict(record.proof), "why": record.why}
        for kind in ("KILL", "GONE"):
            self._faults.fault_row(
                record, kind, observed=death.gone, observer="parent", detail=detail
            )
        return death.issued.mono_ns

    def _hold(self, killed: int) -> None:
        """Leave the victim down; end members meanwhile, as their arms say."""
        due = {
            name: EARLY_SECONDS if each.arm == EARLY else self._setting.stop_seconds
            for name, each in self._groups.items()
            if each.arm != STAY
        }
        while (passed := (time.monotonic_ns() - killed) / 1e9) < self._setting.hold_seconds:
            for name in [name for name, after in due.items() if after <= passed]:
                del due[name]
                for client in self._members(name):
                    client.child.ask_to_end()
            self._sleep(0.2)

    def _return(self) -> None:
        victim, record = self._cluster.victim, self._faults.faults[FID]
        self._tell(f"{victim.name} starts again")
        victim.start()
        self._wait(lambda: accepts(victim.port), _BACK_SECONDS)
        self._faults.fault_row(record, "ACCEPT", observed=now(), observer="parent")
        self._wait(self._cluster.serves, _BACK_SECONDS)
        healed = now()
        self._faults.healed(record, healed)
        self._phases["last_heal_ns"] = self._after_zero(healed.mono_ns)
        self._returned = True

    def _drain(self) -> None:
        """Wait until each group has handled everything that is stored."""
        ends = self._cluster.ends()
        self._tell(f"the groups handle the rest of {sum(ends.values())} messages")

        def is_done(name: str) -> bool:
            reached: dict[str, int] = {}
            for client in self._clients:
                if client.plan.group == name:
                    for qid, offset in client.status().get("reached", {}).items():
                        reached[qid] = max(reached.get(qid, 0), offset)
            whole = all(reached.get(str(qid), 0) >= end for qid, end in ends.items())
            return whole and self._cluster.is_drained(name)

        try:
            self._wait(lambda: all(map(is_done, self._groups)), _DRAIN_SECONDS)
        except TargetError:
            return
        self._drained = True

    # --- clients -----------------------------------------------------------------------------

    def _plan(self, proc_no: int, role: str, **further: Any) -> Plan:
        cluster = self._cluster
        return Plan(
            engine=self._setting.engine,
            role=role,
            run=self._name,
            hot=str(self._folder.hot),
            status=str(self._status / f"client-{proc_no}.json"),
            proc_no=proc_no,
            servers=cluster.servers,
            queues={str(qid): name for qid, name in cluster.queues().items()},
            handler_ms=self._setting.load.handler_ms,
            **further,
        )

    def _start_client(self, role: str, **further: Any) -> Client:
        plan = self._plan(len(self._clients) + 1, role, **further)
        path = self._status / f"plan-{plan.proc_no}.json"
        plan.write(path)
        command = [sys.executable, "-m", "failback.chaos.compare", str(path)]
        log = self._folder.path / "logs" / f"client-{plan.proc_no}.log"
        client = Client(plan, Child(f"{role} {plan.group}".strip(), command, log, {}))
        client.child.start()
        self._clients.append(client)
        return client

    def _start_member(self, group: str) -> None:
        self._start_client("consumer", group=group, client=dict(self._groups[group].client))

    def _members(self, group: str) -> list[Client]:
        """The members of a group that run."""
        return [c for c in self._clients if c.plan.group == group and c.child.is_alive()]

    def _handled(self, group: str) -> int:
        mine = (each for each in self._clients if each.plan.group == group)
        return sum(sum(each.status().get("reached", {}).values()) for each in mine)

    def _end(self, client: Client) -> None:
        """Ask a client to end, and wait: leaving a group may take the time of a request."""
        if client.child.is_alive():
            client.child.ask_to_end()
            if not client.child.wait(_LEAVE_SECONDS):
                client.child.end()
        client.ended = client.ended or time.monotonic_ns()

    # --- waiting -----------------------------------------------------------------------------

    def _wait(self, ready: Callable[[], object], seconds: float) -> None:
        """Wait for a condition. Raises ``TargetError`` when the time is over or a process died."""
        deadline = time.monotonic() + seconds
        while not ready():
            if time.monotonic() > deadline:
                raise TargetError("the run", f"waited {seconds:g} s in vain")
            self._sleep(0.25)

    def _sleep(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while True:
            self._check()
            left = deadline - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, 0.5))

    def _check(self) -> None:
        """Note which clients have ended; refuse one that failed, and a server that died."""
        for client in self._clients:
            status = client.child.status
            if status is not None and client.ended is None:
                client.ended = time.monotonic_ns()
            if status:
                raise TargetError(client.child.name, f"ended: {client.child.last_words()}")
        if reason := self._folder.abort_reason():
            raise Aborted(reason)

    # --- documents ---------------------------------------------------------------------------

    def _after_zero(self, mono_ns: int) -> int:
        return mono_ns - self._zero.mono_ns

    def _phase(self, name: str) -> None:
        self._phases[name] = self._after_zero(time.monotonic_ns())

    def _member(self, server: Server) -> Member:
        engine = self._setting.engine
        return Member(
            pair=engine, ordinal=server.number, pod=server.name, broker_name=engine,
            broker_id=server.number, role=MASTER, address=server.address, running=True,
        )  # fmt: skip

    def close(self) -> None:
        """Seal the logs and write the documents; the manifest comes last."""
        self._phase("end_ns")
        expected = {
            each.plan.proc_no: each.status()["last_seq"] for each in self._clients if each.status()
        }
        expected[RECORDER] = self._rows.log.last_seq
        sealed = seal(self._folder, self._name, expected)
        self._folder.write_json("run.json", self._run_document())
        self._folder.write_json(
            "closed.json",
            {
                "schema": CLOSED_SCHEMA,
                "drained": self._drained,
                "scan": self._scanned,
                "counts": sealed.rows,
                "procs": {str(number): seq for number, seq in sorted(sealed.last_seq.items())},
                "exits": {
                    str(each.plan.proc_no): {
                        "code": each.child.status,
                        "t_ns": self._after_zero(each.ended or 0),
                        "role": each.plan.role,
                    }
                    for each in self._clients
                },
                "gaps": sealed.gaps,
                "recorder_gaps": [f"{name} is still being written" for name in sealed.held],
                "clock": {"steps": 0, "hosts": []},
                "phases": self._phases,
                "steady": self._steady,
                "steady_why": "" if self._steady else "some group had handled too little",
                "recovered": self._returned,
                "recovered_why": "the server did not come back" if self._returned is False else "",
                "aborted": self._aborted,
                "not_healed": [],
            },
        )
        self._folder.write_manifest(lake_rows(self._folder.path))

    def _run_document(self) -> dict[str, Any]:
        setting, cluster = self._setting, self._cluster
        return {
            "schema": RUN_SCHEMA,
            "run": self._name,
            "experiment": f"compare-{setting.engine}",
            "scenario": f"compare-{setting.engine}",
            "arm": setting.name,
            "repetition": 0,
            "versions": {"failback": package.__version__, setting.engine: cluster.version},
            "rule_set": f"{setting.engine} {cluster.version}",
            "engine": setting.engine,
            "time_scale": 1.0,
            "log_mode": "full",
            "zero": {"wall_ns": self._zero.wall_ns, "mono_ns": self._zero.mono_ns},
            "switches": {},
            "topology": {
                "pairs": [
                    {
                        "name": setting.engine,
                        "broker": setting.engine,
                        "members": [
                            {
                                "broker_id": each.number,
                                "address": each.address,
                                "pod": each.name,
                                "role": MASTER,
                            }
                            for each in cluster.nodes
                        ],
                    }
                ]
            },
            "system": {"host": platform.platform()},
            "topics": [{"name": TOPIC, "queues": QUEUES, "ordered": False}],
            "groups": [
                {
                    "name": name,
                    "topic": TOPIC,
                    "members": 1,
                    "model": "push",
                    "orderly": False,
                    "messageModel": "CLUSTERING",
                    "label": each.label,
                    "arm": each.arm,
                    "client": dict(each.client),
                }
                for name, each in self._groups.items()
            ],
            "procs": [
                {"proc_no": each.plan.proc_no, "role": each.plan.role, "group": each.plan.group}
                for each in self._clients
            ],
            "workload": {
                "setting": setting.says,
                "cluster": dict(setting.cluster),
                "holdSeconds": setting.hold_seconds,
                "stopSeconds": setting.stop_seconds,
                "cutSeconds": setting.cut_seconds,
                "preload": setting.load.preload,
                "perSecond": setting.load.per_second,
                "handlerMs": setting.load.handler_ms,
                "lanes": {str(lane_of_queue(qid)): qid for qid in range(QUEUES)},
            },
            "faults": [
                {
                    "id": FID,
                    "fault": "kill",
                    "victim": cluster.victim.name,
                    "with": {"downSeconds": setting.hold_seconds},
                }
            ],
            "target": {"kind": "local", "cluster": setting.engine},
        }
