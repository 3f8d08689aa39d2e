"""Matches what witnesses see with the faults that are in effect: the steps of their proof."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from failback.chaos.cluster.clock import now
from failback.chaos.cluster.target import Target
from failback.chaos.cluster.view import Member, ProcessIdentity, Stamp
from failback.chaos.cluster.wire import WireConnection
from failback.chaos.recorder.fault_log import FaultLog
from failback.chaos.recorder.fault_record import SLAVE_SYNCED, FaultRecord, reference
from failback.chaos.recorder.latest_samples import LatestSamples, Offsets
from failback.chaos.recorder.sampler import MARKER_KEY, OFFSET_FILE
from failback.chaos.recorder.witness import (
    AnswerEvent,
    Event,
    OffsetEvent,
    PeerEvent,
    QueueEvent,
    RouteEvent,
    first_pull_ok,
)
from failback.protocol.errors import FailbackError
from failback.protocol.route import parse_offset_table, split_offset_key

logger = logging.getLogger(__name__)

MIN_SERVED: Final = 100


class ProofMatcher:
    """Turns events into proof steps of the open faults.

    Args:
        probe_topic: The topic whose pull proves that a broker serves again.
        groups: Groups whose loaded offsets become rows when a broker returns.
        add_gap: Told what could not be recorded.
    """

    def __init__(
        self,
        faults: FaultLog,
        latest_samples: LatestSamples,
        target: Target,
        *,
        probe_topic: str,
        groups: Sequence[str],
        time_scale: float,
        add_gap: Callable[[str], None],
    ) -> None:
        self._faults = faults
        self._latest_samples = latest_samples
        self._target = target
        self._probe_topic = probe_topic
        self._groups = frozenset(groups)
        self._time_scale = time_scale
        self._add_gap = add_gap
        self.send_ok_after: Callable[[int], int | None] = lambda _: None

    def on_event(self, event: Event) -> None:
        """Take in what a witness saw. Called from its thread."""
        match event:
            case PeerEvent():
                self._on_peer(event)
            case AnswerEvent():
                self._on_answer(event)
            case RouteEvent():
                self._latest_samples.routes[event.nameserver] = event
                self._on_route(event)
            case OffsetEvent():
                self._on_offsets(event)
            case QueueEvent():
                self._latest_samples.queues(event)

    def _on_peer(self, event: PeerEvent) -> None:
        for record in self._faults.in_effect_at(event.address):
            with self._faults.lock:
                issued = record.issued
                if "peer" in record.observed or issued is None:
                    continue
                if event.stamp.mono_ns < issued[0].mono_ns:
                    continue
                record.observed["peer"] = event.kind
                record.observed["peer_ns"] = event.stamp
                record.proof["K5"] = event.kind
            peer = {"peer": event.kind}
            self._faults.fault_row(record, "PEER", observed=event.stamp, detail=peer)

    def _on_answer(self, event: AnswerEvent) -> None:
        for record in self._faults.in_effect_at(event.address):
            if "accept_ns" in record.observed:
                self._try_heal(record)
                continue
            assert record.victim is not None
            assert record.issued is not None
            old = record.identity.boot_ms if record.identity else None
            if record.keeps_process:
                returned = record.resumed is not None
            else:
                returned = event.boot_ms is not None and event.boot_ms != old
            if returned:
                self._accepted(record, event)

    def _accepted(self, record: FaultRecord, event: AnswerEvent) -> None:
        assert record.victim is not None
        assert record.issued is not None
        with self._faults.lock:
            record.observed["accept_ns"] = event.stamp
            record.down_seconds = round((event.stamp.mono_ns - record.issued[0].mono_ns) / 1e9, 3)
        table = self._snapshot_table(record, event)
        kind = "RESUMED" if record.keeps_process else "ACCEPT"
        self._faults.fault_row(record, kind, observed=event.stamp, boot_ms=event.boot_ms)
        self._faults.milestones.post(record.fid, "accept", event.stamp)
        if table is not None:
            self._carried(record, event.stamp, table)

    def _snapshot_table(
        self, record: FaultRecord, event: AnswerEvent
    ) -> Mapping[str, Mapping[int, int]] | None:
        """Keep and return the table that a returned broker loaded; ``None`` if it was not read."""
        assert record.victim is not None
        member = record.victim
        try:
            with WireConnection(member.address) as connection:
                table = connection.all_offsets()
        except FailbackError as error:
            self._add_gap(f"no table of {member.pod} at its return: {error}")
            return None
        stamp = now()
        table.pop(MARKER_KEY, None)
        self._faults.folder.write_bytes(
            f"snap/{record.fid}-accept/{member.pod}/code43.json",
            json.dumps(table, indent=1, sort_keys=True).encode(),
        )
        for key, queues in table.items():
            topic, group = split_offset_key(key)
            if group not in self._groups:
                continue
            for queue, offset in queues.items():
                self._faults.log.write(
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
        return table

    def _carried(
        self, record: FaultRecord, accepted: Stamp, table: Mapping[str, Mapping[int, int]]
    ) -> None:
        """Write a row if a carry gave the master offsets of its slaves before it accepted."""
        member, gone = record.victim, record.observed.get("gone_ns")
        assert member is not None
        try:
            mark = self._target.stat_store(member, f"{OFFSET_FILE}.carried")
            if mark is None or gone is None or mark.mtime_ns < gone.wall_ns:
                return  # of an earlier start
            content = self._target.read_store(member, f"{OFFSET_FILE}.before-carry")
            before = parse_offset_table(content)
        except (FailbackError, OSError) as error:
            logger.warning("a carry of %s is not read: %s", member.pod, error)
            return
        raised = [
            offset - max(own, 0)
            for key, queues in table.items()
            for queue, offset in queues.items()
            if offset > (own := before.get(key, {}).get(queue, -1))
        ]
        since = min(mark.mtime_ns, accepted.wall_ns) - gone.wall_ns
        self._faults.fault_row(
            record,
            "CARRIED",
            observed=Stamp(gone.wall_ns + since, gone.mono_ns + since),
            observer="store",
            detail={"offsets": len(raised), "messages": sum(raised)},
        )

    def _on_route(self, event: RouteEvent) -> None:
        view = self._latest_samples.view
        everybody = set(view.nameservers) if view else set()
        with self._faults.lock:
            waiting = [
                record
                for record in self._faults.faults.values()
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
            with self._faults.lock:
                record.registered_at.add(event.nameserver)
                if record.registered_at < everybody:
                    continue
                record.observed["registered_ns"] = event.stamp
            self._faults.fault_row(record, "REGISTERED", observed=event.stamp)
            self._faults.milestones.post(record.fid, "registered", event.stamp)

    def _on_offsets(self, event: OffsetEvent) -> None:
        before = self._latest_samples.offsets(event)
        member = self._latest_samples.member_at(event.address)
        if member is None or member.role != "slave":
            return
        with self._faults.lock:
            records = [
                record
                for record in self._faults.faults.values()
                if record.issued is not None
                and not record.heals_itself
                and record.victim is not None
                and record.victim.pair == member.pair
                and record.victim.role == "master"
                and "slave_sync_ns" not in record.observed
            ]
        for record in records:
            self._count_served(record, before, event)
            self._slave_synced(record, event)

    def _count_served(self, record: FaultRecord, before: Offsets, event: OffsetEvent) -> None:
        """Progress in the slave's table after the master was gone, from its first change on."""
        if "gone_ns" not in record.observed or "accept_ns" in record.observed:
            return
        with self._faults.lock:
            for key, offset in event.offsets.items():
                if key not in record.served_base and offset != before.get(key):
                    record.served_base[key] = offset
            served: dict[str, int] = {}
            for key, base in record.served_base.items():
                group = key[0]
                served[group] = served.get(group, 0) + max(0, event.offsets.get(key, base) - base)
            record.served.update(served)
        most = max(served.values(), default=0)
        if most >= max(1, round(MIN_SERVED * self._time_scale)) and self._faults.milestones.post(
            record.fid, "slave-serving", event.stamp
        ):
            slave, count = self._latest_samples.member_at(event.address), {"served": served}
            self._faults.fault_row(
                record, "SLAVE_SERVING", observed=event.stamp, member=slave, detail=count
            )

    def _slave_synced(self, record: FaultRecord, event: OffsetEvent) -> None:
        accepted = record.observed.get("accept_ns")
        if accepted is None or event.marker_ms is None:
            return
        if event.marker_ms * 1_000_000 < accepted.mono_ns or not self._faults.milestones.post(
            record.fid, SLAVE_SYNCED, event.stamp
        ):
            return
        with self._faults.lock:
            record.observed["slave_sync_ns"] = event.stamp
        slave = self._latest_samples.member_at(event.address)
        self._faults.fault_row(record, "SLAVE_SYNC", observed=event.stamp, member=slave)
        if "healed_ns" in record.observed:  # the evidence of the heal went out without this step
            self._faults.evidence(record, "heal")

    def _try_heal(self, record: FaultRecord) -> None:
        """K7 and K8: another process, registered everywhere, serves pulls and sends again."""
        member, previous = record.victim, record.identity
        assert member is not None
        assert previous is not None
        accepted = record.observed["accept_ns"]
        if "registered_ns" not in record.observed:
            return
        if "pull_ok_ns" not in record.observed:
            stamp = first_pull_ok(member.address, self._probe_topic)
            if stamp is None:
                return
            record.observed["pull_ok_ns"] = stamp
            self._faults.fault_row(record, "PULL_OK", observed=stamp)
        if "send_ok_ns" not in record.observed and member.role == "master":
            sent_ns = self.send_ok_after(accepted.mono_ns)
            if sent_ns is None:
                return
            sent = Stamp(accepted.wall_ns + sent_ns - accepted.mono_ns, sent_ns)
            record.observed["send_ok_ns"] = sent
            self._faults.fault_row(record, "SEND_OK", observed=sent, observer="producer")
        if not self._new_identity(record, member, previous):
            return
        record.proof["K8"] = True
        self._faults.healed(record, now())

    def _new_identity(self, record: FaultRecord, member: Member, previous: ProcessIdentity) -> bool:
        try:
            found = self._target.identity(member)
        except FailbackError:
            return False
        same = found.same(previous)
        if record.keeps_process:
            if not same:
                record.add_unproved_reason(
                    f"pid {previous.pid} was replaced by {found.pid} in the meantime"
                )
            record.proof["K7"] = f"pid {found.pid}"
            return True
        if same:
            return False
        newer = found.boot_ms is not None and found.boot_ms > (previous.boot_ms or 0)
        if not newer:
            record.add_unproved_reason(
                f"boot time {found.boot_ms} is not newer than {previous.boot_ms}"
            )
        if found.uid != previous.uid:
            record.add_unproved_reason(
                f"pod {previous.pod} was replaced: its container did not restart in place"
            )
        record.proof["K7"] = f"pid {found.pid}"
        self._faults.fault_row(
            record,
            "RESTARTED",
            observed=now(),
            observer="runtime",
            boot_ms=found.boot_ms,
            proc_ref=reference(found),
        )
        return True
