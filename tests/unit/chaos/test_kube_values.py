"""What objects and those who keep brokers say, as values of the harness."""

from __future__ import annotations

import json
from typing import Any

import pytest

from failback.chaos.cluster.target import Injection
from failback.chaos.cluster.view import DeathRecord, ProcessState, Stamp
from failback.chaos.errors import GuardRefused, TargetError
from failback.chaos.run.progress import targets_of
from failback.chaos.run.summary import reasons_of, summarize
from failback.chaos.targets.kube import guards, members
from failback.chaos.targets.kube.container import keeper_of, parse_stat
from failback.chaos.targets.kube.init import InitKeeper
from failback.chaos.targets.kube.inside import Child, Inside, death_record, to_harness
from failback.chaos.targets.kube.members import DeathBook
from failback.chaos.targets.kube.shell import HOLD_FILE, ShellKeeper


def status(**changes: Any) -> bytes:
    death = {
        "pid": 7,
        "ticks": 100,
        "signal": 9,
        "code": None,
        "wall_ns": 5,
        "mono_ns": 3,
        "sent_by": {"by": "failback-chaos"},
        "command": ["failback", "broker"],
    }
    said = {"child": {"pid": 8, "ticks": 200, "state": "S"}, "held": False, "deaths": [death]}
    return json.dumps(said | changes).encode()


@pytest.mark.parametrize(
    ("letter", "state"),
    [
        ("R", ProcessState.RUNNING),
        ("S", ProcessState.RUNNING),
        ("T", ProcessState.STOPPED),
        ("t", ProcessState.STOPPED),
        ("Z", ProcessState.GONE),
    ],
)
def test_the_kernels_letter_is_the_state(letter: str, state: ProcessState) -> None:
    found = InitKeeper().read_status(status(child={"pid": 8, "ticks": 200, "state": letter}))
    assert found.child is not None
    assert found.child.process_state is state


def test_deaths_have_pid_and_ticks_and_steps_are_none() -> None:
    step = {**json.loads(status())["deaths"][0], "pid": 9, "command": ["failback", "tools", "x"]}
    found = InitKeeper().read_status(status(deaths=[step, *json.loads(status())["deaths"]]))
    assert [(each.pid, each.ticks) for each in found.deaths] == [(7, 100)]


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff", b"{}"])
def test_an_answer_that_is_none_is_an_error(text: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
        InitKeeper().read_status(text)


def test_a_receipt_has_the_instants_around_the_signal() -> None:
    receipt = {"issued": {"wall_ns": 5, "mono_ns": 3}, "returned": {"wall_ns": 6, "mono_ns": 4}}
    answer = json.dumps(receipt).encode()
    assert InitKeeper().read_receipt(answer) == (Stamp(5, 3), Stamp(6, 4))
    with pytest.raises(ValueError, match="no receipt"):
        InitKeeper().read_receipt(b"{}")


STAT = "31 (java) S 20 9 9 0 -1 4194304 1 0 0 0 1 1 0 0 20 0 40 0 8675309 1 1\n"


def test_a_shell_tells_of_the_jvm_and_of_the_hold() -> None:
    keeper = ShellKeeper()
    assert keeper.read_status(f"free\n{STAT}".encode()) == Inside(Child(31, 8675309, "S"), False)
    odd = STAT.replace("(java)", "(a) Z 1 (b)").replace(" S ", " T ")
    assert keeper.read_status(f"held\n{odd}".encode()) == Inside(Child(31, 8675309, "T"), True)
    assert keeper.read_status(b"held\n") == Inside(None, True)


@pytest.mark.parametrize("answer", ["", "open\n", "free\n31\n", "free\nx (java) S\n", f"{STAT}"])
def test_a_shells_answer_that_is_none_is_an_error(answer: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
        ShellKeeper().read_status(answer.encode())


def test_of_two_jvms_none_is_the_broker() -> None:
    with pytest.raises(ValueError, match="2 brokers run in it"):
        ShellKeeper().read_status(f"free\n{STAT}{STAT}".encode())


def test_who_keeps_a_broker_follows_from_its_command() -> None:
    found = pod("p")
    container = found["spec"]["containers"][0]
    with pytest.raises(TargetError, match="pod p: its command heeds no hold"):
        keeper_of(found)
    container["command"] = ["failback-init", "--", "failback"]
    assert keeper_of(found).engine == "failback"
    container["command"] = ["sh", "-c", f"while [ -e {HOLD_FILE} ]; do sleep 1; done"]
    assert keeper_of(found).engine == "apache"


@pytest.mark.parametrize(
    ("line", "size", "mtime_ns"),
    [
        ("12 1700000000 2023-11-14 22:13:20.123456789 +0000", 12, 1_700_000_000_123_456_789),
        ("12 1700000000 2023-11-14 22:13:20 +0000", 12, 1_700_000_000_000_000_000),
        ("0 7", 0, 7_000_000_000),
    ],
)
def test_a_files_time_has_the_fraction_that_stat_shows(line: str, size: int, mtime_ns: int) -> None:
    assert parse_stat(line) == (size, mtime_ns)


def test_a_line_that_stat_never_prints_is_an_error() -> None:
    with pytest.raises(TargetError, match="not readable"):
        parse_stat("no such file")


def test_a_signal_that_nobody_asked_for_is_doubtful() -> None:
    at = Stamp(10, 10)
    (asked,) = InitKeeper().read_status(status()).deaths
    assert death_record(asked, at).doubt == ""
    alone = {**json.loads(status())["deaths"][0], "sent_by": None}
    (unasked,) = InitKeeper().read_status(status(deaths=[alone])).deaths
    assert "nobody asked the init for signal 9" in death_record(unasked, at).doubt


def test_a_nodes_clock_is_mapped_and_never_lies_in_the_future() -> None:
    at = Stamp(1_000, 50)
    assert to_harness(Stamp(900, 7), at, same_host=True) == Stamp(900, 7)
    assert to_harness(Stamp(900, 7), at, same_host=False) == Stamp(900, -50)
    assert to_harness(Stamp(2_000, 7), at, same_host=False) == at


def cluster(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "orders", "namespace": "shop", "annotations": {}},
        "spec": {"pairs": 2, "slavesPerPair": 1, **spec},
    }


def pod(name: str, **state: Any) -> dict[str, Any]:
    container = {"name": "broker", "containerID": "c://1", "state": {"running": {}}, **state}
    return {
        "metadata": {"name": name, "uid": "u"},
        "spec": {"containers": [{"name": "broker"}]},
        "status": {"podIP": "10.0.0.7", "containerStatuses": [container]},
    }


def test_with_node_ports_each_member_has_a_port_of_its_own() -> None:
    external = {"type": "NodePort", "nodeAddresses": ["10.1.0.1"], "firstNodePort": 30911}
    found = members.places(cluster(external=external, pairs=2), [], "cluster.local")
    ports = [each.address.rpartition(":")[2] for each in found]
    assert ports == ["30911", "30915", "30927", "30931"]
    assert found[1].address.startswith("orders-0-1-0.orders-brokers.")


@pytest.mark.parametrize(
    ("networking", "address"),
    [
        ({}, "orders-0-1-0.orders-brokers.shop.svc.cluster.local:10911"),
        ({"listenPort": 30911}, "orders-0-1-0.orders-brokers.shop.svc.cluster.local:30911"),
        ({"brokerAddress": "PodIP"}, "10.0.0.7:10911"),
        (
            {"brokerAddress": "External", "externalTemplate": "{cluster}-{pair}-{ordinal}.x"},
            "orders-0-1.x:10911",
        ),
    ],
)
def test_members_are_where_the_operator_put_them(networking: dict[str, Any], address: str) -> None:
    overrides = [{"index": 1, "slavesPerPair": 0}]
    wanted = cluster(networking=networking, pairOverrides=overrides, brokerNamePrefix="b")
    found = members.places(wanted, [pod("orders-0-1-0")], "cluster.local")
    assert [(each.index, each.ordinal) for each in found] == [(0, 0), (0, 1), (1, 0)]
    assert found[1].address == address
    assert [each.broker_name for each in found] == ["b-0", "b-0", "b-1"]
    assert members.member_name("orders-0-1-0", wanted) == "b-0-1"
    assert [each.manifest is None for each in found] == [True, False, True]


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (None, "Gone"),
        (pod("p"), "Running"),
        (pod("p", ready=True), "Ready"),
        (pod("p", state={"terminated": {}}), "BackOff"),
        (pod("p", state={"waiting": {"reason": "CrashLoopBackOff"}}), "BackOff"),
        (pod("p", state={"waiting": {"reason": "PodInitializing"}}), "Starting"),
        ({"metadata": {"deletionTimestamp": "now"}}, "Stopping"),
    ],
)
def test_the_platforms_words(found: dict[str, Any] | None, word: str) -> None:
    assert members.platform_state(found) == word


@pytest.mark.parametrize(
    ("terminated", "signum", "code", "doubt"),
    [
        ({"exitCode": 137}, 9, None, ""),
        ({"exitCode": 143}, 15, None, ""),
        ({"exitCode": 0}, None, 0, ""),
        ({"exitCode": 3}, None, 3, ""),
        ({"exitCode": 255}, None, 255, ""),
        ({"exitCode": 137, "reason": "OOMKilled"}, 9, None, "the container ran out of memory"),
    ],
)
def test_a_containers_end_as_a_death(
    terminated: dict[str, Any], signum: int | None, code: int | None, doubt: str
) -> None:
    found = members.death_of_container(terminated, 7, 100, Stamp(1, 1))
    assert (found.signal, found.code, found.doubt) == (signum, code, doubt)


def test_only_this_incarnation_of_a_container_has_ended() -> None:
    last = {"terminated": {"exitCode": 137, "containerID": "c://1"}}
    found = pod("p", containerID="c://2", lastState=last)
    assert members.ended(found, "c://1") == last["terminated"]
    assert members.ended(found, "c://2") is None


def test_the_end_before_this_container_and_a_deletion_are_told() -> None:
    last = {"terminated": {"exitCode": 137, "containerID": "c://1"}}
    found = pod("p", containerID="c://2", lastState=last)
    assert members.last_end(found) == last["terminated"]
    assert members.last_end(pod("p")) is None
    assert members.deletion_of(found) == ""
    found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert members.deletion_of(found) == "its pod was being deleted since 2026-01-01T00:00:00Z"


def test_the_hold_annotation_names_each_member_once() -> None:
    found = cluster()
    found["metadata"]["annotations"] = {members.HOLD_ANNOTATION: "orders-0-1, orders-1-0"}
    assert members.with_hold(found, "orders-0-0", on=True) == "orders-0-1,orders-1-0,orders-0-0"
    assert members.with_hold(found, "orders-0-1", on=True) == "orders-1-0,orders-0-1"
    assert members.with_hold(found, "orders-0-1", on=False) == "orders-1-0"
    assert members.with_hold(cluster(), "orders-0-1", on=False) is None


def test_a_cluster_that_is_not_steady_is_not_touched() -> None:
    found = cluster()
    with pytest.raises(GuardRefused, match="has no condition Ready yet"):
        guards.require_steady_cluster(found)
    good = [{"type": kind, "status": "True"} for kind in ("Ready", "RolesConsistent")]
    found["status"] = {"conditions": good}
    guards.require_steady_cluster(found)
    found["status"]["currentOperation"] = {"type": "RoleSwitch"}
    with pytest.raises(GuardRefused, match="RoleSwitch is in progress"):
        guards.require_steady_cluster(found)


def test_a_pause_within_the_liveness_window_is_allowed() -> None:
    found = pod("p")
    guards.require_survivable_pause([found], Injection("pause", seconds=999))
    probe = {"periodSeconds": 10, "failureThreshold": 3}
    found["spec"]["containers"][0]["livenessProbe"] = probe
    guards.require_survivable_pause([found], Injection("pause", seconds=30))
    guards.require_survivable_pause([found], Injection("kill", seconds=999))
    with pytest.raises(GuardRefused, match="liveness window of 30 s of p"):
        guards.require_survivable_pause([found], Injection("pause", seconds=31))


def death(pid: int) -> DeathRecord:
    return DeathRecord(pid, 1, 9, None, Stamp(1, 1))


def test_every_death_has_one_number() -> None:
    book = DeathBook()
    assert book.is_news("p", "u1", "c1")
    book.add("p", "u1", "c1", [death(7)], Stamp(2, 2))
    assert not book.is_news("p", "u1", "c1")
    book.add("p", "u1", "c2", [death(7), death(8)], Stamp(3, 3))
    assert [(number, each.pid) for number, _, each in book.since(0)] == [(1, 7), (2, 8)]
    assert [number for number, _, _ in book.since(1)] == [2]


def test_a_replaced_pod_is_a_death_that_nobody_can_explain() -> None:
    book = DeathBook()
    book.add("p", "u1", "c1", [death(7)], Stamp(2, 2))
    book.add("p", "u2", "c3", [], Stamp(5, 5))
    assert [each.doubt for _, _, each in book.since(1)] == ["its pod was replaced"]


# --- what a run leaves --------------------------------------------------------------------------

VICTIM = {
    "pair": "pair-0",
    "member": 0,
    "broker_id": 0,
    "address": "a:1",
    "pod": "demo-0-0-0",
    "pid": 7,
}


def test_a_summary_has_the_last_evidence_of_each_fault() -> None:
    first = {
        "fid": "f1",
        "fault": "kill",
        "victims": [VICTIM],
        "issued_ns": [30_000_400_000, 1],
        "observed": {"gone_ns": 30_100_000_000},
        "proved": True,
    }
    healed = {**first, "observed": {**first["observed"], "healed_ns": 50_000_000_000}}  # type: ignore[dict-item]
    consumers = {**first, "fid": "f2", "victims": [{"group": "g", "pid": 3}], "proved": False}
    outcome = {
        "run": "r",
        "manifest_sha256": "ab",
        "checks": [
            {"name": "recovered", "verdict": "Pass", "code": "", "detail": ""},
            {"name": "drained", "verdict": "Inconclusive", "code": "NO_DRAIN", "detail": "q 3"},
        ],
    }
    found = summarize(
        outcome,
        [first, healed, consumers],
        exit_code=3,
        verdict="Inconclusive",
        reasons=reasons_of(outcome),
    )
    assert found["targets"] == targets_of([VICTIM])
    assert found["faults"][0] == {
        "id": "f1",
        "fault": "kill",
        "proved": True,
        "issued": 30.0,
        "effect": 30.1,
        "heal": 50.0,
    }
    assert [each["proved"] for each in found["faults"]] == [True, False]
    assert found["reasons"] == ["NO_DRAIN: q 3"]
    assert (found["recovered"], found["run"], found["runSha256"]) == (True, "r", "ab")
