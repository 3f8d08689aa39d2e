"""What every operation asks and does in one pass: the :class:`StepContext`. Pure.

Children are brought to the shape of the step before the actions of an operation are carried out.
Carrying out keeps that order and stops at the first failure. So an operation that closes a pair
only sends the request (25): the ConfigMap was written before it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import Key, MemberView, Object
from failback.operator.planning.plan import children
from failback.operator.planning.plan.types import Action, Advance, Event, Operation, SetConfig
from failback.operator.planning.state import predicates
from failback.operator.planning.state.cluster_state import StateView, master_of
from failback.operator.planning.state.live_keys import PERMISSION
from failback.operator.render.members import member_name
from failback.operator.render.shape import Member

OPEN: Final = "6"
CLOSED: Final = "4"
ROUTE_SECONDS: Final = 35.0
"""Clients ask for routes every 30 s; after this they know."""
TIMED_OUT_SECONDS: Final = 30.0
"""Pause between passes of an operation that is over its time."""
WRITE: Final = 2
"""The bit of a permission that lets producers write."""


@dataclass(frozen=True)
class StepContext(StateView):
    """The state of the cluster as a step of its running operation sees it."""

    desired: Mapping[Key, Object]
    """Objects rendered for the shape of this step."""
    operation: Operation

    # --- who ---

    @property
    def pair(self) -> int:
        """The pair of the operation."""
        return self.operation.pair or 0

    @property
    def data(self) -> Mapping[str, Any]:
        """What the operation remembers."""
        return self.operation.data

    @functools.cached_property
    def master(self) -> int:
        """The master member of the pair."""
        try:
            return master_of(self.desired, self.cluster, self.pair)
        except LookupError:
            return self.state.master_member(self.pair)

    @property
    def broker_name(self) -> str:
        """The name under which the pair registers."""
        return self.cluster.broker_name(self.pair)

    @property
    def master_view(self) -> MemberView:
        """What is known of the master."""
        return self.observed.member(self.pair, self.master)

    def view(self, ordinal: int) -> MemberView:
        """What is known of a member of the pair."""
        return self.observed.member(self.pair, ordinal)

    def slaves(self) -> list[MemberView]:
        """The slaves the pair should have."""
        return [view for view in self.state.wanted(self.pair) if view.ordinal != self.master]

    def name(self, ordinal: int) -> str:
        """The member's name."""
        return member_name(self.cluster, self.pair, ordinal)

    # --- what holds ---

    def check(self, names: Iterable[str], member: int | None = None) -> tuple[str, ...]:
        """Return the predicates that are false."""
        return predicates.evaluate(
            names,
            self.state,
            pair=self.pair,
            member=member,
            operation=self.operation,
            master=self.master,
        )

    def is_applied(self, kind: str, ordinal: int) -> bool:
        """Tell whether a member's object stands as desired."""
        key = (kind, self.name(ordinal))
        have = self.observed.objects.get(key)
        if key not in self.desired or have is None:
            return False
        return children.drift(children.finished(self.desired[key], have), have) is None

    def broker_id(self, ordinal: int) -> int:
        """The id that the member should register with."""
        file = facts.properties(self.desired.get(("ConfigMap", self.name(ordinal))))
        return int(file.get("brokerId", ordinal))

    def is_registered(self, view: MemberView) -> bool:
        """Tell whether every name server that answers lists the member under its id."""
        own, wanted = facts.announced_addresses(view), self.broker_id(view.ordinal)
        listed = [ids.get(wanted) for ids in self.registered]
        return bool(listed) and all(address in own for address in listed)

    # --- what name servers say ---

    @functools.cached_property
    def registered(self) -> tuple[Mapping[int, str], ...]:
        """What each name server that answers lists of the pair: broker id → address."""
        tables = [route.brokers for route in self.observed.routes]
        return tuple(table.get(self.broker_name, {}) for table in tables if table is not None)

    @functools.cached_property
    def route_permissions(self) -> tuple[int | None, ...]:
        """What each name server that answers shows; ``None`` of a pair that has no topic."""
        tables = [route.permissions for route in self.observed.routes]
        return tuple(table.get(self.broker_name) for table in tables if table is not None)

    # --- opening and closing ---

    def permission(self) -> str | None:
        """Return the permission that the master itself says (26)."""
        return permission_of(self.master_view)

    def set_permission(self, value: str) -> tuple[Action, ...]:
        """Return the request that opens or closes the pair, if it is needed and possible."""
        broker = self.master_view.broker
        if broker is None or self.permission() in (None, value):
            return ()
        return (SetConfig((self.pair, self.master), broker.address, {PERMISSION: value}),)

    def route_is_writable(self) -> bool | None:
        """Tell whether all answering name servers let producers write to the pair.

        ``None`` while none answers, or when they differ; a pair without topics has nothing to
        show and counts as either.
        """
        shown = {bool(found & WRITE) for found in self.route_permissions if found is not None}
        return next(iter(shown)) if len(shown) == 1 else None

    def is_closed(self) -> bool:
        """Tell whether no producer is sent here: the master says so and so do the routes."""
        shown = self.route_permissions
        writable = any((found or 0) & WRITE for found in shown)
        return self.permission() == CLOSED and bool(shown) and not writable

    # --- what comes of it ---

    def stay(
        self,
        *blocked: str,
        actions: tuple[Action, ...] = (),
        events: tuple[Event, ...] = (),
        wake: float = 2.0,
        counts: bool = False,
        **data: Any,
    ) -> Advance:
        """Return that the operation stays at its step; ``data`` is merged in.

        Args:
            counts: ``data`` says no more than what the actions did.
        """
        operation = self.operation.blocked(*blocked)
        if data:
            operation = operation.remembering(data)
        return Advance(operation, actions, events, wake, counts)

    def go(self, step: str, member: int | None = None, **data: Any) -> Advance:
        """Return that the operation moves to another step; its actions come with the next pass."""
        operation = self.operation.at_step(step, self.now, **data)
        if member is not None:
            operation = dataclasses.replace(operation, member=member)
        return Advance(operation, wake_after=0.0)


def timed(step: StepContext, advance: Advance) -> Advance:
    """Tell once that an operation is over its time; after that it tries more slowly."""
    limit = step.cluster.spec.update_strategy.pair_timeout_seconds
    operation = advance.operation
    if operation is None or step.now - operation.started_at <= limit:
        return advance
    if not operation.data.get("timedOut"):
        waits = f" waits for {', '.join(operation.blocked_by)}" if operation.blocked_by else ""
        text = f"{operation.type} at {operation.step}{waits}"
        event = Event("OperationTimedOut", text, warning=True)
        return dataclasses.replace(
            advance,
            operation=operation.remembering({"timedOut": True}),
            events=(*advance.events, event),
        )
    if advance.actions or operation.step != step.operation.step:
        return advance
    return dataclasses.replace(advance, wake_after=TIMED_OUT_SECONDS)


def permission_of(member: MemberView) -> str | None:
    """Return the permission that the process of a member itself says (26)."""
    broker = member.broker
    return broker.config.get(PERMISSION) if broker and broker.config is not None else None


def member_label(cluster: BrokerCluster, member: Member) -> str:
    """Return a member's name as messages and annotations spell it."""
    return f"{cluster.broker_name(member[0])}-{member[1]}"
