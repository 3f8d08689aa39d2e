"""What a pass did is told, also when its status could not be written."""

from __future__ import annotations

import dataclasses
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
        self.look: Exception | None = None
        self.failure: Outcome | None = None
        self.refusal = refusal
        self.told: list[str] = []
        self.store = store = Store()
        store.show(dict(self.topic))
        part: Any = self
        metrics = Metrics(version="0", kopf="0", kubernetes="0")
        self.passes = Passes(part, store, part, part, metrics, {"Topic": part})

    def has(self, status: Mapping[str, Any]) -> None:
        """Let the resource have a status, which its plan keeps."""
        newer = {**TOPIC["metadata"], "resourceVersion": "2"}
        self.topic = {**TOPIC, "metadata": newer, "status": status}
        self.store.show(dict(self.topic))
        self.plan = dataclasses.replace(self.plan, status=status)

    async def refresh(self, resource: Object) -> bool:
        if self.look is not None:
            raise self.look
        return False

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
        return self.failure or Outcome(done=len(actions))

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


async def test_what_another_pair_did_is_told_although_one_failed() -> None:
    world = World(DONE)
    told = (
        CREATED,
        dataclasses.replace(CREATED, reason="PairAdded", lane=0),
        dataclasses.replace(CREATED, reason="VolumeResized", lane=1),
    )
    world.plan = dataclasses.replace(world.plan, events=told)
    world.failure = Outcome(
        failed=DONE, error=ApiError("evict", "pods", 503, "Busy", "later"), ended={0}
    )
    await world.passes.run("Topic", "shop", "paid")
    assert world.told == ["VolumeResized"]


async def test_a_resource_that_kills_its_pass_is_poison() -> None:
    world = World(DONE)
    ready = {"type": "Ready", "status": "True", "reason": "AllReady", "message": ""}
    status = {"conditions": [{**ready, "lastTransitionTime": "2026-11-26T00:00:00Z"}]}
    world.has(status)
    world.bug = RecursionError("too deep")
    await world.passes.run("Topic", "shop", "paid")
    found = {each["type"]: each for each in world.statuses[0]["conditions"]}
    for kind, status_ in (("Ready", "False"), ("Stalled", "True")):
        assert (found[kind]["status"], found[kind]["reason"]) == (status_, "Poison")
        assert found[kind]["message"] == "RecursionError: too deep"


async def test_a_look_at_peers_that_failed_is_a_warning_until_one_succeeds() -> None:
    world = World()
    world.look = KeyError("brokerId")
    assert await world.passes.refresh("Topic", "shop", "paid")
    await world.passes.run("Topic", "shop", "paid")
    (warning,) = world.statuses[-1]["conditions"]
    told = (warning["type"], warning["status"], warning["message"])
    assert told == ("Warning", "True", "LookFailed: KeyError: 'brokerId'")
    assert world.told == ["TopicCreated", "LookFailed"]
    world.has(world.statuses[-1])
    world.look = None
    assert await world.passes.refresh("Topic", "shop", "paid"), "a pass is due: it takes it back"
    await world.passes.run("Topic", "shop", "paid")
    (gone,) = world.statuses[-1]["conditions"]
    assert (gone["status"], gone["reason"]) == ("False", "NoWarning")
