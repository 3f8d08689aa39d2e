"""F19: another ``consumerOffset.json`` for a killed broker, before it starts again.

The unit-size reproduction of every rollback: what the broker loads is known, so the duplicates
are known too. The saved files and where they belong are in the undo ledger before the first write.
Proof of effect is the file as it is read back, and that it says less than the one before; the
broker's own table at its return must not be below it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from failback.chaos.cluster.target import StoreWriter, Target
from failback.chaos.cluster.view import Member
from failback.chaos.errors import TargetError
from failback.chaos.experiment.fault_kinds import (
    AFTER,
    DOWN,
    MILESTONES,
    FaultKind,
    Parameter,
    Values,
)
from failback.chaos.failpoints import crash_point
from failback.chaos.faults import broker_faults, proof
from failback.chaos.faults.fault import Fault, Undo
from failback.chaos.faults.injection import broker_action
from failback.chaos.recorder.fault_record import FaultRecord
from failback.chaos.recorder.latest_samples import Offsets
from failback.chaos.session import Session
from failback.common.files import digest_of
from failback.protocol.errors import FailbackError
from failback.protocol.route import parse_offset_table, split_offset_key

RESTORE_FILES: Final = "restore-files"
FILES: Final = (proof.OFFSET_FILE, f"{proof.OFFSET_FILE}.bak")

KIND = FaultKind(
    code="F19",
    name="replace-offset-file",
    proves="the file as read back says less; healed by K7 and K8",
    action="replace_offset_file",
    target="broker",
    title="F1, and another consumerOffset.json before the broker starts again",
    parameters=(
        Parameter(
            "content",
            "choice",
            "content",
            "older",
            ("older", "delete", "empty", "truncate"),
            always=True,
        ),
        Parameter("ageSeconds", "seconds", "age_seconds", 60.0),
        Parameter("bak", "choice", "bak", "same", ("same", "keep"), always=True),
        DOWN,
        AFTER,
    ),
    lasts="downSeconds",
    milestones=MILESTONES,
    supported_by=frozenset({"local"}),
)


def kill_and_replace(session: Session, record: FaultRecord, values: Values) -> None:
    """Kill a broker, change its offset file and its backup, and have it released.

    ``Older`` is what its table held ``ageSeconds`` before. Offsets heal by commits; the undo puts
    the files back while the broker is still held.
    """
    content, age_seconds = str(values["content"]), float(values["ageSeconds"])
    target = session.target
    if not isinstance(target, StoreWriter):
        raise TargetError(record.fid, f"a {target.kind} target cannot write store files")
    member, _ = broker_faults.victim_of(record)
    if content == "older" and session.rec.latest_samples.offsets_at(member.address, 0) is None:
        raise TargetError(record.fid, f"no offset table of {member.pod} was sampled yet")
    broker_faults.kill_and_hold(session, record)
    saved = {path: _read(session, member, path) for path in FILES}
    if session.lease is not None:
        session.lease.vouch([digest_of(data) for data in saved.values() if data is not None])
    undo = session.ledger.add(
        RESTORE_FILES, {"pod": member.pod, "files": _keep(session, record, saved)}, record.fid
    )
    crash_point("files-saved")
    wanted = dict(saved)
    new = _content(session, record, member, saved[FILES[0]], content, age_seconds)
    wanted[FILES[0]] = new
    if values["bak"] == "same":
        wanted[FILES[1]] = new
    for path, data in wanted.items():
        if data != saved[path]:
            target.write_store(member, path, data)
    crash_point("files-replaced")
    shown = {path: _read(session, member, path) for path in FILES}
    record.proof["FILE"] = shown == wanted
    if shown != wanted:
        record.add_unproved_reason(f"{proof.OFFSET_FILE} of {member.pod} is not what was written")
    loaded = _what_it_loads(wanted)
    record.observed["file_entries"] = sum(len(queues) for queues in loaded.values())
    lowered = _lowered(_what_it_loads(saved), loaded)
    record.observed["file_lowered"] = lowered
    if not lowered:
        record.add_unproved_reason(f"{member.pod} will load no offset that is lower than before")
    session.rec.later(
        lambda: session.rec.milestones.get(record.fid, "accept") is not None,
        lambda: _compare(session, record, member, loaded, undo),
    )
    broker_faults.finish_effect(session, record, "KILL")
    session.rec.fault_row(
        record,
        "REPLACE_FILE",
        observed=record.observed["gone_ns"],
        observer="harness",
        detail={"content": content, "bak": values["bak"]},
    )
    broker_faults.release_later(session, record, values["downSeconds"])


def _read(session: Session, member: Member, path: str) -> bytes | None:
    try:
        return session.target.read_store(member, path)
    except FileNotFoundError:
        return None


def _keep(
    session: Session, record: FaultRecord, saved: Mapping[str, bytes | None]
) -> dict[str, str | None]:
    """Put the files into the run folder; return where, as the ledger names them."""
    places: dict[str, str | None] = {}
    for path, data in saved.items():
        places[path] = None
        if data is not None:
            name = f"snap/{record.fid}-saved/{path.rpartition('/')[2]}"
            session.folder.write_bytes(name, data)
            places[path] = str((session.folder.path / name).resolve())
    return places


def _content(
    session: Session,
    record: FaultRecord,
    member: Member,
    data: bytes | None,
    content: str,
    age_seconds: float,
) -> bytes | None:
    """The bytes that the broker will find; ``None``: no file."""
    match content:
        case "delete":
            return None
        case "empty":
            return b""
        case "truncate":
            return (data or b"")[: len(data or b"") // 2]
        case _:
            issued = broker_faults.issued_ns(record)
            then = issued - round(session.scaled(age_seconds) * 1e9)
            found = session.rec.latest_samples.offsets_at(member.address, then)
            assert found is not None  # it was there before the kill
            sampled, past = found
            record.observed["file_sampled_ms"] = round((issued - sampled) / 1e6)
            if sampled > then:
                age = (issued - sampled) / 1e9 / session.time_scale
                record.add_unproved_reason(f"the oldest table of {member.pod} is {age:.1f} s old")
            return older_table(data or b"{}", past)


def older_table(data: bytes, past: Offsets) -> bytes:
    """The offset file with the values of ``past``; an entry that was not there yet is left out.

    Entries of groups that were not watched stay as they are; no value becomes greater.
    """
    watched = {group for group, _, _ in past}
    table: dict[str, dict[str, int]] = {}
    for key, queues in parse_offset_table(data).items():
        topic, group = split_offset_key(key)
        kept = {
            queue: min(value, past[group, topic, queue]) if group in watched else value
            for queue, value in queues.items()
            if group not in watched or (group, topic, queue) in past
        }
        if kept:
            table[key] = {str(queue): value for queue, value in kept.items()}
    return json.dumps({"offsetTable": table}, indent=1).encode()


def _what_it_loads(files: Mapping[str, bytes | None]) -> dict[str, dict[int, int]]:
    """The table that a broker reads: the file, else its ``.bak``, else nothing."""
    for path in FILES:
        data = files[path]
        if data is None or not data.strip():
            continue
        try:
            return parse_offset_table(data)
        except FailbackError:
            continue
    return {}


def _lowered(
    before: Mapping[str, Mapping[int, int]], after: Mapping[str, Mapping[int, int]]
) -> int:
    """How many entries are lower than before, or gone."""
    return sum(
        after.get(key, {}).get(queue, -1) < value
        for key, queues in before.items()
        for queue, value in queues.items()
    )


def _compare(
    session: Session,
    record: FaultRecord,
    member: Member,
    loaded: Mapping[str, Mapping[int, int]],
    undo: str,
) -> None:
    """The table at the return: as written, or moved on by owners that were quicker than we."""
    file = session.folder.path / f"snap/{record.fid}-accept/{member.pod}/code43.json"
    observation: dict[str, Any] = {"compared": file.is_file()}
    if file.is_file():
        shown = json.loads(file.read_bytes())
        below, above = _differences(session, loaded, shown)
        observation |= {"below": below, "above": above}
        record.proof["LOADED"] = "as written" if not above else f"{above} entries moved on since"
        if below:
            record.proof["LOADED"] = f"{below} entries below what was written"
            record.add_unproved_reason(
                f"{member.pod} loaded {below} offsets below those of its file"
            )
    session.ledger.mark_healed(undo, observation)
    if "healed_ns" in record.observed:  # the evidence of the heal went out without this step
        session.rec.evidence(record, "heal")


def _differences(
    session: Session,
    loaded: Mapping[str, Mapping[int, int]],
    shown: Mapping[str, Mapping[str, int]],
) -> tuple[int, int]:
    """How many entries of the run's groups are below and above what was written."""
    below = above = 0
    groups = session.group_topics()
    names = {key for key in (*loaded, *shown) if split_offset_key(key)[1] in groups}
    for key in names:
        written = dict(loaded.get(key, {}))
        found = {int(queue): value for queue, value in shown.get(key, {}).items()}
        for queue in {*written, *found}:
            below += found.get(queue, -1) < written.get(queue, -1)
            above += found.get(queue, -1) > written.get(queue, -1)
    return below, above


def _restore_files(
    target: Target, args: Mapping[str, Any], _deadline: float
) -> dict[str, Any] | None:
    """Put saved store files back, as long as the broker has not started with the other ones."""
    pod = str(args["pod"])
    member = broker_faults.member_of(target, pod)
    if member.running or target.pod_state(pod) != "Held":
        return {"pod": pod, "restored": False, "why": "it has started since"}
    if not isinstance(target, StoreWriter):
        raise TargetError(f"restore files of {pod}", "this target cannot write store files")
    for path, saved in dict(args["files"]).items():
        target.write_store(member, path, None if saved is None else Path(saved).read_bytes())
    return {"pod": pod, "restored": True}


FAULT = Fault(
    KIND,
    broker_action(KIND, kill_and_replace),
    Undo(RESTORE_FILES, _restore_files, "restore_offset_file"),
)
