"""What the API server asks a kubelet for: ``pods/log``, ``pods/exec``, ``pods/portforward``.

Exec speaks ``v4.channel.k8s.io`` and ``v5.channel.k8s.io`` over WebSocket: the first byte of a
message is its channel, and v5 can close one. The node declares that it understands WebSocket, so
that the API server hands every WebSocket client through instead of translating to SPDY.
A forwarded port has two channels, data and errors; each begins with the port's number.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import aiohttp
from aiohttp import web

from tests.support.kube_lab.api import Object
from tests.support.kube_lab.node.container import Container, kill_all

logger = logging.getLogger(__name__)

PORT: Final = 10250
DECLARED: Final = "ExtendWebSocketsToKubelet"
_STDIN, _STDOUT, _STDERR, _ERROR, _CLOSE = 0, 1, 2, 3, 255
_DATA, _REFUSED = 0, 1
"""Channels of a forwarded port."""
_PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_CHUNK_BYTES: Final = 64 * 1024
_FOLLOW_SECONDS: Final = 0.1

Find = Callable[[str, str, str], Container]
"""Namespace, pod and container → the container; raises LookupError."""
AddressOf = Callable[[str, str], str]
"""Namespace and pod → the pod's address; raises LookupError."""


class Kubelet:
    """HTTPS server at the node's address, with the certificate of the API server."""

    def __init__(self, find: Find, address_of: AddressOf, certificate: Path, key: Path) -> None:
        self._find = find
        self._address_of = address_of
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(certificate, key)
        application = web.Application()
        target = "/{namespace}/{pod}/{container}"
        application.router.add_get(f"/containerLogs{target}", self._logs)
        application.router.add_get(f"/exec{target}", self._exec)
        application.router.add_get("/portForward/{namespace}/{pod}", self._forward)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1)

    async def start(self, address: str) -> None:
        await self._runner.setup()
        site = web.TCPSite(self._runner, address, PORT, ssl_context=self._tls)
        await site.start()

    async def stop(self) -> None:
        await self._runner.cleanup()

    def _container(self, request: web.Request) -> Container:
        named = request.match_info
        try:
            return self._find(named["namespace"], named["pod"], named["container"])
        except LookupError as error:
            raise web.HTTPNotFound(text=str(error)) from None

    # --- logs ------------------------------------------------------------------------------------

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        container = self._container(request)
        file = container.log_file(previous=request.query.get("previous") == "true")
        content = file.read_bytes() if file.exists() else b""
        position = len(content)
        if "tailLines" in request.query:
            lines = content.splitlines(keepends=True)
            content = b"".join(lines[max(len(lines) - int(request.query["tailLines"]), 0) :])
        if "limitBytes" in request.query:
            content = content[: int(request.query["limitBytes"])]
        answer = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await answer.prepare(request)
        await answer.write(content)
        if request.query.get("follow") == "true":
            await self._follow(container, file, position, answer)
        await answer.write_eof()
        return answer

    async def _follow(
        self, container: Container, file: Path, position: int, answer: web.StreamResponse
    ) -> None:
        while True:
            ended = not container.running or container.log_file() != file
            if file.exists() and file.stat().st_size > position:
                with file.open("rb") as log:
                    log.seek(position)
                    more = log.read()
                position += len(more)
                await answer.write(more)
            if ended:
                return
            await asyncio.sleep(_FOLLOW_SECONDS)

    # --- exec ------------------------------------------------------------------------------------

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        container = self._container(request)
        socket = web.WebSocketResponse(protocols=_PROTOCOLS)
        if not socket.can_prepare(request).ok:
            raise web.HTTPBadRequest(text="exec needs a WebSocket here")
        try:
            process = await container.execute(request.query.getall("command"))
        except (OSError, LookupError) as error:
            raise web.HTTPInternalServerError(text=str(error)) from None
        try:
            await socket.prepare(request)
            await self._serve(socket, process, wants_input=_wants(request, "input", "stdin"))
        finally:
            kill_all(process)
            await process.wait()
        return socket

    async def _serve(
        self,
        socket: web.WebSocketResponse,
        process: asyncio.subprocess.Process,
        *,
        wants_input: bool,
    ) -> None:
        """Carry bytes both ways until the process has ended, then tell how."""
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        if not wants_input:
            process.stdin.close()
        incoming = asyncio.create_task(_feed(socket, process))
        try:
            await asyncio.gather(
                _drain(socket, process.stdout, _STDOUT), _drain(socket, process.stderr, _STDERR)
            )
            code = await process.wait()
            await socket.send_bytes(bytes([_ERROR]) + json.dumps(exit_status(code)).encode())
            await socket.close()
        except (ConnectionError, aiohttp.ClientError) as error:
            logger.info("exec: the client went away: %s", error)
        finally:
            incoming.cancel()
            with suppress(asyncio.CancelledError):
                await incoming

    # --- port-forward ----------------------------------------------------------------------------

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        named = request.match_info
        try:
            address = self._address_of(named["namespace"], named["pod"])
        except LookupError as error:
            raise web.HTTPNotFound(text=str(error)) from None
        (port,) = map(int, request.query.getall("port"))
        socket = web.WebSocketResponse(protocols=_PROTOCOLS[1:])
        await socket.prepare(request)
        for channel in (_DATA, _REFUSED):
            await socket.send_bytes(bytes([channel]) + port.to_bytes(2, "little"))
        try:
            reader, writer = await asyncio.open_connection(address, port)
        except OSError as error:
            await socket.send_bytes(bytes([_REFUSED]) + str(error).encode())
            await socket.close()
            return socket
        outgoing = asyncio.create_task(_drain_and_close(socket, reader))
        try:
            async for message in socket:
                if message.type is aiohttp.WSMsgType.BINARY and message.data[0] == _DATA:
                    writer.write(message.data[1:])
                    await writer.drain()
        except ConnectionError as error:
            logger.info("port-forward: the pod went away: %s", error)
        finally:
            writer.close()
            await asyncio.wait({outgoing})
        return socket


async def _drain_and_close(socket: web.WebSocketResponse, stream: asyncio.StreamReader) -> None:
    with suppress(ConnectionError, aiohttp.ClientError):
        await _drain(socket, stream, _DATA)
        await socket.close()


def exit_status(code: int) -> Object:
    """Return the Status object of a command's end, as clients read it from channel 3."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    code = code if code > 0 else 128 - code
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def _wants(request: web.Request, *names: str) -> bool:
    return any(request.query.get(name) in ("1", "true") for name in names)


async def _drain(socket: web.WebSocketResponse, stream: asyncio.StreamReader, channel: int) -> None:
    while data := await stream.read(_CHUNK_BYTES):
        await socket.send_bytes(bytes([channel]) + data)


async def _feed(socket: web.WebSocketResponse, process: asyncio.subprocess.Process) -> None:
    """Hand standard input over; a client that leaves ends the command."""
    assert process.stdin is not None
    async for message in socket:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
            continue
        channel, data = message.data[0], message.data[1:]
        if channel == _CLOSE and data[:1] == bytes([_STDIN]):
            process.stdin.close()
        elif channel == _STDIN and not process.stdin.is_closing():
            with suppress(ConnectionError):
                process.stdin.write(data)
                await process.stdin.drain()
    kill_all(process)
