"""What starts of masters of Apache were given of their slaves' offsets: status, condition, events.

Pure. Only a start of a master counts: a slave is given nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final

from failback.operator.planning.cluster.view import ClusterView
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import Carried, MemberView
from failback.operator.planning.plan.encoding import Verdict, names
from failback.operator.planning.plan.types import Event

KIND: Final = "OffsetsCarried"
_GIVEN: Final = ("Carried", "WouldCarry")
_WHY_NOT: Final = {
    "SlaveSilent": "no slave answered",
    "OtherLog": "the log of its slave is another than its own",
    "Unsupported": "its offsets are in RocksDB",
    "DiskFailed": "its disk could not be read or written",
    "Refused": "its offset file is broken, a broker ran on its store, or its settings are wrong",
}


def carried_of(view: ClusterView, member: MemberView) -> dict[str, Any] | None:
    """Return ``status.pairs[].members[].carried``: of its last start as master, ``None`` = none."""
    found = member.broker.carried if member.broker is not None else None
    return carried_status(found, view.previous_member(member).get("carried"))


def carried_status(found: Carried | None, before: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return what a sidecar said as a status has it; ``before`` where it said nothing of a master.

    Args:
        before: What the status says so far.
    """
    if found is None or found.outcome == "Idle":
        return before
    said = asdict(found)
    said["from"] = list(said.pop("sources"))
    return said


def carried_verdicts(view: ClusterView) -> Iterator[Verdict]:
    """Yield what :func:`offsets_carried` says; nothing where no member has the sidecar."""
    having = [
        item
        for item in view.members
        if item.statefulset is not None and facts.has_carry(item.statefulset)
    ]
    masters = [item for item in having if view.broker_id(item) == 0]
    if having:
        yield offsets_carried({view.member_name(each): carried_of(view, each) for each in masters})


def offsets_carried(masters: Mapping[str, dict[str, Any] | None]) -> Verdict:
    """Return whether every master that started last was given what its slaves knew.

    Args:
        masters: Name of each master with a sidecar, with what its status says of the last start.
    """
    started = {name: found for name, found in masters.items() if found is not None}
    for reason, why in _WHY_NOT.items():
        if failed := [name for name, found in started.items() if found["outcome"] == reason]:
            return Verdict(KIND, False, reason, f"{names(failed)} started with its own: {why}")
    if given := [name for name, found in started.items() if found["outcome"] in _GIVEN]:
        texts = names([_text(name, started[name]) for name in given], 3)
        return Verdict(KIND, True, str(started[given[0]]["outcome"]), texts)
    if started:
        return Verdict(KIND, True, "NothingToCarry", "slaves knew nothing better")
    return Verdict(KIND, None, "NotReturned", "no master has started since")


def carried_events(previous: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Event]:
    """Yield an event of each start that was given something, or should have been.

    Args:
        previous: Status of the cluster before.
        new: Status of now.
    """
    before = {
        (pair["index"], member["ordinal"]): (member.get("carried") or {}).get("at")
        for pair in previous.get("pairs") or ()
        for member in pair.get("members") or ()
    }
    for pair in new.get("pairs") or ():
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
