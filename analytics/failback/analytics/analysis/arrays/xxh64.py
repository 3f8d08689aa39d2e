"""XXH64 with seed 42 over arrays of strings: Spark's ``xxhash64(string)``, in numpy. Pure.

Foreign traffic carries no LAB_ID; its surrogate is the hash of UNIQ_KEY or KEYS, and both engines
must find the same one. Source: the XXH64 algorithm description (Cyan4973/xxHash, doc/
xxhash_spec.md); Spark's XXH64.hashUnsafeBytes uses it with seed 42.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

U64 = NDArray[np.uint64]

_P1: Final = np.uint64(0x9E3779B185EBCA87)
_P2: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_P3: Final = np.uint64(0x165667B19E3779F9)
_P4: Final = np.uint64(0x85EBCA77C2B2AE63)
_P5: Final = np.uint64(0x27D4EB2F165667C5)
_SEED: Final = np.uint64(42)
SURROGATE_MASK: Final = (1 << 62) - 1
"""Surrogates are this many low bits of the hash: then ``value + 1`` never overflows."""


def surrogates(texts: Sequence[str]) -> NDArray[np.int64]:
    """The surrogate sequence number of each text."""
    return surrogates_of(pa.array(texts, pa.large_utf8()))


def surrogates_of(values: pa.Array) -> NDArray[np.int64]:
    """The same of texts or bytes in an Arrow array; a null is as an empty one."""
    plain = values.cast(pa.large_binary()).fill_null(b"")
    _, offsets, data = plain.buffers()
    starts = np.frombuffer(offsets, np.int64)[plain.offset : plain.offset + len(plain) + 1]
    content = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    lengths = np.diff(starts)
    found = np.empty(len(plain), np.uint64)
    for length in np.unique(lengths).tolist():
        where = np.flatnonzero(lengths == length)
        found[where] = _hash_block(content[starts[where][:, None] + np.arange(length)])
    return (found & np.uint64(SURROGATE_MASK)).astype(np.int64)


def _hash_block(data: NDArray[np.uint8]) -> U64:
    """Hash each row of ``data`` (n, length)."""
    rows, length = data.shape
    with np.errstate(over="ignore"):
        at = 0
        if length >= 32:
            lanes = [
                np.full(rows, start, np.uint64)
                for start in (_SEED + _P1 + _P2, _SEED + _P2, _SEED, _SEED - _P1)
            ]
            while at + 32 <= length:
                for i in range(4):
                    lanes[i] = _round(lanes[i], _word(data, at + 8 * i, 8))
                at += 32
            turned = zip(lanes, (1, 7, 12, 18), strict=True)
            value = sum((_turn(lane, bits) for lane, bits in turned), np.zeros(rows, np.uint64))
            for lane in lanes:
                value = (value ^ _round(np.zeros(rows, np.uint64), lane)) * _P1 + _P4
        else:
            value = np.full(rows, _SEED + _P5, np.uint64)
        value = value + np.uint64(length)
        while at + 8 <= length:
            value ^= _round(np.zeros(rows, np.uint64), _word(data, at, 8))
            value = _turn(value, 27) * _P1 + _P4
            at += 8
        if at + 4 <= length:
            value ^= _word(data, at, 4) * _P1
            value = _turn(value, 23) * _P2 + _P3
            at += 4
        for column in range(at, length):
            value ^= data[:, column].astype(np.uint64) * _P5
            value = _turn(value, 11) * _P1
        value = (value ^ (value >> np.uint64(33))) * _P2
        value = (value ^ (value >> np.uint64(29))) * _P3
        return value ^ (value >> np.uint64(32))


def _round(lane: U64, word: U64) -> U64:
    return _turn(lane + word * _P2, 31) * _P1


def _turn(value: U64, bits: int) -> U64:
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


def _word(data: NDArray[np.uint8], at: int, width: int) -> U64:
    part = np.ascontiguousarray(data[:, at : at + width])
    return part.view(np.dtype(f"<u{width}")).ravel().astype(np.uint64)
