"""NameServer: addresses come from the spec; they grow after their pods and shrink before them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from failback.operator.kinds.name_server import NameServer
from failback.operator.planning.cluster import last_valid
from failback.operator.planning.nameserver.name_server import SHRINK_SECONDS, plan_name_server
from failback.operator.planning.observed.observed import ObservedNameServer, Pod, Route
from failback.operator.planning.plan.children import by_key, finished, key_of
from failback.operator.planning.plan.encoding import find_condition
from failback.operator.planning.plan.types import Apply, Delete, Plan
from failback.operator.render.nameserver import addresses
from failback.operator.render.objects import render_name_server
from tests.support.operator.planning_run import CONTEXT

NOW = 1_750_000_000.0


def name_server(replicas: int = 2, **spec: Any) -> NameServer:
    return NameServer.model_validate(
        {
            "metadata": {"name": "main", "namespace": "shop", "uid": "ns-1"},
            "spec": {"replicas": replicas, **spec},
        }
    )


def observed(standing: int, *, ready: int | None = None, **changes: Any) -> ObservedNameServer:
    """Return a NameServer of so many replicas, the first ``ready`` of them ready and answering."""
    ready = standing if ready is None else ready
    told = addresses(name_server(standing), CONTEXT)
    objects = {
        key: {**finished(item), "metadata": {**finished(item)["metadata"], "uid": "u"}}
        for key, item in by_key(_made(name_server(standing))).items()
    }
    fields: dict[str, Any] = {
        "objects": objects,
        "pods": {
            index: Pod(f"main-ns-{index}", f"u-{index}", ready=index < ready)
            for index in range(standing)
        },
        "routes": {address: answer(address, index < ready) for index, address in enumerate(told)},
    }
    return ObservedNameServer(NOW, **{**fields, **changes})


def answer(address: str, answers: bool) -> Route:
    """Return what a name server said last: an empty list, or why it said nothing."""
    return Route(address, {}) if answers else Route(address, problem=f"connect to {address} failed")


def _made(wanted: NameServer) -> list[Any]:
    note = last_valid.name_server_note(wanted, CONTEXT)
    return [*render_name_server(wanted, CONTEXT), note]


def plan(
    wanted: NameServer, status: dict[str, Any], seen: ObservedNameServer, now: float = NOW
) -> Plan:
    return plan_name_server(wanted, status, seen, CONTEXT, now)


def settled(replicas: int) -> dict[str, Any]:
    """Return the status of a NameServer at rest."""
    return dict(plan(name_server(replicas), {}, observed(replicas)).status)


def reason(found: Plan, kind: str = "Ready") -> str:
    entry = find_condition(found.status, kind)
    assert entry is not None
    return str(entry["reason"])


def replicas_applied(found: Plan) -> list[int]:
    return [
        item.manifest["spec"]["replicas"]
        for item in found.actions
        if isinstance(item, Apply) and item.manifest["kind"] == "StatefulSet"
    ]


def told(found: Plan) -> int:
    return len(found.status["addresses"])


def test_a_new_name_server_tells_all_addresses_before_any_pod_is_ready() -> None:
    found = plan(name_server(2), {}, ObservedNameServer(NOW))
    assert {item.manifest["kind"] for item in found.actions if isinstance(item, Apply)} == {
        "ConfigMap",
        "Service",
        "StatefulSet",
        "PodDisruptionBudget",
    }
    assert told(found) == 2
    assert reason(found) == "Creating"


def test_at_rest_nothing_is_planned() -> None:
    status = settled(2)
    for now in (NOW, NOW + 3600):
        found = plan(name_server(2), status, observed(2), now)
        assert (found.actions, found.events, found.wake_after) == ((), (), None)
        assert found.status == status
    assert status["observedGeneration"] == 1
    assert reason(found) == "AllReady"


def test_a_restarting_pod_changes_no_address() -> None:
    found = plan(name_server(2), settled(2), observed(2, ready=1))
    assert told(found) == 2
    assert reason(found) == "PodNotReady"
    assert find_condition(found.status, "Ready") != find_condition(settled(2), "Ready")


def test_a_pod_that_does_not_answer_is_named() -> None:
    names = addresses(name_server(2), CONTEXT)
    silent = {address: answer(address, False) for address in names}
    found = plan(name_server(2), settled(2), observed(2, routes=silent))
    ready = find_condition(found.status, "Ready")
    assert ready is not None
    assert ready["reason"] == "NotAnswering"
    assert ready["message"] == (
        f"no answer of {names[0]}, {names[1]}: "
        f"connect to {names[0]} failed; connect to {names[1]} failed"
    )


def test_growing_the_address_follows_the_ready_pod() -> None:
    status = settled(1)
    first = plan(name_server(2), status, observed(1))
    assert replicas_applied(first) == [2]
    assert told(first) == 1
    waiting = plan(name_server(2), status, observed(2, ready=1))
    assert told(waiting) == 1
    grown = plan(name_server(2), status, observed(2))
    assert told(grown) == 2
    assert {item.reason for item in grown.events} == {"AddressesChanged", "ScaledUp"}


def test_shrinking_the_pod_goes_two_polls_after_its_address() -> None:
    first = plan(name_server(1), settled(2), observed(2))
    assert told(first) == 1
    assert replicas_applied(first) == []
    assert reason(first) == "Shrinking"
    status = dict(first.status)
    early = plan(name_server(1), status, observed(2), NOW + SHRINK_SECONDS - 1)
    assert replicas_applied(early) == []
    assert early.wake_after is not None
    late = plan(name_server(1), status, observed(2), NOW + SHRINK_SECONDS + 1)
    assert replicas_applied(late) == [1]
    done = plan(name_server(1), dict(late.status), observed(1), NOW + 300)
    assert (done.actions, reason(done)) == ((), "AllReady")


def test_some_address_survives_every_change() -> None:
    for before in (1, 2, 5):
        for after in (1, 3, 9):
            status = settled(before)
            found = plan(name_server(after), status, observed(before))
            assert set(found.status["addresses"]) & set(status["addresses"])


def test_suspended_means_status_only() -> None:
    found = plan(name_server(2, suspend=True), {}, ObservedNameServer(NOW))
    assert found.actions == ()
    assert reason(found, "Paused") == "Requested"


def test_a_pod_that_is_refused_says_by_what() -> None:
    seen = observed(2, ready=1, refused_pods={"main-ns-1": "exceeded quota: q"})
    found = plan(name_server(2), settled(2), seen)
    assert reason(found) == "PodRefused"


def test_a_foreign_object_of_our_name_stops_everything() -> None:
    seen = ObservedNameServer(NOW, foreign=frozenset({("Service", "main-ns")}))
    found = plan(name_server(2), {}, seen)
    assert found.actions == ()
    assert reason(found) == "NameTaken"
    assert [item.reason for item in found.events] == ["NameTaken"]
    assert plan(name_server(2), dict(found.status), seen).events == ()


@pytest.mark.parametrize("lost", [("StatefulSet", "main-ns"), ("ConfigMap", "main-ns")])
def test_name_servers_are_kept_by_their_last_valid_spec(lost: tuple[str, str]) -> None:
    seen = observed(2)
    objects = {key: item for key, item in seen.objects.items() if key != lost}
    seen = dataclasses.replace(seen, objects=objects)
    found = plan(name_server(3, config={"listenPort": "1"}), settled(2), seen)
    assert [key_of(each.manifest) for each in found.actions if isinstance(each, Apply)] == [lost]
    assert reason(found) == "InvalidSpec"
    assert found.status["addresses"] == settled(2)["addresses"]
    foreign = frozenset({("Service", "main-ns")})
    objects = {key: item for key, item in objects.items() if key not in foreign}
    seen = dataclasses.replace(seen, objects=objects, foreign=foreign)
    found = plan(name_server(2), settled(2), seen)
    assert [key_of(each.manifest) for each in found.actions if isinstance(each, Apply)] == [lost]
    assert reason(found) == "NameTaken"


def test_a_broken_rule_is_told_once() -> None:
    wanted = name_server(2, config={"listenPort": "1"})
    found = plan(wanted, settled(2), observed(2))
    assert found.actions == ()
    assert reason(found) == "InvalidSpec"
    assert len(found.events) == 1
    assert plan(wanted, dict(found.status), observed(2)).events == ()


class Life:
    """One NameServer and its objects; pods follow the StatefulSet and are ready ten seconds later.

    An operator may end after so many of its writes in one pass: the actions, then the status.
    """

    def __init__(self, replicas: int) -> None:
        self.now = NOW
        self.status = settled(replicas)
        self.standing = replicas
        self.born = dict.fromkeys(range(replicas), NOW - 3600)
        self.writes = 0

    def look(self) -> ObservedNameServer:
        """Return what is seen now; a pod answers once it is ready."""
        ready = {index: self.now - born >= 10 for index, born in self.born.items()}
        pods = {index: Pod(f"main-ns-{index}", f"u-{index}", ready=ready[index]) for index in ready}
        names = addresses(name_server(self.standing), CONTEXT)
        routes = {each: answer(each, ready.get(index, False)) for index, each in enumerate(names)}
        return observed(self.standing, pods=pods, routes=routes)

    def live(self, replicas: int, dies_after: int | None = None) -> None:
        """Make passes until nothing moves; the operator ends once, after a number of writes."""
        rest = 0
        while rest < 4:
            found = plan(name_server(replicas), self.status, self.look(), self.now)
            moved = bool(found.actions) or dict(found.status) != self.status
            for number in replicas_applied(found):
                self.write()
                self.standing = number
                self.born = {i: self.born.get(i, self.now) for i in range(number)}
                if self.writes == dies_after:
                    break
            else:
                if moved:
                    self.write()
                    self.status = dict(found.status)
            self.check()
            rest = 0 if moved else rest + 1
            self.now += SHRINK_SECONDS / 3

    def write(self) -> None:
        self.writes += 1

    def check(self) -> None:
        """No address is announced whose pod is gone."""
        assert len(self.status["addresses"]) <= len(self.born)


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 3), (3, 1)])
def test_an_operator_that_dies_after_any_write_ends_the_same(before: int, after: int) -> None:
    undisturbed = Life(before)
    undisturbed.live(after)
    assert undisturbed.standing == len(undisturbed.status["addresses"]) == after
    assert undisturbed.writes >= 2
    for write in range(1, undisturbed.writes + 1):
        life = Life(before)
        life.live(after, dies_after=write)
        assert life.standing == after
        assert life.status["addresses"] == undisturbed.status["addresses"]


def outside(spec: dict[str, Any], seen: ObservedNameServer, status: dict[str, Any]) -> Plan:
    return plan(name_server(external=spec), status, seen)


def services_applied(found: Plan) -> list[Any]:
    applied = (each.manifest for each in found.actions if isinstance(each, Apply))
    return [each for each in applied if each["kind"] == "Service"]


def test_name_servers_say_where_clients_outside_reach_them() -> None:
    balanced = {"type": "LoadBalancer"}
    found = outside(balanced, observed(2), settled(2))
    (service,) = services_applied(found)
    assert (reason(found, "ExternalAccess"), reason(found)) == ("WaitingForAddress", "AllReady")
    assert found.status["externalAddresses"] == []

    ingress = [{"hostname": "lb.example.org"}]
    made = {**service, "status": {"loadBalancer": {"ingress": ingress}}}
    made = {**made, "metadata": {**service["metadata"], "uid": "u"}}
    objects = {**observed(2).objects, ("Service", "main-external"): made}
    found = outside(balanced, observed(2, objects=objects), dict(found.status))
    assert reason(found, "ExternalAccess") == "Announced"
    assert found.status["externalAddresses"] == ["lb.example.org:9876"]
    assert services_applied(found) == []

    found = plan(name_server(), dict(found.status), observed(2, objects=objects))
    assert reason(found, "ExternalAccess") == "NotAsked"
    assert [each.key for each in found.actions if isinstance(each, Delete)] == [
        ("Service", "main-external")
    ]


def test_name_servers_behind_node_ports_are_known_at_once() -> None:
    nodes = {"type": "NodePort", "nodePort": 30876, "nodeAddresses": ["10.1.0.1", "10.1.0.2"]}
    found = outside(nodes, observed(2), settled(2))
    assert found.status["externalAddresses"] == ["10.1.0.1:30876", "10.1.0.2:30876"]
    (service,) = services_applied(found)
    assert service["spec"]["ports"] == [
        {"name": "remoting", "port": 9876, "targetPort": "remoting", "nodePort": 30876}
    ]


def test_a_version_that_apache_never_released_is_told() -> None:
    for version, told in (("4.9.99", "UnknownVersion"), ("4.9.8", "NoWarning")):
        wanted = name_server(engine={"type": "Apache", "version": version})
        assert reason(plan(wanted, settled(2), observed(2)), "Warning") == told
