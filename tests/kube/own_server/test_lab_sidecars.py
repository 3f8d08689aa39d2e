"""The lab's node runs native sidecars as a kubelet does."""

from __future__ import annotations

import pytest

from tests.kube.own_server.test_lab_node import is_ready, main_status, pod, shell
from tests.support.common.polling import wait_until
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess

pytestmark = pytest.mark.soak

MOUNT: Object = {"volumeMounts": [{"name": "scratch", "mountPath": "/lab/scratch"}]}
BESIDE = (
    'trap "echo beside ended >>/lab/scratch/said; exit 0" TERM;'
    " echo beside >>/lab/scratch/said; while :; do sleep 0.1; done"
)
MAIN = (
    'trap "echo main ended >>/lab/scratch/said; exit 0" TERM;'
    " echo main >>/lab/scratch/said; while :; do sleep 0.1; done"
)


def with_sidecar(first: str = BESIDE, main: str = MAIN, **spec: object) -> Object:
    """A pod with a sidecar that answers its start-up probe, and an init container behind it."""
    probe = {"exec": {"command": ["test", "-e", "/lab/scratch/said"]}, "periodSeconds": 1}
    beside = shell(first, "beside", restartPolicy="Always", startupProbe=probe, **MOUNT)
    init = shell("echo init >>/lab/scratch/said", "init", **MOUNT)
    return pod("a", shell(main, **MOUNT), initContainers=[beside, init], **spec)


def said(namespace: Namespace, node: NodeProcess) -> list[str]:
    folder = node.pod_folder(namespace.name, "a") / "volumes" / "scratch"
    return (folder / "said").read_text().splitlines()


def restarts_of(found: Object, name: str) -> int:
    statuses = found["status"]["initContainerStatuses"] + found["status"]["containerStatuses"]
    return int(next(each["restartCount"] for each in statuses if each["name"] == name))


def test_a_sidecar_runs_before_and_beside_the_main_container_and_is_started_again(
    namespace: Namespace, node: NodeProcess
) -> None:
    namespace.api.create(with_sidecar())
    found = namespace.api.wait("Pod", "a", is_ready)
    assert found["status"]["initContainerStatuses"][0]["started"]
    assert said(namespace, node) == ["beside", "init", "main"]

    node.kill_container(namespace.name, "a")  # neither init containers nor sidecars follow it
    namespace.api.wait(
        "Pod", "a", lambda found: restarts_of(found, "main") == 1 and is_ready(found)
    )
    wait_until(lambda: len(said(namespace, node)) == 4, "the second start of the main container")
    assert said(namespace, node)[3] == "main"

    node.kill_container(namespace.name, "a", "beside")
    found = namespace.api.wait(
        "Pod", "a", lambda found: restarts_of(found, "beside") == 1 and is_ready(found)
    )
    wait_until(lambda: len(said(namespace, node)) == 5, "the second start of the sidecar")
    assert said(namespace, node)[4] == "beside"
    assert restarts_of(found, "main") == 1


def test_sidecars_end_after_the_main_container_and_hold_no_pod(
    namespace: Namespace, node: NodeProcess
) -> None:
    namespace.api.create(with_sidecar(main="sleep 0.5", restartPolicy="Never"))
    found = namespace.api.wait("Pod", "a", lambda found: found["status"]["phase"] == "Succeeded")
    assert main_status(found)["state"]["terminated"]["exitCode"] == 0
    assert said(namespace, node) == ["beside", "init", "beside ended"]
    namespace.api.delete("Pod", "a", grace=0)
    namespace.api.wait_gone("Pod", "a")

    namespace.api.create(with_sidecar())
    namespace.api.wait("Pod", "a", is_ready)
    volume = node.pod_folder(namespace.name, "a") / "volumes" / "scratch" / "said"
    kept = volume.open()  # the volume goes with the pod
    namespace.api.delete("Pod", "a")
    namespace.api.wait_gone("Pod", "a")
    assert kept.read().splitlines()[3:] == ["main ended", "beside ended"]
    kept.close()
