"""Real servers of Apache have the memory that their pod allows, and log files that stay capped.

No operator runs here: their pods become ready without one.
"""

from __future__ import annotations

import asyncio
import urllib.request

import pytest

from failback.client.admin.admin import AdminClient
from failback.operator.kinds.base import parse_quantity
from failback.operator.render.context import kubernetes_context
from failback.operator.render.objects import render
from failback.operator.schema.decoding import decode
from failback.protocol.route import TopicConfig
from tests.support.java.apache import LOG_FILE_BYTES, server_home
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.operator_process import is_true
from tests.support.operator.resources import member_at, name_server_at, resource

pytestmark = pytest.mark.long

BROKER, SLAVE, NAMES = "demo-0-0-0", "demo-0-1-0", "main-ns-0"
FULL = 20 * 1024**2
"""A log file of this size is rotated."""
ROTATED = 9
LIMIT = "512Mi"


def page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return str(answer.read())


def shell(namespace: Namespace, pod: str, command: str) -> str:
    container = "broker" if pod == BROKER else "namesrv"
    return namespace.kubectl("exec", pod, "-c", container, "--", "sh", "-c", command).out


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
async def test_memory_and_log_files_are_as_rendered(
    namespace: Namespace, node: NodeProcess, version: str
) -> None:
    server_home(version)
    engine = {"engine": {"type": "Apache", "version": version}}
    config = {"mappedFileSizeCommitLog": str(LOG_FILE_BYTES), "metricsExporterType": "PROM"}
    manifests = [
        resource("NameServer", "main", replicas=1, **engine),
        resource(
            "BrokerCluster",
            "demo",
            nameServerRef={"name": "main"},
            slavesPerPair=1,
            config=config,
            resources={"limits": {"memory": LIMIT}},
            **engine,
        ),
    ]
    items = [decode(namespace.api.create(manifest)) for manifest in manifests]
    for manifest in render(items, kubernetes_context(namespace.name, "0.2.0")):
        namespace.api.apply(manifest, manager="test")
    for pod, main, log in (
        (NAMES, "NamesrvStartup", "namesrv"),
        (BROKER, "BrokerStartup", "broker"),
    ):
        found = namespace.api.wait("Pod", pod, is_true("Ready"), seconds=180)
        process = f"/proc/$(pgrep -f '[{main[0]}]{main[1:]}')"
        memory = shell(namespace, pod, f"cat {process}/status")
        anonymous = int(memory.partition("RssAnon:")[2].split()[0]) * 1024
        assert anonymous < parse_quantity(LIMIT), "it would be killed"
        words = shell(namespace, pod, f"tr '\\0' ' ' <{process}/cmdline")
        assert words.rpartition("-Xmx")[2].split()[0] == "256m"
        assert shell(namespace, pod, "ls ~/logs/rocketmqlogs").split() == [f"{log}.log"]
        assert "gc.log" in shell(namespace, pod, "ls ~/logs")
    namespace.api.wait("Pod", SLAVE, is_true("Ready"), seconds=180)
    await rotate(namespace)
    names = [f"broker.{number}.log" for number in range(1, ROTATED + 1)]
    listed = shell(namespace, BROKER, "ls ~/logs/rocketmqlogs").split()
    assert sorted(listed) == sorted(["broker.log", *names])
    if version.startswith("5"):
        url = f"http://{found['status']['podIP']}:5557/metrics"
        assert "rocketmq_broker_permission" in await asyncio.to_thread(page, url)


async def rotate(namespace: Namespace) -> None:
    """Fill the broker's log file, more often than there are files, and let the broker log."""
    address = member_at(namespace.name, "demo-0-0")
    async with AdminClient([name_server_at(namespace.name)], timeout_ms=60_000) as admin:
        for turn in range(ROTATED + 2):
            shell(namespace, BROKER, f"truncate -s {FULL} ~/logs/rocketmqlogs/broker.log")
            async with asyncio.timeout(60):
                number = 0
                while number % 16 or is_full(namespace):
                    await admin.create_topic(address, TopicConfig(f"T{turn}-{number}"))
                    number += 1


def is_full(namespace: Namespace) -> bool:
    size = shell(namespace, BROKER, "stat -c %s ~/logs/rocketmqlogs/broker.log")
    return int(size) >= FULL
