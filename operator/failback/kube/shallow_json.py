"""JSON from the API server, nested to any depth.

A schema with a free field allows ten thousand levels in it. Python's decoder raises at a thousand,
and the whole list or watch would be lost with one object. So a value that is nested too deeply is
replaced by a text, which no typed field accepts.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any, Final

import aiohttp

DEEPEST: Final = 100
"""Levels of an object that are kept; those of Kubernetes have about twenty."""
CUT: Final = "nested too deeply"
_CERTAINLY_SHALLOW: Final = 600
"""So many brackets that open can't be nested too deeply for the decoder."""
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|[{}\[\]]', re.DOTALL)


def loads(text: bytes) -> Any:
    """Decode a document, cut where it is too deep.

    Raises:
        ValueError: It is no JSON.
    """
    try:
        return json.loads(text)
    except RecursionError:
        return json.loads(cut(text))


def shallow(text: bytes) -> bytes:
    """Return a document that can be decoded: itself, or cut where it is too deep."""
    if text.count(b"{") + text.count(b"[") <= _CERTAINLY_SHALLOW:
        return text
    try:
        json.loads(text)
    except RecursionError:
        return cut(text)
    except ValueError:
        return text  # the caller's decoder reports it
    return text


def cut(text: bytes) -> bytes:
    """Return a document with :data:`CUT` in place of what is deeper than :data:`DEEPEST`."""
    parts: list[bytes] = []
    depth = begin = 0
    for token in _TOKEN.finditer(text):
        character = token[0]
        if character in (b"{", b"["):
            depth += 1
            if depth == DEEPEST + 1:
                parts += [text[begin : token.start()], json.dumps(CUT).encode()]
        elif character in (b"}", b"]"):
            depth -= 1
            if depth == DEEPEST:
                begin = token.end()
    return b"".join([*parts, text[begin:]])


class ShallowResponse(aiohttp.ClientResponse):
    """An answer whose document, or whose lines of documents, can be decoded."""

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        """Wait for the head of the answer."""
        await super().start(connection)
        self.content = _ShallowLines(self.content)  # type: ignore[assignment]
        return self

    async def json(self, **_: Any) -> Any:
        """Return the decoded document."""
        return loads(await self.read())


class _ShallowLines:
    """A stream that gives whole lines, each a document that can be decoded."""

    def __init__(self, stream: aiohttp.StreamReader) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Yield the bytes of the lines that have arrived whole; ``size`` does not bound them."""
        rest = b""
        async for chunk in self._stream.iter_chunked(size):
            *lines, rest = (rest + chunk).split(b"\n")
            if lines:
                yield b"".join(shallow(line) + b"\n" for line in lines)
        if rest:
            yield shallow(rest)
