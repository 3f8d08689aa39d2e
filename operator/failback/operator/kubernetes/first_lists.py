"""What the operator still has to hear of before it knows the cluster: readiness of its watches.

A watch begins where its list ended, so a watch that the server has accepted is a list that has
arrived. The requests of the session that watches are looked at; nothing is asked in addition.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from types import SimpleNamespace
from typing import Final

import aiohttp

_PATH: Final = re.compile(r"/(?:api|apis/[^/]+)/[^/]+/(?:namespaces/([^/]+)/)?([a-z]+)")
_OK: Final = 200


class FirstLists:
    """The watches that have not begun yet."""

    def __init__(self, plurals: Iterable[str], namespaces: Collection[str]) -> None:
        """Expect a watch of each resource in each namespace; of all, where none is named."""
        self._missing = {
            (plural, namespace) for plural in plurals for namespace in (namespaces or ("",))
        }

    def problem(self) -> str:
        """Return what has not been listed yet, empty once everything has."""
        if not self._missing:
            return ""
        found = sorted({plural for plural, _ in self._missing})
        return f"not listed yet: {', '.join(found)}"

    def note(self, url: str, *, watches: bool, status: int) -> None:
        """Take note of an answer to a GET request for a path."""
        place = _PATH.fullmatch(url)
        if watches and status == _OK and place is not None:
            self._missing.discard((place[2], place[1] or ""))

    def trace(self) -> aiohttp.TraceConfig:
        """Return what a session needs, so that its answers are noted."""
        found = aiohttp.TraceConfig()
        found.on_request_end.append(self._answered)
        return found

    async def _answered(
        self,
        session: aiohttp.ClientSession,
        context: SimpleNamespace,
        answer: aiohttp.TraceRequestEndParams,
    ) -> None:
        watches = answer.url.query.get("watch") == "true"
        self.note(answer.url.path, watches=watches, status=answer.response.status)
