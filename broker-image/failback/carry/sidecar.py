"""``failback tools carry-serve``: the sidecar of an Apache broker's pod.

It answers a broker that asks before it starts, also when only the broker's container restarts, and
says on a port what became of it. A sidecar that starts again answers what it has not answered yet.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from failback.carry.asking import is_listed
from failback.carry.keeper import keep
from failback.carry.online import ask_and_top_up
from failback.carry.starts import FILE, Starts, read_last
from failback.client.admin.admin import AdminClient
from failback.client.program import begin_logging
from failback.client.remoting.connection import RemotingSettings
from failback.client.remoting.http_server import JSON, PROMETHEUS, Endpoint, HttpServer, Reply
from failback.common.replacing import replace_file
from failback.protocol.errors import ConfigError
from failback.protocol.metric_families import CARRIED

logger = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.1
_NAME_SERVERS_SECONDS: Final = 2.0


class Sidecar:
    """Answers one broker."""

    def __init__(self, starts: Starts) -> None:
        self._starts = starts
        self._settings = RemotingSettings(access=starts.access)
        self._run_dir: Path = starts.options.run_dir
        self._last = read_last(self._run_dir)
        self._offsets = 0
        self._is_registered = False
        self._stopping = asyncio.Event()
        self._beside: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stopping.set)
        server = HttpServer(self._endpoints())
        await server.listen(os.environ.get("POD_IP", "127.0.0.1"), self._starts.options.port)
        self._begin(self._watch_name_servers())
        if self._starts.options.keep_members:
            self._begin(self._keep())
        try:
            while not self._stopping.is_set():
                await self._look()
        finally:
            for task in self._beside:
                task.cancel()
            await asyncio.gather(*self._beside, return_exceptions=True)
            await server.close()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def _keep(self) -> None:
        """Do a keeper's work beside a slave; a master has none."""
        options = self._starts.options
        try:
            await keep(options.address, self._starts.conf().name_servers, self._starts.access)
        except ConfigError as error:
            logger.info("no members are asked: %s", error)

    async def _watch_name_servers(self) -> None:
        """Keep whether the broker is registered; while no name server answers, what was so is."""
        async with AdminClient(settings=self._settings) as admin:
            while True:
                with suppress(ConfigError):  # broker.conf is written again by each start
                    conf = self._starts.conf()
                    listed = await is_listed(admin, conf) if conf.name_servers else True
                    self._is_registered = self._is_registered if listed is None else listed
                await asyncio.sleep(_NAME_SERVERS_SECONDS)

    async def _top_up(self, slaves: Sequence[str]) -> None:
        """Bring a master that starts what slaves are told until it is there."""
        options = self._starts.options
        done = await ask_and_top_up(
            self._settings,
            options.address,
            slaves,
            (),
            wait_seconds=options.top_up,
            dry_run=options.report,
        )
        for warning in done.warnings:
            logger.warning("top-up: %s", warning)
        logger.info("top-up: %s", done.line)

    async def _look(self) -> None:
        word = self._read("asked")
        if word and word != self._read("carried"):
            await self._answer(word)
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                await self._stopping.wait()
        except TimeoutError:
            pass

    async def _answer(self, word: str) -> None:
        def is_wanted() -> bool:
            return not self._stopping.is_set() and self._read("asked") == word

        found = await asyncio.to_thread(self._starts.carry, is_wanted)
        for warning in found.get("warnings", ()):
            logger.warning("%s", warning)
        logger.info("%s: %s", found["outcome"], found["line"])
        self._last = found
        self._offsets += found["offsets"] if found["outcome"] == "Carried" else 0
        replace_file(self._run_dir / FILE, json.dumps(found).encode(), sync=False)
        replace_file(self._run_dir / "carried", f"{word}\n".encode(), sync=False)
        if self._starts.options.top_up and (slaves := found.get("sources")):
            self._begin(self._top_up(slaves))

    def _read(self, name: str) -> str:
        """Return the word in a file; empty without one, or while it is being written."""
        try:
            text = (self._run_dir / name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return text.strip() if text.endswith("\n") else ""

    def _endpoints(self) -> dict[str, Endpoint]:
        return {
            "/readyz": self._readyz,
            "/carry": lambda _: Reply(HTTPStatus.OK, json.dumps(self._last).encode(), JSON),
            "/metrics": lambda _: Reply(HTTPStatus.OK, self._metrics().encode(), PROMETHEUS),
        }

    def _readyz(self, _method: str) -> Reply:
        if self._is_registered:
            return Reply(HTTPStatus.OK, b"ok\n")
        return Reply(HTTPStatus.SERVICE_UNAVAILABLE, b"no name server lists this broker\n")

    def _metrics(self) -> str:
        name, kind, _, text = CARRIED
        return f"# HELP {name} {text}\n# TYPE {name} {kind}\n{name} {self._offsets}\n"


def main(argv: Sequence[str]) -> int:
    """Serve until told to stop."""
    begin_logging()

    async def serve() -> None:
        await Sidecar(Starts.of(argv)).run()

    asyncio.run(serve())
    return 0
