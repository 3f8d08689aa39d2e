"""How the container of an Apache broker starts and stops, as it is rendered."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from failback.chaos.targets.kube.container import keeper_of
from failback.operator.local.apache_release import Apache
from failback.operator.local.podspec import to_argv
from failback.operator.render.context import Object, kubernetes_context
from failback.operator.render.objects import render
from failback.operator.schema.loading import load_resources

DATA = Path(__file__).parents[2] / "data" / "operator"
APACHE = Apache("java", Path("/lib"), Path("/home"))


def pods(version: str = "0.2.0") -> list[Object]:
    resources = load_resources([DATA / "apache.yaml"]).items
    context = kubernetes_context(resources[0].namespace, version)
    return [
        {"metadata": {"name": each["metadata"]["name"]}, **each["spec"]["template"]}
        for each in render(resources, context)
        if each["kind"] == "StatefulSet"
        and each["spec"]["template"]["spec"]["containers"][0]["name"] == "broker"
    ]


def container(version: str = "0.2.0") -> dict[str, Any]:
    (found,) = pods(version)[0]["spec"]["containers"]
    return dict(found)


def test_the_harness_finds_a_keeper_in_every_apache_pod() -> None:
    assert {keeper_of(pod).engine for pod in pods()} == {"apache"}
    assert all(pod["spec"]["shareProcessNamespace"] for pod in pods())


def test_a_shell_waits_for_the_hold_and_becomes_the_start_script() -> None:
    found = container()
    shell, option, script, hold = found["command"][:4]
    assert (shell, option) == ("sh", "-c")
    assert script.endswith('; exec "$@"')
    assert hold == "/run/failback/hold"
    assert found["args"] == ["./mqbroker", "-c", "/home/rocketmq/conf/broker.conf"]


@pytest.mark.parametrize("version", ["0.1.0", "0.2.0"])
def test_the_local_runtime_starts_the_jvm_without_that_shell(version: str) -> None:
    found = container(version)
    argv = to_argv(found["command"], found["args"], "-Dx=y", APACHE)
    assert argv[0] == "java"
    assert argv[-3:] == [
        "org.apache.rocketmq.broker.BrokerStartup",
        *("-c", "/home/rocketmq/conf/broker.conf"),
    ]


def test_the_stop_waits_for_the_jvm_and_not_for_itself() -> None:
    script = container()["lifecycle"]["preStop"]["exec"]["command"][-1]
    (pattern,) = re.findall(r"pgrep -f '([^']+)'", script)
    assert re.search(pattern, "java org.apache.rocketmq.broker.BrokerStartup -c broker.conf")
    assert not re.search(pattern, f"sh -c {script}")
