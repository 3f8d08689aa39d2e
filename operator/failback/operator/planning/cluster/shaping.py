"""Which shape a cluster is rendered in: what stands, then what the running operation changes.

Objects deviate from the spec on purpose: leaving members are still rendered, a role is what the
ConfigMaps say, a closed pair stays closed until an operation opens it, live keys wait for their
member's turn. Pure; called once per pass before rendering.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning import operations
from failback.operator.planning.observed.observed import ObservedCluster
from failback.operator.planning.plan.types import Operation
from failback.operator.planning.state import live_keys
from failback.operator.planning.state.present import base_shape
from failback.operator.render.shape import Shape


def shape_of(
    cluster: BrokerCluster,
    status: Mapping[str, Any],
    observed: ObservedCluster,
    operation: Operation | None,
) -> Shape:
    """Return the shape to render now.

    Args:
        status: The cluster's status as stored, for masters where no ConfigMap tells.
        operation: ``status.currentOperation``, whose step has its own say.
    """
    shape = base_shape(cluster, status, observed)
    if operation is not None:
        shape = operations.reshape(shape, cluster, operation)
    return dataclasses.replace(shape, live=live_keys.held(cluster, shape, observed))
