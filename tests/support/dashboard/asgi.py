"""Requests to an application without a server: for routes that answer at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from fastapi import FastAPI


def ask(
    app: FastAPI,
    target: str,
    host: str = "localhost",
    accept: str = "*/*",
    token: str = "",
    form: Mapping[str, str] | None = None,
) -> tuple[int, str]:
    """One GET, or with ``form`` a POST, by a client at 10.0.0.9; return status and body.

    The application's lifespan is not begun.
    """
    path, _, query = target.partition("?")
    sent, method = urlencode(form or {}).encode(), "GET" if form is None else "POST"
    kind = b"application/x-www-form-urlencoded"
    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "scheme": "http",
        "query_string": query.encode(), "root_path": "", "http_version": "1.1",
        "headers": [(b"host", host.encode()), (b"accept", accept.encode()),
                    (b"authorization", f"Bearer {token}".encode()), (b"content-type", kind),
                    (b"content-length", b"%d" % len(sent))],
        "client": ("10.0.0.9", 40000), "server": ("10.0.0.1", 8090),
    }  # fmt: skip
    status, body = [0], bytearray()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": sent, "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            status[0] = message["status"]
        body.extend(message.get("body", b""))

    asyncio.run(app(scope, receive, send))
    return status[0], body.decode()
