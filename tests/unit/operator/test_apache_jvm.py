"""The JVM of Apache's servers fits its container, and its logs fit their volume."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

from failback.operator.kinds.base import Resources, parse_quantity
from failback.operator.local.apache_release import Apache
from failback.operator.local.podspec import Volume, pods_of
from failback.operator.local.root import Root
from failback.operator.render.apache import excess, logback
from failback.operator.render.context import Object, kubernetes_context
from failback.operator.render.objects import render
from failback.operator.schema.decoding import decode

APACHE: Final = Apache("java", Path("/lib"), Path("/home"))
NEW: Final = "0.2.0"
BEFORE: Final = "0.1.0"
HOME: Final = "/home/rocketmq"
GC_LOG: Final = 5 * 30 * 1024**2
"""What runbroker-customize.sh lets the GC log of Java 8 be."""


def item(kind: str, spec: dict[str, Any]) -> Any:
    name = {"NameServer": "main", "BrokerCluster": "demo"}[kind]
    head = {"apiVersion": "failback.dev/v1alpha1", "metadata": {"name": name}}
    return decode({**head, "kind": kind, "spec": spec})


def rendered(
    version: str = "4.9.7", release: str = NEW, engine: dict[str, Any] | None = None, **spec: Any
) -> dict[str, Object]:
    asked: dict[str, Any] = {"type": "Apache", "version": version, **(engine or {})}
    servers: dict[str, Any] = {key: spec[key] for key in ("resources", "metrics") if key in spec}
    items = [
        item("NameServer", {"engine": asked, **servers}),
        item("BrokerCluster", {"engine": asked, "nameServerRef": {"name": "main"}, **spec}),
    ]
    context = kubernetes_context("default", release, pod_monitors=True)
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in render(items, context)}


def server(objects: dict[str, Object], of: str = "demo-0-0") -> dict[str, Any]:
    return dict(objects[f"StatefulSet/{of}"]["spec"]["template"]["spec"]["containers"][0])


def java_options(container: dict[str, Any]) -> str:
    (found,) = [each["value"] for each in container["env"] if each["name"] == "JAVA_OPT_EXT"]
    return str(found)


def mebibytes(option: str, options: str) -> int:
    """Return the last size that an option has: the JVM takes that one."""
    found = re.findall(rf"{option}(\d+)([mg])(?: |$)", options)
    return int(found[-1][0]) * (1024 if found[-1][1] == "g" else 1)


def test_heap_and_direct_memory_follow_the_limit() -> None:
    broker, names = "demo-0-0", "main-ns"
    for of, resources, given, limit, heap in (
        (broker, {}, "", 1024, 512),
        (names, {}, "", 512, 256),
        (names, {"requests": {"memory": "2Gi"}}, "", 2048, 1024),
        (broker, {"requests": {"memory": "6Gi"}}, "", 6144, 3072),
        (broker, {"limits": {"memory": "16Gi"}}, "", 16384, 8192),
        (broker, {"limits": {"memory": 4 * 1024**3}}, "", 4096, 2048),
        (broker, {"limits": {"cpu": "2"}}, "", 1024, 512),
        (broker, {"limits": {"memory": "0"}}, "", 1024, 512),
        (broker, {}, "-Xmx3g -XX:+UseZGC", 6144, 3072),
        (broker, {"limits": {"memory": "8Gi"}}, "-Xms1g -Xmx2g", 8192, 2048),
        (broker, {"requests": {"memory": "9Gi"}}, "-XX:MaxHeapSize=2048m", 9216, 2048),
    ):
        engine = {"javaOptions": given} if given else {}
        found = server(rendered(engine=engine, resources=resources), of)
        options, case = java_options(found), f"{of} {resources} {given}"
        assert parse_quantity(found["resources"]["limits"]["memory"]) == limit * 1024**2, case
        assert mebibytes("-Xmx", options) == heap, case
        assert mebibytes("-Xms", options) <= heap, case
        assert mebibytes("-Xmn", options) < heap, case
        assert mebibytes("-XX:MaxDirectMemorySize=", options) == limit // 8, case
        assert 4 * (heap + 2 * (limit // 8)) <= 3 * limit, f"{case}: nothing is left"
        assert options.endswith(given), case
        assert "/dev/shm" not in options
        assert f"-Xloggc:{HOME}/logs/gc.log" in options


def test_a_heap_that_its_limit_does_not_hold_is_told() -> None:
    engine = item("NameServer", {"engine": {"type": "Apache", "version": "4.9.7"}}).spec.engine
    for given, limit, wrong in (
        ("-Xmx4g", "4Gi", True),
        ("-Xmx3g -Xmx6g", "6Gi", True),
        ("-Xmx3g", "4Gi", False),
        ("-Xmx4g", None, False),
        ("", "1Gi", False),
    ):
        asked = engine.model_copy(update={"java_options": given})
        resources = Resources.model_validate({"limits": {"memory": limit}} if limit else {})
        assert bool(excess(asked, resources)) is wrong, (given, limit)
        if wrong:
            assert f"limits.memory, {limit}" in excess(asked, resources)


def test_pods_of_an_earlier_release_stay_as_they_were() -> None:
    for of in ("demo-0-0", "main-ns"):
        objects = rendered(release=BEFORE, config={"metricsExporterType": "PROM"}, version="5.3.3")
        found = server(objects, of)
        assert "limits" not in found["resources"]
        assert java_options(found) == f"-Duser.home={HOME} -Djava.io.tmpdir={HOME}/scratch"
        assert "logback.xml" not in objects[f"ConfigMap/{of}"]["data"]
        assert {port["name"] for port in found["ports"]} <= {"remoting", "fast", "ha"}
        inits = objects[f"StatefulSet/{of}"]["spec"]["template"]["spec"]["initContainers"]
        assert not any("resources" in each for each in inits)


def test_log_files_stay_below_half_of_their_volume() -> None:
    for name in ("broker", "namesrv"):
        tree = ElementTree.fromstring(logback(name))
        names = [each.text or "" for each in tree.iter("file")]
        assert names == [f"${{user.home}}/logs/rocketmqlogs/{name}.log"]
        (size,), (rotated,) = tree.iter("maxFileSize"), tree.iter("maxIndex")
        whole = int((size.text or "").removesuffix("MB")) * 1024**2 * (1 + int(rotated.text or ""))
        volumes = rendered()["StatefulSet/demo-0-0"]["spec"]["template"]["spec"]["volumes"]
        (logs,) = [each["emptyDir"] for each in volumes if each["name"] == "logs"]
        assert 2 * (whole + GC_LOG) <= parse_quantity(logs["sizeLimit"])


def test_each_version_finds_the_file_where_it_looks() -> None:
    for version, of, name in (
        ("4.9.7", "demo-0-0", "logback_broker.xml"),
        ("4.9.7", "main-ns", "logback_namesrv.xml"),
        ("5.0.0", "demo-0-0", "logback_broker.xml"),
        ("5.3.3", "demo-0-0", "rmq.broker.logback.xml"),
        ("5.3.3", "main-ns", "rmq.namesrv.logback.xml"),
    ):
        objects = rendered(version)
        path = f"{HOME}/rocketmq-{version}/conf/{name}"
        mount = {"mountPath": path, "subPath": "logback.xml", "readOnly": True}
        assert server(objects, of)["volumeMounts"][-1] == {"name": "desired", **mount}
        assert objects[f"ConfigMap/{of}"]["data"]["logback.xml"].startswith("<?xml")
        options = java_options(server(objects, of))
        assert f"-Drocketmq.home.dir={HOME}/rocketmq-{version} " in options
        assert f"-Drmq.logback.configurationFile={path} " in options

        mine = rendered(version, engine={"logs": {"configMap": "mine", "sizeLimit": "4Gi"}})
        assert server(mine, of)["volumeMounts"][-1] == {"name": "logback", **mount}
        assert "logback.xml" not in mine[f"ConfigMap/{of}"]["data"]
        volumes = mine[f"StatefulSet/{of}"]["spec"]["template"]["spec"]["volumes"]
        assert {"name": "logs", "emptyDir": {"sizeLimit": "4Gi"}} in volumes
        assert {"name": "logback", "configMap": {"name": "mine"}} in volumes


def test_the_local_runtime_lays_the_file_where_the_jvm_looks() -> None:
    objects = rendered("5.3.3")
    by_kind = {(each["kind"], each["metadata"]["name"]): each for each in objects.values()}
    manifest = objects["StatefulSet/demo-0-0"]
    (pod,) = pods_of(manifest, by_kind, Root("/somewhere"), APACHE)
    files = {"rmq.broker.logback.xml": logback("broker")}
    assert Volume(f"{HOME}/rocketmq-5.3.3/conf", files=files) in pod.volumes


def test_a_broker_with_an_exporter_has_its_port() -> None:
    monitored = {"podMonitor": {"enabled": True}}
    for config, port in (
        ({}, None),
        ({"metricsExporterType": "LOG"}, None),
        ({"metricsExporterType": "PROM"}, 5557),
        ({"metricsExporterType": "PROM", "metricsPromExporterPort": "9100"}, 9100),
    ):
        objects = rendered("5.3.3", config=config, metrics=monitored)
        ports = {each["name"]: each["containerPort"] for each in server(objects)["ports"]}
        assert ports.get("prometheus") == port
        conf = objects["ConfigMap/demo-0-0"]["data"]["broker.conf"]
        assert ("metricsPromExporterHost=${POD_IP}\n" in conf) is (port is not None)
        scraped = objects["PodMonitor/demo"]["spec"]["podMetricsEndpoints"]
        assert [each["port"] for each in scraped] == ["http", "prometheus"]


def test_a_quota_finds_requests_and_limits_in_all_our_containers() -> None:
    for version in ("4.9.7", None):
        engine = {} if version else {"type": "Failback", "version": NEW}
        objects = rendered(version or "", engine=engine)
        for of in ("demo-0-0", "main-ns"):
            pod = objects[f"StatefulSet/{of}"]["spec"]["template"]["spec"]
            for each in pod["initContainers"]:
                for field in ("requests", "limits"):
                    assert set(each["resources"][field]) == {"cpu", "memory"}, each["name"]
