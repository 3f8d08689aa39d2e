"""The lab's node does what a kubelet does, with processes of this machine."""

from __future__ import annotations

import json
import socket
import sys
from typing import Any

import pytest

from tests.support.common.polling import wait_until
from tests.support.kube_lab.api import ApiError, Object
from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess

pytestmark = pytest.mark.soak

SERVER = """
import http.server, os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if os.path.exists(f"/lab/scratch{self.path}") else 503)
        self.end_headers()
    def log_message(self, *args): pass
print("serving", flush=True)
open("/lab/scratch/ready", "w").close()
http.server.HTTPServer((os.environ["POD_IP"], 8088), Handler).serve_forever()
"""
"""Ready as long as /lab/scratch/ready exists; ends in order at SIGTERM."""

POD_IP: Object = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}


def container(command: list[str], name: str = "main", **more: Any) -> Object:
    return {"name": name, "image": "lab", "command": command, "env": [POD_IP], **more}


def shell(text: str, name: str = "main", **more: Any) -> Object:
    return container(["/bin/sh", "-c", text], name, **more)


def server(**more: Any) -> Object:
    probe = {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 1}
    return container(
        [sys.executable, "-c", SERVER],
        ports=[{"name": "http", "containerPort": 8088}],
        readinessProbe={**probe, "failureThreshold": 1},
        volumeMounts=[{"name": "scratch", "mountPath": "/lab/scratch"}],
        **more,
    )


def pod(name: str, *containers: Object, **spec: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "containers": list(containers),
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 30,
            "volumes": [{"name": "scratch", "emptyDir": {}}],
            **spec,
        },
    }


def is_ready(found: Object) -> bool:
    conditions = found.get("status", {}).get("conditions") or ()
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def main_status(found: Object) -> Object:
    return dict(found["status"]["containerStatuses"][0])


def ended(found: Object) -> bool:
    return found["status"]["phase"] in ("Succeeded", "Failed")


def test_a_container_that_dies_is_started_again_and_the_status_tells_how(
    namespace: Namespace, node: NodeProcess
) -> None:
    namespace.api.create(pod("a", server()))
    before = namespace.api.wait("Pod", "a", is_ready)
    assert before["status"]["podIP"].startswith("127.77.")
    assert main_status(before)["restartCount"] == 0
    node.kill_container(namespace.name, "a")
    after = namespace.api.wait(
        "Pod", "a", lambda found: main_status(found)["restartCount"] == 1 and is_ready(found)
    )
    assert main_status(after)["lastState"]["terminated"]["exitCode"] == 137
    assert main_status(after)["containerID"] != main_status(before)["containerID"]
    assert after["status"]["podIP"] == before["status"]["podIP"]


def test_readiness_follows_the_probe(namespace: Namespace, node: NodeProcess) -> None:
    namespace.api.create(pod("a", server()))
    namespace.api.wait("Pod", "a", is_ready)
    namespace.kubectl("exec", "a", "--", "rm", "/lab/scratch/ready")
    found = namespace.api.wait("Pod", "a", lambda found: not is_ready(found))
    assert main_status(found)["restartCount"] == 0
    namespace.kubectl("exec", "a", "--", "touch", "/lab/scratch/ready")
    namespace.api.wait("Pod", "a", is_ready)


def test_liveness_restarts_what_no_longer_answers(namespace: Namespace, node: NodeProcess) -> None:
    alive = {"exec": {"command": ["test", "!", "-e", "/lab/scratch/dead"]}, "periodSeconds": 1}
    namespace.api.create(pod("a", server(livenessProbe={**alive, "failureThreshold": 1})))
    namespace.api.wait("Pod", "a", is_ready)
    namespace.kubectl("exec", "a", "--", "touch", "/lab/scratch/dead")
    namespace.api.wait("Pod", "a", lambda found: main_status(found)["restartCount"] > 0)


def test_a_readiness_gate_is_opened_by_its_condition(
    namespace: Namespace, node: NodeProcess
) -> None:
    gate = "lab.failback.dev/open"
    namespace.api.create(pod("a", server(), readinessGates=[{"conditionType": gate}]))
    found = namespace.api.wait("Pod", "a", lambda found: main_status(found)["ready"])
    assert not is_ready(found)
    condition = {"type": gate, "status": "True"}
    namespace.api.patch(
        "Pod", "a", {"status": {"conditions": [condition]}}, type="strategic", subresource="status"
    )
    namespace.api.wait("Pod", "a", is_ready)


def test_init_containers_run_in_order_and_hand_over_messages(
    namespace: Namespace, node: NodeProcess
) -> None:
    mount = [{"name": "scratch", "mountPath": "/lab/scratch"}]
    first = shell("echo one >/lab/scratch/said; echo well >/dev/termination-log", "first")
    second = shell("cat /lab/scratch/said >/dev/termination-log; exit 3", "second")
    manifest = pod("a", server(), restartPolicy="Always")
    manifest["spec"]["initContainers"] = [
        {**first, "volumeMounts": mount},
        {**second, "volumeMounts": mount},
    ]
    namespace.api.create(manifest)
    found = namespace.api.wait(
        "Pod",
        "a",
        lambda found: (
            found["status"]
            .get("initContainerStatuses", [{}])[-1]
            .get("lastState", {})
            .get("terminated")
        ),
    )
    inits = found["status"]["initContainerStatuses"]
    assert inits[0]["state"]["terminated"]["message"] == "well\n"
    assert inits[1]["lastState"]["terminated"]["exitCode"] == 3
    assert inits[1]["lastState"]["terminated"]["message"] == "one\n"
    assert found["status"]["phase"] == "Pending"
    assert "waiting" in main_status(found)["state"]


def test_a_pod_that_never_restarts_ends_with_result_and_phase(
    namespace: Namespace, node: NodeProcess
) -> None:
    namespace.api.create(
        pod("good", shell("echo '{}' >/dev/termination-log"), restartPolicy="Never")
    )
    namespace.api.create(pod("bad", shell("exit 7"), restartPolicy="Never"))
    good = namespace.api.wait("Pod", "good", ended)
    bad = namespace.api.wait("Pod", "bad", ended)
    assert (good["status"]["phase"], bad["status"]["phase"]) == ("Succeeded", "Failed")
    assert main_status(good)["state"]["terminated"]["message"] == "{}\n"
    assert main_status(bad)["state"]["terminated"]["exitCode"] == 7


def test_a_job_completes_and_one_that_fails_says_so(
    namespace: Namespace, node: NodeProcess
) -> None:
    for name, text in (("good", "exit 0"), ("bad", "exit 1")):
        template = {"spec": {**pod(name, shell(text))["spec"], "restartPolicy": "Never"}}
        namespace.api.create(
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": name},
                "spec": {"backoffLimit": 0, "template": template},
            }
        )
    namespace.api.wait("Job", "good", lambda job: job["status"].get("succeeded") == 1)
    namespace.api.wait("Job", "bad", lambda job: job["status"].get("failed") == 1)


def test_deletion_gives_time_and_then_kills(namespace: Namespace, node: NodeProcess) -> None:
    patient = shell('trap "" TERM; echo up; while :; do sleep 0.1; done')
    namespace.api.create(pod("a", server()))
    namespace.api.create(pod("b", patient, terminationGracePeriodSeconds=1))
    namespace.api.wait("Pod", "a", is_ready)
    namespace.api.wait("Pod", "b", is_ready)
    pids = [node.pid(namespace.name, name) for name in ("a", "b")]
    namespace.api.delete("Pod", "a")
    namespace.api.delete("Pod", "b")
    namespace.api.wait_gone("Pod", "a")
    namespace.api.wait_gone("Pod", "b")
    for pid in pids:
        wait_until(lambda pid=pid: not _runs(pid), f"the end of {pid}")  # type: ignore[misc]


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_mounts_appear_at_their_paths_for_the_container_alone(
    namespace: Namespace, node: NodeProcess
) -> None:
    namespace.api.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "conf"},
            "data": {"a.conf": "x=1"},
        }
    )
    read = "cat /lab/conf/a.conf; touch /lab/conf/b 2>/dev/null || echo refused; hostname"
    manifest = pod("a", shell(f"({read}) >/dev/termination-log"), restartPolicy="Never")
    manifest["spec"]["volumes"].append({"name": "conf", "configMap": {"name": "conf"}})
    manifest["spec"]["containers"][0]["volumeMounts"] = [
        {"name": "conf", "mountPath": "/lab/conf", "readOnly": True}
    ]
    namespace.api.create(manifest)
    found = namespace.api.wait("Pod", "a", ended)
    assert main_status(found)["state"]["terminated"]["message"] == "x=1refused\na\n"


STATEFUL_SET = """
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {clusterIP: None, selector: {app: web}, publishNotReadyAddresses: true, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web}
spec:
  serviceName: web
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - name: main
          image: lab
          command: [sh, -c, "date +%N >>/lab/data/starts; exec sleep 1000"]
          volumeMounts: [{name: data, mountPath: /lab/data}]
      terminationGracePeriodSeconds: 0
  volumeClaimTemplates:
    - metadata: {name: data}
      spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"""


def resolved(name: str) -> str:
    try:
        return socket.gethostbyname(name)
    except OSError:
        return ""


def test_a_claim_keeps_its_data_and_names_resolve(namespace: Namespace, node: NodeProcess) -> None:
    namespace.kubectl("apply", "-f", "-", stdin=STATEFUL_SET)
    first = namespace.api.wait("Pod", "web-0", is_ready)
    data = node.claim_folder(namespace.name, "data-web-0") / "starts"
    wait_until(lambda: data.exists() and data.read_text(), "the first start")
    name = f"web-0.web.{namespace.name}.svc.cluster.local"
    assert socket.gethostbyname(name) == first["status"]["podIP"]
    service = f"web.{namespace.name}.svc.cluster.local"
    wait_until(lambda: resolved(service) == first["status"]["podIP"], "the service's name")
    inside = namespace.kubectl("exec", "web-0", "--", "getent", "hosts", "web-0.web")
    assert inside.out.split()[0] == first["status"]["podIP"]
    namespace.api.delete("Pod", "web-0")
    second = namespace.api.wait(
        "Pod",
        "web-0",
        lambda found: found["metadata"]["uid"] != first["metadata"]["uid"] and is_ready(found),
    )
    assert second["status"]["podIP"] != first["status"]["podIP"]
    wait_until(lambda: len(data.read_text().splitlines()) == 2, "the second start")
    wait_until(lambda: resolved(name) == second["status"]["podIP"], "the new address")


def test_a_pod_resolves_the_names_of_other_namespaces(
    namespace: Namespace, node: NodeProcess, control_plane: ControlPlane
) -> None:
    other = Namespace(control_plane, labels={"pod-security.kubernetes.io/enforce": "privileged"})
    try:
        for each in (namespace, other):
            each.kubectl("apply", "-f", "-", stdin=STATEFUL_SET)
        found = [each.api.wait("Pod", "web-0", is_ready) for each in (namespace, other)]
        for name in (f"web-0.web.{namespace.name}", f"web-0.web.{namespace.name}.svc"):
            inside = other.kubectl("exec", "web-0", "--", "getent", "hosts", name)
            assert inside.out.split()[0] == found[0]["status"]["podIP"]
        own = other.kubectl("exec", "web-0", "--", "getent", "hosts", "web-0.web")
        assert own.out.split()[0] == found[1]["status"]["podIP"]
    finally:
        other.clean_up()


def test_claims_grow_where_their_class_allows_it(namespace: Namespace, node: NodeProcess) -> None:
    for name in ("standard", "fixed"):
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": name,
            "resources": {"requests": {"storage": "1Gi"}},
        }
        namespace.api.create(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": name},
                "spec": spec,
            }
        )
        namespace.api.wait(
            "PersistentVolumeClaim", name, lambda claim: claim["status"]["phase"] == "Bound"
        )
    larger = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    namespace.api.patch("PersistentVolumeClaim", "standard", larger)
    namespace.api.wait(
        "PersistentVolumeClaim",
        "standard",
        lambda claim: claim["status"]["capacity"]["storage"] == "2Gi",
    )
    with pytest.raises(ApiError) as refused:
        namespace.api.patch("PersistentVolumeClaim", "fixed", larger)
    assert refused.value.code == 403


def test_logs_and_exec_go_through_the_api_server(namespace: Namespace, node: NodeProcess) -> None:
    namespace.api.create(pod("a", server()))
    namespace.api.wait("Pod", "a", is_ready)
    assert namespace.kubectl("logs", "a").out == "serving\n"
    done = namespace.kubectl(
        "exec", "-i", "a", "--", "sh", "-c", "cat; echo oops >&2; exit 5", stdin="in", check=False
    )
    assert (done.out, done.code) == ("in", 5)
    assert done.err.startswith("oops\n")
    node.kill_container(namespace.name, "a")
    namespace.api.wait("Pod", "a", lambda found: main_status(found)["restartCount"] == 1)
    assert namespace.kubectl("logs", "a", "--previous").out == "serving\n"


def test_an_account_token_is_mounted_and_accepted(namespace: Namespace, node: NodeProcess) -> None:
    ask = """
import json, os, ssl, urllib.request
folder = "/var/run/secrets/kubernetes.io/serviceaccount"
where = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
request = urllib.request.Request(
    f"{where}/apis/authentication.k8s.io/v1/selfsubjectreviews",
    data=b'{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}',
    headers={"Authorization": "Bearer " + open(f"{folder}/token").read(),
             "Content-Type": "application/json"})
tls = ssl.create_default_context(cafile=f"{folder}/ca.crt")
told = json.load(urllib.request.urlopen(request, context=tls))["status"]["userInfo"]["username"]
open("/dev/termination-log", "w").write(json.dumps([told, open(f"{folder}/namespace").read()]))
"""
    asking = container([sys.executable, "-c", ask])
    namespace.api.create(pod("a", asking, restartPolicy="Never", automountServiceAccountToken=True))
    found = namespace.api.wait("Pod", "a", ended)
    message = json.loads(main_status(found)["state"]["terminated"]["message"])
    user = f"system:serviceaccount:{namespace.name}:default"
    assert message == [user, namespace.name]


def test_variables_come_from_fields_config_maps_and_secrets(
    namespace: Namespace, node: NodeProcess
) -> None:
    for kind, field in (("ConfigMap", "data"), ("Secret", "stringData")):
        metadata = {"name": "values"}
        manifest = {"apiVersion": "v1", "kind": kind, "metadata": metadata, field: {"a": kind}}
        namespace.api.create(manifest)
    environment = [
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "MAP", "valueFrom": {"configMapKeyRef": {"name": "values", "key": "a"}}},
        {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "values", "key": "a"}}},
        {"name": "ALL", "value": "$(NAME) $(MAP) $(SECRET) $(UNKNOWN)"},
    ]
    told = shell('echo "$ALL $X_a $HOSTNAME" >/dev/termination-log')
    told |= {"env": environment, "envFrom": [{"prefix": "X_", "configMapRef": {"name": "values"}}]}
    namespace.api.create(pod("a", told, restartPolicy="Never"))
    found = namespace.api.wait("Pod", "a", ended)
    message = main_status(found)["state"]["terminated"]["message"]
    assert message == "a ConfigMap Secret $(UNKNOWN) ConfigMap a\n"


def test_a_container_without_a_command_starts_what_its_image_does(
    namespace: Namespace, node: NodeProcess
) -> None:
    starting = {"name": "main", "image": "example.org/failback/broker:1", "args": ["--help"]}
    namespace.api.create(pod("a", starting, restartPolicy="Never"))
    namespace.api.wait("Pod", "a", ended)
    assert "Usage: " in namespace.kubectl("logs", "a").out


def test_pods_end_with_their_node_however_it_ends(
    control_plane: ControlPlane, namespace: Namespace
) -> None:
    short_lived = NodeProcess(control_plane, "short-lived")
    try:
        short_lived.start()
        here = {"kubernetes.io/hostname": "short-lived"}
        namespace.api.create(pod("a", server(), nodeSelector=here))
        namespace.api.wait("Pod", "a", is_ready)
        pids = short_lived.pids(namespace.name, "a")
        short_lived.server.kill()
        for pid in pids:
            wait_until(lambda pid=pid: not _runs(pid), f"the end of {pid}")  # type: ignore[misc]
        short_lived.start()
        namespace.api.wait(
            "Pod",
            "a",
            lambda found: is_ready(found) and main_status(found)["restartCount"] == 1,
        )
        pids = short_lived.pids(namespace.name, "a")
    finally:
        short_lived.stop()
    assert not [pid for pid in pids if _runs(pid)]
    namespace.api.delete("Pod", "a", grace=0)
    namespace.api.delete("Node", "short-lived")


def test_pretended_pods_are_ready_without_a_process(
    namespace: Namespace, node: NodeProcess
) -> None:
    namespace.pretend_pods()
    namespace.api.create(pod("a", shell("exit 1")))
    found = namespace.api.wait("Pod", "a", is_ready)
    assert main_status(found)["containerID"].startswith("failback://pretended-")
    namespace.api.delete("Pod", "a")
    namespace.api.wait_gone("Pod", "a")


def test_an_image_that_is_not_there_is_waited_for(namespace: Namespace, node: NodeProcess) -> None:
    namespace.api.create(pod("a", shell("true") | {"image": "lab:does-not-exist"}))
    namespace.api.wait(
        "Pod",
        "a",
        lambda found: (
            found["status"].get("containerStatuses")
            and main_status(found)["state"].get("waiting", {}).get("reason") == "ImagePullBackOff"
        ),
    )


def test_a_cordoned_node_takes_no_pods(namespace: Namespace, node: NodeProcess) -> None:
    namespace.kubectl("cordon", node.name)
    try:
        namespace.api.create(pod("a", server()))
        namespace.api.wait("Pod", "a")
        assert "nodeName" not in namespace.api.get("Pod", "a")["spec"]
    finally:
        namespace.kubectl("uncordon", node.name)
    namespace.api.wait("Pod", "a", is_ready)
