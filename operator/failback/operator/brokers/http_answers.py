"""Answers over HTTP from pods, which may be anybody's."""

from __future__ import annotations

from typing import Final

import aiohttp

_CHUNK_BYTES: Final = 64 * 1024


async def read_bounded(answer: aiohttp.ClientResponse, most_bytes: int) -> bytes:
    """Return the body of an answer, unpacked.

    Raises:
        ValueError: It is longer than ``most_bytes``.
    """
    body = bytearray()
    async for chunk in answer.content.iter_chunked(_CHUNK_BYTES):
        body += chunk
        if len(body) > most_bytes:
            raise ValueError(f"an answer of more than {most_bytes} bytes")
    return bytes(body)
