"""Startup, readiness and liveness probes against a pod's own address."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

_OK = range(200, 400)


@dataclass(frozen=True, slots=True)
class Probe:
    """One probe of a container. ``path`` is ``None`` for tcpSocket."""

    port: int
    path: str | None
    period_seconds: float
    timeout_seconds: float
    failure_threshold: int
    success_threshold: int
    initial_delay_seconds: float

    @classmethod
    def of(cls, manifest: Mapping[str, Any] | None) -> Self | None:
        """Decode a probe; fields that are absent have Kubernetes' defaults."""
        if manifest is None:
            return None
        http = manifest.get("httpGet")
        return cls(
            port=(http or manifest["tcpSocket"])["port"],
            path=http.get("path", "/") if http else None,
            period_seconds=manifest.get("periodSeconds", 10),
            timeout_seconds=manifest.get("timeoutSeconds", 1),
            failure_threshold=manifest.get("failureThreshold", 3),
            success_threshold=manifest.get("successThreshold", 1),
            initial_delay_seconds=manifest.get("initialDelaySeconds", 0),
        )

    async def failure(self, host: str, prober: str = "") -> str | None:
        """Ask once, from the address ``prober``; return why it failed, or ``None``."""
        try:
            async with asyncio.timeout(self.timeout_seconds):
                return await self._ask(host, prober)
        except TimeoutError:
            return f"no answer from {host}:{self.port} within {self.timeout_seconds:g} s"
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            return f"{host}:{self.port}: {reason}"

    async def _ask(self, host: str, prober: str) -> str | None:
        local = (prober, 0) if prober else None
        reader, writer = await asyncio.open_connection(host, self.port, local_addr=local)
        try:
            if self.path is None:
                return None
            writer.write(
                f"GET {self.path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
            )
            await writer.drain()
            answer = await reader.read(4096)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
        return _http_failure(answer)


def _http_failure(answer: bytes) -> str | None:
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split(None, 2)
    if len(words) < 2 or not words[1].isdigit():
        return "no HTTP answer"
    if int(words[1]) in _OK:
        return None
    return f"HTTP {int(words[1])} {body.decode(errors='replace').strip()[:200]}".strip()
