"""Exec through the API server, as WebSocket clients of both protocols speak it."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlencode

import aiohttp
import pytest

from tests.support.common.polling import until
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.kubeconfig import read_kubeconfig
from tests.support.kube_lab.namespaces import Identity, Namespace
from tests.support.kube_lab.node_process import NodeProcess

pytestmark = pytest.mark.soak


def rules(*verbs: str) -> list[Object]:
    return [{"apiGroups": [""], "resources": ["pods/exec"], "verbs": list(verbs)}]


_FAREWELL_SECONDS = 0.25  # aiohttp ends TLS connections behind our back, and never says when

# A WebSocket begins with a GET, which is the verb get; that it may execute is the verb create.
MAY_EXEC = rules("get", "create")
POD: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "a"},
    "spec": {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "lab", "command": ["sleep", "1000"]}],
    },
}


@asynccontextmanager
async def exec_socket(
    namespace: Namespace, identity: Identity, protocol: str, *command: str, stdin: bool = False
) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    access = read_kubeconfig(identity.kubeconfig)
    query = [("command", word) for word in command] + [("stdout", "true"), ("stderr", "true")]
    query += [("stdin", "true")] if stdin else []
    path = namespace.api.path("Pod", "a", subresource="exec")
    tls = ssl.create_default_context(cafile=str(access.ca_file))
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {access.token}"}) as session,
        session.ws_connect(
            f"{access.server}{path}?{urlencode(query)}", protocols=(protocol,), ssl=tls
        ) as socket,
    ):
        yield socket
    await asyncio.sleep(_FAREWELL_SECONDS)


async def everything(socket: aiohttp.ClientWebSocketResponse) -> dict[int, bytes]:
    """Return what came on each channel until the server closed."""
    found: dict[int, bytes] = {}
    async for message in socket:
        found[message.data[0]] = found.get(message.data[0], b"") + message.data[1:]
    return found


def ready_pod(namespace: Namespace) -> None:
    namespace.api.create(POD)
    namespace.api.wait("Pod", "a", lambda found: found["status"]["containerStatuses"][0]["ready"])


@pytest.mark.parametrize("protocol", ["v4.channel.k8s.io", "v5.channel.k8s.io"])
async def test_both_protocols_carry_output_and_the_exit_code(
    protocol: str, namespace: Namespace, node: NodeProcess
) -> None:
    ready_pod(namespace)
    identity = namespace.identity("chaos", MAY_EXEC)
    script = "echo out; echo err >&2; exit 4"
    async with exec_socket(namespace, identity, protocol, "sh", "-c", script) as socket:
        assert socket.protocol == protocol
        found = await everything(socket)
    assert (found[1], found[2]) == (b"out\n", b"err\n")
    status = json.loads(found[3])
    assert status["reason"] == "NonZeroExitCode"
    assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "4"}]


async def test_input_can_be_closed(namespace: Namespace, node: NodeProcess) -> None:
    ready_pod(namespace)
    identity = namespace.identity("chaos", MAY_EXEC)
    async with exec_socket(namespace, identity, "v5.channel.k8s.io", "cat", stdin=True) as socket:
        await socket.send_bytes(b"\x00some input")
        await socket.send_bytes(b"\xff\x00")
        found = await everything(socket)
    assert found[1] == b"some input"
    assert json.loads(found[3])["status"] == "Success"


async def test_a_command_ends_when_its_client_leaves(
    namespace: Namespace, node: NodeProcess
) -> None:
    ready_pod(namespace)
    identity = namespace.identity("chaos", MAY_EXEC)
    running = ["sh", "-c", "echo up; exec sleep 987"]
    async with exec_socket(namespace, identity, "v4.channel.k8s.io", *running) as socket:
        message = await socket.receive()
        assert message.data == b"\x01up\n"
        assert sleepers(namespace)
    await until(lambda: not sleepers(namespace), "the end of the command", 30)


def sleepers(namespace: Namespace) -> bool:
    shown = namespace.kubectl("exec", "a", "--", "ps", "-eo", "args").out
    return "sleep 987" in shown.splitlines()


@pytest.mark.parametrize("verb", ["get", "create"])
async def test_exec_over_a_web_socket_needs_two_verbs(
    verb: str, namespace: Namespace, node: NodeProcess
) -> None:
    ready_pod(namespace)
    identity = namespace.identity("half", rules(verb))
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        async with exec_socket(namespace, identity, "v4.channel.k8s.io", "true"):
            pass
    assert refused.value.status == 403
