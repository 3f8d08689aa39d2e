"""The workload's processes, as the harness sees them: started, asked, stopped, killed, counted.

Each producer and each consumer member is a process of its own. They outlive a killed harness, so
each is in the undo ledger before it starts. We are their parent, so we know their wait statuses.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from failback.chaos.cluster import processes
from failback.chaos.cluster.clock import now
from failback.chaos.cluster.view import SignalReceipt
from failback.chaos.errors import TargetError
from failback.chaos.experiment.model import Workload
from failback.chaos.experiment.schedule import sub_seed
from failback.chaos.run_folder.run_folder import RunFolder
from failback.chaos.run_folder.undo_ledger import STOP_WORKLOAD, UndoLedger
from failback.chaos.workload.plan import (
    ConsumerPlan,
    ProcessPlan,
    ProducerPlan,
    consumer_plan,
    producer_plan,
    written_plan,
)
from failback.chaos.workload.process import (
    CONSUMER,
    PRODUCER,
    Exit,
    WorkloadProcess,
    already_gone,
    ask,
    command_for,
    last_seq,
)

logger = logging.getLogger(__name__)

RESTARTS: Final = 1
"""So often a process that ends unplanned is started again; then the run ends."""
_DRAWN_FOR: Final = {PRODUCER: "payload", CONSUMER: "handler"}
"""Role to the purpose whose seed its process gets."""
_PlanOf = Callable[[ProcessPlan], ProducerPlan | ConsumerPlan]


class Supervisor:
    """Producers and consumers of one run. Thread-safe."""

    def __init__(
        self,
        *,
        folder: RunFolder,
        ledger: UndoLedger,
        run: str,
        workload: Workload,
        nameservers: tuple[str, ...],
        access_files: Mapping[str, str],
        time_scale: float,
        seeds: Mapping[str, int],
        start_phases: Mapping[str, float],
        on_unplanned: Callable[[WorkloadProcess], None] = lambda _: None,
        on_started: Callable[[WorkloadProcess], None] = lambda _: None,
    ) -> None:
        self.processes: list[WorkloadProcess] = []
        self.failures: list[str] = []
        self._folder = folder
        self._ledger = ledger
        self._run = run
        self._workload = workload
        self._nameservers = nameservers
        self._access_files = access_files
        self._time_scale = time_scale
        self._seeds = seeds
        self._phases = start_phases
        self._next_proc_no = 1
        self._on_unplanned = on_unplanned
        self._on_started = on_started
        self._lock = threading.RLock()
        self._stop = threading.Event()
        # A Unix socket's path is short by law; a run folder's is not.
        self._sockets = Path(tempfile.mkdtemp(prefix="failback-"))
        self._thread = threading.Thread(target=self._ask_all, name="supervisor", daemon=True)
        self._waiters: list[threading.Thread] = []
        self._restarts: dict[str, int] = {}
        self.stuck_after_seconds = 5.0

    # --- starting --------------------------------------------------------------------------------

    def start_producers(self) -> None:
        for index in range(self._workload.producers):
            self._start_producer(index)
        if self._thread.ident is None:
            self._thread.start()

    def start_consumers(self) -> None:
        for group in self._workload.groups:
            for member in range(group.members):
                phase = self._phases.get(f"{group.name}-{member}", 0.0)
                self.start_member(group.name, member, delay_seconds=phase)
        if self._thread.ident is None:
            self._thread.start()

    def start_member(self, group: str, member: int, *, delay_seconds: float = 0.0) -> None:
        """Start one member, unless it runs: a new process with a new identity."""
        name = f"{group}-{member}"
        with self._lock:
            if any(each.name == name and each.running for each in self.processes):
                return
            found = next(each for each in self._workload.groups if each.name == group)
            plan_of = partial(
                consumer_plan, group=found, member=member, delay_seconds=delay_seconds
            )
            self._start(name, CONSUMER, plan_of, group=group, member=member)

    def _start_producer(self, index: int) -> None:
        load, scale = self._workload, self._time_scale
        plan_of = partial(producer_plan, workload=load, index=index, time_scale=scale)
        self._start(f"producer-{index}", PRODUCER, plan_of)

    def _start(
        self, name: str, role: str, plan_of: _PlanOf, *, group: str = "", member: int = 0
    ) -> None:
        with self._lock:
            number = self._next_proc_no
            self._next_proc_no += 1
        process = WorkloadProcess(
            name=name,
            role=role,
            proc_no=number,
            proc=secrets.token_bytes(16),
            plan_file=self._folder.path / "plans" / f"{number:03d}-{name}.json",
            socket_path=self._sockets / f"{number}.sock",
            group=group,
            member=member,
        )
        plan = ProcessPlan(
            run=self._run,
            hot=self._folder.hot,
            proc_no=number,
            proc=process.proc.hex(),
            namesrv=self._nameservers,
            access_files=self._access_files,
            control=process.socket_path,
            time_scale=self._time_scale,
            switches=self._workload.switches,
            seed=sub_seed(self._seeds[_DRAWN_FOR[role]], name, 0),
            segment_bytes=self._workload.log.segment_bytes,
            segment_seconds=self._workload.log.segment_seconds,
        )
        process.plan_file.parent.mkdir(exist_ok=True)
        place = str(process.plan_file.relative_to(self._folder.path))
        self._folder.write_json(place, written_plan(plan_of(plan)))
        self._spawn(process)

    def _spawn(self, process: WorkloadProcess) -> None:
        # The ledger first: a process that no ledger names would produce for ever.
        args = {"plan": str(process.plan_file), "socket": str(process.socket_path)}
        process.undo = self._ledger.add(STOP_WORKLOAD, args)
        log = self._folder.path / "logs" / f"{process.proc_no:03d}-{process.name}.log"
        with log.open("ab") as output:
            popen = subprocess.Popen(
                command_for(process.plan_file),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the harness, which stops them in order
            )
        process.popen, process.pid = popen, popen.pid
        process.ticks = processes.read_ticks(popen.pid) or 0
        process.stats_at = time.monotonic()
        waiter = threading.Thread(
            target=self._await_exit, args=(process,), name=f"wait-{process.name}", daemon=True
        )
        with self._lock:
            self.processes.append(process)
            self._waiters.append(waiter)
        waiter.start()
        self._on_started(process)

    # --- ending ----------------------------------------------------------------------------------

    def stop_sending(self) -> None:
        """Have all producers send nothing more; they finish what is under way."""
        for process in self.of_role(PRODUCER):
            self.ask(process, {"op": "stop-sending"})

    def stop(self, process: WorkloadProcess, timeout: float = 15.0) -> None:
        """Clean stop, as SIGTERM does it; SIGKILL after the time."""
        process.wanted = False
        if not process.running:
            return
        try:
            processes.send_signal(process.pid, process.ticks, signal.SIGTERM)
        except TargetError:
            return
        if not self.await_end(process, timeout):
            logger.warning("%s did not stop within %g s, killed", process.name, timeout)
            with already_gone():
                processes.send_signal(process.pid, process.ticks, signal.SIGKILL)
            self.await_end(process, 5)

    def stop_all(self) -> None:
        """Stop everything cleanly, producers first, and wait."""
        for role in (PRODUCER, CONSUMER):
            running = self.of_role(role)
            for process in running:
                process.wanted = False
                with already_gone():
                    processes.send_signal(process.pid, process.ticks, signal.SIGTERM)
            for process in running:
                self.stop(process)

    def signal_member(self, process: WorkloadProcess, signum: int) -> SignalReceipt:
        """Send a signal that is meant to end it. Raises ``TargetError`` when it is gone."""
        process.wanted = False
        return processes.send_signal(process.pid, process.ticks, signum)

    def await_end(self, process: WorkloadProcess, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while process.exit is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return process.exit is not None

    def close(self) -> None:
        """Stop asking, and clean up. Processes that still run are left alone."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(5)
        for waiter in self._waiters:
            waiter.join(0.1 if self._any_running() else 5)
        shutil.rmtree(self._sockets, ignore_errors=True)

    def _any_running(self) -> bool:
        return any(process.running for process in self.processes)

    # --- asking ----------------------------------------------------------------------------------

    def of_role(self, role: str, *, group: str = "") -> list[WorkloadProcess]:
        """Running processes of a role."""
        with self._lock:
            return [
                process
                for process in self.processes
                if process.role == role
                and process.running
                and (not group or process.group == group)
            ]

    def ask(self, process: WorkloadProcess, request: Mapping[str, Any]) -> dict[str, Any]:
        """Ask one process over its control socket; empty when it does not answer."""
        return ask(process.socket_path, request)

    def produced_per_second(self) -> float:
        """Acknowledged sends per second over the last seconds, all producers."""
        return sum(process.rate() for process in self.of_role(PRODUCER))

    def delivered(self, group: str) -> int:
        with self._lock:
            return sum(
                int(each.stats.get("delivered", 0))
                for each in self.processes
                if each.role == CONSUMER and each.group == group
            )

    def all_assigned(self) -> bool:
        """Has every running member been assigned its queues once?"""
        return all(process.stats.get("assigned") for process in self.of_role(CONSUMER))

    def unfinished(self, group: str) -> int:
        return sum(
            int(each.stats.get("unfinished", 0)) for each in self.of_role(CONSUMER, group=group)
        )

    def producers_done(self) -> bool:
        """Nothing is being sent any more."""
        return all(
            each.stats.get("sending") is False and not each.stats.get("in_flight")
            for each in self.of_role(PRODUCER)
        )

    def preloaded(self) -> bool:
        return all(each.stats.get("preloaded") for each in self.of_role(PRODUCER))

    def send_ok_after(self, mono_ns: int) -> int | None:
        """Time of the first acknowledged send after ``mono_ns``, or ``None``."""
        found: list[int] = []
        for process in self.of_role(PRODUCER):
            answer = self.ask(process, {"op": "first-ok", "after_ns": mono_ns})
            value = answer.get("first_ok_ns")
            if value is not None:
                found.append(int(value))
        return min(found, default=None)

    def silent(self) -> list[str]:
        """Names of running processes that have not answered for a while."""
        limit = time.monotonic() - self.stuck_after_seconds
        with self._lock:
            return [each.name for each in self.processes if each.running and each.stats_at < limit]

    def refresh(self) -> None:
        """Ask everybody now."""
        with self._lock:
            running = [each for each in self.processes if each.running]
        for process in running:
            self._take_stats(process)

    def _ask_all(self) -> None:
        while not self._stop.wait(0.5):
            self.refresh()

    def _take_stats(self, process: WorkloadProcess) -> None:
        answer = self.ask(process, {"op": "stats"})
        if not answer:
            return
        at = time.monotonic()
        process.stats, process.stats_at = answer, at
        process.history.append((at, int(answer.get("acknowledged", 0))))

    # --- watching --------------------------------------------------------------------------------

    def _await_exit(self, process: WorkloadProcess) -> None:
        assert process.popen is not None
        status = process.popen.wait()
        stamp = now()
        process.last_seq = last_seq(self._folder.path / "logs", process)
        process.exit = Exit(stamp, -status, None) if status < 0 else Exit(stamp, None, status)
        self._ledger.mark_healed(process.undo, {"status": status})
        if not process.wanted or self._stop.is_set():
            return
        self._unplanned(process)

    def _unplanned(self, process: WorkloadProcess) -> None:
        """Start it again; too often, or a full disk, ends the run."""
        assert process.exit is not None
        how = (
            f"signal {process.exit.signal}"
            if process.exit.signal is not None
            else f"exit code {process.exit.code}"
        )
        logger.warning("%s ended unplanned: %s", process.name, how)
        self._on_unplanned(process)
        with self._lock:
            count = self._restarts[process.name] = self._restarts.get(process.name, 0) + 1
        if count > RESTARTS or process.exit.code == os.EX_IOERR:
            self.failures.append(f"{process.name} ended unplanned: {how}")
            return
        try:
            self._start_again(process)
        except OSError as error:
            self.failures.append(f"{process.name} could not be started again: {error}")

    def _start_again(self, process: WorkloadProcess) -> None:
        if process.role == CONSUMER:
            self.start_member(process.group, process.member)
        else:
            self._start_producer(int(process.name.removeprefix("producer-")))
