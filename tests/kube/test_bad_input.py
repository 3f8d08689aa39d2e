"""Bad input as a person meets it: kubectl against a real API server, an operator behind it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from failback.client.model import Message
from failback.client.producer.producer import Producer
from failback.client.remoting.settings import ClientSettings
from tests.kube.test_reconcile import CLUSTER, NAME_SERVER, create, wait_for_event
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.operator_process import (
    OperatorProcess,
    condition_of,
    is_true,
    operator,
    operator_identity,
)

HEAD = "apiVersion: failback.dev/v1alpha1\nkind: BrokerCluster\nmetadata: {name: orders}\n"
SERVER = "nameServerRef: {name: main}"
INVALID = r'The BrokerCluster "orders" is invalid: '
VALUE = r'Invalid value: ("object": )?'
"""Before Kubernetes 1.34 a rule's message is preceded by the word object."""


def table(count: int, length: int) -> str:
    """Return a map of so many keys, in YAML on one line."""
    return "{" + ", ".join(f"key{number}: {'x' * length}" for number in range(count)) + "}"


def overrides(count: int, config: str = "{}") -> str:
    """Return so many overrides, in YAML on one line."""
    return "[" + ", ".join(f"{{index: {pair}, config: {config}}}" for pair in range(count)) + "]"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("{pairs: [", r"error converting YAML to JSON: yaml: line \d+: "),
        (
            f"{{{SERVER}, slaveReadEnabled: true}}",
            r'strict decoding error: unknown field "spec\.slaveReadEnabled"',
        ),
        (
            f"{{{SERVER}, masterRole: SYNC_MASTER, slavesPerPair: 0}}",
            rf"{INVALID}spec: {VALUE}SYNC_MASTER needs a slave\n",
        ),
        (
            f"{{{SERVER}, config: {{brokerRole: SLAVE}}}}",
            rf"{INVALID}spec\.config: {VALUE}key is managed by the operator; use the spec field\n",
        ),
        (
            f'{{{SERVER}, config: {{authenticationEnabled: "true"}}}}',
            rf"{INVALID}spec\.config: {VALUE}key is of ACL 2.0, which is not offered",
        ),
        (
            f'{{{SERVER}, config: {{controllerAddr: "a:1"}}}}',
            rf"{INVALID}spec\.config: {VALUE}key is not offered: the operator alone makes a member",
        ),
        (
            f"{{{SERVER}, pairOverrides: {overrides(65)}}}",
            r"spec\.pairOverrides: Too many: 65: must have at most 64 items",
        ),
        (
            f"{{{SERVER}, config: {table(129, 1)}}}",
            r"spec\.config: Too many: 129: must have at most 128 items",
        ),
        (
            f"{{{SERVER}, config: {table(1, 1024 * 1024)}}}",
            r"spec\.config\.key0: Too long: may not be more than 1024 bytes",
        ),
        (
            f"{{{SERVER}, pairOverrides: {overrides(9, table(128, 1000))}}}",
            rf"{INVALID}spec: {VALUE}config of cluster and pairs is longer than 524288 characters",
        ),
    ],
    ids=[
        "no YAML",
        "unknown",
        "rule",
        "managed",
        "access",
        "masters",
        "65 overrides",
        "129 keys",
        "1 MiB",
        "9 of 128",
    ],
)
def test_kubectl_is_told_what_is_wrong(namespace: Namespace, spec: str, words: str) -> None:
    text = f"{HEAD}spec: {spec}\n"
    asked = ("create", "--validate=strict", "-f", "-")
    done = namespace.kubectl(*asked, stdin=text, check=False)
    assert done.code != 0
    assert re.search(words, done.err), done.err[:1000]
    assert namespace.api.list("BrokerCluster") == []


def test_an_unknown_field_is_told_and_left_out(namespace: Namespace) -> None:
    text = f"{HEAD}spec: {{{SERVER}, slaveReadEnabled: true}}\n"
    done = namespace.kubectl("apply", "--validate=warn", "-f", "-", stdin=text)
    assert 'unknown field "spec.slaveReadEnabled"' in done.err
    stored = namespace.api.get("BrokerCluster", "orders")["spec"]
    assert "slaveReadEnabled" not in stored
    assert stored["slaveReadEnable"] is False


def test_volumes_do_not_shrink(namespace: Namespace) -> None:
    create(namespace, {**CLUSTER, "spec": {**CLUSTER["spec"], "storage": {"size": "30Gi"}}})
    smaller = '{"spec": {"storage": {"size": "20Gi"}}}'
    patch = ("patch", "brokerclusters.failback.dev", "orders", "--type=merge", "-p", smaller)
    done = namespace.kubectl(*patch, check=False)
    assert done.code != 0
    assert re.search(rf"{INVALID}spec\.storage: {VALUE}storage can't shrink", done.err), done.err


# --- what the operator says; no broker runs ------------------------------------------------------


@pytest.fixture(scope="module")
def quiet(control_plane: ControlPlane, node: NodeProcess) -> Iterator[Namespace]:
    """A namespace whose pods only pretend, with a name server and an operator."""
    namespace = Namespace(control_plane)
    try:
        namespace.pretend_pods()
        with operator(namespace):
            create(namespace, NAME_SERVER)
            yield namespace
    finally:
        namespace.clean_up()


def cluster(namespace: Namespace, name: str, **spec: Any) -> None:
    """Create a cluster of one pair without slaves."""
    wanted = {"nameServerRef": {"name": "main"}, "slavesPerPair": 0, **spec}
    create(namespace, {**CLUSTER, "metadata": {"name": name}, "spec": wanted})


def told(
    namespace: Namespace, name: str, kind: str, reason: str, words: str = "", seconds: float = 60
) -> str:
    """Wait until a condition has a reason and holds these words; return its whole message."""

    def holds(item: Object) -> bool:
        found = condition_of(item, kind)
        return found.get("reason") == reason and words in found["message"]

    try:
        found = namespace.api.wait("BrokerCluster", name, holds, seconds=seconds)
    except AssertionError:
        status = namespace.api.get("BrokerCluster", name).get("status")
        raise AssertionError(f"{name}: {status}, not {kind} {reason} {words}") from None
    return str(condition_of(found, kind)["message"])


def test_a_value_that_only_the_catalogue_knows_to_be_wrong_makes_nothing(quiet: Namespace) -> None:
    cluster(quiet, "soon", config={"fileReservedTime": "soon"})
    words = 'config_keys spec.config: fileReservedTime: must be an integer, got "soon"'
    assert told(quiet, "soon", "Ready", "InvalidSpec") == words
    wait_for_event(quiet, "InvalidSpec")
    assert wait_for_event(quiet, "ConfigRejected")["message"] == words
    assert quiet.api.list("StatefulSet", labels="failback.dev/cluster=soon") == []


def test_a_cluster_is_kept_by_its_last_valid_spec(quiet: Namespace) -> None:
    api = quiet.api
    cluster(quiet, "steady")
    api.wait("Pod", "steady-0-0-0", is_true("Ready"))
    api.wait("ConfigMap", "steady-last-valid-spec")
    broken = {"spec": {"config": {"fileReservedTime": "soon"}}}
    api.patch("BrokerCluster", "steady", broken)
    words = told(quiet, "steady", "Ready", "InvalidSpec")
    assert told(quiet, "steady", "Stalled", "InvalidSpec") == words
    found = api.get("BrokerCluster", "steady")
    observed = found["status"].get("observedGeneration", found["metadata"]["generation"])
    assert observed == found["metadata"]["generation"], "kstatus looks no further otherwise"
    for kind in ("StatefulSet", "Service"):
        name = {"StatefulSet": "steady-0-0", "Service": "steady-brokers"}[kind]
        before = uid_of(api.get(kind, name))
        api.delete(kind, name)
        api.wait(kind, name, _is_not(before), seconds=60)
    file = api.get("ConfigMap", "steady-0-0")["data"]["broker.conf"]
    assert "fileReservedTime" not in file
    api.patch("BrokerCluster", "steady", {"spec": {"config": {"fileReservedTime": "12"}}})
    api.wait("ConfigMap", "steady-0-0", lambda item: "Time=12\n" in item["data"]["broker.conf"])
    api.wait("BrokerCluster", "steady", lambda item: not is_true("Stalled")(item))


def uid_of(item: Object) -> str:
    return str(item["metadata"]["uid"])


def _is_not(uid: str) -> Callable[[Object], bool]:
    return lambda item: uid_of(item) != uid


def test_the_younger_of_two_clusters_of_one_broker_name_waits(quiet: Namespace) -> None:
    cluster(quiet, "first")
    quiet.api.wait("Pod", "first-0-0-0", is_true("Ready"))
    cluster(quiet, "second", brokerNamePrefix="first")
    words = told(quiet, "second", "Ready", "NameTaken")
    assert words.startswith(f"BrokerCluster {quiet.name}/first is older")
    assert told(quiet, "second", "Stalled", "NameTaken") == words
    for kind in ("StatefulSet", "Service", "ConfigMap", "Pod"):
        assert quiet.api.list(kind, labels="failback.dev/cluster=second") == []
    quiet.api.delete("BrokerCluster", "first")
    quiet.api.wait("StatefulSet", "second-0-0", seconds=60)


def test_a_key_that_no_broker_knows_is_told_and_left_out(quiet: Namespace) -> None:
    cluster(quiet, "typo", config={"fileReservedTimes": "48"})
    message = told(quiet, "typo", "Warning", "UnknownConfigKey")
    hint = "fileReservedTimes is not a broker.conf key of failback [^,]*"
    assert re.fullmatch(f'UnknownConfigKey: {hint}, did you mean "fileReservedTime"\\?', message)
    file = quiet.api.wait("ConfigMap", "typo-0-0")["data"]["broker.conf"]
    assert "fileReservedTimes" not in file
    accepted = {"failback.dev/accept-unknown-key": "fileReservedTimes"}
    quiet.api.patch("BrokerCluster", "typo", {"metadata": {"annotations": accepted}})
    quiet.api.wait("ConfigMap", "typo-0-0", lambda item: "Times=48" in item["data"]["broker.conf"])


def test_an_upgrade_that_has_no_way_back_asks_first(quiet: Namespace) -> None:
    cluster(quiet, "oneway", engine={"type": "Apache", "version": "4.9.99"})
    assert "nearest: 4.9.8 or 5.0.0" in told(quiet, "oneway", "Warning", "UnknownVersion")
    quiet.api.wait("StatefulSet", "oneway-0-0")
    patch = {"spec": {"engine": {"version": "5.3.3"}, "config": {"timerWheelEnable": "true"}}}
    quiet.api.patch("BrokerCluster", "oneway", patch)
    message = told(quiet, "oneway", "Warning", "EngineChangeRefused")
    assert "failback.dev/accept-quirk=storeUpgrade begins this upgrade" in message
    assert version_of(quiet.api.get("StatefulSet", "oneway-0-0")) == "4.9.99"
    accepted = {"failback.dev/accept-quirk": "storeUpgrade"}
    quiet.api.patch("BrokerCluster", "oneway", {"metadata": {"annotations": accepted}})
    quiet.api.wait("StatefulSet", "oneway-0-0", lambda item: version_of(item) == "5.3.3")
    file = quiet.api.wait("ConfigMap", "oneway-0-0")["data"]["broker.conf"]
    assert "timerWheelEnable=true" in file


def version_of(statefulset: Object) -> str:
    """Return the engine's version in a StatefulSet's template."""
    labels = statefulset["spec"]["template"]["metadata"]["labels"]
    return str(labels["app.kubernetes.io/version"])


def test_what_keeps_a_pod_from_a_node_is_told_in_the_schedulers_words(quiet: Namespace) -> None:
    """No node has the label; the test says of the pods what a scheduler would."""
    nowhere: dict[str, Any] = {"podTemplate": {"nodeSelector": {"disk": "nvme"}}}
    cluster(quiet, "placeless", **nowhere)
    cluster(quiet, "volumeless", **nowhere, storage={"storageClassName": "fast"})
    words = {
        "placeless": "0/1 nodes are available: 1 node(s) didn't match Pod's node selector.",
        "volumeless": "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
    }
    for name, message in words.items():
        quiet.api.wait("Pod", f"{name}-0-0-0")
        entry = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
        }
        status = {"status": {"conditions": [entry]}}
        quiet.api.patch("Pod", f"{name}-0-0-0", status, type="strategic", subresource="status")
    expected = f"placeless-0-0-0: {words['placeless']}"
    assert told(quiet, "placeless", "Ready", "Unschedulable") == expected
    expected = f"data-volumeless-0-0-0 of fast is Pending: {words['volumeless']}"
    message = told(quiet, "volumeless", "Ready", "ClaimPending", "0/1 nodes")
    assert message == expected
    assert quiet.api.get("PersistentVolumeClaim", "data-volumeless-0-0-0")["metadata"]


def test_what_people_delete_comes_back_around_its_volume(quiet: Namespace) -> None:
    cluster(quiet, "lost")
    api, member = quiet.api, "lost-0-0"
    api.wait("Pod", f"{member}-0", is_true("Ready"))
    claim = api.get("PersistentVolumeClaim", f"data-{member}-0")["metadata"]["uid"]

    def delete(propagation: str) -> tuple[str, Object]:
        """Delete the StatefulSet; return the uid of the pod before, and the pod after."""
        old = api.get("StatefulSet", member)["metadata"]["uid"]
        pod = api.get("Pod", f"{member}-0")["metadata"]["uid"]
        api.delete("StatefulSet", member, propagation=propagation)
        new = api.wait("StatefulSet", member, lambda item: item["metadata"]["uid"] != old)

        def is_adopted(item: Object) -> bool:
            owners = item["metadata"].get("ownerReferences", [])
            return [each["uid"] for each in owners] == [new["metadata"]["uid"]]

        return pod, api.wait("Pod", f"{member}-0", is_adopted)

    before, after = delete("Orphan")
    assert after["metadata"]["uid"] == before, "the pod is adopted"
    before, after = delete("Background")
    assert after["metadata"]["uid"] != before, "the pod is replaced"
    assert f"data-{member}-0" in claims_of(after)
    assert api.get("PersistentVolumeClaim", f"data-{member}-0")["metadata"]["uid"] == claim


def claims_of(pod: Object) -> list[str]:
    """Return the names of the claims that a pod mounts."""
    volumes = pod["spec"]["volumes"]
    return [item["persistentVolumeClaim"]["claimName"] for item in volumes if is_claim(item)]


def is_claim(volume: Object) -> bool:
    return "persistentVolumeClaim" in volume


def is_owned(found: Object) -> bool:
    return bool(found["metadata"].get("ownerReferences"))


def test_claims_go_with_their_cluster_where_that_is_asked_for(quiet: Namespace) -> None:
    for name, goes in (("kept", False), ("wiped", True)):
        cluster(quiet, name, storage={"deleteClaim": goes})
        quiet.api.wait("Pod", f"{name}-0-0-0", is_true("Ready"))
        # The controller of StatefulSets makes itself the owner of such a claim at a later look.
        quiet.api.wait("PersistentVolumeClaim", f"data-{name}-0-0-0", is_owned if goes else bool)
        quiet.api.delete("BrokerCluster", name)
        quiet.api.wait_gone("StatefulSet", f"{name}-0-0")
        quiet.api.wait_gone("Pod", f"{name}-0-0-0")
    quiet.api.wait_gone("PersistentVolumeClaim", "data-wiped-0-0-0")
    kept = quiet.api.get("PersistentVolumeClaim", "data-kept-0-0-0")["metadata"]
    assert "deletionTimestamp" not in kept


def test_a_name_server_that_vanishes_changes_no_broker(quiet: Namespace) -> None:
    api = quiet.api
    other = {**NAME_SERVER, "metadata": {"name": "brief"}}
    cluster(quiet, "left", nameServerRef={"name": "brief"})
    assert told(quiet, "left", "Ready", "NameServerMissing") == "there is no NameServer brief"
    assert api.list("StatefulSet", labels="failback.dev/cluster=left") == []
    create(quiet, other)
    api.wait("Pod", "left-0-0-0", is_true("Ready"))
    before = [api.get(kind, "left-0-0") for kind in ("StatefulSet", "ConfigMap")]
    pod = api.get("Pod", "left-0-0-0")["metadata"]["uid"]
    api.delete("NameServer", "brief")
    assert told(quiet, "left", "Ready", "NameServerMissing") == "there is no NameServer brief"
    after = [api.get(kind, "left-0-0") for kind in ("StatefulSet", "ConfigMap")]
    assert [item.get("spec", item.get("data")) for item in after] == [
        item.get("spec", item.get("data")) for item in before
    ]
    assert api.get("Pod", "left-0-0-0")["metadata"]["uid"] == pod


def test_two_operators_of_different_releases_tell_of_each_other(
    namespace: Namespace, node: NodeProcess
) -> None:
    namespace.pretend_pods()
    releases = {"one": "0.1.0", "two": "0.2.0"}
    both = [
        OperatorProcess(
            namespace,
            operator_identity(namespace, name=name),
            FAILBACK_VERSION=release,
            FAILBACK_RESYNC_SECONDS="2",
        )
        for name, release in releases.items()
    ]
    try:
        for running in both:
            running.start()
        for running in both:
            running.wait_until_ready()
        create(namespace, NAME_SERVER)
        cluster(namespace, "orders")
        words = "AnotherOperator: operators of versions 0.1.0 and 0.2.0 both act on it"
        assert told(namespace, "orders", "Warning", "AnotherOperator", seconds=120) == words
    finally:
        for running in both:
            running.process.dispose()


# --- what the operator says of brokers that run, or try to ---------------------------------------


def test_an_image_that_cannot_be_pulled_is_named_with_its_pod(
    namespace: Namespace, node: NodeProcess
) -> None:
    with operator(namespace):
        image = "failback/broker:does-not-exist"
        engine = {"type": "Failback", "image": image}
        create(namespace, NAME_SERVER, {**CLUSTER, "spec": {**CLUSTER["spec"], "engine": engine}})
        first = "orders-0-0-0: "
        message = told(namespace, "orders", "Ready", "ImagePullError", first, seconds=120)
        kubelet = f'ImagePullBackOff: Back-off pulling image "{image}"'
        assert message == f"{first}{image}: {kubelet}"


@pytest.mark.soak
async def test_a_broker_that_refuses_its_store_is_told_with_its_last_words(
    namespace: Namespace, node: NodeProcess, control_plane: ControlPlane
) -> None:
    """A cluster is made again over the volume of an earlier one whose files had another size."""
    size = "mappedFileSizeCommitLog"
    small = {"failbackTimeScale": "0.1", size: str(4 * 1024 * 1024)}
    large = {**small, size: str(8 * 1024 * 1024)}
    with operator(namespace) as running:
        create(namespace, NAME_SERVER)
        cluster(namespace, "orders", config=small)
        api = namespace.api
        api.wait("BrokerCluster", "orders", is_true("Ready"), seconds=120)
        server = f"main-ns-0.main-ns.{namespace.name}.svc.cluster.local:9876"
        async with Producer("shop", ClientSettings(namesrv_addrs=(server,))) as producer:
            await producer.send(Message("PAID", b"the first file"))
        api.delete("BrokerCluster", "orders")
        for kind, name in (("StatefulSet", "orders-0-0"), ("Pod", "orders-0-0-0")):
            api.wait_gone(kind, name, seconds=120)
        mark = control_plane.audit.mark()
        cluster(namespace, "orders", config=large)
        message = told(namespace, "orders", "Ready", "MasterDown", "exit code", seconds=120)
        hint = "store was written with mappedFileSizeCommitLog, "
        ended = f"orders-0-0-0 is not ready: broker ended with exit code 253 ({hint}"
        assert message.startswith(ended)
        assert "failback broker: stopped: " in message
        api.wait(
            "Pod",
            "orders-0-0-0",
            lambda item: item["status"]["containerStatuses"][0]["restartCount"] > 1,
            seconds=120,
        )
        writes = control_plane.audit.writes(since=mark, user=running.identity.user)
        assert [item for item in writes if item.resource.startswith("pods")] == []

        api.patch("BrokerCluster", "orders", {"spec": {"config": small}})
        api.wait("BrokerCluster", "orders", is_true("Ready"), seconds=240)
