"""What a pass need not work out again: a cache beside the pure functions, empty at every start.

With or without it the plan is the same; it holds results only, by everything they depend on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning.observed.observed import Key, Object
from failback.operator.planning.plan.sharing import Shared
from failback.operator.render.context import Context
from failback.operator.render.shape import Shape

Desired = dict[Key, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Compared:
    """A version of a child in which nothing had drifted from what is wanted."""

    wanted: Object
    uid: str
    version: str


@dataclass(slots=True)
class Memory:
    """Results of earlier passes over one cluster."""

    rendered: tuple[BrokerCluster, tuple[str, ...], Shape, Context, Desired] | None = None
    last_valid: tuple[BrokerCluster, Object, BrokerCluster] | None = None
    """The cluster, the object that holds its last valid spec, and the cluster as that wants it."""
    note: tuple[BrokerCluster, dict[str, Any]] | None = None
    """The cluster, and the object that is to hold its spec."""
    applied: tuple[BrokerCluster, frozenset[str], BrokerCluster] | None = None
    """The cluster, the keys that are left out of it, and the cluster without them."""
    equal: dict[Key, Compared] = field(default_factory=dict)
    shared: Shared = field(default_factory=Shared)
    """Where equal parts of rendered objects are kept once, those of other clusters too."""

    def render(
        self,
        cluster: BrokerCluster,
        addresses: Sequence[str],
        context: Context,
        shape: Shape,
        render: Callable[[], Desired],
    ) -> Desired:
        """Return the desired objects, rendered anew when anything they depend on is another."""
        known = self.rendered
        if (
            known is not None
            and known[0] is cluster
            and known[1] == tuple(addresses)
            and known[2] == shape
            and known[3] == context
        ):
            return known[4]
        found = {key: self.shared.take(item) for key, item in render().items()}
        self.rendered = (cluster, tuple(addresses), shape, context, found)
        return found

    def is_equal(self, key: Key, wanted: Object, have: Object) -> bool:
        """Tell whether this very version was compared with this very wanted object before."""
        known, metadata = self.equal.get(key), have["metadata"]
        return (
            known is not None
            and known.wanted is wanted
            and known.version == metadata.get("resourceVersion", "")
            and known.uid == metadata.get("uid", "")
        )

    def note_equal(self, key: Key, wanted: Object, have: Object) -> None:
        """Remember that a version of an object is as wanted."""
        metadata = have["metadata"]
        uid, version = metadata.get("uid", ""), metadata.get("resourceVersion", "")
        if uid and version:
            self.equal[key] = Compared(wanted, uid, version)

    def keep(self, keys: Mapping[Key, object]) -> None:
        """Forget objects that are no longer wanted."""
        for key in set(self.equal) - set(keys):
            del self.equal[key]
