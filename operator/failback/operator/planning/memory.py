"""What a pass need not work out again: a cache beside the pure functions, empty at every start.

With or without it the plan is the same; it holds results only, by everything they depend on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning.observed import Key, Object
from failback.operator.planning.types import Shape
from failback.operator.render.context import Context

Desired = dict[Key, dict[str, Any]]


@dataclass(slots=True)
class Memory:
    """Results of earlier passes over one cluster."""

    rendered: tuple[BrokerCluster, tuple[str, ...], Shape, Context, Desired] | None = None
    equal: dict[Key, tuple[str, str, str]] = field(default_factory=dict)
    """Object → uid, resourceVersion and applied hash at which nothing had drifted."""

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
        found = render()
        self.rendered = (cluster, tuple(addresses), shape, context, found)
        return found

    def is_equal(self, key: Key, have: Object, digest: str) -> bool:
        """Tell whether this very version was compared with this wanted object before."""
        return self.equal.get(key) == _version(have, digest)

    def note_equal(self, key: Key, have: Object, digest: str) -> None:
        """Remember that a version of an object is as wanted."""
        version = _version(have, digest)
        if all(version):
            self.equal[key] = version

    def keep(self, keys: Mapping[Key, object]) -> None:
        """Forget objects that are no longer wanted."""
        for key in set(self.equal) - set(keys):
            del self.equal[key]


def _version(have: Object, digest: str) -> tuple[str, str, str]:
    metadata = have["metadata"]
    return metadata.get("uid", ""), metadata.get("resourceVersion", ""), digest
