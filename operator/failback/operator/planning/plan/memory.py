"""What a pass need not work out again: a cache beside the pure functions, empty at every start.

With or without it the plan is the same. It holds results by everything they depend on, and equal
parts of JSON data once: the objects of many clusters differ in little but names. A shared part is
never changed in place.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning.observed.observed import Key, Object
from failback.operator.render.context import Context
from failback.operator.render.shape import Shape

Desired = dict[Key, dict[str, Any]]
_LONGEST_NAME: Final = 200
"""Characters; longer texts are rarely equal."""
_FIRST_SWEEP: Final = 10_000
_UNUSED: Final = 2
"""References to a part that only the table has: its own, and that of the question."""


class Shared:
    """The parts that are in use, by what they are made of."""

    def __init__(self) -> None:
        self._parts: dict[int, Any] = {}
        self._sweep_at = _FIRST_SWEEP

    def __len__(self) -> int:
        return len(self._parts)

    def take(self, value: Any) -> Any:
        """Return data equal to ``value``, made of parts that others have too."""
        if len(self._parts) >= self._sweep_at:
            self.sweep()
            self._sweep_at = max(_FIRST_SWEEP, 2 * len(self._parts))
        return self._take(value)

    def _take(self, value: Any) -> Any:
        made: Any
        if isinstance(value, str):
            return sys.intern(value) if len(value) <= _LONGEST_NAME else value
        if isinstance(value, dict):
            made = {_name(key): self._take(item) for key, item in value.items()}
            mark = hash((dict, *map(id, made), *map(id, made.values())))
        elif isinstance(value, list):
            made = [self._take(item) for item in value]
            mark = hash((list, *map(id, made)))
        else:
            return value
        known = self._parts.setdefault(mark, made)
        return known if known == made and type(known) is type(made) else made

    def sweep(self) -> None:
        """Forget the parts that no object has any more; a whole is looked at before its parts."""
        for mark in reversed(list(self._parts)):
            if sys.getrefcount(self._parts[mark]) <= _UNUSED:
                del self._parts[mark]


def _name(key: Any) -> Any:
    return sys.intern(key) if type(key) is str else key


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
        """Return the desired objects, rendered again when anything they depend on is another."""
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
