"""What starts of masters of Apache were given of their slaves' offsets: status, condition, events.

Pure. Only a start of a master counts: a slave is given nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final

from failback.operator.planning.cluster.conditions import Verdict
from failback.operator.planning.cluster.view import ClusterView
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import MemberView
from failback.operator.planning.plan.encoding import names
from failback.operator.planning.plan.types import Event

KIND: Final = "OffsetsCarried"
_GIVEN: Final = ("Carried", "WouldCarry")
_WHY_NOT: Final = {
    "SlaveSilent": "no slave answered",
    "OtherLog": "the log of its slave is another than its own",
    "Unsupported": "its offsets are in RocksDB",
    "DiskFailed": "its disk could not be read or written",
    "Refused": "its offset file is broken, or a broker ran on its store",
}


def carried_of(view: ClusterView, member: MemberView) -> dict[str, Any] | None:
    """Return ``status.pairs[].members[].carried``: of its last start as master, ``None`` = none."""
    found = member.broker.carried if member.broker is not None else None
    if found is None or found.outcome == "Idle":
        before: dict[str, Any] | None = view.previous_member(member).get("carried")
        return before
    said = asdict(found)
    said["from"] = list(said.pop("sources"))
    return said


def offsets_carried(view: ClusterView) -> Iterator[Verdict]:
    """Yield whether every master that started last was given what its slaves knew.

    None where no member has the sidecar.
    """
    having = [
        item
        for item in view.members
        if item.statefulset is not None and facts.has_carry(item.statefulset)
    ]
    if not having:
        return
    masters = {
        view.member_name(item): carried_of(view, item)
        for item in having
        if view.broker_id(item) == 0
    }
    started = {name: found for name, found in masters.items() if found is not None}
    for reason, why in _WHY_NOT.items():
        if failed := [name for name, found in started.items() if found["outcome"] == reason]:
            yield Verdict(KIND, False, reason, f"{names(failed)} started with its own: {why}")
            return
    if given := [name for name, found in started.items() if found["outcome"] in _GIVEN]:
        texts = names([_text(name, started[name]) for name in given], 3)
        yield Verdict(KIND, True, str(started[given[0]]["outcome"]), texts)
    elif started:
        yield Verdict(KIND, True, "NothingToCarry", "slaves knew nothing better")
    else:
        yield Verdict(KIND, None, "NotReturned", "no master has started since")


def carried_events(view: ClusterView, new: Mapping[str, Any]) -> Iterator[Event]:
    """Yield an event of each start that was given something, or should have been."""
    before = {
        (pair["index"], member["ordinal"]): (member.get("carried") or {}).get("at")
        for pair in view.previous.get("pairs") or ()
        for member in pair.get("members") or ()
    }
    for pair in new["pairs"]:
        for member in pair["members"]:
            found = member.get("carried")
            if found is None or found["at"] == before.get((pair["index"], member["ordinal"])):
                continue
            name = member["pod"].removesuffix("-0")
            if why := _WHY_NOT.get(found["outcome"]):
                yield Event("OffsetsNotCarried", f"{name}: {why}", warning=True)
            elif found["outcome"] in _GIVEN:
                yield Event(KIND, _text(name, found))


def _text(name: str, found: Mapping[str, Any]) -> str:
    done = "would be raised" if found["outcome"] == "WouldCarry" else "raised"
    return (
        f"{name}: {found['offsets']:,} offsets of {found['groups']:,} groups {done}, "
        f"{found['messages']:,} messages not delivered again, "
        f"{found['cut']:,} cut at the end of this log"
    )
