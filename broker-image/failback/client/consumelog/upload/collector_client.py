"""Sends to a collector over HTTP, with the standard library: one kept connection, no threads.

Used by the shipper, and by the program that closes a run. An answer of any status is returned; only
a connection that gave none raises.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, quote, urlsplit

from failback.client.consumelog.schema import SCHEMA_ID
from failback.client.consumelog.upload.lake_files import ARROW_STREAM
from failback.common.numbers import whole
from failback.protocol.errors import ConfigError

PROBLEM_PREFIX: Final = "urn:failback:collector:"
"""How the types of a collector's own problem documents begin; a proxy's do not."""
TOKEN_VARIABLE: Final = "FAILBACK_TOKEN_FILE"
_MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
_AWAY: Final = (OSError, http.client.HTTPException, ConfigError)
"""ConfigError: the token's file has none that can be sent; it may be replaced."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750


class CollectorAway(Exception):
    """No answer came, or the connection broke. What was sent may have been stored or not."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a collector answered."""

    status: int
    document: Mapping[str, Any] = field(default_factory=dict)
    retry_after_seconds: float | None = None

    @property
    def problem(self) -> str | None:
        """The last part of a collector's problem type; ``None`` if it is not one of its own."""
        kind = str(self.document.get("type", ""))
        return kind.removeprefix(PROBLEM_PREFIX) if kind.startswith(PROBLEM_PREFIX) else None

    def __str__(self) -> str:
        detail = self.document.get("detail") or self.document.get("title") or ""
        return f"{self.status} {detail}".rstrip()


class CollectorClient:
    """One collector.

    Args:
        url: ``http://HOST:PORT`` or ``https://...``, a path before ``/v1`` included.
        token_file: A file with the bearer token, read for every connection, so that it can be
            replaced; by default what ``FAILBACK_TOKEN_FILE`` names.
        ca_file: Certificates to trust instead of the system's.
        timeout_seconds: How long one read or write may take.

    Raises:
        ConfigError: The URL is not one.
    """

    def __init__(
        self,
        url: str,
        *,
        token_file: Path | None = None,
        ca_file: Path | None = None,
        timeout_seconds: float = 60.0,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or not _has_port(parts):
            raise ConfigError("collector", f"must be http://HOST:PORT or https://..., not {url!r}")
        self.url = url
        self._parts = parts
        named = os.environ.get(TOKEN_VARIABLE)
        self._token_file = token_file or (Path(named) if named else None)
        self._ca_file = ca_file
        self._timeout = timeout_seconds
        self._connection: http.client.HTTPConnection | None = None
        self._token = ""

    def check_token(self) -> None:
        """Raises ``ConfigError`` if the token's file has none that can be sent."""
        if self._token_file is not None:
            read_token(self._token_file)

    def send_segment(
        self, segment_id: str, body: bytes, sha256: str, backlog_bytes: int = 0
    ) -> Answer:
        """Upload one segment, an Arrow IPC stream. Raises ``CollectorAway``."""
        headers = {
            "Content-Type": ARROW_STREAM,
            "X-Content-SHA256": sha256,
            "X-Failback-Schema": SCHEMA_ID,
            "X-Failback-Backlog-Bytes": str(backlog_bytes),
        }
        return self._ask("POST", f"/v1/segments/{quote(segment_id)}", body, headers)

    def stored(self, run: str, proc: str) -> Answer:
        """What the collector has of one process. Raises ``CollectorAway``."""
        return self._ask("GET", f"/v1/runs/{quote(run)}/procs/{quote(proc)}")

    def open_run(self, run: str, zero_wall_ns: int) -> Answer:
        """Send the begin of a run, ns since 1970; the first sender decides."""
        body = json.dumps({"zero_wall_ns": zero_wall_ns})
        headers = {"Content-Type": "application/json"}
        return self._ask("POST", f"/v1/runs/{quote(run)}/open", body.encode(), headers)

    def close_run(self, run: str, last_seqs: Mapping[int, int]) -> Answer:
        """Say how far each process got; the answer names what is missing."""
        body = json.dumps({"procs": {str(number): seq for number, seq in last_seqs.items()}})
        headers = {"Content-Type": "application/json"}
        return self._ask("POST", f"/v1/runs/{quote(run)}/close", body.encode(), headers)

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        kept = self._connection is not None
        try:
            return self._exchange(method, path, body, headers or {})
        except _AWAY as error:
            self.close()
            if not kept:
                raise CollectorAway(f"{self.url}: {_words(error)}") from error
        # A kept connection may have ended unnoticed; every request may be repeated.
        try:
            return self._exchange(method, path, body, headers or {})
        except _AWAY as error:
            self.close()
            raise CollectorAway(f"{self.url}: {_words(error)}") from error

    def _exchange(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> Answer:
        connection = self._connection or self._connect()
        self._connection = connection
        sent = {"Authorization": f"Bearer {self._token}", **headers}
        connection.request(method, self._parts.path.rstrip("/") + path, body, sent)
        response = connection.getresponse()
        content = response.read(_MAX_ANSWER_BYTES)
        if response.will_close or response.status in {401, 403}:
            self.close()  # the next connection reads the token again
        return Answer(
            response.status, _document(content), _seconds(response.getheader("Retry-After"))
        )

    def _connect(self) -> http.client.HTTPConnection:
        if self._token_file is not None:
            self._token = read_token(self._token_file)
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            context = ssl.create_default_context(cafile=self._ca_file)
            return http.client.HTTPSConnection(host, port, timeout=self._timeout, context=context)
        return http.client.HTTPConnection(host, port, timeout=self._timeout)


def read_token(file: Path) -> str:
    """The bearer token in a file: its last line that is not empty.

    What the file holds is never part of the error.

    Raises:
        ConfigError: The file cannot be read, is empty, or that line is no token.
    """
    place = f"token file {file}"
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise ConfigError(place, f"cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise ConfigError(place, "is no text; it must hold the token alone") from None
    words = [line.strip() for line in lines if line.strip()]
    if not words:
        raise ConfigError(place, "is empty; it must hold the token alone")
    if not _TOKEN.fullmatch(words[-1]):
        problem = "its last line is no token: letters, digits and -._~+/= without blanks"
        raise ConfigError(place, problem)
    return words[-1]


def _has_port(parts: SplitResult) -> bool:
    """Whether the port is a number, or left out."""
    try:
        return parts.port is None or parts.port > 0
    except ValueError:
        return False


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


def _document(content: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(content)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _seconds(text: str | None) -> float | None:
    """``Retry-After`` in seconds; the form with a date is not used by collectors."""
    return whole(text)
