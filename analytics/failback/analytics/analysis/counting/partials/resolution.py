"""How exactly repeats are counted: exactly while they are few, else with a stated error. Pure.

What a report says of repeats by their age, by ordering key or by broker's message id needs a
partial row for each value. In large runs values are put into bins, registers or a sample, so that
the number of rows does not depend on the number of repeats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf, log, sqrt
from typing import Final, Self

import numpy as np

from failback.analytics.analysis.arrays.columns import Flags
from failback.analytics.analysis.arrays.intervals import Ints

EXACT_CANDIDATES: Final = 50_000
"""Deliveries of what occurs more than once, up to which every figure is exact."""
AGE_BITS: Final = 8
AGE_ERROR: Final = 0.008
"""Relative; at most 2^-7."""
REGISTERS: Final = 1 << 14
KEYS_ERROR: Final = 0.025
"""Relative; three standard errors, 1.04 / sqrt(REGISTERS) each."""
COARSE_BINS: Final = 128
"""Bins of successes that are one: no run has more than 512 then."""
_NS: Final = 1_000_000_000
_DAY_NS: Final = 86_400 * _NS
AGE_EDGES_NS: Final = (
    *(edge for k in range(30) if (edge := round(10 ** (7 + k / 4))) < _DAY_NS),
    _DAY_NS,
)
"""10 ms to one day, four bins per factor of ten."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """Of one run."""

    exact: bool = True
    omid_share: int = 1
    """One of so many message ids is looked at; a power of two."""

    @classmethod
    def of(cls, candidates: int) -> Self:
        """For so many deliveries of what occurs more than once."""
        if candidates <= EXACT_CANDIDATES:
            return cls()
        return cls(exact=False, omid_share=1 << (candidates // EXACT_CANDIDATES).bit_length())

    @property
    def bins(self) -> int:
        """Bins of ``Context.ok_bin_ns`` that are one."""
        return 1 if self.exact else COARSE_BINS

    def ages(self, age: Ints) -> Ints:
        """Ages, ns; in large runs with their highest bits only, on the same side of each edge."""
        if self.exact:
            return age
        _, exponent = np.frexp(age.astype(np.float64))
        shift = np.maximum(exponent.astype(np.int64) - AGE_BITS, 0)
        below = np.array([-1, *AGE_EDGES_NS], np.int64)[np.searchsorted(AGE_EDGES_NS, age)]
        rounded: Ints = np.maximum(age >> shift << shift, below + 1)
        return rounded

    def keys(self, hashes: Ints) -> tuple[Ints, Ints]:
        """Number and value of an ordering key's partial row, of its hash."""
        if self.exact:
            return hashes, np.ones(hashes.size, np.int64)
        rest = hashes // REGISTERS | 1 << 48
        lowest = rest & -rest
        return hashes % REGISTERS, np.log2(lowest).astype(np.int64) + 1

    def distinct_keys(self, values: Sequence[int]) -> int:
        """How many ordering keys there are, of the values of one group's partial rows.

        In large runs after O. Ertl, New cardinality estimation algorithms for HyperLogLog sketches
        (2017), algorithm 6.
        """
        if self.exact or not values:
            return len(values)
        count = np.bincount(values)
        z = 0.0
        for ranked in count[:0:-1].tolist():
            z = (z + ranked) / 2
        z += REGISTERS * _sigma(1 - len(values) / REGISTERS)
        return round(REGISTERS**2 / (2 * log(2) * z))

    def omids(self, hashes: Ints) -> tuple[Ints, Flags]:
        """Number of a message id's partial row, of its hash, and which of them are looked at."""
        return hashes, hashes >> 20 & self.omid_share - 1 == 0

    def omids_error(self, found: int) -> int:
        """By how many the number of all such ids may differ, of so many among the looked at."""
        share = self.omid_share
        return ceil(3 * sqrt((found + 1) * share * (share - 1)))


def _sigma(zeros: float) -> float:
    """The sum of 2^(k-1) * zeros^(2^k), beside ``zeros``."""
    if zeros >= 1:
        return inf
    power, weight, found, before = zeros, 1.0, zeros, -1.0
    while found != before:
        power, before = power * power, found
        found += power * weight
        weight *= 2
    return found
