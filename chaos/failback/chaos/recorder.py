"""The recorder of a run: one process's worth of rows, and the ledger of what was proved.

It owns the witness threads, turns what they see into rungs of the open faults, writes the ``fault``
rows, carries out timed undos, and notices its own gaps. Several threads call it; one lock guards
its state and no call to the outside is made under it.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from failback.chaos.board import (
    EFFECT,
    HEALED,
    PULL_OK,
    SEND_OK,
    SLAVE_SYNCED,
    RungBoard,
)
from failback.chaos.errors import Aborted
from failback.chaos.runfolder import RunFolder
from failback.chaos.target import Target
from failback.chaos.view import ClusterView, DeathRecord, Member, ProcessIdentity, Stamp
from failback.chaos.wire import WireConnection, now
from failback.chaos.witness import (
    GAP_SECONDS,
    MARKER_KEY,
    AnswerEvent,
    Event,
    OffsetEvent,
    PeerEvent,
    QueueEvent,
    RouteEvent,
    RouteWatch,
    Sampler,
    Watcher,
    WireWatch,
    first_pull_ok,
)
from failback.client.consumelog.errors import ConsumeLogError
from failback.client.consumelog.hot_format import SEGMENT_SECONDS
from failback.client.consumelog.writer import ConsumeLog
from failback.protocol.errors import FailbackError

logger = logging.getLogger(__name__)

MIN_SERVED: Final = 100
CLOCK_STEP_NS: Final = 20_000_000
_BROKER_FAULTS: Final = ("kill", "terminate", "pause")


@dataclass(slots=True)
class FaultRecord:
    """Everything known of one injected fault. Filled in by injector and witness as it happens."""

    fid: str
    fault: str
    rule: str
    seed: int
    victim: Member | None = None
    identity: ProcessIdentity | None = None
    victims: list[dict[str, Any]] = field(default_factory=list)
    intended_ns: int = 0
    issued: tuple[Stamp, Stamp] | None = None
    signum: int | None = None
    resumed: Stamp | None = None
    observed: dict[str, Any] = field(default_factory=dict)
    rungs: dict[str, Any] = field(default_factory=dict)
    honest: bool | None = None
    why: str = ""
    undo: str = ""
    down_seconds: float | None = None
    called_off: bool = False
    registered_at: set[str] = field(default_factory=set)
    served_base: dict[tuple[str, str, int], int] = field(default_factory=dict)
    served: dict[str, int] = field(default_factory=dict)

    @property
    def is_broker_fault(self) -> bool:
        return self.fault in _BROKER_FAULTS

    @property
    def in_effect(self) -> bool:
        return self.issued is not None and "healed_ns" not in self.observed

    @property
    def in_window(self) -> bool:
        """About to be injected, or not yet seen healed: everybody looks closely."""
        return not self.called_off and "healed_ns" not in self.observed

    def doubt(self, why: str) -> None:
        """A rung is missing or contradicts: the fault is not honest."""
        self.honest = False
        self.why = f"{self.why}; {why}" if self.why else why


class Recorder:
    """Rows, rungs, timed undos and gaps of one run."""

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
        self.folder = folder
        self.log = ConsumeLog(
            folder.hot,
            run=run,
            proc=proc,
            proc_no=proc_no,
            role="recorder",
            segment_seconds=segment_seconds,
        )
        self.board = RungBoard()
        self.faults: dict[str, FaultRecord] = {}
        self.zero: Stamp | None = None
        self.clock_steps = 0
        self._target = target
        self._topics = tuple(topics)
        self._groups = dict(groups)
        self._time_scale = time_scale
        self._lock = threading.RLock()
        self._watchers: list[Watcher] = []
        self._boots: dict[str, int | None] = {}
        self._answered: dict[str, Stamp] = {}
        self._offsets: dict[str, dict[tuple[str, str, int], int]] = {}
        self._markers: dict[str, int] = {}
        self._queues: dict[str, dict[tuple[str, int], tuple[int, int]]] = {}
        self._routes: dict[str, Mapping[str, Mapping[int, str]]] = {}
        self._gaps: list[str] = []
        self._deaths_seen = 0
        self._timed: list[tuple[Callable[[], bool], Callable[[], None]]] = []
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._beat, name="recorder-beat", daemon=True),
            threading.Thread(target=self._carry_out, name="recorder-undo", daemon=True),
        ]
        self._anchor = now()
        self._view: ClusterView | None = None
        self.send_ok_after: Callable[[int], int | None] = lambda _: None
        """Set by the workload's manager: first successful send after a monotonic time."""

    # --- life ------------------------------------------------------------------------------------

    def start(self, view: ClusterView) -> None:
        """Start all witnesses of the members and name servers in ``view``."""
        self._view = view
        period = max(0.25, min(1.0, self._time_scale))
        topics = [*self._topics, *(f"%RETRY%{group}" for group in self._groups)]
        for member in view.members:
            self._watchers.append(WireWatch(member.address, self.on_event))
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
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(5)

    def close(self) -> None:
        """Stop and close the log."""
        self.stop()
        self.log.close()

    def gaps(self) -> list[str]:
        """Sentences about what was not recorded; empty when nothing is missing."""
        with self._lock:
            return list(self._gaps)

    def notes(self) -> list[str]:
        return [note for watcher in self._watchers for note in watcher.notes]

    def add_gap(self, what: str) -> None:
        with self._lock:
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

    def sync_age_seconds(self, pair: str) -> float | None:
        """Age of the master's table as the pair's slaves show it; ``None`` when never seen."""
        with self._lock:
            markers = [
                self._markers.get(member.address)
                for member in self._members(pair)
                if member.role == "slave"
            ]
        known = [marker for marker in markers if marker is not None]
        if not known or len(known) < len(markers):
            return None
        return max(0.0, time.monotonic_ns() / 1e9 - min(known) / 1e3)

    def group_lag(self, group: str) -> int | None:
        """Messages between commits and queue ends on the masters, by the newest samples."""
        lag, seen = 0, False
        with self._lock:
            for member in self._view.members if self._view else ():
                if member.role != "master":
                    continue
                offsets = self._offsets.get(member.address, {})
                for (topic, queue), (lowest, highest) in self._queues.get(
                    member.address, {}
                ).items():
                    if topic in self._topics_of(group):
                        seen = True
                        lag += highest - max(lowest, offsets.get((group, topic, queue), 0))
        return lag if seen else None

    def offsets_of(self, address: str) -> dict[tuple[str, str, int], int]:
        with self._lock:
            return dict(self._offsets.get(address, {}))

    def queues_of(self, address: str) -> dict[tuple[str, int], tuple[int, int]]:
        with self._lock:
            return dict(self._queues.get(address, {}))

    def route_shows(self, broker_name: str, broker_id: int, address: str) -> bool:
        """Do all name servers show this broker at this address?"""
        with self._lock:
            shown = [route.get(broker_name, {}).get(broker_id) for route in self._routes.values()]
        return bool(shown) and all(each == address for each in shown)

    def answered_within(self, address: str, seconds: float) -> bool:
        with self._lock:
            stamp = self._answered.get(address)
        return stamp is not None and time.monotonic_ns() - stamp.mono_ns <= seconds * 1e9

    def served(self, fid: str, group: str) -> int:
        """Messages that the slave served to a group since ``fid``, by its offset table."""
        with self._lock:
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

    def open_fault(self, record: FaultRecord) -> None:
        """Begin to match what is seen with this fault."""
        with self._lock:
            self.faults[record.fid] = record
        self._set_window()

    def fault_row(
        self,
        record: FaultRecord,
        kind: str,
        *,
        observed: Stamp | None,
        observer: str,
        member: Member | None = None,
        boot_ms: int | None = None,
        proc_ref: str | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        """Write one row of table ``fault``."""
        member = member or record.victim
        issued = record.issued
        self.log.write(
            "fault",
            fid=record.fid,
            kind=kind,
            pair=member.pair if member else None,
            broker=member.broker_name if member else None,
            bid=member.broker_id if member else None,
            role=member.role if member else None,
            addr=member.address if member else None,
            proc_ref=proc_ref or _reference(record.identity),
            signum=record.signum,
            intended=record.intended_ns or None,
            issued=issued[0].mono_ns if issued else None,
            issued_end=issued[1].mono_ns if issued else None,
            observed=observed.mono_ns if observed else None,
            observer=observer,
            honest=record.honest,
            detail=json.dumps({"fault": record.fault, **(detail or {})}),
            boot_ms=boot_ms,
        )

    def unplanned_row(
        self, kind: str, stamp: Stamp, observer: str, detail: Mapping[str, Any]
    ) -> None:
        """Write the row of a client's end that nobody asked for. That it ended is certain."""
        record = FaultRecord("unplanned", "unplanned", "", 0, honest=True)
        self.fault_row(record, kind, observed=stamp, observer=observer, detail=detail)

    def evidence(self, record: FaultRecord, phase: str) -> dict[str, Any]:
        """The evidence object of one fault; appended to evidence.jsonl with ``phase``."""
        zero = self.zero.mono_ns if self.zero else 0

        def after_zero(value: Any) -> Any:
            return value.mono_ns - zero if isinstance(value, Stamp) else value

        with self._lock:
            document = {
                "fid": record.fid,
                "fault": record.fault,
                "seed": record.seed,
                "rule": record.rule,
                "victims": record.victims,
                "intended_ns": record.intended_ns - zero if record.intended_ns else None,
                "issued_ns": [after_zero(each) for each in record.issued or ()],
                "observed": {key: after_zero(value) for key, value in record.observed.items()},
                "rungs": dict(record.rungs),
                "honest": record.honest,
                "why": record.why,
                "down_seconds": record.down_seconds,
                "served_by_slave": dict(record.served),
                "undo": record.undo,
            }
        self.folder.append_line("evidence.jsonl", {"phase": phase, **document})
        return document

    def call_off(self, record: FaultRecord) -> None:
        """The fault was not injected after all: nothing to watch for."""
        record.called_off = True
        self._set_window()

    def healed(self, record: FaultRecord, stamp: Stamp, **detail: Any) -> None:
        """Close a fault: somebody saw the system without it."""
        with self._lock:
            if "healed_ns" in record.observed:
                return
            record.observed["healed_ns"] = stamp
        if record.issued and record.down_seconds is None and record.is_broker_fault:
            record.down_seconds = round((stamp.mono_ns - record.issued[0].mono_ns) / 1e9, 3)
        self.fault_row(
            record, "HEALED", observed=stamp, observer="witness", detail={"rungs": record.rungs}
        )
        self.evidence(record, "heal")
        self.board.post(record.fid, HEALED, stamp, **detail)
        self._set_window()

    def later(self, ready: Callable[[], bool], act: Callable[[], None]) -> None:
        """Have the undo thread call ``act`` once ``ready`` is true."""
        with self._lock:
            self._timed.append((ready, act))

    # --- events of the witnesses -----------------------------------------------------------------

    def on_event(self, event: Event) -> None:
        """Take in what a witness saw. Called from its thread."""
        match event:
            case PeerEvent():
                self._on_peer(event)
            case AnswerEvent():
                self._on_answer(event)
            case RouteEvent():
                self._on_route(event)
            case OffsetEvent():
                self._on_offsets(event)
            case QueueEvent():
                with self._lock:
                    self._queues[event.address] = dict(event.queues)

    def _open_faults(self, address: str) -> list[FaultRecord]:
        with self._lock:
            return [
                record
                for record in self.faults.values()
                if record.in_effect
                and record.is_broker_fault
                and record.victim is not None
                and record.victim.address == address
            ]

    def _on_peer(self, event: PeerEvent) -> None:
        with self._lock:
            self._answered.pop(event.address, None)
            if event.kind != "SILENCE":
                # A dead broker's last samples are what is known until the next one answers.
                self._boots[event.address] = None
        for record in self._open_faults(event.address):
            with self._lock:
                issued = record.issued
                if "peer" in record.observed or issued is None:
                    continue
                if event.stamp.mono_ns < issued[0].mono_ns:
                    continue
                record.observed["peer"] = event.kind
                record.observed["peer_ns"] = event.stamp
                record.rungs["K5"] = event.kind
            self.fault_row(
                record,
                "PEER",
                observed=event.stamp,
                observer="witness",
                detail={"peer": event.kind},
            )

    def _on_answer(self, event: AnswerEvent) -> None:
        with self._lock:
            self._boots[event.address] = event.boot_ms
            self._answered[event.address] = event.stamp
        for record in self._open_faults(event.address):
            if "accept_ns" in record.observed:
                self._try_heal(record)
                continue
            assert record.victim is not None
            assert record.issued is not None
            old = record.identity.boot_ms if record.identity else None
            if record.fault == "pause":
                returned = record.resumed is not None
            else:
                returned = event.boot_ms is not None and event.boot_ms != old
            if returned:
                self._accepted(record, event)

    def _accepted(self, record: FaultRecord, event: AnswerEvent) -> None:
        assert record.victim is not None
        assert record.issued is not None
        with self._lock:
            record.observed["accept_ns"] = event.stamp
            record.down_seconds = round((event.stamp.mono_ns - record.issued[0].mono_ns) / 1e9, 3)
        self._snapshot_table(record, event)
        kind = "RESUMED" if record.fault == "pause" else "ACCEPT"
        self.fault_row(
            record, kind, observed=event.stamp, observer="witness", boot_ms=event.boot_ms
        )
        self.board.post(record.fid, "accept", event.stamp)

    def _snapshot_table(self, record: FaultRecord, event: AnswerEvent) -> None:
        """The table that the returned broker loaded, before clients have had time to change it."""
        assert record.victim is not None
        member = record.victim
        try:
            with WireConnection(member.address) as connection:
                table = connection.all_offsets()
        except FailbackError as error:
            self.add_gap(f"no table of {member.pod} at its return: {error}")
            return
        stamp = now()
        table.pop(MARKER_KEY, None)
        self.folder.write_bytes(
            f"snap/{record.fid}-accept/{member.pod}/code43.json",
            json.dumps(table, indent=1, sort_keys=True).encode(),
        )
        for key, queues in table.items():
            topic, _, group = key.partition("@")
            if group not in self._groups:
                continue
            for queue, offset in queues.items():
                self.log.write(
                    "broker_offset_sample",
                    addr=member.address,
                    broker=member.broker_name,
                    bid=member.broker_id,
                    binc=event.boot_ms,
                    source="code43",
                    grp=group,
                    ptopic=topic,
                    qid=queue,
                    off=offset,
                    t=stamp.mono_ns,
                )

    def _on_route(self, event: RouteEvent) -> None:
        with self._lock:
            self._routes[event.nameserver] = event.brokers
            everybody = set(self._view.nameservers) if self._view else set()
            waiting = [
                record
                for record in self.faults.values()
                if record.in_effect
                and record.victim is not None
                and "accept_ns" in record.observed
                and "registered_ns" not in record.observed
            ]
        for record in waiting:
            member = record.victim
            assert member is not None
            shown = event.brokers.get(member.broker_name, {}).get(member.broker_id)
            if shown != member.address:
                continue
            with self._lock:
                record.registered_at.add(event.nameserver)
                if record.registered_at < everybody:
                    continue
                record.observed["registered_ns"] = event.stamp
            self.fault_row(record, "REGISTERED", observed=event.stamp, observer="witness")
            self.board.post(record.fid, "registered", event.stamp)

    def _on_offsets(self, event: OffsetEvent) -> None:
        with self._lock:
            before = self._offsets.get(event.address, {})
            self._offsets[event.address] = dict(event.offsets)
            if event.marker_ms is not None:
                self._markers[event.address] = event.marker_ms
            member = self._member_at(event.address)
            if member is None or member.role != "slave":
                return
            records = [
                record
                for record in self.faults.values()
                if record.issued is not None
                and record.victim is not None
                and record.victim.pair == member.pair
                and record.victim.role == "master"
                and "slave_sync_ns" not in record.observed
            ]
        for record in records:
            self._count_served(record, before, event)
            self._slave_synced(record, event)

    def _count_served(
        self,
        record: FaultRecord,
        before: Mapping[tuple[str, str, int], int],
        event: OffsetEvent,
    ) -> None:
        """Progress in the slave's table after the master was gone, from its first change on."""
        if "gone_ns" not in record.observed or "accept_ns" in record.observed:
            return
        with self._lock:
            for key, offset in event.offsets.items():
                if key not in record.served_base and offset != before.get(key):
                    record.served_base[key] = offset
            served: dict[str, int] = {}
            for key, base in record.served_base.items():
                group = key[0]
                served[group] = served.get(group, 0) + max(0, event.offsets.get(key, base) - base)
            record.served.update(served)
        most = max(served.values(), default=0)
        if most >= max(1, round(MIN_SERVED * self._time_scale)) and self.board.post(
            record.fid, "slave-serving", event.stamp, served=most
        ):
            self.fault_row(
                record,
                "SLAVE_SERVING",
                observed=event.stamp,
                observer="witness",
                member=self._member_at(event.address),
                detail={"served": served},
            )

    def _slave_synced(self, record: FaultRecord, event: OffsetEvent) -> None:
        accepted = record.observed.get("accept_ns")
        if accepted is None or event.marker_ms is None:
            return
        if event.marker_ms * 1_000_000 >= accepted.mono_ns and self.board.post(
            record.fid, SLAVE_SYNCED, event.stamp
        ):
            self._synced(record, event)

    def _synced(self, record: FaultRecord, event: OffsetEvent) -> None:
        with self._lock:
            record.observed["slave_sync_ns"] = event.stamp
        self.fault_row(
            record,
            "SLAVE_SYNC",
            observed=event.stamp,
            observer="witness",
            member=self._member_at(event.address),
        )

    def _try_heal(self, record: FaultRecord) -> None:
        """K7 and K8: another process, registered everywhere, serves pulls and sends again."""
        member, previous = record.victim, record.identity
        assert member is not None
        assert previous is not None
        accepted = record.observed["accept_ns"]
        if "registered_ns" not in record.observed:
            return
        if "pull_ok_ns" not in record.observed:
            stamp = first_pull_ok(member.address, self._topics[0])
            if stamp is None:
                return
            record.observed["pull_ok_ns"] = stamp
            self.fault_row(record, "PULL_OK", observed=stamp, observer="witness")
            self.board.post(record.fid, PULL_OK, stamp)
        if "send_ok_ns" not in record.observed and member.role == "master":
            sent_ns = self.send_ok_after(accepted.mono_ns)
            if sent_ns is None:
                return
            sent = Stamp(accepted.wall_ns + sent_ns - accepted.mono_ns, sent_ns)
            record.observed["send_ok_ns"] = sent
            self.fault_row(record, "SEND_OK", observed=sent, observer="producer")
            self.board.post(record.fid, SEND_OK, sent)
        if not self._new_identity(record, member, previous):
            return
        record.rungs["K8"] = True
        self.healed(record, now())

    def _new_identity(self, record: FaultRecord, member: Member, previous: ProcessIdentity) -> bool:
        try:
            found = self._target.identity(member)
        except FailbackError:
            return False
        same = found.same(previous)
        if record.fault == "pause":
            if not same:
                record.doubt(f"pid {previous.pid} was replaced by {found.pid} while paused")
            record.rungs["K7"] = f"pid {found.pid}"
            return True
        if same:
            return False
        newer = found.boot_ms is not None and found.boot_ms > (previous.boot_ms or 0)
        if not newer:
            record.doubt(f"boot time {found.boot_ms} is not newer than {previous.boot_ms}")
        if found.uid != previous.uid:
            record.doubt(f"pod {previous.pod} was replaced: its container did not restart in place")
        record.rungs["K7"] = f"pid {found.pid}"
        self.fault_row(
            record,
            "RESTARTED",
            observed=now(),
            observer="runtime",
            boot_ms=found.boot_ms,
            proc_ref=_reference(found),
        )
        return True

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

    def _look_for_gaps(self) -> None:
        for watcher in self._watchers:
            if not watcher.alive and not self._stop.is_set():
                self.add_gap(f"witness {watcher.name} died: {watcher.failure}")
            elif _stuck(watcher) and self._window_open():
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
        with self._lock:
            return any(
                record.identity is not None
                and (record.identity.pod, record.identity.pid, record.identity.ticks)
                == (pod, death.pid, death.ticks)
                and record.issued is not None
                for record in self.faults.values()
            )

    def _unplanned(self, pod: str, death: DeathRecord) -> None:
        with self._lock:
            member = (
                next((each for each in self._view.members if each.pod == pod), None)
                if self._view
                else None
            )
            for record in self.faults.values():
                if record.in_effect:
                    record.doubt(f"{pod} died unplanned in the fault's window")
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
            with self._lock:
                pending = list(self._timed)
            for entry in pending:
                ready, act = entry
                try:
                    if not ready():
                        continue
                    with self._lock:
                        self._timed.remove(entry)
                    act()
                except Exception:  # the ledger keeps what could not be undone
                    logger.exception("a timed undo failed; undo_outstanding will repeat it")

    # --- helpers ---------------------------------------------------------------------------------

    def _window_open(self) -> bool:
        with self._lock:
            return any(record.in_window for record in self.faults.values())

    def _set_window(self) -> None:
        on = self._window_open()
        for watcher in self._watchers:
            watcher.set_window(on)

    def _members(self, pair: str) -> list[Member]:
        return [each for each in (self._view.members if self._view else ()) if each.pair == pair]

    def _member_at(self, address: str) -> Member | None:
        members = self._view.members if self._view else ()
        return next((each for each in members if each.address == address), None)

    def _topics_of(self, group: str) -> tuple[str, ...]:
        return self._groups.get(group, ""), f"%RETRY%{group}"


def _stuck(watcher: Watcher) -> bool:
    return time.monotonic() - watcher.last_look > GAP_SECONDS + watcher.period


def _reference(identity: ProcessIdentity | None) -> str | None:
    return f"{identity.pod}/{identity.pid}/{identity.ticks}" if identity else None


__all__ = ["EFFECT", "FaultRecord", "Recorder"]
