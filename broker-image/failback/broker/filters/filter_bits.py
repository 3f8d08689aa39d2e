"""Which bits represent a consumer group and a topic in a filter's bit map. Pure.

With ``enableCalcFilterBitMap`` a broker notes for each message which filters match, in a bloom
filter. This one notes nothing, but the file of the filters says each one's bits. A broker of 4.9
that misses them there, or finds others, drops the whole file.

Source: BloomFilter.createByFn with the defaults of ``expectConsumerNumUseFilter`` and
``maxErrorRateOfBloomFilter``, apache/rocketmq 4.9.8; MurmurHash3 x64 128 of Austin Appleby.
"""

from __future__ import annotations

from typing import Final

BIT_COUNT: Final = 112
"""For 32 consumers and an error rate of 20 %: 32 · log2 5 / ln 2, in whole bytes."""
BITS_EACH: Final = 3
"""log2 5, rounded up."""

_MASK: Final = (1 << 64) - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F


def bits_of(group: str, topic: str) -> list[int]:
    """Return the numbers of the bits, in the original's order; they may repeat."""
    low = murmur3_low(f"{group}#{topic}".encode())
    first, step = _signed(low), _signed(low >> 32)
    bits = []
    for number in range(1, BITS_EACH + 1):
        combined = _signed(first + number * step)
        bits.append((combined if combined >= 0 else ~combined) % BIT_COUNT)
    return bits


def murmur3_low(data: bytes) -> int:
    """Return the lower 64 bits of MurmurHash3 x64 128 with seed 0, unsigned."""
    h1 = h2 = 0
    whole = len(data) - len(data) % 16
    for at in range(0, whole, 16):
        h1 ^= _scramble(int.from_bytes(data[at : at + 8], "little"), _C1, 31, _C2)
        h1 = ((_rotated(h1, 27) + h2) * 5 + 0x52DCE729) & _MASK
        h2 ^= _scramble(int.from_bytes(data[at + 8 : at + 16], "little"), _C2, 33, _C1)
        h2 = ((_rotated(h2, 31) + h1) * 5 + 0x38495AB5) & _MASK
    rest = data[whole:]
    h2 ^= _scramble(int.from_bytes(rest[8:], "little"), _C2, 33, _C1)
    h1 ^= _scramble(int.from_bytes(rest[:8], "little"), _C1, 31, _C2)
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    return (_mixed(h1) + _mixed(h2)) & _MASK


def _scramble(block: int, before: int, turn: int, after: int) -> int:
    return _rotated(block * before & _MASK, turn) * after & _MASK


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _mixed(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33


def _signed(value: int) -> int:
    """Return the lower 32 bits as Java's int."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value
