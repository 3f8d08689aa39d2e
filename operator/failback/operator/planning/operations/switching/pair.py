"""The pair under a RoleSwitch, as one step sees it. Pure."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from failback.operator.engines.catalogue import quirk
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import MemberView, Snapshot
from failback.operator.planning.operations.pair_lease import PairLease
from failback.operator.planning.operations.step_context import WRITE, StepContext, permission_of
from failback.operator.planning.operations.switching.request import Request
from failback.operator.planning.plan.types import Action, SetConfig
from failback.operator.planning.state.live_keys import PERMISSION


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step wants of this pass.

    ``data`` is remembered in the operation *before* anything else happens: a pass that has
    something to remember carries out no action.
    """

    done: bool = False
    actions: tuple[Action, ...] = ()
    blocked: tuple[str, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)
    failed: tuple[str, str] | None = None
    """Reason and message."""


UNDERWAY: Final = Outcome()
"""The step is at work; nothing blocks it."""


def doing(*actions: Action) -> Outcome:
    """Return that the step acts; the next pass sees whether it helped."""
    return Outcome(actions=actions)


def waiting(*predicates: str) -> Outcome:
    """Return that the step can't go on before named predicates are true."""
    return Outcome(blocked=predicates)


def remember(**data: Any) -> Outcome:
    """Return that something must be in the status before the step goes on."""
    return Outcome(data=data)


@dataclass(frozen=True)
class PairView(StepContext):
    """A step of a role switch. A is the old master's member, B the target."""

    request: Request | None = None
    """The RoleSwitch object; ``None`` when it is gone."""

    # --- who is who ---

    @functools.cached_property
    def old(self) -> MemberView:
        """Member A."""
        return self.observed.member(self.pair, self.data["from"])

    @functools.cached_property
    def new(self) -> MemberView:
        """Member B."""
        return self.observed.member(self.pair, self.data["to"])

    @functools.cached_property
    def others(self) -> tuple[MemberView, ...]:
        """The other slaves of the pair."""
        swapped = {self.data["from"], self.data["to"]}
        return tuple(
            member
            for (pair, ordinal), member in sorted(self.observed.members.items())
            if pair == self.pair and ordinal not in swapped
        )

    @property
    def snapshot(self) -> Snapshot | None:
        """The offset snapshot of this switch, if there is a ConfigMap of its name."""
        return self.observed.snapshots.get(self.data["snapshot"])

    @property
    def forced(self) -> bool:
        return bool(self.data["mode"] == "Forced")

    @property
    def alone(self) -> bool:
        """No other pair takes the messages of this one: writes are out from the first close on."""
        return bool(self.data.get("alone"))

    @property
    def copies_offsets(self) -> bool:
        return bool(self.data["policy"] == "CopyMax" and not self.forced)

    # --- time ---

    def read_at(self, member: MemberView) -> float:
        """When the member's ``end`` was read."""
        found = member.broker.end_at if member.broker else None
        return self.observed.at if found is None else found

    @property
    def overdue(self) -> bool:
        """The time limit of the whole switch is over."""
        return self.now > self.operation.started_at + float(self.data["timeoutSeconds"])

    @property
    def step_seconds(self) -> float:
        return max(0.0, self.now - self.operation.step_started_at)

    @property
    def sync_seconds(self) -> float:
        """How often a slave copies its master's tables."""
        engine = self.cluster.spec.engine
        return float(quirk("slaveSyncSeconds", engine.program, engine.version or "0"))

    # --- what routes say ---

    @functools.cached_property
    def master_addresses(self) -> tuple[str | None, ...]:
        """What each answering name server lists as id 0 of the pair."""
        return tuple(ids.get(0) for ids in self.registered)

    def route_permission_is(self, *, writable: bool) -> bool | None:
        """Tell whether every name server shows the pair so; ``None`` while none answers.

        A pair without a topic has no permission to show.
        """
        if not self.route_permissions:
            return None
        shown = [permission for permission in self.route_permissions if permission is not None]
        return all(bool(permission & WRITE) == writable for permission in shown)

    # --- what is applied ---

    def is_pending(self, kind: str, ordinal: int) -> bool:
        """Tell whether a member's object is still to be applied: every pass applies what drifts."""
        is_wanted = (kind, self.name(ordinal)) in self.desired
        return is_wanted and not self.is_applied(kind, ordinal)

    def permission_set(self, member: MemberView, permission: str) -> Outcome | None:
        """Return what makes file and process of a member say ``permission``, file first.

        ``None`` = both do.
        """
        if facts.properties(member.config_map).get(PERMISSION) != permission:
            return UNDERWAY
        said = permission_of(member)
        if member.broker is None or said is None:
            return waiting("MemberAnswers")
        if said != permission:
            key = (self.pair, member.ordinal)
            change = SetConfig(key, member.broker.address, {PERMISSION: permission})
            return doing(change)
        return None

    # --- the lease ---

    @functools.cached_property
    def lease(self) -> PairLease:
        """The pair's Lease; the RoleSwitch object holds it."""
        return PairLease.of(self.state, self.pair, self.data["uid"])


def end_of(member: MemberView) -> int | None:
    """Return where the member's commit log ends."""
    return member.broker.end if member.broker else None
