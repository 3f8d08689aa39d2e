"""The faults of a run as rows and evidence: victims, proofs, ends."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

from failback.chaos.cluster.view import Member, Stamp
from failback.chaos.recorder.fault_record import HEALED, FaultRecord, Milestones, reference
from failback.chaos.run_folder.run_folder import RunFolder
from failback.client.consumelog.writer import ConsumeLog


class FaultLog:
    """Writes table ``fault`` and ``evidence.jsonl``. Called from several threads."""

    def __init__(self, folder: RunFolder, log: ConsumeLog) -> None:
        self.folder = folder
        self.log = log
        self.milestones = Milestones()
        self.faults: dict[str, FaultRecord] = {}
        self.zero: Stamp | None = None
        self.lock = threading.RLock()

    def on_window(self, open_now: bool) -> None:
        """A fault came into sight, or the last one left it: witnesses look closely, or rest."""

    def open_fault(self, record: FaultRecord) -> None:
        """Begin to match what is seen with this fault."""
        with self.lock:
            self.faults[record.fid] = record
        self.on_window(self.window_open())

    def fault_row(
        self,
        record: FaultRecord,
        kind: str,
        *,
        observed: Stamp | None,
        observer: str = "witness",
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
            proc_ref=proc_ref or reference(record.identity),
            signum=record.signum,
            intended=record.intended_ns or None,
            issued=issued[0].mono_ns if issued else None,
            issued_end=issued[1].mono_ns if issued else None,
            observed=observed.mono_ns if observed else None,
            observer=observer,
            honest=record.proved,
            detail=json.dumps({"fault": record.fault, **(detail or {})}),
            boot_ms=boot_ms,
        )

    def evidence(self, record: FaultRecord, phase: str) -> dict[str, Any]:
        """The evidence object of one fault; appended to evidence.jsonl with ``phase``."""
        zero = self.zero.mono_ns if self.zero else 0

        def after_zero(value: Any) -> Any:
            return value.mono_ns - zero if isinstance(value, Stamp) else value

        with self.lock:
            document = {
                "fid": record.fid,
                "fault": record.fault,
                "seed": record.seed,
                "rule": record.rule,
                "victims": record.victims,
                "intended_ns": record.intended_ns - zero if record.intended_ns else None,
                "issued_ns": [after_zero(each) for each in record.issued or ()],
                "observed": {key: after_zero(value) for key, value in record.observed.items()},
                "proof": dict(record.proof),
                "proved": record.proved,
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
        self.on_window(self.window_open())

    def gone(self, record: FaultRecord, stamp: Stamp) -> None:
        """The effect of a fault was seen."""
        record.observed["gone_ns"] = stamp
        self.milestones.post(record.fid, "gone", stamp)

    def healed(self, record: FaultRecord, stamp: Stamp) -> None:
        """Close a fault: a witness saw the system without it."""
        with self.lock:
            if "healed_ns" in record.observed:
                return
            record.observed["healed_ns"] = stamp
        if record.issued and record.down_seconds is None and record.is_broker_fault:
            record.down_seconds = round((stamp.mono_ns - record.issued[0].mono_ns) / 1e9, 3)
        self.fault_row(record, "HEALED", observed=stamp, detail={"proof": record.proof})
        self.evidence(record, "heal")
        self.milestones.post(record.fid, HEALED, stamp)
        self.on_window(self.window_open())

    def window_open(self) -> bool:
        """Whether any fault is about to be injected or not yet seen healed."""
        with self.lock:
            return any(record.in_window for record in self.faults.values())

    def in_effect_at(self, address: str) -> list[FaultRecord]:
        """Faults that hit the broker at an address and are not over."""
        with self.lock:
            return [
                record
                for record in self.faults.values()
                if record.in_effect
                and not record.heals_itself
                and record.is_broker_fault
                and record.victim is not None
                and record.victim.address == address
            ]
