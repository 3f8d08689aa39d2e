"""Handlers run in the loop of the passes: no thread writes what a pass reads."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kopf._core.actions.invocation import invoke

from failback.operator.controller.handlers import PLAIN_KINDS, WATCHED, Watches
from failback.operator.kubernetes.store import Object, Store
from failback.operator.settings import Settings

OWNER = ("shop", "BrokerCluster", "orders")


def registered(watches: Watches) -> Iterator[tuple[str, Any]]:
    """Return id and function of every handler, of whichever kind of registry it is in."""
    for each in vars(watches.registry).values():
        for handler in getattr(each, "_handlers", ()):
            yield handler.id, handler.fn


def pod(name: str, version: int) -> Object:
    metadata = {"name": name, "namespace": "shop", "uid": name, "resourceVersion": str(version)}
    return {"kind": "Pod", "metadata": {**metadata, "labels": {"failback.dev/cluster": "orders"}}}


def test_every_registered_handler_is_a_coroutine_function() -> None:
    found = list(registered(Watches(Store(), Settings(), PLAIN_KINDS)))
    assert len(found) >= 2 + 2 * len(WATCHED)
    assert [name for name, fn in found if not inspect.iscoroutinefunction(fn)] == []


async def test_events_that_kopf_hands_over_at_once_lose_nothing_and_stay_in_the_loop() -> None:
    threads: set[int] = set()

    class Watched(Store):
        def show(self, item: Object) -> None:
            threads.add(threading.get_ident())
            super().show(item)

    store = Watched()
    take_in = next(fn for name, fn in registered(Watches(store, Settings(), ())) if name == "store")

    async def passes() -> None:
        for _ in range(200):
            store.children(*OWNER)
            await asyncio.sleep(0)

    reading = asyncio.create_task(passes())
    for version in range(1, 40):
        events = [{**pod(f"pod-{number}", version)} for number in range(8)]
        await asyncio.gather(*(invoke(take_in, kwargs={"body": each}) for each in events))
        newest = {item["metadata"]["resourceVersion"] for item in store.children(*OWNER)}
        assert (newest, len(store.children(*OWNER))) == ({str(version)}, 8)
    await reading
    assert threads == {threading.get_ident()}


class TestAVersionThatCannotBeTaken:
    @pytest.fixture(params=["kept", "places"])
    def store(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Store:
        """Return a store that has a pod, and fails at one step of its next version."""
        store = Store()
        store.show(pod("a", 5))

        def fail(*_: Any) -> None:
            raise KeyError("swept")

        monkeypatch.setattr(store, f"_{request.param}", fail)
        return store

    def test_the_version_before_stays(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(KeyError):
            store.show(pod("a", 6))
        monkeypatch.undo()
        (have,) = store.children(*OWNER)
        assert have["metadata"]["resourceVersion"] == "5"
        store.show(pod("a", 6))
        (have,) = store.children(*OWNER)
        assert have["metadata"]["resourceVersion"] == "6"
