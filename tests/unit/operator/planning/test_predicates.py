"""One table per predicate: which observation makes it true, which false, which is not enough."""

from __future__ import annotations

import copy
import dataclasses
import functools
from typing import Any

import pytest

from failback.operator.planning.observed.observed import (
    Broker,
    Claim,
    MemberView,
    ObservedCluster,
    Pod,
    Route,
)
from failback.operator.planning.plan.types import Operation
from failback.operator.planning.state import precedence
from failback.operator.planning.state.cluster_state import ClusterState
from failback.operator.planning.state.predicates import PREDICATES, evaluate
from failback.operator.planning.state.running_engine import engine_of
from failback.operator.render.shape import Member
from tests.support.operator.planning_run import Run
from tests.support.operator.planning_world import World


@functools.cache
def _steady(slaves: int = 1) -> tuple[World, ObservedCluster]:
    world = World(pairs=2, slavesPerPair=slaves)
    Run(world).until_steady()
    world.tick(120)
    return world, world.observe()


class Case:
    """A steady cluster of two pairs, to be changed in one respect."""

    def __init__(self, slaves: int = 1, **question: Any) -> None:
        world, self.observed = _steady(slaves)
        self.document = copy.deepcopy(world.document)
        self.cluster = world.cluster
        self.question = {"pair": 0, "member": 1, **question}

    def false(self, name: str) -> bool:
        question = dict(self.question)
        running = tuple(question.pop("running", ()))
        state = ClusterState(self.cluster, {}, self.observed, self.observed.at, running)
        found = evaluate([name], state, **question)
        assert found in ((), (name,))
        return bool(found)

    def see(self, **parts: Any) -> Case:
        self.observed = dataclasses.replace(self.observed, **parts)
        return self

    def view(self, member: Member, **parts: Any) -> Case:
        views = dict(self.observed.members)
        views[member] = dataclasses.replace(views.get(member, MemberView(*member)), **parts)
        return self.see(members=views)

    def pod(self, member: Member, **parts: Any) -> Case:
        pod = self.observed.member(*member).pod
        assert pod is not None
        return self.view(member, pod=dataclasses.replace(pod, **parts))

    def broker(self, member: Member, **parts: Any) -> Case:
        broker = self.observed.member(*member).broker
        assert broker is not None
        return self.view(member, broker=dataclasses.replace(broker, **parts))

    def config(self, member: Member, **values: str) -> Case:
        broker = self.observed.member(*member).broker
        assert broker is not None
        return self.broker(member, config={**(broker.config or {}), **values})

    def spec(self, **fields: Any) -> Case:
        self.cluster = self.cluster.model_copy(
            update={"spec": self.cluster.spec.model_copy(update=fields)}
        )
        return self

    def annotated(self, **marks: str) -> Case:
        metadata = self.cluster.metadata.model_copy(
            update={"annotations": {f"failback.dev/{k}": v for k, v in marks.items()}}
        )
        self.cluster = self.cluster.model_copy(update={"metadata": metadata})
        return self

    def routes(self, *answers: dict[str, dict[int, str]] | None) -> Case:
        return self.see(
            routes=[Route(f"ns-{i}:9876", brokers=each) for i, each in enumerate(answers)]
        )

    @property
    def answer(self) -> dict[str, dict[int, str]]:
        """What a name server says in the steady cluster."""
        brokers = self.observed.routes[0].brokers
        assert brokers is not None
        return {name: dict(ids) for name, ids in brokers.items()}


@pytest.mark.parametrize("name", sorted(PREDICATES))
def test_every_predicate_holds_in_a_steady_cluster(name: str) -> None:
    assert not Case().false(name)
    assert not Case(member=0).false(name)


def test_an_unknown_predicate_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        evaluate(["NoSuch"], ClusterState(Case().cluster, {}, Case().observed, 0.0))


def test_not_paused() -> None:
    paused = {"pause-reconciliation": "true"}
    assert Case().annotated(**paused).false("NotPaused")
    assert not Case().annotated(**{"pause-reconciliation": "false"}).false("NotPaused")
    assert Case().spec(suspend=True).false("NotPaused")


def running(kind: str, step: str, pair: int, age: float = 0.0, **more: Any) -> Operation:
    at = _steady()[1].at - age
    return Operation(f"{kind}{pair}", kind, step, pair, None, at, at, **more)


@pytest.mark.parametrize(
    ("other", "false"),
    [
        (running("Roll", "ChooseMember", 1), False),
        (running("Roll", "WaitReady", 1), True),
        (running("Roll", "WaitReady", 1, precedence.HOLD_SECONDS + 1), False),
        (running("Roll", "EvictMember", 1, blocked_by=("PDBAllows",)), False),
        (running("Roll", "EvictMember", 1, blocked_by=("PDBAllows",), attempts=1), True),
        (running("Roll", "EvictMember", 1, blocked_by=("X",), data={"closed": True}), True),
        (running("ScaleDown", "WaitEmpty", 1), False),
        (running("RoleSwitch", "Preflight", 1), False),
        (running("RoleSwitch", "DrainWrites", 1), True),
        (running("RoleSwitch", "RejoinOldMaster", 1), True),
        (running("RoleSwitch", "RejoinOldMaster", 1, data={"settled": True}), False),
        (running("Resync", "WipeClaim", 1), True),
        (running("Roll", "WaitReady", 0), False),
    ],
    ids=lambda value: f"{value.type}-{value.step}" if isinstance(value, Operation) else str(value),
)
def test_no_other_operation(other: Operation, false: bool) -> None:
    mine = running("Roll", "ChooseMember", 0)
    assert Case(operation=mine, running=[mine, other]).false("NoOtherOperation") is false
    assert not Case(operation=other, running=[other]).false("NoOtherOperation")


@pytest.mark.parametrize(
    ("other", "asking", "false"),
    [
        (running("Roll", "ChooseMember", 0), "Roll", True),
        (running("Roll", "WaitReady", 1), "Roll", False),
        (running("RoleSwitch", "StopOldMaster", 0), "Roll", True),
        (running("RoleSwitch", "Verify", 0), "Roll", False),
        (running("RoleSwitch", "Verify", 0), "RoleSwitch", True),
        (running("RoleSwitch", "Verify", 0), "Resync", True),
        (running("RoleSwitch", "Finished", 0), "RoleSwitch", False),
        (Operation("live", "LiveConfig", "SetConfig"), "Roll", False),
    ],
)
def test_pair_free(other: Operation, asking: str, false: bool) -> None:
    mine = dataclasses.replace(running("", "ChooseMember", 0), type=asking)
    assert Case(operation=mine, running=[mine, other]).false("PairFree") is false


def test_no_other_pair_disrupted() -> None:
    name = "NoOtherPairDisrupted"
    assert Case().pod((1, 1), ready=False).false(name)
    assert Case().pod((1, 0), deleting=True).false(name)
    assert Case().view((1, 1), pod=None).false(name)
    assert not Case().pod((0, 1), ready=False).false(name)  # its own pair is asked elsewhere
    case = Case()
    without = {key: value for key, value in case.answer.items() if key != "orders-1"}
    assert case.routes(without, without).false(name)


def test_pair_has_in_sync_slave() -> None:
    name = "PairHasInSyncSlave"
    assert not Case(member=1).false(name)  # the only slave: no other is wanted
    assert not Case(slaves=2, member=1).false(name)
    assert Case(slaves=2, member=1).pod((0, 2), ready=False).false(name)
    assert Case(member=0).pod((0, 1), ready=False).false(name)
    assert Case(member=0).broker((0, 1), end=None).false(name)
    assert Case(member=0).broker((0, 0), end=None).false(name)
    assert Case(member=0).broker((0, 0), end=300 << 20).false(name)  # fallen behind
    assert not Case(member=0).broker((0, 0), end=1 << 20).false(name)  # behind, and moving
    now = Case().observed.at
    stalled = Case(member=0).broker((0, 0), end=1 << 20)
    assert stalled.broker((0, 1), stalled_since=now - 60).false(name)
    assert not Case(slaves=0, member=0).false(name)


def test_no_other_member_down() -> None:
    name = "NoOtherMemberDown"
    assert Case(member=1).pod((0, 0), ready=False).false(name)
    assert Case(member=0).view((0, 1), pod=None).false(name)
    assert not Case(member=0).pod((0, 0), ready=False).false(name)  # the one that goes
    assert not Case(member=0).pod((1, 0), ready=False).false(name)  # another pair


def test_offsets_fresh() -> None:
    name, age = "OffsetsFresh", "rocketmq_slave_metadata_sync_age_seconds"
    assert not Case().broker((0, 1), metrics={age: 30.0}).false(name)
    assert Case().broker((0, 1), metrics={age: 30.1}).false(name)
    assert not Case(slaves=0, member=0).false(name)
    # No gauge (engine apache): the tables are compared with the master's of three periods ago.
    before = {"T@G": {0: 5}}
    case = Case().broker((0, 1), metrics=None, offsets={"T@G": {0: 5}})
    assert not case.broker((0, 0), offsets={"T@G": {0: 9}}, offsets_before=before).false(name)
    assert case.broker((0, 0), offsets_before={"T@G": {0: 6}}).false(name)
    assert case.broker((0, 0), offsets=None).false(name)


def test_metadata_equal() -> None:
    name = "MetadataEqual"
    topic = {"T": {"topicName": "T", "perm": 6}}
    case = Case()
    tables = dict(case.observed.member(0, 0).broker.topics or {})  # type: ignore[union-attr]
    assert case.broker((0, 0), topics={**tables, **topic}).false(name)
    assert not case.broker((0, 1), topics={**tables, **topic}).false(name)
    other = {"T": {"topicName": "T", "perm": 4}}
    assert case.broker((0, 1), topics={**tables, **other}).false(name)
    assert Case().broker((0, 0), groups={"G": {"groupName": "G"}}).false(name)
    assert Case().broker((0, 1), topics=None).false(name)
    assert Case().broker((0, 0), groups=None).false(name)
    assert Case().view((0, 1), broker=None).false(name)


def test_name_servers_reachable() -> None:
    name = "NameServersReachable"
    answer = Case().answer
    moved = {**answer, "orders-0": {0: "10.9.9.9:10911"}}
    assert Case().routes(None, None).false(name)
    assert Case().see(routes=[]).false(name)
    assert not Case().routes(answer, None).false(name)
    assert Case().routes(answer, moved).false(name)
    assert not Case().routes(answer, answer, moved).false(name)
    assert not Case(pair=1).routes(answer, moved).false(name)
    assert Case(pair=None).routes(answer, moved).false(name)
    gone = {**answer, "orders-0": {1: answer["orders-0"][1]}}
    assert not Case().routes(gone, gone).false(name)  # they agree that there is none


def test_single_master() -> None:
    name = "SingleMaster"
    case = Case()
    now, answer = case.observed.at, case.answer
    assert Case().config((0, 1), brokerRole="ASYNC_MASTER").false(name)
    assert Case().config((0, 0), brokerRole="SLAVE").false(name)
    assert Case().broker((0, 1), config=None).false(name)  # a ready member that says nothing
    silent = Case().broker((0, 1), config=None)
    assert not silent.pod((0, 1), ready=False).false(name)
    assert Case().routes(None, None).false(name)
    foreign = {**answer, "orders-0": {0: "10.9.9.9:10911"}}
    assert Case().routes(answer, foreign).false(name)
    assert Case().see(master_since={0: now - 59.9}).false(name)
    assert not Case().see(master_since={0: now - 60.0}).false(name)
    assert Case().see(master_since={}).false(name)


@pytest.mark.parametrize(
    ("prefix", "false"),
    [("Verified", False), ("Unverified", False), ("Diverged", True), ("SlaveAhead", True)],
)
def test_prefix_verified(prefix: str, false: bool) -> None:
    assert Case().pod((0, 1), prefix=prefix).false("PrefixVerified") is false
    assert not Case().pod((1, 1), prefix=prefix).false("PrefixVerified")


@pytest.mark.parametrize(
    ("phase", "false"),
    [
        ("Pending", False),
        ("SteadyState", False),
        ("Injecting", True),
        ("Recovering", True),
        ("Draining", False),
        ("Completed", False),
    ],
)
def test_no_chaos_running(phase: str, false: bool) -> None:
    experiment = {"metadata": {"name": "kill"}, "spec": {}, "status": {"phase": phase}}
    assert Case().see(experiments=[experiment]).false("NoChaosRunning") is false
    own = Operation("a", "RoleSwitch", "Preflight", data={"experiment": "kill"})
    assert not Case(operation=own).see(experiments=[experiment]).false("NoChaosRunning")


def test_pdb_allows() -> None:
    name = "PDBAllows"
    assert Case().see(budgets={0: 0, 1: 1}).false(name)
    assert Case().see(budgets={}).false(name)
    assert not Case().see(budgets={0: 0}).pod((0, 1), ready=False).false(name)
    off = Case().cluster.spec.pod_disruption_budget.model_copy(update={"enabled": False})
    assert not Case().see(budgets={}).spec(pod_disruption_budget=off).false(name)


def test_min_ready_seconds() -> None:
    name = "MinReadySeconds"
    now = Case().observed.at
    assert Case().pod((1, 0), ready_since=now - 9.9).false(name)
    assert not Case().pod((1, 0), ready_since=now - 10.0).false(name)
    assert Case().pod((1, 0), ready_since=None).false(name)
    assert not Case().pod((1, 0), ready=False, ready_since=None).false(name)


def _engine(case: Case, **fields: Any) -> Case:
    engine = case.cluster.spec.engine.model_copy(update=fields)
    return case.spec(engine=engine)


def _runs_apache(case: Case, version: str) -> Case:
    for member, view in list(case.observed.members.items()):
        assert view.statefulset is not None
        changed = copy.deepcopy(dict(view.statefulset))
        template = changed["spec"]["template"]
        template["metadata"]["labels"]["app.kubernetes.io/version"] = version
        template["spec"]["containers"][0]["args"] = ["./mqbroker", "-c", "broker.conf"]
        case.view(member, statefulset=changed).pod(member, engine=engine_of(changed))
    return case


@pytest.mark.parametrize(
    ("running", "wanted", "false"),
    [
        ("4.9.7", {"type": "Failback"}, False),
        ("4.9.7", {"type": "Apache", "version": "4.9.8"}, False),
        ("4.9.8", {"type": "Apache", "version": "5.3.3"}, True),
        ("5.3.3", {"type": "Apache", "version": "5.3.4"}, False),
        ("5.3.3", {"type": "Apache", "version": "4.9.8"}, True),
        ("5.3.3", {"type": "Failback"}, True),
    ],
)
def test_store_compatible(running: str, wanted: dict[str, Any], false: bool) -> None:
    case = _engine(_runs_apache(Case(), running), **wanted)
    assert case.false("StoreCompatible") is false
    marks = {"annotations": {"failback.dev/accept-quirk": "storeUpgrade"}}
    metadata = case.cluster.metadata.model_copy(update=marks)
    case.cluster = case.cluster.model_copy(update={"metadata": metadata})
    assert case.false("StoreCompatible") is (false and running == "5.3.3")


def test_claims_settled() -> None:
    resizing = Claim("data-orders-0-1-0", "c", resizing=True)
    assert Case().view((0, 1), claim=resizing).false("ClaimsSettled")
    assert not Case(member=0).view((0, 1), claim=resizing).false("ClaimsSettled")
    assert Case(member=None).view((0, 1), claim=resizing).false("ClaimsSettled")
    assert not Case().view((0, 1), claim=None).false("ClaimsSettled")


@pytest.mark.parametrize(
    "name",
    [
        "PairHasInSyncSlave",
        "OffsetsFresh",
        "MetadataEqual",
        "NameServersReachable",
        "SingleMaster",
        "MinReadySeconds",
        "PDBAllows",
    ],
)
def test_what_nobody_answers_is_never_good_enough(name: str) -> None:
    case = Case(member=0).see(routes=[Route("ns-0:9876")], master_since={}, budgets={})
    for member in list(case.observed.members):
        case.view(member, broker=Broker("somewhere:10911"))
        case.view(member, pod=Pod("p", "u", ready=True, ready_since=None))
    assert case.false(name)
