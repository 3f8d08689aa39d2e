"""No object that a resource asks for is larger than what the API server keeps."""

from __future__ import annotations

from typing import Any

import pytest

from failback.operator.controller.carry_out import CarryOut
from failback.operator.controller.kubernetes_writes import MAX_MANIFEST_BYTES
from failback.operator.controller.outcome import with_outcome
from failback.operator.kubernetes.conflicts import Conflicts
from failback.operator.kubernetes.store import Store
from failback.operator.metrics import Metrics
from failback.operator.planning.plan.encoding import find_condition
from failback.operator.planning.plan.types import Apply, Plan

CLUSTER: dict[str, Any] = {
    "apiVersion": "failback.dev/v1alpha1",
    "kind": "BrokerCluster",
    "metadata": {"name": "demo", "namespace": "shop", "uid": "u", "generation": 1},
}


class Taken:
    """An API server that takes everything, and what it took."""

    def __init__(self) -> None:
        self.names: list[str] = []

    async def get(self, *where: str) -> None:
        return None

    async def apply(self, manifest: dict[str, Any], *, force: bool = False) -> dict[str, Any]:
        self.names.append(manifest["metadata"]["name"])
        return manifest


def config_map(name: str, size: int) -> Apply:
    return Apply(
        {
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "shop"},
            "data": {"x": "é" * (size // 2)},
        }
    )


@pytest.mark.parametrize("excess", [0, 200])
async def test_an_object_of_more_than_a_mebibyte_is_not_sent(excess: int) -> None:
    server: Any = Taken()
    nobody: Any = None
    metrics = Metrics(version="0", kopf="0", kubernetes="0")
    carry_out = CarryOut(server, nobody, Store(), Conflicts(), metrics)
    actions = [config_map("large", MAX_MANIFEST_BYTES - 100 + excess), config_map("small", 10)]
    outcome = await carry_out.run(CLUSTER, actions, {})
    status = with_outcome(CLUSTER, Plan(status={}), outcome)
    ready = find_condition(status, "Ready")
    if not excess:
        assert (server.names, ready) == (["large", "small"], None)
        return
    assert server.names == []
    assert ready is not None
    assert (ready["status"], ready["reason"]) == ("False", "ManifestTooLarge")
    assert "ConfigMap/large would have 10" in ready["message"]
