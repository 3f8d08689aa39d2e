"""What the local runtime can't honour is refused by path before anything starts."""

from __future__ import annotations

import hashlib
import itertools
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from failback.operator.kinds.base import Resource
from failback.operator.local.addresses import (
    BLOCK,
    allocate,
    check_addresses,
    check_blocks,
    holder,
    local_context,
    loopback_address,
)
from failback.operator.local.apache_release import ensure_apache, find_apache, find_java
from failback.operator.local.podspec import to_argv
from failback.operator.local.root import Root, read_json
from failback.operator.local.runtime import refuse_what_cannot_run
from failback.operator.local.supported import refuse_unsupported
from failback.operator.render.objects import render
from failback.operator.schema.decoding import decode
from failback.protocol.errors import ConfigError

SPREAD = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "ScheduleAnyway",
}


def resources(ns: dict[str, Any] | None = None, **spec: Any) -> list[Resource]:
    head = {"apiVersion": "failback.dev/v1alpha1"}
    return [
        decode({**head, "kind": "NameServer", "metadata": {"name": "main"}, "spec": ns or {}}),
        decode(
            {
                **head,
                "kind": "BrokerCluster",
                "metadata": {"name": "demo"},
                "spec": {"nameServerRef": {"name": "main"}, **spec},
            }
        ),
    ]


def refusal(items: list[Resource]) -> str:
    root = Root("/somewhere")
    ports = {"main-ns": 1000, "demo-0-0": 1010, "demo-0-1": 1020}
    with pytest.raises(ConfigError) as caught:
        refuse_unsupported(render(items, local_context("default", root, ports, "0.1.0")), root)
    return str(caught.value)


POD = "spec.template.spec"


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"podTemplate": {"nodeSelector": {"disk": "ssd"}}}, f"{POD}.nodeSelector"),
        ({"podTemplate": {"tolerations": [{"key": "x"}]}}, f"{POD}.tolerations"),
        ({"podTemplate": {"priorityClassName": "high"}}, f"{POD}.priorityClassName"),
        ({"podTemplate": {"serviceAccountName": "x"}}, f"{POD}.serviceAccountName"),
        (
            {"podTemplate": {"topologySpreadConstraints": [SPREAD]}},
            f"{POD}.topologySpreadConstraints",
        ),
        (
            {
                "antiAffinity": {"mode": "Required"},
                "podTemplate": {
                    "affinity": {
                        "podAntiAffinity": {
                            "preferredDuringSchedulingIgnoredDuringExecution": [
                                {"weight": 10, "podAffinityTerm": {"topologyKey": "zone"}}
                            ]
                        }
                    }
                },
            },
            f"{POD}.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution",
        ),
        (
            {"antiAffinity": {"mode": "Required"}},
            f"{POD}.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution",
        ),
        (
            {"podTemplate": {"affinity": {"nodeAffinity": {}}}},
            f"{POD}.affinity.nodeAffinity",
        ),
        (
            {"podTemplate": {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {}}}]}},
            f"{POD}.initContainers[0].env[10].valueFrom.secretKeyRef",
        ),
    ],
)
def test_a_field_without_effect_is_refused_by_path(spec: dict[str, Any], path: str) -> None:
    assert refusal(resources(**spec)) == (
        f"local: StatefulSet/demo-0-0: {path} is not supported by the local runtime"
        " (pair 0, member 0)"
    )


def test_two_apache_name_servers_would_share_a_port() -> None:
    items = resources(ns={"replicas": 2, "engine": {"type": "Apache", "version": "4.9.7"}})
    assert refusal(items) == (
        "local: StatefulSet/main-ns: spec.replicas above 1 with engine apache is not supported by"
        " the local runtime"
    )


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            {"networking": {"brokerAddress": "External", "externalTemplate": "{pair}-{ordinal}"}},
            "local: BrokerCluster/demo: spec.networking.brokerAddress: external is not supported by"
            " the local runtime",
        ),
        (
            {"external": {"type": "LoadBalancer"}},
            "local: BrokerCluster/demo: spec.external: is not supported by the local runtime",
        ),
    ],
)
def test_resources_without_a_local_meaning_are_refused(spec: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        refuse_what_cannot_run(resources(**spec))
    assert str(caught.value) == sentence


def test_an_address_is_a_function_of_namespace_and_pod() -> None:
    digest = hashlib.sha256(b"shop/orders-0-0-0").digest()
    expected = f"127.{64 + digest[0] % 64}.{digest[1]}.{1 + digest[2] % 254}"
    assert loopback_address("shop", "orders-0-0-0") == expected
    assert loopback_address("other", "orders-0-0-0") != expected


def test_two_pods_with_one_address_are_refused_by_name() -> None:
    seen: dict[str, str] = {}
    for number in itertools.count():
        pod = f"pod-{number}"
        address = loopback_address("shop", pod)
        if address in seen:
            break
        seen[address] = pod
    check_addresses("shop", seen.values())
    with pytest.raises(ConfigError, match=f"{seen[address]} and {pod} get the same address"):
        check_addresses("shop", [seen[address], "other", pod])


def test_two_roots_get_different_blocks_and_remember_them(tmp_path: Path) -> None:
    roots = [Root(tmp_path / name) for name in ("one", "two")]
    for root in roots:
        root.create()
    blocks = [allocate(root, ["a", "b"]) for root in roots]
    bases = [base for block in blocks for base in block.values()]
    assert len({base // BLOCK for base in bases}) == 4
    assert allocate(roots[0], ["b", "a"]) == blocks[0]
    assert read_json(roots[1].ports_file) == blocks[1]


def test_a_taken_port_is_named_with_its_holder(tmp_path: Path) -> None:
    root = Root(tmp_path)
    root.create()
    blocks = allocate(root, ["a"])
    with socket.socket() as taker:
        taker.bind(("127.9.8.7", blocks["a"] + 2))
        taker.listen()
        with pytest.raises(ConfigError, match=r"is already taken: 127\.9\.8\.7:\d+, pid \d+ \("):
            check_blocks(blocks)
        assert holder(blocks["a"] + 2).startswith(f"127.9.8.7:{blocks['a'] + 2}, pid ")
    check_blocks(blocks)


def test_missing_java_names_the_one_thing_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ConfigError, match="apt-get install openjdk-17-jre-headless"):
        find_java()


@pytest.fixture
def java_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make the only Java here be of a version; the cache is empty and there is no Maven."""
    java = tmp_path / "java"

    def put(version: str) -> None:
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        java.chmod(0o755)

    put("17.0.1")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("FAILBACK_APACHE_HOME", raising=False)
    return put


def test_a_version_without_its_java_or_maven_names_what_to_install(
    java_of: Callable[[str], None],
) -> None:
    with pytest.raises(ConfigError, match=r"spec.engine.version: .*apt-get install maven, or set"):
        find_apache("4.9.7")
    java_of("11.0.1")
    with pytest.raises(ConfigError, match="Java 17 or newer is needed for engine apache"):
        find_apache("4.9.7")


@pytest.mark.parametrize(
    ("version", "near"),
    [("4.9.8", "4.9.7 or 5.0.0"), ("5.3.9", "5.3.4 or 5.4.0"), ("4.8.0", "4.9.0")],
)
@pytest.mark.usefixtures("java_of")
def test_a_version_that_nobody_published_is_refused_with_the_nearest(
    version: str, near: str
) -> None:
    with pytest.raises(ConfigError, match=rf"spec\.engine\.version: .* the nearest: {near}$"):
        find_apache(version)


def test_a_given_folder_without_jars_is_refused(
    java_of: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAILBACK_APACHE_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"FAILBACK_APACHE_HOME: no lib/rocketmq-broker-\*\.jar"):
        find_apache("4.9.7")


MAVEN = """#!/bin/sh
PATH=/usr/bin:/bin
echo "$@" >> "$XDG_CACHE_HOME/asked"
for word; do case "$word" in
  -DoutputDirectory=*) folder=${word#*=};;
  -Drocketmq.version=*) version=${word#*=};;
esac; done
case "$version" in 9*) echo "[ERROR] Could not find artifact"; exit 1;; esac
if [ "$version" = 5.4.0 ]; then
  touch "$folder/half.jar"; echo "[ERROR] Checksum validation failed"; exit 1
fi
touch "$folder/rocketmq-broker-$version.jar"
"""


def test_a_version_is_fetched_once_by_maven_and_a_failure_leaves_nothing(
    java_of: Callable[[str], None], tmp_path: Path
) -> None:
    maven = tmp_path / "mvn"
    maven.write_text(MAVEN)
    maven.chmod(0o755)
    cache = tmp_path / "cache"
    cache.mkdir()
    said: list[str] = []
    for _ in range(2):
        folder = ensure_apache("5.3.3", said.append)
    assert [path.name for path in (folder / "lib").iterdir()] == ["rocketmq-broker-5.3.3.jar"]
    assert {path.name for path in (folder / "home" / "conf").iterdir()} == {
        "logback_broker.xml",
        "logback_namesrv.xml",
        "logback_tools.xml",
    }
    assert "NAME" not in (folder / "home" / "conf" / "logback_broker.xml").read_text()
    asked = (cache / "asked").read_text().splitlines()
    assert len(asked) == len(said) == 1
    assert "--strict-checksums" in asked[0]
    with pytest.raises(ConfigError, match="Maven could not fetch it: Checksum validation failed"):
        ensure_apache("5.4.0")
    assert not (cache / "failback" / "apache-5.4.0" / "lib").exists()
    # Nobody knows yet what comes after the newest: Maven is asked.
    with pytest.raises(ConfigError, match=r"no broker of .* 9\.0\.0 .* the nearest: 5\.5\.1$"):
        ensure_apache("9.0.0")


def test_a_container_of_an_unknown_image_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot run sh -c true without its image"):
        to_argv(["sh", "-c", "true"], [], "", None)
