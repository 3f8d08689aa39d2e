"""Pods and claims as planning sees them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from failback.operator.planning.state.decode import (
    decode_claim,
    decode_pod,
    is_owned,
    is_pod_of,
    member_of,
)


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "orders-0-0-0", "uid": "u"}, "spec": {}, "status": status}


def container(**state: Any) -> dict[str, Any]:
    return {"name": "broker", "image": "failback/broker:1", "restartCount": 0, **state}


def test_a_ready_pod_has_no_problem_whatever_happened_before() -> None:
    ended = {"terminated": {"exitCode": 1, "message": "no"}}
    found = decode_pod(
        pod(
            phase="Running",
            podIP="10.0.0.7",
            conditions=[
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:10Z"}
            ],
            containerStatuses=[container(restartCount=2, lastState=ended)],
        )
    )
    assert (found.ready, found.problem, found.restarts, found.ip) == (True, "", 2, "10.0.0.7")
    assert found.ready_since is not None


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff", "InvalidImageName"])
def test_an_image_that_does_not_come_is_told_with_the_kubelets_words(reason: str) -> None:
    state = {"waiting": {"reason": reason, "message": "not found"}}
    found = decode_pod(pod(containerStatuses=[container(state=state)]))
    assert found.problem == "ImagePullError"
    assert found.message == f"failback/broker:1: {reason}: not found"


def test_an_unschedulable_pod_has_the_schedulers_words() -> None:
    entry = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available",
    }
    found = decode_pod(pod(conditions=[entry]))
    assert (found.problem, found.message) == ("Unschedulable", "0/3 nodes are available")


def test_a_crash_loop_has_the_exit_code_and_the_last_five_lines() -> None:
    words = "\n".join(f"line {number}" for number in range(9))
    ended = {"terminated": {"exitCode": 1, "message": words}}
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    found = decode_pod(
        pod(containerStatuses=[container(state=waiting, lastState=ended, restartCount=3)])
    )
    assert found.problem == "CrashLoop"
    lines = "line 4 | line 5 | line 6 | line 7 | line 8"
    assert found.message == f"broker ended with exit code 1: {lines}"
    long = {"terminated": {"exitCode": 74, "message": "x" * 200 + "\n" + "y" * 200}}
    found = decode_pod(pod(containerStatuses=[container(state=long)]))
    told = found.message.removeprefix("broker ended with exit code 74: ")
    assert told == "x" * 200 + " | " + "y" * 53, "the first 256 characters"


@pytest.mark.parametrize(
    ("code", "reason", "hint"),
    [
        (137, "Error", "SIGKILL, by a person, the kubelet or the kernel"),
        (137, "OOMKilled", "out of memory: see resources.limits.memory"),
        (143, "Error", "SIGTERM, by a person or the kubelet"),
    ],
)
def test_a_killed_broker_is_told_without_its_log_lines(code: int, reason: str, hint: str) -> None:
    log = (
        "2026-11-25 22:25:10,247 INFO failback.broker.ha: slave 10.0.0.7:40123 connected\n"
        '{"time": "2026-11-25T22:25:10.300Z", "level": "INFO"}\n'
    )
    ended = {"terminated": {"exitCode": code, "reason": reason, "message": log}}
    found = decode_pod(pod(containerStatuses=[container(state=ended)]))
    assert found.message.startswith(f"broker ended with exit code {code} ({hint}")
    assert found.message.endswith(")"), "no line of a log, no time, no address"


def test_the_exit_code_of_a_refused_store_comes_with_a_hint() -> None:
    ended = {"terminated": {"exitCode": 253}}
    found = decode_pod(pod(containerStatuses=[container(state=ended)]))
    assert found.message == (
        "broker ended with exit code 253 (store was written with mappedFileSizeCommitLog,"
        " mappedFileSizeConsumeQueue, maxHashSlotNum or maxIndexNum of another value,"
        " or a slave has no id above 0)"
    )


def verify(state: str, **verdict: Any) -> dict[str, Any]:
    return {
        "name": "verify",
        "image": "failback/broker:1",
        state: {"terminated": {"exitCode": 3, "message": json.dumps(verdict) + "\n"}},
    }


@pytest.mark.parametrize("state", ["state", "lastState"])
def test_the_verdict_on_the_log_is_read_from_the_init_container(state: str) -> None:
    found = decode_pod(
        pod(initContainerStatuses=[verify(state, prefix="Diverged", message="differs at 7")])
    )
    assert (found.prefix, found.prefix_message) == ("Diverged", "differs at 7")


def test_a_slave_too_far_behind_says_from_where_to_where() -> None:
    verdict = verify("state", prefix="TooFarBehind", masterStart=100, ownEnd=7)
    found = decode_pod(pod(initContainerStatuses=[verdict]))
    assert found.prefix_message == "master starts at 100, slave ends at 7"


@pytest.mark.parametrize("prefix", ["Master", "Empty", "Verified", "Unverified"])
def test_a_log_that_lets_its_broker_start_needs_no_words(prefix: str) -> None:
    found = decode_pod(pod(initContainerStatuses=[verify("state", prefix=prefix)]))
    assert (found.prefix, found.prefix_message) == (prefix, "")


@pytest.mark.parametrize("text", ["", "no json", "[1]"])
def test_words_that_are_no_verdict_are_none(text: str) -> None:
    entry = {"name": "verify", "state": {"terminated": {"exitCode": 1, "message": text}}}
    assert decode_pod(pod(initContainerStatuses=[entry])).prefix == ""


def test_the_tail_of_a_diverged_log_is_measured() -> None:
    verdict = verify("state", prefix="Diverged", ownEnd=1000, masterEnd=2000, differsAt=900)
    assert decode_pod(pod(initContainerStatuses=[verdict])).tail_bytes == 100
    ahead = verify("state", prefix="SlaveAhead", ownEnd=1000, masterEnd=700)
    assert decode_pod(pod(initContainerStatuses=[ahead])).tail_bytes == 300
    found = decode_pod(pod(initContainerStatuses=[verdict]))
    assert (found.own_end, found.master_end, found.checked_at) == (1000, 2000, None)
    verdict["state"]["terminated"]["finishedAt"] = "1970-01-01T00:16:40Z"
    assert decode_pod(pod(initContainerStatuses=[verdict])).checked_at == 1000
    fine = verify("state", prefix="Verified", ownEnd=1000, masterEnd=2000)
    assert decode_pod(pod(initContainerStatuses=[fine])).tail_bytes is None


def test_the_engine_is_that_of_the_pod_whatever_its_statefulset_says_by_now() -> None:
    assert decode_pod(pod()).engine == {"type": "failback", "version": ""}
    item = pod()
    item["metadata"]["labels"] = {"app.kubernetes.io/version": "5.3.3"}
    broker = {"name": "broker", "image": "apache/rocketmq:5.3.3", "args": ["./mqbroker"]}
    item["spec"] = {"containers": [{"name": "carry", "args": []}, broker]}
    assert decode_pod(item).engine == {
        "type": "apache",
        "version": "5.3.3",
        "image": "apache/rocketmq:5.3.3",
    }
    broker["args"] = []
    assert decode_pod(item).engine["type"] == "failback"


def test_a_claim_tells_what_was_asked_and_what_is_there() -> None:
    found = decode_claim(
        {
            "metadata": {"name": "data-orders-0-0-0", "uid": "u"},
            "spec": {"resources": {"requests": {"storage": "30Gi"}}, "storageClassName": "fast"},
            "status": {
                "phase": "Bound",
                "capacity": {"storage": "20Gi"},
                "conditions": [{"type": "FileSystemResizePending", "status": "True"}],
            },
        }
    )
    assert (found.requested, found.capacity, found.needs_restart) == ("30Gi", "20Gi", True)
    assert found.storage_class == "fast"


def test_members_and_owners_are_read_from_labels_and_references() -> None:
    labels = {"failback.dev/pair": "2", "failback.dev/member": "1"}
    item = {"metadata": {"labels": labels, "ownerReferences": [{"uid": "a", "controller": True}]}}
    assert member_of(item) == (2, 1)
    assert member_of({"metadata": {"labels": {"failback.dev/pair": "x"}}}) is None
    assert is_owned(item, "a")
    assert not is_owned(item, "b")


@pytest.mark.parametrize(
    ("name", "controllers", "counts"),
    [
        ("orders-0-0-0", [("StatefulSet", "orders-0-0")], True),
        ("orders-0-0-0", [], True),  # between two StatefulSets
        ("orders-0-0-0", [("ReplicaSet", "orders-0-0")], False),
        ("orders-0-0-0", [("StatefulSet", "other-0-0")], False),
        ("orders-0-0-1", [("StatefulSet", "orders-0-0")], False),
        ("somebodys", [("StatefulSet", "orders-0-0")], False),
        ("somebodys", [], False),
    ],
)
def test_a_pod_is_a_member_by_name_and_controller_and_never_by_its_labels(
    name: str, controllers: list[tuple[str, str]], counts: bool
) -> None:
    owners = [{"kind": kind, "name": of, "controller": True} for kind, of in controllers]
    item = {"metadata": {"name": name, "ownerReferences": owners}}
    assert is_pod_of(item, "orders-0-0") is counts
