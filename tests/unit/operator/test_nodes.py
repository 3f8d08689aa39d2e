"""Which nodes take no new pods, as the operator asks for them."""

from __future__ import annotations

from typing import Any, cast

import pytest

from failback.kube.asynchronous import Kube
from failback.kube.errors import ApiError
from failback.operator.controller.nodes import Nodes


class Server:
    """Nodes of an API server; an error is raised in place of an answer."""

    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, Any] | ApiError | None] = {}
        self.gets: list[str] = []

    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        assert (kind, namespace) == ("Node", "")
        self.gets.append(name)
        found = self.nodes.get(name)
        if isinstance(found, ApiError):
            raise found
        return found if found is None else {"spec": found}


def taint(key: str) -> dict[str, Any]:
    return {"taints": [{"key": key, "effect": "NoSchedule"}]}


async def test_cordons_and_taints_of_autoscalers_are_seen_and_each_node_is_asked_rarely() -> None:
    server, clock = Server(), [1000.0]
    nodes, names = Nodes(cast(Kube, server), lambda: clock[0]), ["a", "b", "c", "d", "gone"]
    server.nodes = {"a": {}, "b": {"unschedulable": True}, "gone": None}
    server.nodes |= {"c": taint("karpenter.sh/disrupted"), "d": taint("team")}
    assert await nodes.refresh(names)
    assert nodes.leaving(names) == {
        "b": "node b is unschedulable",
        "c": "node c has the taint karpenter.sh/disrupted",
    }
    assert nodes.leaving(["a"]) == {}
    assert not await nodes.refresh(names)
    assert len(server.gets) == len(names), "within five seconds nobody is asked again"
    clock[0] += 6
    server.nodes["b"] = {}
    assert await nodes.refresh(["b"])
    assert nodes.leaving(["b"]) == {}
    assert not await nodes.refresh([])


async def test_a_right_that_is_missing_is_no_error_and_is_noticed_when_it_comes() -> None:
    server, clock = Server(), [1000.0]
    nodes = Nodes(cast(Kube, server), lambda: clock[0])
    server.nodes["a"] = ApiError("get", "nodes", 403, "Forbidden", "no")
    assert await nodes.refresh(["a"])
    assert nodes.leaving(["a"]) is None
    clock[0] += 30
    assert not await nodes.refresh(["a"])
    assert server.gets == ["a"]
    server.nodes["a"] = {"unschedulable": True}
    clock[0] += 31
    assert await nodes.refresh(["a"])
    assert nodes.leaving(["a"]) == {"a": "node a is unschedulable"}
    server.nodes["a"] = ApiError("get", "nodes", 0, "Timeout", "no answer")
    clock[0] += 6
    with pytest.raises(ApiError):
        await nodes.refresh(["a"])
    assert nodes.leaving(["a"]) == {"a": "node a is unschedulable"}, "what was known last"
