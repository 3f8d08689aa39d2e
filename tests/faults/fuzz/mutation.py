"""Mutations of valid input, drawn from a seed: what a hostile or broken peer would send."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random
from typing import Final

_NUMBERS: Final = tuple(
    number & 0xFFFFFFFF
    for number in (0, 1, 3, 4, 7, 8, 20, 91, 127, 128, 255, 256, 2**15, 2**16, 2**24 - 1, 2**24)
) + tuple(number & 0xFFFFFFFF for number in (2**24 + 1, 2**30, 2**31 - 1, 2**31, -1, -4, -(2**24)))
_TEXTS: Final = (
    b"-1", b"0", b"2147483647", b"2147483648", b"-9223372036854775808", b"9223372036854775808",
    b"1e400", b"NaN", b"1.5", b"null", b"true", b'"', b"\\", b"{}", b"[]", b"[" * 5000,
    b'{"a":' * 3000, b"\xff\xfe", b"\0", b"../../etc", b"%RETRY%", b"\x01", b"\x02", b"=", b"\\u12",
)  # fmt: skip


def mutated(sample: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """Return ``sample`` with one to six mutations; ``others`` lend pieces."""
    data = sample
    for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
        data = random.choice(_MUTATIONS)(data, others, random)
    return data


def _flip_bit(data: bytes, _others: Sequence[bytes], random: Random) -> bytes:
    if not data:
        return b"\0"
    at = random.randrange(len(data))
    return data[:at] + bytes((data[at] ^ 1 << random.randrange(8),)) + data[at + 1 :]


def _overwrite(data: bytes, _others: Sequence[bytes], random: Random) -> bytes:
    at = random.randrange(len(data) + 1)
    piece = random.randbytes(random.choice((1, 2, 4, 8, 30)))
    return data[:at] + piece + data[at + len(piece) :]


def _number(data: bytes, _others: Sequence[bytes], random: Random) -> bytes:
    """Put a boundary value where a number may be: often at the front, where lengths are."""
    size = random.choice((2, 4, 4, 8))
    last = max(len(data) - size, 0)
    at = random.choice((0, 4, 8, random.randint(0, last), random.randint(0, last)))
    number = random.choice(_NUMBERS)
    if size == 8:
        number |= random.choice(_NUMBERS) << 32
    return data[:at] + (number & (1 << 8 * size) - 1).to_bytes(size, "big") + data[at + size :]


def _text(data: bytes, _others: Sequence[bytes], random: Random) -> bytes:
    """Replace a run of digits or letters by something a parser stumbles over."""
    start = random.randrange(len(data) + 1)
    while start < len(data) and not data[start : start + 1].isalnum():
        start += 1
    end = start
    while end < len(data) and data[end : end + 1].isalnum():
        end += 1
    return data[:start] + random.choice(_TEXTS) + data[end:]


def _cut(data: bytes, _others: Sequence[bytes], random: Random) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def _remove(data: bytes, _others: Sequence[bytes], random: Random) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + data[at + random.choice((1, 2, 4, 8, 50)) :]


def _repeat(data: bytes, _others: Sequence[bytes], random: Random) -> bytes:
    at, size = random.randrange(len(data) + 1), random.choice((1, 4, 12, 100))
    return data[:at] + data[at : at + size] * random.choice((2, 2, 3, 50)) + data[at + size :]


def _splice(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    other = random.choice(others)
    at, start = random.randrange(len(data) + 1), random.randrange(len(other) + 1)
    piece = other[start : start + random.choice((4, 16, 200, len(other)))]
    rest = data[at:] if random.random() < 0.5 else data[at + len(piece) :]
    return data[:at] + piece + rest


_MUTATIONS: Final[tuple[Callable[[bytes, Sequence[bytes], Random], bytes], ...]] = (
    _flip_bit,
    _flip_bit,
    _overwrite,
    _number,
    _number,
    _text,
    _text,
    _cut,
    _remove,
    _repeat,
    _splice,
)


def pieces(data: bytes, random: Random) -> list[bytes]:
    """Cut ``data`` as a network may: mostly not at all."""
    if random.random() < 0.7:
        return [data]
    cuts = sorted(random.randrange(len(data) + 1) for _ in range(random.randint(1, 3)))
    bounds = [0, *cuts, len(data)]
    return [data[start:end] for start, end in pairwise(bounds) if end > start]
