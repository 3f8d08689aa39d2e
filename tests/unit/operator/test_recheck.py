"""What the watches missed is read from a list, and forgotten once they have caught up."""

from __future__ import annotations

from typing import Any

import pytest

from failback.kube.errors import ApiError
from failback.operator.controller.loops import Key
from failback.operator.controller.recheck import Recheck
from failback.operator.kubernetes.store import Object, Store


def pod(name: str, version: int, uid: str = "", cluster: str = "orders") -> Object:
    metadata = {
        "name": name,
        "namespace": "shop",
        "uid": uid or f"uid-{name}",
        "resourceVersion": str(version),
        "labels": {"failback.dev/cluster": cluster},
    }
    return {"kind": "Pod", "metadata": metadata}


def resource(name: str, version: int) -> Object:
    metadata = {"name": name, "namespace": "shop", "uid": f"uid-{name}"}
    return {"kind": "Topic", "metadata": {**metadata, "resourceVersion": str(version)}}


class World:
    """What a watch shows, and a server whose list may say something else."""

    def __init__(self) -> None:
        self.pods: list[Object] = []
        self.topics: list[Object] = []
        self.listed: list[Object] = []
        self.woken: list[Key] = []
        self.read: list[str] = []
        self.refuses = False
        self.store = Store()
        self.recheck = Recheck(
            self,  # type: ignore[arg-type]
            self.store,
            kinds={},
            namespaces=(),
            period_seconds=1,
            wake=self.woken.append,
            late_seconds=0,
        )

    async def list_all(
        self,
        kind: str,
        namespace: str,
        selector: str,
        *,
        name: str = "",
        metadata_only: bool = False,
    ) -> list[Object]:
        if self.refuses:
            raise ApiError("list", "pods", 500, "InternalError", "no")
        if metadata_only:
            return [{"metadata": item["metadata"]} for item in self.listed]
        self.read.append(name)
        return [item for item in self.listed if item["metadata"]["name"] == name]

    def show(self) -> None:
        for item in (*self.pods, *self.topics):
            self.store.show(item)

    async def check(self, kind: str = "Pod") -> list[Any]:
        self.show()
        await self.recheck.check(kind, "shop")
        self.show()
        return self.versions()

    def versions(self) -> list[Any]:
        """Return the versions of the pods as passes see them."""
        found = self.store.children("shop", "BrokerCluster", "orders")
        return sorted(int(item["metadata"]["resourceVersion"]) for item in found)


async def test_nothing_is_said_about_what_the_watch_has_right() -> None:
    world = World()
    world.pods = world.listed = [pod("a", 5), pod("b", 6)]
    assert await world.check() == [5, 6]
    assert world.woken == []
    assert world.read == []


async def test_an_object_that_is_in_no_list_is_no_object() -> None:
    world = World()
    world.pods, world.listed = [pod("a", 5), pod("b", 6)], [pod("b", 6)]
    assert await world.check() == [6]
    assert ("BrokerCluster", "shop", "orders") in world.woken
    world.woken.clear()
    assert await world.check() == [6]
    assert world.woken == [], "it is told once"
    world.pods, world.listed = [pod("a", 7, uid="another"), pod("b", 6)], [*world.listed]
    world.show()
    assert world.versions() == [6, 7], "another one of the same name is none of it"


async def test_an_object_that_came_after_the_list_is_not_gone() -> None:
    world = World()
    world.pods, world.listed = [pod("a", 5)], [pod("a", 5)]
    world.show()
    known = world.store.versions("Pod", "shop")
    world.pods.append(pod("new", 9))
    world.show()
    assert world.store.correct("Pod", "shop", known, world.listed, []) == []
    assert world.versions() == [5, 9]


async def test_a_missed_change_is_read_from_the_list_until_the_watch_is_newer() -> None:
    world = World()
    world.pods, world.listed = [pod("a", 5)], [pod("a", 8)]
    assert await world.check() == [8]
    assert ("BrokerCluster", "shop", "orders") in world.woken
    world.pods[0] = pod("a", 9)
    world.show()
    assert world.versions() == [9]


async def test_a_missed_object_is_there_until_its_deletion_is_shown() -> None:
    world = World()
    world.listed = [pod("a", 5)]
    assert await world.check() == [5]
    world.store.deleted("uid-a")
    assert world.versions() == []


async def test_the_next_list_replaces_what_the_last_one_said() -> None:
    world = World()
    world.listed = [pod("a", 5)]
    assert await world.check() == [5]
    world.listed = []
    assert await world.check() == []


async def test_a_list_that_fails_changes_nothing() -> None:
    world = World()
    world.pods, world.refuses = [pod("a", 5)], True
    assert await world.check() == [5]


async def test_resources_are_corrected_too() -> None:
    world = World()
    world.topics, world.listed = [resource("gone", 3), resource("old", 4)], [resource("old", 6)]
    await world.check("Topic")
    assert world.store.resource("Topic", "shop", "gone") is None
    assert [item["metadata"]["name"] for item in world.store.resources("Topic", "shop")] == ["old"]
    found = world.store.resource("Topic", "shop", "old")
    assert found is not None
    assert found["metadata"]["resourceVersion"] == "6"
    assert sorted(world.woken) == [("Topic", "shop", "gone"), ("Topic", "shop", "old")]


class TestWhatPassesRead:
    """A table or an answer of the store that lacks a version is put right, as a missed event is."""

    @pytest.mark.parametrize("table", ["answer", "_owned", "_named"])
    async def test_a_place_that_kept_another_version_is_put_right(self, table: str) -> None:
        world = World()
        world.pods = world.listed = [pod("a", 5), pod("b", 6)]
        owner = ("shop", "BrokerCluster", "orders")
        assert await world.check() == [5, 6]
        if table == "answer":
            world.store._children[owner] = [pod("a", 4)]
        elif table == "_owned":
            del world.store._owned[owner]["uid-b"]
            world.store._children.clear()
        else:
            del world.store._named["Pod", "shop", "b"]
        await world.recheck.check("Pod", "shop")
        assert world.versions() == [5, 6]
        assert world.store.versions("Pod", "shop") == {"uid-a": 5, "uid-b": 6}
        assert ("BrokerCluster", "shop", "orders") in world.woken
        world.woken.clear()
        await world.recheck.check("Pod", "shop")
        assert world.woken == []
