"""Decide what an OffsetSnapshot needs now: a snapshot that is due, a restore, its status. Pure.

A snapshot is named after the time it was due at, so that one that was written and not noted is
written again, not beside it. A restore is a preview until its id is confirmed; what is written then
is read back by the action itself, and only where the master still has what the preview saw.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from failback.carry import restoring
from failback.carry.restoring import Masters, Pairs, chosen
from failback.common.text import did_you_mean
from failback.operator.kinds.offset_snapshot import LATEST, OffsetRestore, OffsetSnapshot
from failback.operator.planning.observed.observed import Object
from failback.operator.planning.offsets import kept_table
from failback.operator.planning.plan.encoding import (
    Verdict,
    from_time,
    judged,
    names,
    to_time,
)
from failback.operator.planning.plan.types import Action, Apply, Delete, Event, Plan, RestoreOffsets
from failback.operator.render.common import MOST_NAME, object_name

_WAIT_SECONDS: Final = 2.0
_PREVIEW_SECONDS: Final = 10.0
_PATIENT_SECONDS: Final = 45.0
"""A master that answers is asked for its table every 30 s."""
_AFTER_WRITE_SECONDS: Final = 0.5
_SECONDS: Final = {"m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True)
class ObservedSnapshot:
    """Everything that one pass over an OffsetSnapshot sees."""

    masters: Masters | None = None
    """``None`` when there is no cluster of that name."""
    kept: Pairs | None = None
    """The offsets of the snapshot that is to be given back; ``None`` when they are not there."""
    config_maps: Mapping[str, Object] = field(default_factory=dict)
    """Of the snapshots that are no longer kept, those that are there."""
    written: str = ""
    """Id of the restore that this operator has written and read back."""


class _Part(NamedTuple):
    """What one half of the plan found to do."""

    verdict: Verdict | None
    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    wake_after: float | None = None


def plan_offset_snapshot(
    snapshot: OffsetSnapshot, status: Mapping[str, Any], observed: ObservedSnapshot, now: float
) -> Plan:
    """Return what keeps snapshots as due and brings a restore on, and the status to write."""
    new: dict[str, Any] = dict(status)
    if snapshot.metadata.is_paused:
        paused = Verdict("Paused", True, "Requested")
        return _plan(snapshot, status, new, [paused], now)
    taking = _take(snapshot, new, observed, now)
    giving = _restore(snapshot, new, observed, now)
    if giving.verdict is None:
        new.pop("restore", None)
    verdicts = [part.verdict for part in (taking, giving) if part.verdict is not None]
    verdicts.append(Verdict("Paused", False, ""))
    wakes = [part.wake_after for part in (taking, giving) if part.wake_after is not None]
    return _plan(
        snapshot,
        status,
        new,
        verdicts,
        now,
        actions=taking.actions + giving.actions,
        events=taking.events + giving.events,
        wake_after=min(wakes, default=None),
    )


# --- snapshots ------------------------------------------------------------------------------------


def due_at(snapshot: OffsetSnapshot, status: Mapping[str, Any]) -> float | None:
    """Return when the next snapshot is due, Unix time; ``None`` when none is to come."""
    last = from_time(status.get("lastSnapshot"))
    if last is None:
        return from_time(snapshot.metadata.creation_timestamp) or 0.0
    every = snapshot.spec.every
    return None if every is None else last + int(every[:-1]) * _SECONDS[every[-1]]


def name_at(due: float) -> str:
    """Return the name of the snapshot that was due at a time."""
    return datetime.datetime.fromtimestamp(int(due), datetime.UTC).strftime("%Y%m%dT%H%M%SZ")


def _take(
    snapshot: OffsetSnapshot, new: dict[str, Any], observed: ObservedSnapshot, now: float
) -> _Part:
    """Take the snapshot that is due, if one is, and let go of those beyond ``keep``."""
    due = due_at(snapshot, new)
    if due is None or due > now:
        wake = None if due is None else due - now
        verdict = Verdict("Ready", True, "Taken")
        return _Part(verdict, _expired(snapshot, new, observed), wake_after=wake)
    if observed.masters is None:
        missing = f"there is no BrokerCluster {snapshot.spec.cluster_ref.name}"
        return _Part(Verdict("Ready", False, "ClusterMissing", missing), wake_after=_WAIT_SECONDS)
    tables = {
        pair: master.offsets
        for pair, master in observed.masters.items()
        if master.offsets is not None and master.offsets_at >= due
    }
    silent = sorted(observed.masters.keys() - tables.keys())
    if silent or not tables:
        text = f"no master of {names(silent) or 'any pair'} has answered since the snapshot is due"
        reason = "Waiting" if now - due < _PATIENT_SECONDS else "MasterDown"
        return _Part(Verdict("Ready", False, reason, text), wake_after=_WAIT_SECONDS)
    return _taken(snapshot, new, chosen(tables, snapshot.spec.groups), max(due, 0.0), now)


def _taken(
    snapshot: OffsetSnapshot, new: dict[str, Any], pairs: Pairs, due: float, now: float
) -> _Part:
    content = kept_table.packed(pairs)
    if content is None:
        verdict = Verdict("Ready", False, "SnapshotTooLarge", kept_table.TOO_LARGE)
        return _Part(verdict, wake_after=60.0)
    name = name_at(due)
    config_map = object_name("fbo", snapshot.name, name.lower(), most=MOST_NAME)
    groups, count = len(kept_table.groups_of(pairs)), kept_table.count_of(pairs)
    entry = {
        "name": name,
        "takenAt": to_time(now),
        "configMap": config_map,
        "groups": groups,
        "offsets": count,
    }
    kept = [entry, *(new.get("snapshots") or ())]
    # What falls off here is deleted first by the pass that follows: it is still in the status.
    new["snapshots"] = kept[: _most(snapshot)]
    new["lastSnapshot"] = to_time(now)
    following = due_at(snapshot, new)
    new.pop("nextSnapshot", None)
    if following is not None:
        new["nextSnapshot"] = to_time(following)
    verdict = Verdict("Ready", True, "Taken")
    text = f"{name}: {count} offsets of {groups} groups"
    make = Apply(kept_table.manifest(snapshot, config_map, content))
    return _Part(verdict, (make,), (Event("OffsetsKept", text),), _WAIT_SECONDS)


def _most(snapshot: OffsetSnapshot) -> int:
    return snapshot.spec.keep + 1


def expired(snapshot: OffsetSnapshot, status: Mapping[str, Any]) -> list[str]:
    """Return the ConfigMaps of snapshots beyond those that are kept."""
    entries = list(status.get("snapshots") or ())
    return [str(each["configMap"]) for each in entries[snapshot.spec.keep :]]


def _expired(
    snapshot: OffsetSnapshot, new: dict[str, Any], observed: ObservedSnapshot
) -> tuple[Action, ...]:
    """Delete what is kept no longer; it leaves the status once it is gone."""
    leaving = expired(snapshot, new)
    there = [name for name in leaving if name in observed.config_maps]
    if leaving and not there:
        new["snapshots"] = new["snapshots"][: snapshot.spec.keep]
    return tuple(
        Delete(("ConfigMap", name), str(observed.config_maps[name]["metadata"]["uid"]))
        for name in there
    )


# --- the restore ----------------------------------------------------------------------------------


def wanted(snapshot: OffsetSnapshot, status: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the entry of the snapshot to give back; ``None`` = none is asked for, or there."""
    asked = snapshot.spec.restore
    if asked is None or _is_over(asked, status):
        return None
    entries = list(status.get("snapshots") or ())[: snapshot.spec.keep]
    name: str | None = asked.snapshot
    if name == LATEST:
        # The preview was of the newest of its time; a schedule goes on meanwhile.
        name = (status.get("restore") or {}).get("snapshot") if asked.confirm else None
    return next((each for each in entries if name in (None, each["name"])), None)


def _is_over(asked: OffsetRestore, status: Mapping[str, Any]) -> bool:
    """Tell whether the restore that is asked for has been carried out."""
    found = status.get("restore") or {}
    return found.get("phase") == "Complete" and asked.confirm == found.get("id")


def _restore(
    snapshot: OffsetSnapshot, new: dict[str, Any], observed: ObservedSnapshot, now: float
) -> _Part:
    asked = snapshot.spec.restore
    if asked is None:
        return _Part(None)
    if _is_over(asked, new):
        return _Part(Verdict("Restored", True, "Restored"))
    running = new.get("restore") or {}
    if running.get("phase") == "Writing" and observed.written == running["id"]:
        return _complete(new, now)
    entry = wanted(snapshot, new)
    if entry is None or observed.kept is None:
        kept = [str(each["name"]) for each in new.get("snapshots") or ()]
        text = f"there is no snapshot {asked.snapshot}{did_you_mean(asked.snapshot, kept)}"
        verdict = Verdict("Restored", False, "SnapshotMissing", text)
        return _Part(verdict, wake_after=_PREVIEW_SECONDS)
    if observed.masters is None:
        missing = f"there is no BrokerCluster {snapshot.spec.cluster_ref.name}"
        verdict = Verdict("Restored", False, "ClusterMissing", missing)
        return _Part(verdict, wake_after=_PREVIEW_SECONDS)
    unknown = _unknown_groups(asked.groups, observed.kept)
    if unknown:
        text = f"snapshot {entry['name']} has no offsets of {unknown}"
        verdict = Verdict("Restored", False, "GroupMissing", text)
        return _Part(verdict, wake_after=_PREVIEW_SECONDS)
    about = chosen(observed.kept, asked.groups)
    found = restoring.restore_of(about, observed.masters)
    if found is None:
        silent = names(restoring.silent_of(about, observed.masters))
        text = f"what the master of {silent} holds now is not known"
        verdict = Verdict("Restored", None, "UnableToRetrieve", text)
        return _Part(verdict, wake_after=_WAIT_SECONDS)
    made = restoring.preview(found, str(entry["name"]))
    online = sorted(found.online & {row.group for row in found.rows})
    if online and not asked.online:
        new["restore"] = _kept_or_new(running, made)
        text = f"members of {names(online)} run: stop them, or set spec.restore.online"
        verdict = Verdict("Restored", False, "GroupOnline", text)
        return _Part(verdict, wake_after=_PREVIEW_SECONDS)
    if running.get("phase") == "Writing" or asked.confirm == made["id"]:
        return _write(new, made, found, observed.masters, now)
    new["restore"] = _kept_or_new(running, made)
    shown = new["restore"]  # not what was made now, which moves with every message
    text = f"{_sums(shown)}; confirm {shown['id']}{_left_alone(found)}"
    if asked.confirm:
        text = f"{asked.confirm} is no longer what would come: {text}"
    return _Part(Verdict("Restored", False, "PreviewReady", text), wake_after=_PREVIEW_SECONDS)


def _unknown_groups(groups: Sequence[str], kept: Pairs) -> str:
    """Return the groups that were asked for and are not in a snapshot, in words."""
    there = kept_table.groups_of(kept)
    unknown = [group for group in groups if group != "*" and group not in there]
    return names([f"{group}{did_you_mean(group, there)}" for group in unknown])


def _left_alone(found: restoring.Restore) -> str:
    """Return which queues keep what they have, and why: the first few."""
    if not found.why_alone:
        return ""
    total = sum(found.left_alone.values())
    what = "1 queue is" if total == 1 else f"{total} queues are"
    return f"; {what} left alone, such as: {', '.join(found.why_alone)}"


def _write(
    new: dict[str, Any],
    made: Mapping[str, Any],
    found: restoring.Restore,
    masters: Masters,
    now: float,
) -> _Part:
    """Give the offsets back; what an operator began that died is gone on with."""
    begun: tuple[Event, ...] = ()
    if (new.get("restore") or {}).get("phase") != "Writing":
        new["restore"] = {**made, "phase": "Writing"}
        begun = (Event("OffsetsRestoring", _sums(made)),)
    actions = tuple(
        RestoreOffsets(address, offsets, new["restore"]["id"])
        for address, offsets in restoring.orders(
            restoring.still_as_seen(found, new["restore"]), masters
        )
    )
    if not actions:  # nothing differs (any more)
        return _complete(new, now)
    verdict = Verdict("Restored", False, "Restoring", _sums(new["restore"]))
    return _Part(verdict, actions, begun, wake_after=_AFTER_WRITE_SECONDS)


def _kept_or_new(before: Mapping[str, Any], made: Mapping[str, Any]) -> dict[str, Any]:
    """Return a preview; one that says the same stays as it is, so that no status flickers."""
    same = before.get("id") == made["id"] and before.get("phase") == "Preview"
    on = {each["group"] for each in made["groups"] if each["online"]}
    was = {each["group"] for each in before.get("groups") or () if each["online"]}
    return dict(before if same and on == was else made)


def _sums(made: Mapping[str, Any]) -> str:
    again = f"{made['redelivered']} messages are re-consumed, {made['skipped']} are skipped"
    return f"{again}, {made['ahead']} are then ahead"


def _complete(new: dict[str, Any], now: float) -> _Part:
    new["restore"] = {**new["restore"], "phase": "Complete", "finishedAt": to_time(now)}
    event = Event("OffsetsRestored", _sums(new["restore"]))
    return _Part(Verdict("Restored", True, "Restored"), events=(event,))


# --- the status -----------------------------------------------------------------------------------


def _plan(
    snapshot: OffsetSnapshot,
    status: Mapping[str, Any],
    new: dict[str, Any],
    verdicts: list[Verdict],
    now: float,
    *,
    actions: tuple[Action, ...] = (),
    events: tuple[Event, ...] = (),
    wake_after: float | None = None,
) -> Plan:
    generation = snapshot.metadata.generation
    conditions = judged(status, verdicts, now=now, generation=generation)
    if snapshot.spec.restore is None:
        conditions = [each for each in conditions if each["type"] != "Restored"]
    new["conditions"] = conditions
    new["observedGeneration"] = generation
    return Plan(actions, new, events=events, wake_after=wake_after)
