"""Bearer tokens: who may do what.

A token file has one line per token, ``<sha256 of the token, hex> <scope>[,<scope>...] <name>``;
``#`` begins a comment. The token itself is 256 random bits and stands nowhere. Scopes:

==============  ================================================================
``read``        everything that only looks
``operate``     the same, and start and abort experiments from the dashboard
``ingest:RUN``  upload segments of that run, ask what is stored of it, close it
``ingest:*``    the same for every run
==============  ================================================================
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from failback.analytics.lake.segment_ids import RUN_CHARS, RUN_PATTERN
from failback.common.text import why
from failback.protocol.errors import ConfigError

logger = logging.getLogger(__name__)

READ: Final = "read"
OPERATE: Final = "operate"
INGEST: Final = "ingest:"
ANY: Final = "*"
_LONGEST_TOKEN: Final = 512


@dataclass(frozen=True, slots=True)
class TokenEntry:
    """One line of the token file."""

    digest: str
    scopes: frozenset[str]
    name: str

    def may_read(self, run: str | None = None) -> bool:
        if not self.scopes.isdisjoint({READ, OPERATE}):
            return True
        return run is not None and self.may_ingest(run)

    def may_ingest(self, run: str) -> bool:
        return f"{INGEST}{ANY}" in self.scopes or f"{INGEST}{run}" in self.scopes


def new_token() -> str:
    """256 random bits, to be shown once."""
    return secrets.token_urlsafe(32)


def digest_of(token: str) -> str:
    """What the token file holds. A slow hash would add nothing to 256 random bits."""
    return hashlib.sha256(token.encode()).hexdigest()


def check_scope(scope: str) -> str:
    """Return the scope, or raise ``ConfigError``."""
    run = scope.removeprefix(INGEST)
    named = scope.startswith(INGEST) and len(run) <= RUN_CHARS and re.fullmatch(RUN_PATTERN, run)
    if scope in {READ, OPERATE, f"{INGEST}{ANY}"} or named:
        return scope
    raise ConfigError("scope", f"must be operate, read, ingest:RUN or ingest:*, not {scope!r}")


def read_tokens(text: str, where: str) -> tuple[TokenEntry, ...]:
    """Read a token file.

    Raises:
        ConfigError: A line is not one, with its number.
    """
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        place = f"{where}, line {number}"
        if len(words) != 3 or not re.fullmatch(r"[0-9a-f]{64}", words[0]):
            raise ConfigError(place, "must be <sha256 of the token> <scope>[,<scope>] <name>")
        try:
            scopes = frozenset(map(check_scope, words[1].split(",")))
        except ConfigError as error:
            raise ConfigError(place, str(error)) from error
        entries.append(TokenEntry(words[0], scopes, words[2]))
    return tuple(entries)


def find_token(entries: Iterable[TokenEntry], token: str) -> TokenEntry | None:
    """The entry of a token; every entry is compared, each in constant time."""
    if not token or len(token) > _LONGEST_TOKEN:
        return None
    digest, found = digest_of(token), None
    for entry in entries:
        if hmac.compare_digest(entry.digest, digest):
            found = entry
    return found


class TokenFile:
    """The token file, read again when it changes; a bad change leaves the old tokens in force."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = self._stamp()
        self._entries = self._read()

    def find(self, authorization: str | None) -> TokenEntry | None:
        """The entry of an ``Authorization: Bearer`` header."""
        kind, _, token = (authorization or "").partition(" ")
        if kind.lower() != "bearer":
            return None
        self._refresh()
        return find_token(self._entries, token.strip())

    def _refresh(self) -> None:
        stamp = self._stamp()
        if stamp == self._seen:
            return
        self._seen = stamp
        try:
            self._entries = self._read()
        except ConfigError as error:
            logger.error("the tokens stay as they were: %s", error)
        else:
            logger.info("read %d tokens again", len(self._entries))

    def _stamp(self) -> tuple[int, int, int]:
        try:
            status = self._path.stat()
        except OSError:
            return (0, 0, 0)
        return (status.st_ino, status.st_mtime_ns, status.st_size)

    def _read(self) -> tuple[TokenEntry, ...]:
        try:
            text = self._path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                "tokens", f"{self._path}: {why(error)}; make it: failback collect token"
            ) from error
        return read_tokens(text, str(self._path))
