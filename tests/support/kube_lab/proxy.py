"""A proxy in front of the API server that misbehaves on command.

It forwards everything, WebSockets excepted, and keeps a log of write requests. Rules choose
requests; the first that matches and is not used up decides what happens to one:

    proxy.answer(409, verb="patch", resource="statefulsets", times=2)
    proxy.answer(429, retry_after=1)           proxy.answer(500, resource="pods/status")
    proxy.answer(500, after=True)              the server did it, the client is told it failed
    proxy.time_out(verb="create", seconds=3600)        nothing comes back, nothing was done
    proxy.time_out(verb="create", after=True)          it was done, nothing comes back
    proxy.expire_watches()                     running watches end with 410
    proxy.watch_events(drop=0.2, double=0.2, delay_seconds=0.5, seed=7)
    proxy.after_write = function               called with every Write once the server has done it
                                               and before the client hears of it: kill it there
    proxy.cut()                                every open connection ends now
    proxy.calm()                               forget all rules

Delayed watch events keep their order. The proxy works in a thread of its own; ``after_write`` is
called from there, and may block.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import ssl
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs

import aiohttp
from aiohttp import web

from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.net.ports import free_port

_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_REASONS: Final = {
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
_HOP_BY_HOP: Final = {"transfer-encoding", "connection", "keep-alive", "content-length", "host"}
_LINE_BYTES: Final = 4 * 1024 * 1024
_FOR_EVER: Final = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Write:
    """One write request that came through."""

    index: int
    """Counted from 1, over the life of the proxy."""
    verb: str
    resource: str
    """With its subresource: ``pods/status``."""
    namespace: str
    name: str
    user_agent: str
    code: int
    """Of the answer that the API server gave, 0 if it was not asked."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a URL path and a method ask for."""

    verb: str
    resource: str
    namespace: str
    name: str

    @classmethod
    def of(cls, method: str, path: str, query: Mapping[str, list[str]]) -> Target:
        parts = [part for part in path.split("/") if part]
        parts = parts[2:] if parts[:1] == ["api"] else parts[3:]
        namespace = ""
        if parts[:1] == ["namespaces"] and len(parts) > 2:
            namespace, parts = parts[1], parts[2:]
        resource, name = [*parts, "", ""][:2]
        if len(parts) > 2:
            resource = f"{resource}/{parts[2]}"
        verb = _VERBS.get(method, "get" if name else "list")
        if query.get("watch", ["0"])[0] in ("1", "true"):
            verb = "watch"
        return cls(verb, resource, namespace, name)


@dataclass(slots=True)
class Rule:
    """Which requests, and what is done to them."""

    matches: Mapping[str, str]
    times: int
    """How many more requests it applies to; -1 is without end."""
    code: int = 0
    seconds: float = 0.0
    after: bool = False
    retry_after: int = 0
    hits: int = 0

    def takes(self, target: Target) -> bool:
        if self.times == 0:
            return False
        return all(getattr(target, name) == value for name, value in self.matches.items())


@dataclass(slots=True)
class WatchFaults:
    """Shares of watch events that are dropped or doubled, and how late all of them are."""

    drop: float = 0.0
    double: float = 0.0
    delay_seconds: float = 0.0
    generator: random.Random = field(default_factory=random.Random)

    def copies(self) -> int:
        """Return how often the next event is sent: 0, 1 or 2."""
        drawn = self.generator.random()
        if drawn < self.drop:
            return 0
        return 2 if drawn < self.drop + self.double else 1


class MisbehavingProxy:
    """HTTPS server with the API server's own certificate; ``url`` is for kubeconfigs."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self._upstream = control_plane.url
        self._ca = control_plane.ca_file
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(control_plane.ca_file, control_plane.ca_file.with_suffix(".key"))
        self._port = free_port()
        self.url = f"https://127.0.0.1:{self._port}"
        self.after_write: Callable[[Write], object] | None = None
        self._lock = threading.Lock()
        self._writes: list[Write] = []
        self._rules: list[Rule] = []
        self._faults = WatchFaults()
        self.events_seen = 0
        """Watch events of the API server so far, whatever became of them."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._work, name="proxy", daemon=True)
        self._callers = ThreadPoolExecutor(1, "after-write")
        self._watches: set[asyncio.Event] = set()
        self._tasks: set[asyncio.Task[web.StreamResponse]] = set()
        self._ready = threading.Event()

    # --- commands --------------------------------------------------------------------------------

    def answer(
        self,
        code: int,
        *,
        times: int = 1,
        after: bool = False,
        retry_after: int = 0,
        **matches: str,
    ) -> Rule:
        """Answer the next ``times`` requests that match with an error; ``rule.hits`` counts them.

        Args:
            after: Hand the request to the API server first, so that it is done all the same.
            matches: verb (get, list, watch, create, update, patch, delete), resource, namespace
                and name; what is left out matches everything.
        """
        rule = Rule(matches, times, code=code, after=after, retry_after=retry_after)
        return self._add(rule)

    def time_out(
        self, *, times: int = 1, seconds: float = _FOR_EVER, after: bool = False, **matches: str
    ) -> Rule:
        """Do not answer the next ``times`` requests that match, for so many seconds."""
        return self._add(Rule(matches, times, seconds=seconds, after=after))

    def watch_events(
        self, *, drop: float = 0.0, double: float = 0.0, delay_seconds: float = 0.0, seed: int = 0
    ) -> None:
        """Treat watch events badly from now on, on watches that run too."""
        with self._lock:
            self._faults = WatchFaults(drop, double, delay_seconds, random.Random(seed))

    def expire_watches(self) -> None:
        """End running watches with 410 Expired, as a compaction does."""

        def expire() -> None:
            for watch in self._watches:
                watch.set()

        self._loop.call_soon_threadsafe(expire)

    def cut(self) -> None:
        """Close every open connection of clients, in the middle of whatever they do."""

        def close() -> None:
            for connection in self._server.connections:
                if connection.transport is not None:
                    connection.transport.abort()

        self._loop.call_soon_threadsafe(close)

    def calm(self) -> None:
        """Forget all rules and what was said about watches."""
        with self._lock:
            self._rules.clear()
            self._faults = WatchFaults()

    def writes(self, user_agent: str = "") -> list[Write]:
        """Return the writes so far, in order of the API server's answers."""
        with self._lock:
            return [write for write in self._writes if write.user_agent.startswith(user_agent)]

    def _add(self, rule: Rule) -> Rule:
        unknown = set(rule.matches) - {"verb", "resource", "namespace", "name"}
        assert not unknown, f"unknown: {unknown}"
        with self._lock:
            self._rules.append(rule)
        return rule

    # --- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()
        while not self._ready.wait(0.05):
            assert self._thread.is_alive(), "the proxy did not start"

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(60)
        self._callers.shutdown()

    def _work(self) -> None:
        # A runner, because it ends what aiohttp still has to do for clients that went away.
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._stopping = asyncio.Event()
        trust = ssl.create_default_context(cafile=str(self._ca))
        connector = aiohttp.TCPConnector(ssl=trust, limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, auto_decompress=False, read_bufsize=_LINE_BYTES
        ) as self._session:
            application = web.Application(client_max_size=64 * 1024 * 1024)
            application.router.add_route("*", "/{path:.*}", self._handle)
            runner = web.AppRunner(
                application, access_log=None, shutdown_timeout=0.1, handler_cancellation=True
            )
            await runner.setup()
            assert runner.server is not None
            self._server = runner.server
            site = web.TCPSite(runner, "127.0.0.1", self._port, ssl_context=self._tls)
            await site.start()
            self._ready.set()
            await self._stopping.wait()
            await runner.cleanup()

    # --- requests --------------------------------------------------------------------------------

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        target = Target.of(request.method, request.path, parse_qs(request.query_string))
        rule = self._rule_for(target)
        if rule is not None and not rule.after:
            return await self._misbehave(rule, request, target)
        if target.verb == "watch":
            return await self._watch(request)
        await request.read()
        # A client that goes away cancels us, but what it asked for is done and logged.
        task = asyncio.create_task(self._pass_on(request, target, rule))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def _pass_on(
        self, request: web.Request, target: Target, rule: Rule | None
    ) -> web.StreamResponse:
        try:
            code, headers, body = await self._forward(request)
        except (aiohttp.ClientError, OSError):  # the API server is away
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=502)
        if request.method in _VERBS:
            await self._note(request, target, code)
        if rule is not None:
            return await self._misbehave(rule, request, target)
        return web.Response(status=code, headers=headers, body=body)

    def _rule_for(self, target: Target) -> Rule | None:
        with self._lock:
            for rule in self._rules:
                if rule.takes(target):
                    rule.times -= 1 if rule.times > 0 else 0
                    rule.hits += 1
                    return rule
        return None

    async def _misbehave(
        self, rule: Rule, request: web.Request, target: Target
    ) -> web.StreamResponse:
        if request.method in _VERBS and not rule.after:
            await self._note(request, target, 0)
        if rule.seconds:
            await asyncio.sleep(rule.seconds)
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=504)
        headers = {"Retry-After": str(rule.retry_after)} if rule.retry_after else {}
        return web.json_response(error_status(rule.code), status=rule.code, headers=headers)

    async def _forward(self, request: web.Request) -> tuple[int, dict[str, str], bytes]:
        async with self._session.request(
            request.method,
            f"{self._upstream}{request.raw_path}",
            headers=_end_to_end(request.headers),
            data=await request.read() or None,  # an empty body would get a content type
            allow_redirects=False,
        ) as answer:
            return answer.status, _end_to_end(answer.headers), await answer.read()

    async def _note(self, request: web.Request, target: Target, code: int) -> None:
        """Log a write, and let the test act before the client hears of it."""
        with self._lock:
            write = Write(
                len(self._writes) + 1,
                target.verb,
                target.resource,
                target.namespace,
                target.name,
                request.headers.get("User-Agent", ""),
                code,
            )
            self._writes.append(write)
        call = self.after_write
        if call is not None:
            await self._loop.run_in_executor(self._callers, call, write)

    # --- watches ---------------------------------------------------------------------------------

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        expired = asyncio.Event()
        self._watches.add(expired)
        try:
            headers = _end_to_end(request.headers)
            headers["Accept-Encoding"] = "identity"
            async with self._session.get(
                f"{self._upstream}{request.raw_path}", headers=headers
            ) as answer:
                out = web.StreamResponse(status=answer.status, headers=_end_to_end(answer.headers))
                await out.prepare(request)
                try:
                    await self._pass_events(answer.content, out, expired)
                finally:
                    _abort(answer)
                with contextlib.suppress(ConnectionResetError):  # the client has gone
                    await out.write_eof()
                return out
        finally:
            self._watches.discard(expired)

    async def _pass_events(
        self, source: aiohttp.StreamReader, out: web.StreamResponse, expired: asyncio.Event
    ) -> None:
        """Pass events on until the server ends the watch or it is declared expired."""
        queue: asyncio.Queue[tuple[float, bytes] | None] = asyncio.Queue()
        reader = asyncio.create_task(self._read_events(source, queue))
        gone = asyncio.create_task(expired.wait())
        try:
            while True:
                item = asyncio.create_task(queue.get())
                await asyncio.wait([item, gone], return_when=asyncio.FIRST_COMPLETED)
                if gone.done():
                    item.cancel()
                    ended = {"type": "ERROR", "object": error_status(410)}
                    await out.write(json.dumps(ended).encode() + b"\n")
                    return
                event = item.result()
                if event is None:
                    return
                await asyncio.sleep(max(event[0] - self._loop.time(), 0))
                await out.write(event[1])
        finally:
            for task in (reader, gone):
                task.cancel()
            await asyncio.wait([reader, gone])

    async def _read_events(
        self, source: aiohttp.StreamReader, queue: asyncio.Queue[tuple[float, bytes] | None]
    ) -> None:
        try:
            async for line in source:
                with self._lock:
                    faults = self._faults
                    copies = faults.copies()
                    self.events_seen += 1
                due = self._loop.time() + faults.delay_seconds
                for _ in range(copies):
                    queue.put_nowait((due, line))
        except (aiohttp.ClientError, OSError):
            pass  # the API server went away: the client's watch ends
        finally:
            queue.put_nowait(None)


def _abort(answer: aiohttp.ClientResponse) -> None:
    """Close the connection now: a farewell over TLS would outlive the proxy."""
    if answer.connection is not None and answer.connection.transport is not None:
        answer.connection.transport.abort()


def error_status(code: int) -> dict[str, Any]:
    """Return the Status object that the API server sends with an error."""
    reason = _REASONS.get(code, "Unknown")
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"{reason}: said the misbehaving proxy",
        "reason": reason,
        "code": code,
    }


def _end_to_end(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _HOP_BY_HOP}
