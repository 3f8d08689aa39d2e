"""Where logs end, and what would be lost with a member's volume, byte by byte. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import MemberView
from failback.operator.planning.state.decode import GATED, STAYS_OUT


@dataclass(frozen=True, slots=True)
class GivenUp:
    """What only one member has, as far as it is known."""

    own: int | None
    """Where the member's log ends, in bytes; ``None`` = not known."""
    master: int | None
    """Where its master's log ends."""
    tail: int | None
    """Bytes from the first that the master's log lacks or has differently, where that is known."""
    newer: bool
    """The member has the log of a later master than its present one."""

    @property
    def bytes(self) -> int | None:
        """How many bytes are given up when the volume is wiped; ``None`` = not known."""
        if self.own is None or self.master is None:
            return self.tail
        if self.newer:
            return self.own
        longer = max(0, self.own - self.master)
        return longer if self.tail is None else max(self.tail, longer)

    @property
    def is_longer(self) -> bool:
        """The member's log is the longer or the newer one, or that is not known."""
        if self.own is None or self.master is None:
            return True
        return self.newer or self.own > self.master

    @property
    def words(self) -> str:
        """What only the member has, for a message."""
        end = "is not known" if self.own is None else f"is at {self.own}"
        other = "not known" if self.master is None else f"at {self.master}"
        lost = "an unknown part" if self.bytes is None else f"{self.bytes} bytes"
        newer = " and belongs to a later master" if self.newer else ""
        return f"the end of its log {end}{newer}, its master's {other}: only it has {lost}"

    def order(self, uid: str) -> str:
        """Return the value of the annotation that gives this up."""
        if self.bytes is None:
            return f"{uid}:all"
        return f"{uid}:{self.bytes}" if self.bytes else uid

    def is_covered(self, named: str) -> bool:
        """Tell whether an order that names so many bytes gives all of this up."""
        if self.bytes is None:
            return named == "all"
        return (int(named) if named.isdecimal() else 0) >= self.bytes


def serves_reads(view: MemberView) -> bool:
    """Tell whether a member runs as a slave: it takes no writes, so it may go on in any case."""
    pod, role = view.pod, facts.says_master(view.broker)
    if pod is None or view.statefulset is None or facts.is_gated(view):
        return False
    runs = pod.phase == "Running" and not (pod.deleting or pod.problem)
    is_slave = role is False or (role is None and pod.role == "slave")
    return runs and is_slave and facts.properties(view.config_map).get("brokerRole") == "SLAVE"


def end_now(view: MemberView) -> int | None:
    """Return where a log ends now, by its disk or as a slave says; ``None`` = not known."""
    if view.pod is not None and view.pod.prefix in (GATED, *STAYS_OUT) and not view.pod.ready:
        return view.pod.own_end
    return view.broker.end if view.broker is not None and serves_reads(view) else None


def given_up(master: MemberView, view: MemberView) -> GivenUp:
    """Compare a member's log with its master's."""
    mine, theirs = view.claim, master.claim
    tail = view.pod.tail_bytes if view.pod is not None and not view.is_ready else None
    newer = bool(mine and theirs and (mine.epoch or 0) > (theirs.epoch or 0))
    return GivenUp(_end(view), _master_end(master, view), tail, newer)


def _master_end(master: MemberView, view: MemberView) -> int | None:
    """Return where the master's log ends, from the last answer: the operator's, or that of the
    check of the member that stays out. An older answer would make the member's log seem the longer
    one."""
    found, pod = _end(master), view.pod
    if pod is None or view.is_ready or pod.master_end is None or pod.checked_at is None:
        return found
    broker = master.broker
    if broker is None or broker.end is None:  # a mark on its claim; the log may have grown since
        return max(found or 0, pod.master_end)
    # A platform tells whole seconds.
    asked_since = broker.end_at is None or broker.end_at >= pod.checked_at + 1
    return broker.end if asked_since else pod.master_end


def _end(view: MemberView) -> int | None:
    """Return where a member's log ends at least: as was seen, or by the mark on its claim."""
    seen = seen_end(view)
    return view.claim.log_end if seen is None and view.claim is not None else seen


def seen_end(view: MemberView) -> int | None:
    """Return where a member's log ends, as its process or the check before it says."""
    if view.broker is not None and view.broker.end is not None:
        return view.broker.end
    return view.pod.own_end if view.pod is not None and not view.is_ready else None
