"""Which starts of Apache's brokers are given offsets of slaves, and the shell that waits for it."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from failback.operator.render.broker import WHEN_CARRIED
from failback.operator.render.context import Object, kubernetes_context
from failback.operator.render.objects import render
from failback.operator.schema.decoding import decode

APACHE = {"type": "Apache", "version": "4.9.7"}
ROCKS = {"config": {"storeType": "defaultRocksDB"}}


def rendered(version: str = "0.2.0", **spec: Any) -> dict[str, Object]:
    spec = {"nameServerAddresses": ["ns-0:9876"], "engine": APACHE, **spec}
    manifest = {
        "apiVersion": "failback.dev/v1alpha1",
        "kind": "BrokerCluster",
        "metadata": {"name": "old"},
        "spec": spec,
    }
    items = render([decode(manifest)], kubernetes_context("default", version))
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
