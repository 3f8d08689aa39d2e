"""One run of a comparison: cluster, clients, one kill, the return, and the closed run folder."""

from __future__ import annotations

import json
import secrets
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import failback.chaos as package
from failback.chaos.cluster.clock import now
from failback.chaos.cluster.view import MASTER, Member
from failback.chaos.compare import settings
from failback.chaos.compare.rows import Plan, Rows
from failback.chaos.compare.servers import Server, accepts
from failback.chaos.errors import TargetError
from failback.chaos.recorder.fault_log import FaultLog
from failback.chaos.recorder.fault_record import FaultRecord
from failback.chaos.run.closing import lake_rows, seal
from failback.chaos.run_folder.run_folder import CLOSED_SCHEMA, RUN_SCHEMA, RunFolder
from failback.common.files import read_object

if TYPE_CHECKING:
    from failback.chaos.compare import kafka_cluster, redis_cluster

    Cluster = kafka_cluster.Cluster | redis_cluster.Cluster

FID: Final = "kill"
_BACK_SECONDS: Final = 150.0
_DRAIN_SECONDS: Final = 300.0
_LEAVE_SECONDS: Final = 120.0
_STEADY_MESSAGES: Final = 200
"""Each group has handled so many before the kill."""
Tell = Callable[[str], None]


def check(engine: str) -> None:
    """Look for what a run needs. Raises ``ConfigError``, of a client ``ModuleNotFoundError``."""
    _module(engine).find()


def _module(engine: str) -> Any:
    return import_module(f"failback.chaos.compare.{engine}_cluster")


def run_setting(setting: settings.Setting, path: Path, tell: Tell) -> None:
    """Run one setting and close its run folder, unless Ctrl-C or SIGTERM ends it.

    Raises as :func:`check`, and ``RunFolderError`` where the folder cannot be made.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    data = path.parent / f".{path.name}-cluster"
    data.mkdir(parents=True)
    folder = RunFolder(path)
    try:
        cluster: Cluster = _module(setting.engine).Cluster(setting, data)
        folder.create()
        folder.open()
        run = Run(setting, folder, cluster, data, tell)
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
    child: Server
    ended: int | None = None
    """When it had ended, ns of the monotonic clock."""

    def status(self) -> dict[str, Any]:
        """What it said last, see ``rows.Rows``; nothing before it did."""
        try:
            return read_object(Path(self.plan.status))
        except FileNotFoundError:
            return {"last_seq": 0, "reached": {}, "sent": {}}

    def end(self) -> None:
        """Ask it to end, and wait: leaving a group may take the time of a request."""
        self.child.ask_to_end()
        if not self.child.wait(_LEAVE_SECONDS):
            self.child.end()
        self.ended = self.ended or time.monotonic_ns()


class Run:
    """A run in progress."""

    def __init__(
        self,
        setting: settings.Setting,
        folder: RunFolder,
        cluster: Cluster,
        data: Path,
        tell: Tell,
    ) -> None:
        self._setting, self._folder, self._cluster = setting, folder, cluster
        self._data, self._tell = data, tell
        self._name = f"{setting.engine}-{setting.name}-{secrets.token_hex(4)}"
        self._clients: list[Client] = []
        self._groups: dict[str, settings.GroupPlan] = {}
        self._zero = now()
        self._phases: dict[str, int] = {}
        self._steady = self._drained = self._scanned = False
        self._returned: bool | None = None
        """Whether the victim serves again; ``None`` while it was not killed."""
        self._aborted = ""
        self._rows = Rows(self._plan(0, "recorder"))
        self._faults = FaultLog(folder, self._rows.log)

    def carry_out(self) -> None:
        """Everything up to the last row; the cluster is gone at the end."""
        try:
            self._tell(f"starting {self._setting.engine} {self._cluster.version}")
            self._cluster.start()
            self._zero = self._faults.zero = now()
            self._measure()
        except TargetError as error:
            self._aborted = str(error)
            self._tell(f"the run ends early: {error}")
        finally:
            children = [*(each.child for each in self._clients), *self._cluster.nodes]
            for child in children:
                child.ask_to_end()
            for child in children:
                child.end()
            self._rows.close()

    def _measure(self) -> None:
        load = self._setting.load
        producer = self._start_client("producer", preload=load.preload, per_second=load.per_second)
        self._tell(f"a backlog of {load.preload} messages")
        self._wait(lambda: sum(producer.status()["sent"].values()) >= load.preload, 120)
        for each in self._setting.groups:
            self._groups[self._cluster.group_name(each.label, each.on_victim)] = each
        for name in self._groups:
            self._start_client("consumer", group=name, client=dict(self._groups[name].client))
        self._wait(lambda: all(map(self._handled, self._groups)), 120)
        self._sleep(load.before_kill_seconds)
        self._steady = all(self._handled(name) >= _STEADY_MESSAGES for name in self._groups)
        self._hold(self._kill())
        self._return()
        self._sleep(settings.NEW_MEMBER_SECONDS)
        for name, each in self._groups.items():
            if each.arm != settings.STAY:
                self._wait(lambda name=name: not self._members(name), _LEAVE_SECONDS)  # type: ignore[misc]
                self._start_client("consumer", group=name, client=dict(self._groups[name].client))
        self._sleep(2 * settings.NEW_MEMBER_SECONDS)
        producer.end()
        self._drain()
        self._phases["drain_end_ns"] = self._after_zero(time.monotonic_ns())
        for client in self._clients:
            client.child.ask_to_end()
        for client in self._clients:
            client.end()
        self._scanned = self._cluster.scan(self._rows, self._cluster.ends())

    def _kill(self) -> int:
        """Kill the victim; when, ns of the monotonic clock."""
        self._cluster.before_kill(self._tell)
        victim, engine = self._cluster.victim, self._setting.engine
        member = Member(
            pair=engine, ordinal=0, pod=victim.name, broker_name=engine, broker_id=victim.number,
            role=MASTER, address=victim.address, running=True,
        )  # fmt: skip
        record = FaultRecord(FID, "kill", "the first server", 0, victim=member)
        record.intended_ns = now().mono_ns
        self._faults.open_fault(record)
        self._tell(f"kill -9 of {victim.name}")
        sent, death = victim.kill()
        self._returned = False
        record.issued, record.signum = (sent.issued, sent.returned), sent.signum
        record.proof = {"K3": death.signal or f"exit {death.code}", "K6": not death.doubt}
        self._phases["first_fault_ns"] = self._after_zero(sent.issued.mono_ns)
        if death.doubt:
            record.add_unproved_reason(death.doubt)
        record.observed["gone_ns"] = death.seen
        record.settle()
        why = {"proof": dict(record.proof), "why": record.why}
        for kind in ("KILL", "GONE"):
            self._faults.fault_row(record, kind, observed=death.seen, observer="parent", detail=why)
        return sent.issued.mono_ns

    def _hold(self, killed: int) -> None:
        """Leave the victim down; end members meanwhile, as their arms say."""
        after = {settings.EARLY: 4.0, settings.HANDOVER: self._setting.stop_seconds}
        due = {name: after[each.arm] for name, each in self._groups.items() if each.arm in after}
        while (passed := (time.monotonic_ns() - killed) / 1e9) < self._setting.hold_seconds:
            for name in [name for name, seconds in due.items() if seconds <= passed]:
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
            mine = [c.status()["reached"] for c in self._clients if c.plan.group == name]
            reached = (max(each.get(str(qid), 0) for each in mine) for qid in ends)
            whole = all(at >= end for at, end in zip(reached, ends.values(), strict=True))
            return whole and self._cluster.is_drained(name)

        self._wait(lambda: all(map(is_done, self._groups)), _DRAIN_SECONDS)
        self._drained = True

    # --- clients -----------------------------------------------------------------------------

    def _plan(self, proc_no: int, role: str, **further: Any) -> Plan:
        return Plan(
            engine=self._setting.engine, role=role, run=self._name, hot=str(self._folder.hot),
            status=str(self._data / f"client-{proc_no}.json"), proc_no=proc_no,
            servers=self._cluster.servers, queues=self._cluster.queues,
            handler_ms=self._setting.load.handler_ms, **further,
        )  # fmt: skip

    def _start_client(self, role: str, **further: Any) -> Client:
        plan = self._plan(len(self._clients) + 1, role, **further)
        path = self._data / f"plan-{plan.proc_no}.json"
        path.write_text(json.dumps(asdict(plan)))
        command = [sys.executable, "-m", "failback.chaos.compare", str(path)]
        log = self._folder.path / "logs" / f"client-{plan.proc_no}.log"
        client = Client(plan, Server(f"{role} {plan.group}".strip(), command, log))
        client.child.start()
        self._clients.append(client)
        return client

    def _members(self, group: str) -> list[Client]:
        """The members of a group that run."""
        return [c for c in self._clients if c.plan.group == group and c.child.is_alive()]

    def _handled(self, group: str) -> int:
        mine = (each for each in self._clients if each.plan.group == group)
        return sum(sum(each.status()["reached"].values()) for each in mine)

    # --- waiting -----------------------------------------------------------------------------

    def _wait(self, ready: Callable[[], object], seconds: float) -> None:
        """Wait for a condition. Raises ``TargetError`` when the time is over or a client failed."""
        deadline = time.monotonic() + seconds
        while not ready():
            if time.monotonic() > deadline:
                raise TargetError("the run", f"waited {seconds:g} s in vain")
            self._sleep(0.25)

    def _sleep(self, seconds: float) -> None:
        """Wait, and note which clients have ended meanwhile. Raises as ``_wait``."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            for client in self._clients:
                status = client.child.status
                if status is not None:
                    client.ended = client.ended or time.monotonic_ns()
                if status:
                    raise TargetError(client.child.name, f"ended: {client.child.last_words()}")
            time.sleep(min(left, 0.5))

    # --- documents ---------------------------------------------------------------------------

    def _after_zero(self, mono_ns: int) -> int:
        return mono_ns - self._zero.mono_ns

    def close(self) -> None:
        """Seal the logs and write the documents; the manifest comes last."""
        self._phases["end_ns"] = self._after_zero(time.monotonic_ns())
        expected = {each.plan.proc_no: each.status()["last_seq"] for each in self._clients}
        expected[0] = self._rows.log.last_seq
        sealed = seal(self._folder, self._name, expected)
        self._folder.write_json("run.json", self._run_document())
        exits = {
            str(each.plan.proc_no): {
                "code": each.child.status,
                "t_ns": self._after_zero(each.ended or time.monotonic_ns()),
                "role": each.plan.role,
            }
            for each in self._clients
        }
        closed = {
            "schema": CLOSED_SCHEMA, "drained": self._drained, "scan": self._scanned,
            "counts": sealed.rows, "procs": {str(k): v for k, v in sorted(sealed.last_seq.items())},
            "exits": exits, "gaps": sealed.gaps,
            "recorder_gaps": [f"{name} is still being written" for name in sealed.held],
            "phases": self._phases, "steady": self._steady,
            "steady_why": "" if self._steady else "some group had handled too little",
            "recovered": self._returned,
            "recovered_why": "the server did not come back" if self._returned is False else "",
            "aborted": self._aborted,
        }  # fmt: skip
        self._folder.write_json("closed.json", closed)
        self._folder.write_manifest(lake_rows(self._folder.path))

    def _run_document(self) -> dict[str, Any]:
        setting, engine = self._setting, self._setting.engine
        version, experiment = self._cluster.version, f"compare-{self._setting.engine}"
        members = [
            {"broker_id": each.number, "address": each.address, "pod": each.name, "role": MASTER}
            for each in self._cluster.nodes
        ]
        groups = [
            {"name": name, "topic": settings.TOPIC, "members": 1, "model": "push", "orderly": False,
             "messageModel": "CLUSTERING", "label": each.label, "arm": each.arm,
             "client": dict(each.client)}
            for name, each in self._groups.items()
        ]  # fmt: skip
        load = setting.load
        return {
            "schema": RUN_SCHEMA, "run": self._name, "experiment": experiment,
            "arm": setting.name, "repetition": 0,
            "versions": {"failback": package.__version__, engine: version},
            "rule_set": f"{engine} {version}", "engine": engine, "time_scale": 1.0,
            "log_mode": "full", "zero": self._zero._asdict(),
            "topology": {"pairs": [{"name": engine, "broker": engine, "members": members}]},
            "topics": [{"name": settings.TOPIC, "queues": settings.QUEUES, "ordered": False}],
            "groups": groups,
            "workload": {
                "setting": setting.says, "cluster": dict(setting.cluster),
                "stopSeconds": setting.stop_seconds, "cutSeconds": setting.cut_seconds,
                "preload": load.preload, "perSecond": load.per_second,
                "handlerMs": load.handler_ms,
            },
            "faults": [{"id": FID, "fault": "kill", "victim": self._cluster.victim.name,
                        "with": {"downSeconds": setting.hold_seconds}}],
            "target": {"kind": "local", "cluster": engine},
        }  # fmt: skip
