"""The recorder of a run: one process's worth of rows, and the ledger of what was proved.

It owns the witness threads, turns what they see into proof steps of the open faults, writes the
``fault`` rows, carries out timed undos, and notices its own gaps. Several threads call it; one
lock guards its state and no call to the outside is made under it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from failback.chaos.cluster.clock import now
from failback.chaos.cluster.target import Target
from failback.chaos.cluster.view import ClusterView, DeathRecord, Stamp
from failback.chaos.errors import Aborted
from failback.chaos.recorder.fault_log import FaultLog
from failback.chaos.recorder.fault_record import FaultRecord
from failback.chaos.recorder.latest_samples import LatestSamples
from failback.chaos.recorder.proof_matcher import ProofMatcher
from failback.chaos.recorder.sampler import Sampler
from failback.chaos.recorder.witness import GAP_SECONDS, Event, RouteWatch, Watcher, WireWatch
from failback.chaos.run_folder.run_folder import RunFolder
from failback.client.consumelog.hot_format import SEGMENT_SECONDS, ConsumeLogError
from failback.client.consumelog.writer import ConsumeLog
from failback.protocol.errors import FailbackError

logger = logging.getLogger(__name__)

CLOCK_STEP_NS: Final = 20_000_000


class Recorder(FaultLog):
    """Rows, proof steps, timed undos and gaps of one run."""

    def __init__(
        self,
        *,
        folder: RunFolder,
        run: str,
        proc_no: int,
        proc: bytes,
        target: Target,
        topics: Sequence[str],
        groups: Mapping[str, str],
        time_scale: float,
        segment_seconds: float = SEGMENT_SECONDS,
    ) -> None:
        """Open the log. ``groups`` maps a group to its topic.

        Raises:
            ConsumeLogError: The log cannot be written.
        """
        log = ConsumeLog(
            folder.hot,
            run=run,
            proc=proc,
            proc_no=proc_no,
            role="recorder",
            segment_seconds=segment_seconds,
        )
        super().__init__(folder, log)
        self.latest_samples = LatestSamples(groups)
        self.matcher = ProofMatcher(
            self,
            self.latest_samples,
            target,
            probe_topic=topics[0],
            groups=tuple(groups),
            time_scale=time_scale,
            add_gap=self.add_gap,
        )
        self.on_event = self.matcher.on_event
        self.clock_steps = 0
        self.unplanned_deaths = 0
        """Brokers that died since run zero and no fault asked to."""
        self._target = target
        self._topics = tuple(topics)
        self._groups = dict(groups)
        self._time_scale = time_scale
        self._watchers: list[Watcher] = []
        self._gaps: list[str] = []
        self._deaths_seen = 0
        self._timed: list[tuple[Callable[[], bool], Callable[[], None]]] = []
        self._stop = threading.Event()
        self.answers = SimpleQueue[Event | None]()
        """What was seen at brokers' ports: a proof takes longer than a witness may wait."""
        self._threads = [
            threading.Thread(target=self._beat, name="recorder-beat", daemon=True),
            threading.Thread(target=self._prove, name="recorder-proofs", daemon=True),
            threading.Thread(target=self._carry_out, name="recorder-undo", daemon=True),
        ]
        self._anchor = now()

    # --- life ------------------------------------------------------------------------------------

    def start(self, view: ClusterView) -> None:
        """Start all witnesses of the members and name servers in ``view``."""
        self.latest_samples.view = view
        period = max(0.25, min(1.0, self._time_scale))
        topics = [*self._topics, *(f"%RETRY%{group}" for group in self._groups)]
        for member in view.members:
            self._watchers.append(WireWatch(member.address, self.answers.put))
            self._watchers.append(
                Sampler(
                    member,
                    target=self._target,
                    topics=topics,
                    groups=tuple(self._groups),
                    log=self.log,
                    listener=self.on_event,
                    period_seconds=period,
                )
            )
        for nameserver in view.nameservers:
            self._watchers.append(RouteWatch(nameserver, self._topics[0], self.log, self.on_event))
        for watcher in self._watchers:
            watcher.start()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop all threads; the log stays open until :meth:`close`."""
        self._stop.set()
        for watcher in self._watchers:
            watcher.stop()
        for watcher in self._watchers:
            watcher.join(5)
        self.answers.put(None)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(5)

    def close(self) -> None:
        """Stop and close the log."""
        self.stop()
        self.log.close()

    def gaps(self) -> list[str]:
        """Sentences about what was not recorded; empty when nothing is missing."""
        with self.lock:
            return list(self._gaps)

    def notes(self) -> list[str]:
        return [note for watcher in self._watchers for note in watcher.notes]

    def add_gap(self, what: str) -> None:
        with self.lock:
            if what not in self._gaps:
                self._gaps.append(what)

    def is_recording(self) -> bool:
        """All threads live and none is stuck, and the log takes rows."""
        if self._stop.is_set() or any(not thread.is_alive() for thread in self._threads):
            return False
        stuck = [watcher for watcher in self._watchers if not watcher.alive or _stuck(watcher)]
        return not stuck and not self.gaps()

    @property
    def sampling_load(self) -> dict[str, float]:
        """Mean seconds per sample of each broker."""
        return {
            each.member.pod: each.spent_seconds / each.samples
            for each in self._watchers
            if isinstance(each, Sampler) and each.samples
        }

    # --- what is known ---------------------------------------------------------------------------

    def served(self, fid: str, group: str) -> int:
        """Messages that the slave served to a group since ``fid``, by its offset table."""
        with self.lock:
            record = self.faults.get(fid)
            return record.served.get(group, 0) if record else 0

    def wait_served(
        self, fid: str, group: str, count: int, deadline: float, stopped: Callable[[], str]
    ) -> Stamp | None:
        """Wait until the slave has served ``count`` messages; ``None`` when the time is over."""
        while self.served(fid, group) < count:
            reason = stopped()
            if reason:
                raise Aborted(reason)
            if time.monotonic() >= deadline:
                return None
            self._stop.wait(0.1)
        return now()

    # --- faults ----------------------------------------------------------------------------------

    def later(self, ready: Callable[[], bool], act: Callable[[], None]) -> None:
        """Have the undo thread call ``act`` once ``ready`` is true."""
        with self.lock:
            self._timed.append((ready, act))

    # --- own threads -----------------------------------------------------------------------------

    def _beat(self) -> None:
        """Once a second: life and clock rows, gaps, unplanned deaths."""
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        last = time.monotonic()
        try:
            while not self._stop.wait(0.5):
                self._look_for_gaps()
                if time.monotonic() - last < 1.0:
                    continue
                last = time.monotonic()
                self.log.write("life", state="RECORDING")
                self.log.write(
                    "clock", boot_id=boot_id, source="CLOCK_MONOTONIC", offset_ns=0, error_ns=0
                )
                self._check_clock()
                self._look_for_deaths()
        except ConsumeLogError as error:
            self.add_gap(f"recorder: {error}")
        except Exception as error:  # the thread's boundary
            logger.exception("recorder failed")
            self.add_gap(f"recorder thread failed: {error}")

    def _prove(self) -> None:
        try:
            while (event := self.answers.get()) is not None:
                self.on_event(event)
        except Exception as error:  # the thread's boundary
            logger.exception("recorder failed")
            self.add_gap(f"recorder thread failed: {error}")

    def _look_for_gaps(self) -> None:
        for watcher in self._watchers:
            if not watcher.alive and not self._stop.is_set():
                self.add_gap(f"witness {watcher.name} died: {watcher.failure}")
            elif _stuck(watcher) and self.window_open():
                self.add_gap(
                    f"witness {watcher.name} has not looked for more than {GAP_SECONDS:g} s "
                    "while a fault was in effect"
                )

    def _check_clock(self) -> None:
        stamp = now()
        moved = (stamp.wall_ns - stamp.mono_ns) - (self._anchor.wall_ns - self._anchor.mono_ns)
        if abs(moved) > CLOCK_STEP_NS:
            self.clock_steps += 1
            self._anchor = stamp
            logger.warning("wall clock stepped by %.3f s", moved / 1e9)

    def _look_for_deaths(self) -> None:
        """A death that no open fault asked for gets its own row, and makes open ones doubtful."""
        try:
            deaths = self._target.deaths(self._deaths_seen)
        except FailbackError as error:
            logger.warning("deaths are not readable: %s", error)
            return
        for number, pod, death in deaths:
            self._deaths_seen = max(self._deaths_seen, number)
            if death.seen.mono_ns < self._anchor_mono() or self._expected(pod, death):
                continue
            self._unplanned(pod, death)

    def _anchor_mono(self) -> int:
        return self.zero.mono_ns if self.zero else time.monotonic_ns()

    def _expected(self, pod: str, death: DeathRecord) -> bool:
        with self.lock:
            return any(record.hits(pod, death.pid, death.ticks) for record in self.faults.values())

    def _unplanned(self, pod: str, death: DeathRecord) -> None:
        with self.lock:
            self.unplanned_deaths += 1
            members = self.latest_samples.members
            member = next((each for each in members if each.pod == pod), None)
            for record in self.faults.values():
                if record.in_effect:
                    record.add_unproved_reason(f"{pod} died unplanned in the fault's window")
        ended = f"signal {death.signal}" if death.signal is not None else f"exit {death.code}"
        logger.warning("%s died unplanned: %s", pod, ended)
        self.fault_row(
            FaultRecord("unplanned", "unplanned", "", 0),
            "UNPLANNED_DEATH",
            observed=death.seen,
            observer="runtime",
            member=member,
            proc_ref=f"{pod}/{death.pid}/{death.ticks}",
            detail={"ended": ended},
        )

    def _carry_out(self) -> None:
        """Run timed undos when they are due."""
        while not self._stop.wait(0.05):
            with self.lock:
                pending = list(self._timed)
            for entry in pending:
                ready, act = entry
                try:
                    if not ready():
                        continue
                    with self.lock:
                        self._timed.remove(entry)
                    act()
                except Exception:  # the ledger keeps what could not be undone
                    logger.exception("a timed undo failed; undo_outstanding will repeat it")

    def on_window(self, open_now: bool) -> None:
        for watcher in self._watchers:
            watcher.set_window(open_now)


def _stuck(watcher: Watcher) -> bool:
    return time.monotonic() - watcher.last_look > GAP_SECONDS + watcher.period
