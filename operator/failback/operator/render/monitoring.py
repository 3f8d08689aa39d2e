"""PodMonitors of the Prometheus operator, where its CRD is served."""

from __future__ import annotations

from failback.operator.kinds.base import PodMonitor, Resource
from failback.operator.render import common
from failback.operator.render.context import Context, Object


def pod_monitor(
    owner: Resource,
    name: str,
    wanted: PodMonitor,
    marks: dict[str, str],
    match: dict[str, str],
    context: Context,
) -> Object:
    """Return the PodMonitor that scrapes the pods matched by ``match``."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": common.metadata(owner, name, context, {**wanted.labels, **marks}),
        "spec": {
            "selector": {"matchLabels": match},
            "podMetricsEndpoints": [
                {"port": "http", "path": "/metrics", "interval": wanted.interval}
            ],
        },
    }
