"""Which member is master of a pair, and by which change of master: read from its claims. Pure.

Every claim says whose log lies on it: the role that its member had, and the *epoch*, which every
change of master raises. A claim outlives the cluster, so that a cluster made again over kept,
restored or foreign claims opens the member that was master last, once its disk and those of its
slaves were read: a mark may be older than the data, and the data older than the mark. Where that
cannot be told no member opens, until a person names the claim. Claims that say nothing are those of
a new pair, or were made by something else: then the members' files, the status and
``masterMember`` name the master.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import Claim, MemberView, Object
from failback.operator.planning.plan.encoding import to_time
from failback.operator.planning.state.log_ends import end_now, serves_reads
from failback.operator.render.common import ORDER

MASTER, SLAVE = "master", "slave"
_NO_MASTER: Final = "SLAVE"


@dataclass(frozen=True, slots=True)
class Mastership:
    """The master of one pair."""

    member: int
    """Ordinal. Of an unclear pair it is the one whose file says so, or the first master that the
    spec names, and says nothing."""
    epoch: int = 0
    """Of this master; 0 = nothing remembers it, because the storage is ephemeral."""
    log_id: str = ""
    """Which pair's epochs these are."""
    unclear: str = ""
    """Why no member may open, and what to do; empty = the master is known."""
    reads: bool = False
    """Of an unclear pair: it opens by itself once the ends of its logs were read."""
    stops: bool = False
    """Of an unclear pair: a person has decided, and all its members are to stop."""


def says_master(config_map: Object | None) -> bool:
    """Tell whether a member's file gives it the master's role."""
    found = facts.properties(config_map)
    return bool(found) and found.get("brokerRole", _NO_MASTER) != _NO_MASTER


def mastership(
    cluster: BrokerCluster, pair: int, views: Sequence[MemberView], row: Mapping[str, Any]
) -> Mastership:
    """Return the master of a pair.

    Args:
        views: All that is known of members of the pair, bare claims among them.
        row: What the status says of the pair.
    """
    case = _Case(cluster, pair, views, row)
    if cluster.spec.storage.type != "Persistent":
        return Mastership(case.first if case.told is None else case.told)
    return case.of_new_claims() if not case.followed else case.of_claims()


@dataclass(frozen=True)
class _Case:
    """What there is to tell the master of a pair by."""

    cluster: BrokerCluster
    pair: int
    views: Sequence[MemberView]
    row: Mapping[str, Any]

    # --- what is known ---

    @functools.cached_property
    def claims(self) -> Mapping[int, Claim]:
        """Ordinal → claim that has a volume.

        One that is to be deleted stays as long as a pod of the living pair has it.
        """
        found = {view.ordinal: view.claim for view in self.views}
        return {
            ordinal: claim
            for ordinal, claim in found.items()
            if claim is not None and not claim.empty and (self.lives or not claim.deleting)
        }

    @functools.cached_property
    def followed(self) -> Mapping[int, Claim]:
        """Ordinal → claim of a member that was master, or that had its master's log."""
        return {ordinal: claim for ordinal, claim in self.claims.items() if claim.epoch}

    @functools.cached_property
    def top(self) -> int:
        """The newest epoch; 0 = none."""
        return max((claim.epoch or 0 for claim in self.claims.values()), default=0)

    @functools.cached_property
    def files(self) -> tuple[int, ...]:
        """The members whose files say that they are master."""
        return tuple(view.ordinal for view in self.views if says_master(view.config_map))

    @property
    def lives(self) -> bool:
        """The cluster has made members of this pair: it decided before."""
        return any(
            view.config_map is not None or not (view.statefulset is None or facts.is_gated(view))
            for view in self.views
        )

    @property
    def first(self) -> int:
        return self.cluster.pair(self.pair).master_member

    @functools.cached_property
    def told(self) -> int | None:
        """The member whose file says so; where none or several do, the one in the status."""
        if len(self.files) == 1:
            return self.files[0]
        recorded = self.row.get("masterMember")
        if isinstance(recorded, int) and (not self.files or recorded in self.files):
            return recorded
        return None

    def view(self, ordinal: int) -> MemberView:
        return next(view for view in self.views if view.ordinal == ordinal)

    @property
    def new_log_id(self) -> str:
        return f"{self.cluster.metadata.uid}-{self.pair}"

    # --- claims that say nothing ---

    def of_new_claims(self) -> Mastership:
        recorded = self.row.get("epoch")
        epoch = recorded if isinstance(recorded, int) and recorded > 0 else 1
        if self.lives:
            member = self.first if self.told is None else self.told
            return Mastership(member, epoch, self.new_log_id)
        if not self.claims:
            return Mastership(
                self.first if self.told is None else self.told, epoch, self.new_log_id
            )
        wish = self.cluster.pair(self.pair).first_master
        for member in (self.told, wish, *(self.claims if len(self.claims) == 1 else ())):
            if member in self.claims and member in self._wanted:
                return Mastership(member, epoch, self.new_log_id)
        return self._ordered() or self._unclear("its claims do not say who was master")

    # --- claims that say whose log they hold ---

    def of_claims(self) -> Mastership:
        contradiction, ordered, unread = self._contradiction(), self._ordered(), False
        if contradiction is None:
            unread, contradiction = self._compared()
        if ordered is not None and (contradiction or unread or ordered.member != self._newest[0]):
            return self._once_all_are_stopped(ordered)
        if unread:
            return self._unclear("the ends of its logs are read before it opens", reads=True)
        if contradiction is None:
            member = self._newest[0]
            serving = self._serving_other_than(member)
            if serving is None:
                return Mastership(member, self.top, self.followed[member].log_id)
            return Mastership(serving, self.top + 1, self.followed[member].log_id)
        kept = self._untouched_master()
        if kept is not None:
            alone = set(self._newest) <= {kept}
            return Mastership(kept, self.top if alone else self.top + 1, self.new_log_id)
        return self._unclear(contradiction)

    @functools.cached_property
    def _newest(self) -> tuple[int, ...]:
        """The members that were master in the newest epoch."""
        return tuple(
            ordinal
            for ordinal, claim in self.followed.items()
            if claim.epoch == self.top and claim.role == MASTER
        )

    def _contradiction(self) -> str | None:
        """Say why the claims do not tell which member was master last, or ``None``."""
        if len({claim.log_id for claim in self.followed.values()}) > 1:
            return "its claims are of different pairs"
        if not self._newest:
            return f"the claim of the master of epoch {self.top} is missing"
        if len(self._newest) > 1:
            return f"several claims are of the master of epoch {self.top}"
        if self.lives:
            return None
        if self._newest[0] not in self._wanted:
            return f"the spec has no member {self._newest[0]}, which was master last"
        unknown = [claim.name for claim in self.claims.values() if claim.epoch is None]
        if unknown and not self._is_decided:
            return f"{unknown[0]} does not say whose log it has"
        return None

    # --- what the disks say of the last master's log ---

    @property
    def _wanted(self) -> Sequence[int]:
        return self.cluster.pair(self.pair).ordinals

    def _compared(self) -> tuple[bool, str | None]:
        """Tell whether logs are still to be read, and which slave has more than the last master.

        Not asked of a claim that this cluster has opened, nor where nothing else has that log.
        """
        newest = self._newest[0]
        same = {each: claim for each, claim in self.followed.items() if claim.epoch == self.top}
        if len(same) == 1 or self._is_decided:
            return False, None
        ends = {each: self._end(each) for each in same}
        if any(end is None for each, end in ends.items() if each in self._wanted):
            return True, None
        # A member that the spec has no more need not start: of it there is the mark.
        known = {o: claim.log_end if ends[o] is None else ends[o] for o, claim in same.items()}
        longer = [same[o].name for o, end in known.items() if (end or 0) > (known[newest] or 0)]
        own = same[newest].name
        return False, f"{longer[0]} has more than {own}, the last master's" if longer else None

    @property
    def _is_decided(self) -> bool:
        """This cluster has opened the last master's very claim, or that member serves."""
        view, claim = self.view(self._newest[0]), self.claims[self._newest[0]]
        own = claim.opened_by == self.cluster.metadata.uid != ""
        opened = own and claim.marked_uid == claim.uid
        serves = view.is_ready and facts.says_master(view.broker) is True
        return opened or serves or self.row.get("masterClaim") == claim.uid

    def _end(self, ordinal: int) -> int | None:
        """Return where a log ends; what a slave said before its master was gone is too old."""
        view = self.view(ordinal)
        at = view.broker.end_at if view.broker is not None and not facts.is_gated(view) else None
        gone = [each.pod.started_at or 0.0 for each in self.views if each.pod and each.pod.gated]
        return None if at is not None and at < max(gone, default=0.0) + 1 else end_now(view)

    def _serving_other_than(self, member: int) -> int | None:
        """Return another member that serves as master now: no mark of a claim stops it."""
        if len(self.files) != 1 or self.files[0] == member:
            return None
        view = self.view(self.files[0])
        serves = view.is_ready and facts.says_master(view.broker) is True
        return view.ordinal if serves and view.claim is not None else None

    def _untouched_master(self) -> int | None:
        """Return the master of a living pair whose claim is still the one it had.

        Only the marks were changed, and not by this operator.
        """
        if len(self.files) != 1 or self.files[0] not in self.claims:
            return None
        own = self.claims[self.files[0]]
        return self.files[0] if self.row.get("masterClaim") == own.uid else None

    # --- what a person decides ---

    def _ordered(self) -> Mastership | None:
        """Return what the annotation orders; its number makes it count once."""
        orders = self.cluster.metadata.annotations.get(ORDER, "").replace(" ", "").split(",")
        for ordinal, claim in self.claims.items():
            if ordinal in self._wanted and f"{claim.uid}@{self.top + 1}" in orders:
                return Mastership(ordinal, self.top + 1, claim.log_id or self.new_log_id)
        return None

    def _once_all_are_stopped(self, ordered: Mastership) -> Mastership:
        """Return what was ordered, as soon as no member of the pair runs or is about to."""
        if all(facts.is_stopped(view) or facts.is_gated(view) for view in self.views):
            return ordered
        claim = self.claims[ordered.member].name
        text = f"{claim} opens as ordered when no member of the pair runs any more"
        return Mastership(
            self.first, unclear=f"{self.cluster.broker_name(self.pair)}: {text}", stops=True
        )

    def _unclear(self, why: str, *, reads: bool = False) -> Mastership:
        found = "; ".join(
            f"{claim.uid}@{self.top + 1} is {claim.name} ({_described(self.view(each), claim)})"
            for each, claim in sorted(self.claims.items())
        )
        name = self.cluster.broker_name(self.pair)
        text = f"{name}: {why}; {ORDER}=... opens the one that you name: {found}"
        member = self.first if self.told is None else self.told
        return Mastership(member, unclear=text, reads=reads)


def _described(view: MemberView, claim: Claim) -> str:
    """Say whose log a claim holds and where that ends, for a person that has to choose.

    A mark is told with its time, and only as long as the log itself was not read.
    """
    words = ["without marks" if claim.epoch is None else f"{claim.role} of {claim.epoch}"]
    pod, end = view.pod, end_now(view)
    if serves_reads(view):
        words.append("serves reads")
    if end is None:
        words.append(f"not read yet: {pod.message}" if pod and pod.message else "not read yet")
    else:
        words.append(f"its log ends at {end}" if end else "its log is empty")
    if end is not None and pod is not None and pod.stored_ms is not None:
        words.append(f"its last message is of {to_time(pod.stored_ms / 1000)}")
    if end is None and claim.log_end is not None:
        at = "an unknown time" if claim.log_end_at is None else to_time(claim.log_end_at)
        words.append(f"at least to {claim.log_end} as of {at}")
    return ", ".join(words)
