"""The proxy misbehaves exactly as it is told to, and knows what was written."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from tests.support.common.polling import SCALE, wait_until
from tests.support.kube_lab.api import Api, ApiError, Object
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.proxy import MisbehavingProxy, Write
from tests.support.processes.child_process import ROOT

pytestmark = pytest.mark.soak


def config_map(name: str, **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


@pytest.fixture
def api(namespace: Namespace, proxy: MisbehavingProxy) -> Iterator[Api]:
    """The administrator, through the proxy."""
    found = Api(namespace.kubeconfig_through(proxy.url), namespace.name, "under-test")
    yield found
    found.close()


class Watch:
    """A watch of ConfigMaps in a thread; ``names`` are those of its events, in order."""

    def __init__(self, api: Api) -> None:
        self.events: list[tuple[str, str]] = []
        self.ended = threading.Event()
        version = api.request("GET", api.path("ConfigMap"))["metadata"]["resourceVersion"]
        path = f"{api.path('ConfigMap')}?watch=1&resourceVersion={version}"
        connection = api.fresh_connection()
        connection.request("GET", path, headers=api.headers)
        self._answer = connection.getresponse()
        self._connection = connection
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            while line := self._answer.readline():
                event = json.loads(line)
                found: dict[str, Any] = event["object"]
                told = found.get("metadata", {}).get("name") or str(found.get("code"))
                self.events.append((event["type"], told))
        except (OSError, ValueError, http.client.HTTPException):
            pass
        self.ended.set()

    def names(self) -> list[str]:
        return [name for kind, name in self.events if kind == "ADDED"]

    def close(self) -> None:
        sock = self._connection.sock
        if sock is not None and not self.ended.is_set():
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(30 * SCALE)
        self._answer.close()
        self._connection.close()


@contextmanager
def watching(api: Api) -> Iterator[Watch]:
    found = Watch(api)
    try:
        yield found
    finally:
        found.close()


def test_it_forwards_and_logs_writes_with_their_number(
    api: Api, proxy: MisbehavingProxy, namespace: Namespace
) -> None:
    api.create(config_map("a"))
    api.get("ConfigMap", "a")
    api.patch("ConfigMap", "a", {"data": {"x": "1"}})
    api.delete("ConfigMap", "a")
    assert [(write.index, write.verb, write.name, write.code) for write in proxy.writes()] == [
        (1, "create", "", 201),
        (2, "patch", "a", 200),
        (3, "delete", "a", 200),
    ]
    assert {write.resource for write in proxy.writes("under-test")} == {"configmaps"}
    assert proxy.writes("somebody else") == []
    assert proxy.writes()[0].namespace == namespace.name


@pytest.mark.parametrize("code", [409, 410, 422, 429, 500])
def test_it_refuses_as_often_as_told(code: int, api: Api, proxy: MisbehavingProxy) -> None:
    rule = proxy.answer(code, verb="create", resource="configmaps", times=2, retry_after=3)
    for _ in range(2):
        with pytest.raises(ApiError) as refused:
            api.create(config_map("a"))
        assert refused.value.code == code
    api.create(config_map("a"))
    assert rule.hits == 2
    assert [write.code for write in proxy.writes()] == [0, 0, 201]


def test_a_busy_server_says_when_to_come_back(api: Api, proxy: MisbehavingProxy) -> None:
    proxy.answer(429, retry_after=7)
    connection = api.fresh_connection()
    connection.request("GET", "/version", headers=api.headers)
    answer = connection.getresponse()
    connection.close()
    assert (answer.status, answer.headers["Retry-After"]) == (429, "7")


def test_what_is_said_to_have_failed_may_have_been_done(
    api: Api, proxy: MisbehavingProxy, namespace: Namespace
) -> None:
    proxy.answer(500, verb="create", after=True)
    with pytest.raises(ApiError):
        api.create(config_map("a"))
    assert namespace.api.find("ConfigMap", "a") is not None


@pytest.mark.parametrize("done", [False, True])
def test_a_request_may_get_no_answer(
    done: bool, api: Api, proxy: MisbehavingProxy, namespace: Namespace
) -> None:
    rule = proxy.time_out(verb="create", seconds=0.5, after=done)
    with pytest.raises((OSError, http.client.HTTPException)):
        api.create(config_map("a"))
    assert rule.hits == 1
    assert (namespace.api.find("ConfigMap", "a") is not None) is done


def test_events_are_dropped_doubled_and_late(
    api: Api, proxy: MisbehavingProxy, namespace: Namespace
) -> None:
    with watching(api) as watch:
        proxy.watch_events(drop=1.0)
        namespace.api.create(config_map("dropped"))
        # Not a wait for the event: it would never come. A later one shows that it was passed over.
        wait_until(lambda: proxy.events_seen == 1, "the dropped event")
        proxy.watch_events(double=1.0, delay_seconds=0.2)
        namespace.api.create(config_map("doubled"))
        wait_until(lambda: len(watch.names()) == 2, "two events")
        proxy.calm()
        namespace.api.create(config_map("plain"))
        wait_until(lambda: "plain" in watch.names(), "the plain event")
        assert watch.names() == ["doubled", "doubled", "plain"]


def test_shares_of_events_come_from_the_seed(
    api: Api, proxy: MisbehavingProxy, namespace: Namespace
) -> None:
    def seen(prefix: str) -> list[str]:
        with watching(api) as watch:
            seen_before = proxy.events_seen
            proxy.watch_events(drop=0.3, double=0.3, seed=5)
            for number in range(12):
                namespace.api.create(config_map(f"{prefix}-{number}"))
            wait_until(lambda: proxy.events_seen == seen_before + 12, "twelve events")
            proxy.calm()
            namespace.api.create(config_map(f"{prefix}-end"))
            wait_until(lambda: f"{prefix}-end" in watch.names(), "the last event")
            return [name.removeprefix(f"{prefix}-") for name in watch.names()]

    first = seen("a")
    assert first == seen("b")
    assert len(set(first)) < 13
    assert len(first) > len(set(first))


def test_watches_expire_and_connections_are_cut(
    api: Api, proxy: MisbehavingProxy, namespace: Namespace
) -> None:
    with watching(api) as watch:
        proxy.expire_watches()
        assert watch.ended.wait(30 * SCALE)
        assert watch.events[-1] == ("ERROR", "410")
    with watching(api) as watch:
        namespace.api.create(config_map("a"))
        wait_until(lambda: watch.names() == ["a"], "the event")
        proxy.cut()
        assert watch.ended.wait(30 * SCALE)


WRITER = """
import sys
from pathlib import Path
from tests.support.kube_lab.api import Api
api = Api(Path(sys.argv[1]), sys.argv[2], "under-test")
for number in range(10):
    api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"n-{number}"}})
"""


def test_a_client_can_be_killed_right_after_a_write(
    api: Api, proxy: MisbehavingProxy, namespace: Namespace
) -> None:
    process: subprocess.Popen[bytes] | None = None
    started = threading.Event()

    def kill_after_the_third(write: Write) -> None:
        if write.index == 3 and started.wait(30 * SCALE):
            assert process is not None
            process.kill()
            process.wait()

    proxy.after_write = kill_after_the_third
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(api.kubeconfig), namespace.name],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    started.set()
    assert process.wait(60 * SCALE) == -9
    made = {item["metadata"]["name"] for item in namespace.api.list("ConfigMap")}
    assert {name for name in made if name.startswith("n-")} == {"n-0", "n-1", "n-2"}
