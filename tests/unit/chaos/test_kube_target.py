"""The Kubernetes target over objects and answers that a test gives: no API server, no sockets."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from failback.chaos.cluster.target import Deadline
from failback.chaos.cluster.view import ProcessIdentity, ProcessState
from failback.chaos.errors import TargetError
from failback.chaos.targets.kube.api import ExecResult, KubeApi
from failback.chaos.targets.kube.shell import HOLD_FILE
from failback.chaos.targets.kube.target import KubernetesTarget

Object = dict[str, Any]
WAIT = ["sh", "-c", 'while [ -e "$0" ]; do sleep 1; done; exec "$@"', HOLD_FILE]
INIT = ["failback-init", "--", "failback"]
VICTIM = ProcessIdentity("demo-0-0-0", 31, 700, 1_000, "c://1", "u1")


class Api(KubeApi):
    """Pods as they were put here; every exec is answered with ``answer``."""

    def __init__(self) -> None:
        self.namespace = "shop"
        self.found: dict[str, Object] = {}
        self.answer = ExecResult(0, b"free\n", "")
        self.ran: list[Sequence[str]] = []

    def put(self, name: str, command: list[str], **status: Any) -> None:
        container = {"name": "broker", "containerID": "c://1", "state": {"running": {}}, **status}
        self.found[name] = {
            "metadata": {"name": name, "uid": "u1"},
            "spec": {"containers": [{"name": "broker", "command": command}]},
            "status": {"containerStatuses": [container]},
        }

    def pods(self, selector: str) -> list[Object]:
        return list(self.found.values())

    def pod(self, name: str) -> Object | None:
        return self.found.get(name)

    def cluster(self, name: str) -> Object | None:
        return {"metadata": {"name": name, "namespace": "shop"}, "spec": {}}

    def exec(
        self, pod: str, container: str, argv: Sequence[str], *, seconds: float = 10
    ) -> ExecResult:
        self.ran.append(argv)
        return self.answer

    def close(self) -> None:
        pass


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def target(api: Api) -> Iterator[KubernetesTarget]:
    found = KubernetesTarget(api, "demo")
    yield found
    found.close()


def runs(pid: int, ticks: int, state: str = "S") -> ExecResult:
    fields = f"{pid} (java) {state} {' '.join(['0'] * 18)} {ticks} 0 0"
    return ExecResult(0, f"free\n{fields}\n".encode(), "")


KILLED = {"terminated": {"exitCode": 137, "reason": "Error", "containerID": "c://1"}}


def test_an_apache_broker_died_as_its_container_says(api: Api, target: KubernetesTarget) -> None:
    api.put(VICTIM.pod, WAIT, containerID="c://2", lastState=KILLED)
    death = target.await_gone(VICTIM, Deadline.after(30))
    assert (death.signal, death.code, death.doubt) == (signal.SIGKILL, None, "")
    assert (death.pid, death.ticks) == (31, 700)
    assert api.ran == [], "nobody inside was asked"


def test_a_container_that_ran_out_of_memory_is_no_proof(api: Api, target: KubernetesTarget) -> None:
    ended = {"terminated": {**KILLED["terminated"], "reason": "OOMKilled"}}
    api.put(VICTIM.pod, WAIT, state=ended)
    death = target.await_gone(VICTIM, Deadline.after(30))
    assert death.doubt == "the container ran out of memory"


def test_an_apache_broker_that_lives_on_is_told_at_the_deadline(
    api: Api, target: KubernetesTarget
) -> None:
    api.put(VICTIM.pod, WAIT)
    api.answer = runs(31, 700)
    with pytest.raises(TargetError, match="pid 31 is RUNNING at the deadline"):
        target.await_gone(VICTIM, Deadline.after(0))


def test_a_death_that_was_not_asked_for_has_the_process_that_was_seen(
    api: Api, target: KubernetesTarget
) -> None:
    api.put(VICTIM.pod, WAIT)
    api.answer = runs(31, 700)
    assert target.deaths(0) == []
    api.put(VICTIM.pod, WAIT, containerID="c://2", restartCount=1, lastState=KILLED)
    api.answer = runs(40, 900)
    found = target.deaths(0)
    assert [(pod, each.pid, each.ticks, each.signal) for _, pod, each in found] == [
        (VICTIM.pod, 31, 700, 9)
    ]
    assert target.deaths(0) == found
    later = {"terminated": {**KILLED["terminated"], "containerID": "c://9", "exitCode": 255}}
    api.put(VICTIM.pod, WAIT, containerID="c://10", restartCount=3, lastState=later)
    assert [(each.pid, each.code) for _, _, each in target.deaths(1)] == [(0, 255)]


@pytest.mark.parametrize(
    ("state", "expected"),
    [("S", ProcessState.RUNNING), ("T", ProcessState.STOPPED), ("Z", ProcessState.GONE)],
)
def test_the_state_is_that_of_exactly_this_process(
    api: Api, target: KubernetesTarget, state: str, expected: ProcessState
) -> None:
    api.put(VICTIM.pod, WAIT)
    api.answer = runs(31, 700, state)
    assert target.process_state(VICTIM) is expected
    api.answer = runs(31, 701, state)
    assert target.process_state(VICTIM) is ProcessState.REPLACED
    api.answer = ExecResult(0, b"held\n", "")
    assert target.process_state(VICTIM) is ProcessState.GONE


def test_nothing_is_signalled_in_another_container(api: Api, target: KubernetesTarget) -> None:
    api.put(VICTIM.pod, WAIT, containerID="c://2")
    with pytest.raises(TargetError, match="the chosen process is REPLACED"):
        target.signal(VICTIM, signal.SIGKILL)
    assert api.ran == []
    api.put(VICTIM.pod, WAIT)
    api.answer = ExecResult(4, b"", "process 31 began at 7, not 700\n")
    with pytest.raises(TargetError, match="began at 7, not 700"):
        target.signal(VICTIM, signal.SIGKILL)


ANNOUNCED = "failback-init: signal 9 to 31:700\n"


@pytest.mark.parametrize("command", [INIT, WAIT])
def test_a_kill_whose_container_ended_before_it_could_report_was_given(
    api: Api, target: KubernetesTarget, command: list[str]
) -> None:
    api.put(VICTIM.pod, command)
    api.answer = ExecResult(137, b"", ANNOUNCED)
    receipt = target.signal(VICTIM, signal.SIGKILL)
    assert receipt.signum == signal.SIGKILL
    assert receipt.issued.mono_ns <= receipt.returned.mono_ns


@pytest.mark.parametrize(
    ("code", "words", "signum"),
    [
        (137, "", signal.SIGKILL),  # ended before it had found the process
        (137, "failback-init: signal 9 to 31:701\n", signal.SIGKILL),
        (137, ANNOUNCED, signal.SIGSTOP),
        (1, f"{ANNOUNCED}failback-init: process 31 has ended\n", signal.SIGKILL),
    ],
)
def test_a_kill_that_ended_otherwise_was_not_given(
    api: Api, target: KubernetesTarget, code: int, words: str, signum: int
) -> None:
    api.put(VICTIM.pod, INIT)
    api.answer = ExecResult(code, b"", words)
    with pytest.raises(TargetError, match=f"signal {signum:d} to pid 31"):
        target.signal(VICTIM, signum)


def test_pods_of_two_engines_are_no_cluster_to_experiment_on(
    api: Api, target: KubernetesTarget
) -> None:
    api.put("demo-0-0-0", WAIT)
    api.put("demo-0-1-0", INIT)
    with pytest.raises(TargetError, match="its pods run apache and failback"):
        target.view()
