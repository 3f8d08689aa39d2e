"""Asynchronous requests to the API server, for the node."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.support.kube_lab.api import ApiError, Object
from tests.support.kube_lab.kubeconfig import read_kubeconfig

logger = logging.getLogger(__name__)

MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
_AGAIN_SECONDS: Final = 0.2
_LINE_BYTES: Final = 4 * 1024 * 1024


class Client:
    """Requests as one identity; close it with :meth:`close`."""

    def __init__(self, kubeconfig: Path, user_agent: str) -> None:
        access = read_kubeconfig(kubeconfig)
        self.server = access.server
        tls = ssl.create_default_context(cafile=str(access.ca_file))
        self._session = aiohttp.ClientSession(
            base_url=access.server,
            headers={"Authorization": f"Bearer {access.token}", "User-Agent": user_agent},
            connector=aiohttp.TCPConnector(ssl=tls, limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=30),
            read_bufsize=_LINE_BYTES,
        )

    async def close(self) -> None:
        await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> Any:
        """Send JSON, return JSON. Raises :class:`ApiError` on 400 and above."""
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": content_type}
        async with self._session.request(
            method, path, data=data, headers=headers, params=query or {}
        ) as answer:
            decoded = await answer.json(content_type=None)
            if answer.status >= HTTPStatus.BAD_REQUEST:
                raise ApiError(answer.status, decoded if isinstance(decoded, dict) else {})
            return decoded

    async def watch(
        self, path: str, query: Mapping[str, str] | None = None
    ) -> AsyncIterator[tuple[str, Any]]:
        """Yield ``("SYNC", [object, ...])`` and then ``(event type, object)``, for ever.

        After any error it lists again, so a SYNC can come at any time.
        """
        while True:
            try:
                listed = await self.request("GET", path, query=query)
                yield "SYNC", listed["items"]
                version = listed["metadata"]["resourceVersion"]
                async for event in self._events(path, {**(query or {}), "watch": "1"}, version):
                    yield event
            except (aiohttp.ClientError, ApiError, OSError, TimeoutError, ValueError) as error:
                logger.info("watch of %s: %s; listing again", path, error)
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _events(
        self, path: str, query: dict[str, str], version: str
    ) -> AsyncIterator[tuple[str, Object]]:
        """Yield events until the connection ends or the server says that it cannot go on."""
        params = {**query, "resourceVersion": version, "allowWatchBookmarks": "true"}
        async with self._session.get(path, params=params) as answer:
            if answer.status >= HTTPStatus.BAD_REQUEST:
                raise ApiError(answer.status, {})
            async for line in answer.content:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise ApiError(event["object"].get("code", 0), event["object"])
                if event["type"] != "BOOKMARK":
                    yield event["type"], event["object"]
