"""The compiled CRC-32 is zlib's, both where the processor folds and where it can't."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable

import pytest

from failback.broker.native import kernels

pytestmark = [pytest.mark.skipif(kernels is None, reason="no compiled kernels")]

WAYS = ("crc32", "crc32_sliced")
NOISE = random.Random(7).randbytes(20_000)


def crc_of(way: str) -> Callable[[bytes | memoryview], int]:
    found: Callable[[bytes | memoryview], int] = getattr(kernels, way)
    return found


@pytest.mark.parametrize("way", WAYS)
def test_all_short_lengths_at_any_alignment(way: str) -> None:
    crc32, offsets = crc_of(way), random.Random(8)
    view = memoryview(NOISE)
    for length in range(4097):
        at = offsets.randrange(len(NOISE) - length + 1)
        assert crc32(view[at : at + length]) == zlib.crc32(view[at : at + length]), (length, at)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "data", [b"", b"123456789", bytes(1000), b"\xff" * 1000, NOISE, bytearray(NOISE)]
)
def test_examples(way: str, data: bytes) -> None:
    assert crc_of(way)(data) == zlib.crc32(data)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_no_run_of_bytes_is_refused(way: str) -> None:
    with pytest.raises(TypeError):
        crc_of(way)("text")  # type: ignore[arg-type]
    with pytest.raises(BufferError):
        crc_of(way)(memoryview(NOISE)[::2])
