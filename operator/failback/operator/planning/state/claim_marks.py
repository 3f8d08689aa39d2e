"""What the claims of a cluster are to remember: whose log they hold. Pure.

Role and epoch are written when they change, before anything else of the pass: the epoch of a master
is on its claim before it opens. The log's end is written with them, when an operation of the pair
begins, when a member is stopped on purpose, when a member that stays out says where its log ends,
when the log has grown by a file or is another after an hour, and once the cluster is deleted. A
cluster at rest writes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from failback.common.numbers import whole
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import Claim, Key, MemberView, Object
from failback.operator.planning.plan.encoding import to_time
from failback.operator.planning.plan.types import MarkClaim
from failback.operator.planning.state.cluster_state import ClusterState
from failback.operator.planning.state.decode import STAYS_OUT
from failback.operator.planning.state.log_ends import seen_end
from failback.operator.planning.state.mastership import MASTER, SLAVE, Mastership
from failback.operator.render import common
from failback.operator.render.members import member_name, member_selector

_PREFIX_OF_MASTER: Final = frozenset({"", "Verified", "Empty", "Master"})
"""Verdicts of a member whose log was not found to differ from its master's."""
_FILE_BYTES: Final = 1024**3
"""``mappedFileSizeCommitLog`` where the file does not say otherwise."""
_LONGEST_SECONDS: Final = 3600.0


def claim_marks(
    state: ClusterState, desired: Mapping[Key, Object], opened: Collection[int | None]
) -> tuple[MarkClaim, ...]:
    """Return what is to be written on claims now.

    Args:
        desired: Objects rendered for this pass.
        opened: Pairs whose operation begins in this pass; ``None`` = all of them.
    """
    found: list[MarkClaim] = []
    for pair, known in sorted(state.masterships.items()):
        if state.is_contested(pair):
            continue
        views = [view for view in _members(state, pair) if _stays(view)]
        stopping = [view for view in views if _is_about_to_stop(state, view, desired)]
        if known.unclear:
            found += _ends_alone(state, stopping)
            continue
        if not known.epoch:
            continue
        marks = [_seen(state, known, view) for view in views]
        begins = None in opened or pair in opened
        ends = begins or stopping or any(_has_grown(state, mark) for mark in marks)
        limit = 0
        # The master's first: by the marks, no slave that follows ever has more than its master.
        for mark in sorted(marks, key=lambda mark: mark.role != MASTER):
            is_due = mark.is_new or (ends and mark.end not in (None, mark.claim.log_end))
            end = mark.claim.log_end if mark.end is None or not is_due else mark.end
            if mark.role == MASTER:
                limit = end or 0
            elif mark.follows and end is not None:
                end = min(end, limit)
            if mark.is_new or (is_due and end != mark.claim.log_end):
                found.append(
                    _write(state, known, mark.view, mark.claim, mark.role, mark.epoch, end)
                )
    return tuple(found)


def last_marks(state: ClusterState) -> tuple[MarkClaim, ...]:
    """Return what is written once the cluster is deleted: the ends of its logs, as seen last."""
    return tuple(_ends_alone(state, filter(_stays, state.observed.members.values())))


def _ends_alone(state: ClusterState, views: Iterable[MemberView]) -> Iterator[MarkClaim]:
    """Yield what says where logs end and leaves role and epoch as they are."""
    for view in views:
        claim, end = view.claim, seen_end(view)
        if claim is not None and end not in (None, claim.log_end):
            yield MarkClaim(claim.name, claim.uid, {}, _ends_at(state, end))


def _has_grown(state: ClusterState, mark: _Mark) -> bool:
    """Tell whether a log has got a file more than its mark says, or is another after an hour."""
    claim, end = mark.claim, mark.end
    if end is None or claim.log_end is None or end == claim.log_end:
        return False
    size = whole(facts.properties(mark.view.config_map).get("mappedFileSizeCommitLog"))
    late = claim.log_end_at is None or state.now - claim.log_end_at >= _LONGEST_SECONDS
    return late or end - claim.log_end >= (size or _FILE_BYTES)


def new_master(state: ClusterState, pair: int, old: int, new: int) -> tuple[MarkClaim, ...] | None:
    """Return what a change of master writes before the new one opens; ``None`` = nothing more.

    The new master's claim comes first: with it alone written, it is master.
    """
    known, view = state.mastership(pair), state.observed.member(pair, new)
    if not known.epoch or view.claim is None or known.member == new:
        return None
    found = [_write(state, known, view, view.claim, MASTER, known.epoch + 1, seen_end(view))]
    before = state.observed.member(pair, old)
    if before.claim is not None and not before.claim.deleting:
        end = before.claim.log_end if seen_end(before) is None else seen_end(before)
        epoch = before.claim.epoch or 0
        found.append(_write(state, known, before, before.claim, SLAVE, epoch, end))
    return tuple(found)


def _members(state: ClusterState, pair: int) -> Iterator[MemberView]:
    return (view for (index, _), view in sorted(state.observed.members.items()) if index == pair)


def _is_about_to_stop(state: ClusterState, view: MemberView, desired: Mapping[Key, Object]) -> bool:
    key = ("StatefulSet", member_name(state.cluster, view.pair, view.ordinal))
    wanted = desired.get(key, {}).get("spec", {}).get("replicas")
    have = (view.statefulset or {}).get("spec", {}).get("replicas")
    return bool(wanted == 0 and have == 1)


@dataclass(frozen=True, slots=True)
class _Mark:
    """What a claim is to remember, beside what it does."""

    view: MemberView
    claim: Claim
    role: str
    epoch: int
    end: int | None
    """Where its log ends, as far as it is seen now."""
    follows: bool
    """Of a slave: its log is its master's, or a beginning of it."""
    is_new: bool
    """Something else than the log's end has changed, or a member that stays out has told its."""


def _stays(view: MemberView) -> bool:
    return view.claim is not None and not view.claim.deleting


def _seen(state: ClusterState, known: Mastership, view: MemberView) -> _Mark:
    """Return what a member's claim is to remember."""
    claim, master = view.claim, state.observed.member(view.pair, known.member)
    assert claim is not None
    role, epoch, end = SLAVE, min(claim.epoch or 0, known.epoch), seen_end(view)
    if view.ordinal == known.member:
        role, epoch = MASTER, known.epoch
    elif _follows(master, view):
        epoch = known.epoch
    out = view.pod is not None and not view.is_ready and view.pod.prefix in STAYS_OUT
    opener = state.cluster.metadata.uid if role == MASTER else claim.opened_by
    wanted = (role, epoch, known.log_id, claim.uid, tuple(_labels(state, view).values()), opener)
    have = (claim.role, claim.epoch, claim.log_id, claim.marked_uid, claim.owner, claim.opened_by)
    told = out and end not in (None, claim.log_end)
    follows = epoch == known.epoch and not out
    return _Mark(view, claim, role, epoch, end, follows, is_new=wanted != have or told)


def _follows(master: MemberView, view: MemberView) -> bool:
    """Tell whether a slave is known to have its master's log, or a beginning of it."""
    lag = facts.lag_bytes(master.broker, view.broker)
    if not view.is_ready or lag is None or facts.says_master(view.broker) is not False:
        return False
    return facts.says_master(master.broker) is True and (
        view.pod is None or view.pod.prefix in _PREFIX_OF_MASTER
    )


def _labels(state: ClusterState, view: MemberView) -> dict[str, str]:
    return member_selector(state.cluster, view.pair, view.ordinal)


def _write(
    state: ClusterState,
    known: Mastership,
    view: MemberView,
    claim: Claim,
    role: str,
    epoch: int,
    end: int | None,
) -> MarkClaim:
    labels = {**_labels(state, view), common.ROLE_LABEL: role}
    marks = {common.EPOCH: str(epoch), common.LOG_ID: known.log_id, common.MARKED_UID: claim.uid}
    if role == MASTER:
        marks[common.OPENED_BY] = state.cluster.metadata.uid
    seen = end is not None and seen_end(view) is not None
    return MarkClaim(claim.name, claim.uid, labels, marks | (_ends_at(state, end) if seen else {}))


def _ends_at(state: ClusterState, end: int | None) -> dict[str, str]:
    return {common.LOG_END: str(end), common.LOG_END_AT: to_time(state.now)}
