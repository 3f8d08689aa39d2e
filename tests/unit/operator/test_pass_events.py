"""What a pass did is told, also when its status could not be written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from failback.kube.errors import ApiError
from failback.operator.controller.outcome import Outcome
from failback.operator.controller.passes import Decision, Passes
from failback.operator.kinds.base import FINALIZER
from failback.operator.kubernetes.store import Store
from failback.operator.metrics import Metrics
from failback.operator.planning.observed.observed import Object
from failback.operator.planning.plan.types import Action, DeletePod, Event, Plan

TOPIC: Object = {
    "apiVersion": "failback.dev/v1alpha1",
    "kind": "Topic",
    "metadata": {"name": "paid", "namespace": "shop", "uid": "u", "resourceVersion": "1"},
}
GOING: Object = {
    **TOPIC,
    "metadata": {
        **TOPIC["metadata"],
        "deletionTimestamp": "2026-11-26T00:00:00Z",
        "finalizers": [FINALIZER, "example.com/audit"],
    },
}
DONE = DeletePod("orders-0-0-0", "u1")
CREATED = Event("TopicCreated", "paid on orders-0")


class World:
    """One resource whose plan is given, and an API server that may refuse its status."""

    def __init__(
        self, *actions: Action, refusal: int = 0, leaves: bool = False, holds: bool | None = None
    ) -> None:
        self.plan = Plan(
            actions=actions,
            status={"topicName": "paid"},
            events=(CREATED,),
            finalizer=False if leaves else holds,
        )
        self.topic: Object = GOING if leaves else TOPIC
        self.finalizers: list[list[str]] = []
        self.done: list[Action] = []
        self.statuses: list[Mapping[str, Any]] = []
        self.bug: Exception | None = None
        self.refusal = refusal
        self.told: list[str] = []
        self.store = store = Store()
        store.show(dict(self.topic))
        part: Any = self
        metrics = Metrics(version="0", kopf="0", kubernetes="0")
        self.passes = Passes(part, store, part, part, metrics, {"Topic": part})

    async def decide(self, resource: Object) -> Decision:
        if self.bug is not None:
            raise self.bug
        return Decision(self.plan, {})

    def after(self, resource: Object, plan: Plan, outcome: Outcome) -> None:
        """Nothing is remembered."""

    async def run(
        self, resource: Object, actions: tuple[Action, ...], known: object, lanes: object
    ) -> Outcome:
        self.done += actions
        return Outcome(done=len(actions))

    async def patch_status(self, *where: Any, **given: object) -> Mapping[str, Any]:
        self.statuses.append(where[3])
        if self.refusal:
            raise ApiError("patch", "topics/status", self.refusal, "Conflict", "changed")
        return self.topic

    async def merge(self, kind: str, namespace: str, name: str, patch: Object) -> Object:
        self.finalizers.append(patch["metadata"]["finalizers"])
        assert not (self.done and self.plan.finalizer), "put on before the actions"
        assert self.done or self.plan.finalizer is not False, "taken off after the actions"
        return self.topic

    async def get(self, kind: str, namespace: str, name: str) -> Object:
        return self.topic

    async def post(self, resource: Object, event: Event) -> None:
        self.told.append(event.reason)


async def test_events_follow_a_written_status() -> None:
    world = World(DONE)
    await world.passes.run("Topic", "shop", "paid")
    assert world.told == ["TopicCreated"]


@pytest.mark.parametrize("code", [404, 409, 500])
async def test_what_was_done_is_told_though_the_status_is_refused(code: int) -> None:
    world = World(DONE, refusal=code)
    await world.passes.run("Topic", "shop", "paid")
    assert world.told == ["TopicCreated"]


@pytest.mark.parametrize("code", [409, 500])
async def test_what_only_the_status_says_waits_for_it(code: int) -> None:
    world = World(refusal=code)
    await world.passes.run("Topic", "shop", "paid")
    assert world.told == []


async def test_a_pass_that_dies_is_told_and_stops_only_its_resource() -> None:
    world = World(DONE)
    world.bug = KeyError("mode")
    passed = await world.passes.run("Topic", "shop", "paid")
    assert passed is not None
    assert passed.back_off
    assert world.told == ["PassFailed"]
    stalled = world.statuses[0]["conditions"][0]
    assert (stalled["type"], stalled["status"], stalled["message"]) == (
        "Stalled",
        "True",
        "KeyError: 'mode'",
    )


async def test_what_goes_without_work_is_told_once_it_is_gone() -> None:
    world = World()
    world.plan = Plan(status={"topicName": "paid"}, farewell=(Event("TopicRetained", "paid"),))
    await world.passes.run("Topic", "shop", "paid")
    assert world.told == []
    await world.passes.on_deleted("Topic", TOPIC)
    assert world.told == ["TopicRetained"]


async def test_the_finalizer_is_on_before_what_the_end_undoes() -> None:
    world = World(DONE, holds=True)
    await world.passes.run("Topic", "shop", "paid")
    assert world.finalizers == [[FINALIZER]]
    assert world.done == [DONE]


async def test_an_end_that_is_carried_out_is_not_carried_out_again() -> None:
    world = World(DONE, leaves=True)
    gone = {**GOING["metadata"], "finalizers": ["example.com/audit"], "resourceVersion": "2"}
    world.store.show({**GOING, "metadata": gone})
    await world.passes.run("Topic", "shop", "paid")
    assert (world.done, world.finalizers) == ([], [])


async def test_an_end_that_fails_for_a_minute_is_given_up() -> None:
    world = World(leaves=True, refusal=500)
    world.plan = Plan(status={"topicName": "paid"})
    await world.passes.run("Topic", "shop", "paid")
    assert world.finalizers == [["example.com/audit"]]


async def test_the_end_of_a_resource_is_told_once_it_is_gone() -> None:
    world = World(DONE, leaves=True)
    await world.passes.run("Topic", "shop", "paid")
    assert world.finalizers == [["example.com/audit"]]
    assert world.told == [], "until the finalizer goes another operator would tell it again"
    for _ in range(2):
        await world.passes.on_deleted("Topic", TOPIC)
    assert world.told == ["TopicCreated"]
