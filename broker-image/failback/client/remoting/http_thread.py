"""The small HTTP server in a thread of its own: it answers while its process computes."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future

from failback.client.remoting.http_server import Endpoint, HttpServer


class HttpThread:
    """Serves endpoints from a daemon thread. Endpoints are called there."""

    def __init__(self, endpoints: dict[str, Endpoint], host: str, port: int) -> None:
        """Serve at once.

        Raises:
            OSError: The port is taken or the address is not ours.
        """
        self._endpoints = endpoints
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        bound: Future[int] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(host, port, bound), name="http", daemon=True
        )
        self._thread.start()
        self.port = bound.result()

    def close(self) -> None:
        """Stop serving and wait for the thread."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self, host: str, port: int, bound: Future[int]) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve(host, port, bound))

    async def _serve(self, host: str, port: int, bound: Future[int]) -> None:
        server = HttpServer(self._endpoints)
        try:
            bound.set_result(await server.listen(host, port))
        except (OSError, OverflowError) as error:
            bound.set_exception(error)
            return
        await self._stop.wait()
        await server.close()
