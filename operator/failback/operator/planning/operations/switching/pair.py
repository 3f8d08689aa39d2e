"""The pair under a RoleSwitch, as one step sees it. Pure."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from failback.operator.engines.catalogue import quirk
from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import Key, MemberView, Object, ObservedCluster
from failback.operator.planning.operations.switching.request import Request
from failback.operator.planning.plan import children
from failback.operator.planning.plan.encoding import from_time
from failback.operator.planning.plan.types import Action, Operation, SetConfig
from failback.operator.render.config import member_name

LEASE_SECONDS: Final = 60
RENEW_SECONDS: Final = 15
PERMISSION: Final = "brokerPermission"
READ_WRITE: Final = "6"
READ: Final = "4"
WRITABLE: Final = 2
"""The bit of a permission that lets producers write."""


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
class PairView:
    """The arguments of every step. A is the old master's member, B the target."""

    cluster: BrokerCluster
    observed: ObservedCluster
    operation: Operation
    now: float
    desired: Mapping[Key, Object] = field(default_factory=dict)
    request: Request | None = None
    """The RoleSwitch object; ``None`` when it is gone."""

    # --- who is who ---

    @functools.cached_property
    def pair(self) -> int:
        return self.operation.pair or 0

    @functools.cached_property
    def broker_name(self) -> str:
        return self.cluster.broker_name(self.pair)

    @property
    def data(self) -> Mapping[str, Any]:
        return self.operation.data

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
    def forced(self) -> bool:
        return bool(self.data["mode"] == "Forced")

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
        return float(quirk("slaveSyncSeconds", engine.type, engine.version or "0"))

    # --- what routes say ---

    @functools.cached_property
    def routes(self) -> tuple[Mapping[str, Mapping[int, str]], ...]:
        """The broker tables of the name servers that answer."""
        return tuple(route.brokers for route in self.observed.routes if route.brokers is not None)

    @functools.cached_property
    def master_addresses(self) -> tuple[str | None, ...]:
        """What each answering name server lists as id 0 of the pair."""
        return tuple(brokers.get(self.broker_name, {}).get(0) for brokers in self.routes)

    def route_permission_is(self, *, writable: bool) -> bool | None:
        """Tell whether every name server shows the pair so; ``None`` while none answers.

        A pair without a topic has no permission to show.
        """
        answers = [
            route.permissions for route in self.observed.routes if route.permissions is not None
        ]
        if not answers:
            return None
        shown = [found[self.broker_name] for found in answers if self.broker_name in found]
        return all(bool(permission & WRITABLE) == writable for permission in shown)

    # --- what is applied ---

    def is_pending(self, kind: str, ordinal: int) -> bool:
        """Tell whether a member's object is still to be applied: every pass applies what drifts."""
        key = (kind, member_name(self.cluster, self.pair, ordinal))
        if key not in self.desired:
            return False
        have = self.observed.objects.get(key)
        return children.drift(children.finished(self.desired[key], have), have) is not None

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

    @property
    def lease_name(self) -> str:
        return f"failback-{self.cluster.name}-{self.pair}"

    @property
    def _lease(self) -> Mapping[str, Any]:
        found = self.observed.leases.get(self.lease_name)
        return {} if found is None else found.get("spec", {})

    @property
    def lease_is_ours(self) -> bool:
        return bool(self._lease.get("holderIdentity") == self.data["uid"])

    @property
    def lease_is_taken(self) -> bool:
        """Somebody else holds the lease, and it has not expired."""
        holder = self._lease.get("holderIdentity")
        if not holder or holder == self.data["uid"]:
            return False
        return self._lease_age < float(self._lease.get("leaseDurationSeconds", LEASE_SECONDS))

    @property
    def lease_is_due(self) -> bool:
        """The lease must be taken or renewed."""
        return not self.lease_is_ours or self._lease_age >= RENEW_SECONDS

    @property
    def _lease_age(self) -> float:
        renewed = from_time(self._lease.get("renewTime"))
        return float("inf") if renewed is None else max(0.0, self.now - renewed)


def permission_of(member: MemberView) -> str | None:
    """Return the permission that the process itself says (26)."""
    if member.broker is None or member.broker.config is None:
        return None
    return member.broker.config.get(PERMISSION)


def end_of(member: MemberView) -> int | None:
    """Return where the member's commit log ends."""
    return member.broker.end if member.broker else None
