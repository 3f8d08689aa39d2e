"""Which starts of Apache's brokers are given offsets of slaves, and the shell that waits for it."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from failback.carry.starts import Starts
from failback.operator.local.addresses import local_context
from failback.operator.local.apache_release import Apache
from failback.operator.local.podspec import own_command, pods_of
from failback.operator.local.root import Root
from failback.operator.render.broker import WHEN_CARRIED
from failback.operator.render.context import Object, kubernetes_context
from failback.operator.render.objects import render
from failback.operator.schema.decoding import decode

APACHE = {"type": "Apache", "version": "4.9.7"}
ROCKS = {"config": {"storeType": "defaultRocksDB"}}


SPEC: dict[str, Any] = {"nameServerAddresses": ["ns-0:9876"], "engine": APACHE}
MANIFEST: dict[str, Any] = {
    "apiVersion": "failback.dev/v1alpha1",
    "kind": "BrokerCluster",
    "metadata": {"name": "old"},
}


def rendered(version: str = "0.2.0", **spec: Any) -> dict[str, Object]:
    items = render(
        [decode(MANIFEST | {"spec": SPEC | spec})], kubernetes_context("default", version)
    )
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in items}


def sidecars(objects: dict[str, Object]) -> dict[str, Object]:
    return {
        name: init
        for name, each in objects.items()
        if each["kind"] == "StatefulSet"
        for init in each["spec"]["template"]["spec"]["initContainers"]
        if init["name"] == "carry"
    }


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ({}, 2),
        ({"engine": {"type": "Failback"}}, 0),
        ({"slavesPerPair": 0}, 0),
        ({"version": "0.1.9"}, 0),
        ({"offsetCarry": {"mode": "Off"}}, 0),
        ({"offsetCarry": {"mode": "Report"}}, 2),
        ({"engine": {"type": "Apache", "version": "5.3.3"}, **ROCKS}, 0),
        ({"engine": {"type": "Apache", "version": "5.1.3"}, **ROCKS}, 2),
    ],
)
def test_every_member_of_an_apache_pair_with_slaves_gets_the_sidecar(
    spec: dict[str, Any], count: int
) -> None:
    objects = rendered(**spec)
    assert len(sidecars(objects)) == count
    for name, each in objects.items():
        if each["kind"] == "StatefulSet":
            main = each["spec"]["template"]["spec"]["containers"][0]
            assert (WHEN_CARRIED in main["command"]) == (name in sidecars(objects))


def test_a_member_asks_the_others_and_a_further_slave_changes_no_template() -> None:
    two, three = rendered(), rendered(slavesPerPair=2)
    host = "old-0-{}-0.old-brokers.default.svc.cluster.local:10911\n".format
    name = "ConfigMap/old-0-0"
    assert two[name]["data"]["members"] == host(1)
    assert three[name]["data"]["members"] == host(1) + host(2)
    place = name.replace("ConfigMap", "StatefulSet")
    assert two[place]["spec"]["template"] == three[place]["spec"]["template"]


def test_its_options_say_what_the_spec_says() -> None:
    wish = {"mode": "Report", "waitSeconds": 3, "whenUnknown": "Wait", "topUpSeconds": 0}
    found = next(iter(sidecars(rendered(offsetCarry={**wish, "keepMembers": False})).values()))
    text = " ".join(found["args"])
    assert "--wait 3 --top-up 0 --must-know --report" in text
    assert "--keep-members" not in text


def test_a_local_pod_runs_the_same_sidecar_beside_its_broker_and_waits_for_no_slave(
    tmp_path: Path,
) -> None:
    root = Root(tmp_path)
    ports = {"old-0-0": 20000, "old-0-1": 20010}
    wish = {"mode": "Auto", "whenUnknown": "Wait", "topUpSeconds": 7}
    objects = render(
        [decode(MANIFEST | {"spec": SPEC | {"offsetCarry": wish}})],
        local_context("default", root, ports, "0.2.0"),
    )
    named = {(each["kind"], each["metadata"]["name"]): each for each in objects}
    java = Apache("java", Path("/lib"), Path("/home"))
    (pod,) = pods_of(named["StatefulSet", "old-0-0"], named, root, java)
    assert pod.has_carry
    shell, option, script = pod.container.argv
    assert (shell, option) == ("sh", "-c")
    sidecar, _, broker = script.partition(" & exec ")
    words = shlex.split(sidecar)
    assert words[: len(own_command())] == own_command()
    options = Starts.of(words[len(own_command()) + 2 :]).options
    assert (options.wait, options.must_know, options.top_up) == (0, False, 7)
    assert options.keep_members
    assert options.address == f"{pod.address}:20002"
    assert options.run_dir == root.run_dir("old-0-0-0")
    words = shlex.split(broker)
    assert words[:4] == ["sh", "-c", WHEN_CARRIED, str(root.hold_file("old-0-0-0"))]
    assert words[5] == "java"
    assert [each.name for each in pod.inits] == ["conf", "verify"]


@contextmanager
def gate(folder: Path, tries: int) -> Iterator[subprocess.Popen[str]]:
    command = ["sh", "-c", WHEN_CARRIED, str(folder / "hold"), str(tries), "echo", "started"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as shell:
        try:
            yield shell
        finally:
            shell.kill()


def asked(folder: Path) -> str:
    deadline = time.monotonic() + 30
    while not (folder / "asked").exists() or not (folder / "asked").read_text().endswith("\n"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return (folder / "asked").read_text().strip()


def test_the_shell_asks_when_the_hold_is_gone_and_starts_with_its_own_answer(
    tmp_path: Path,
) -> None:
    (tmp_path / "hold").touch()
    (tmp_path / "carried").write_text("the answer of an earlier start\n")
    with gate(tmp_path, -1) as shell:
        with pytest.raises(subprocess.TimeoutExpired):
            shell.wait(0.5)
        assert not (tmp_path / "asked").exists()
        (tmp_path / "hold").unlink()
        word = asked(tmp_path)
        assert re.fullmatch(r"[0-9a-f-]{36}", word)
        with pytest.raises(subprocess.TimeoutExpired):
            shell.wait(0.5)
        (tmp_path / "carried").write_text(f"{word}\n")
        assert shell.communicate(timeout=30)[0] == "started\n"
        assert shell.returncode == 0


def test_without_an_answer_the_broker_starts_when_the_time_is_over(tmp_path: Path) -> None:
    with gate(tmp_path, 2) as shell:
        assert shell.communicate(timeout=30)[0] == "started\n"
    assert (tmp_path / "asked").exists()
