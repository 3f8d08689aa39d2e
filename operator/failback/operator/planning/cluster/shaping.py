"""Which shape a cluster is rendered in: what stands, then what the running operations change.

Objects deviate from the spec on purpose. Leaving members are still rendered, and a role is what the
ConfigMaps say (``planning.state.cluster_state``). A closed pair stays closed until an operation
opens it. Live keys wait for their member's turn. Pure; called once per pass before rendering.
"""

from __future__ import annotations

import dataclasses

from failback.operator.planning import operations
from failback.operator.planning.state import live_keys
from failback.operator.planning.state.cluster_state import ClusterState
from failback.operator.render.shape import Shape


def shape_of(state: ClusterState) -> Shape:
    """Return the shape to render now; the steps of the running operations have their own say."""
    shape = operations.reshape(state.base_shape, state.cluster, state.operations)
    return dataclasses.replace(shape, live=live_keys.held(state, shape))
