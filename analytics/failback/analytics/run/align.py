"""One time axis for all processes: nanoseconds after run zero. Pure.

Rows carry their writer's CLOCK_MONOTONIC. Processes of one host share that clock; another host's
is shifted by the median of its ``clock`` rows. An error estimate per host says how far two events
of different hosts may be apart before their order is known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Clocks:
    """Shift and error of each host's monotonic clock, in ns."""

    shift: Mapping[str, int]
    error: Mapping[str, int]
    offset: Mapping[str, int]
    default_shift: int
    boot_ids: Mapping[str, frozenset[str]]

    def shift_of(self, host: str | None) -> int:
        """What to add to a reading of ``host`` to get ns after run zero."""
        return self.shift.get(host or "", self.default_shift)

    @property
    def rebooted(self) -> list[str]:
        """Hosts that restarted inside the run: their times cannot be joined."""
        return sorted(host for host, ids in self.boot_ids.items() if len(ids) > 1)


def clocks_of(rows: Iterable[Mapping[str, Any]], zero_mono_ns: int) -> Clocks:
    """Clocks from the ``clock`` rows of a run.

    The error of a host is the larger of what its rows claim (median) and half of the offset's
    drift over the run.
    """
    offsets: dict[str, list[int]] = defaultdict(list)
    errors: dict[str, list[int]] = defaultdict(list)
    boot_ids: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        offsets[row["host"]].append(row["offset_ns"])
        errors[row["host"]].append(row["error_ns"])
        boot_ids[row["host"]].add(row["boot_id"])
    offset = {host: int(np.median(values)) for host, values in offsets.items()}
    error = {
        host: max(int(np.median(errors[host])), (max(values) - min(values)) // 2)
        for host, values in offsets.items()
    }
    return Clocks(
        shift={host: value - zero_mono_ns for host, value in offset.items()},
        error=error,
        offset=offset,
        default_shift=-zero_mono_ns,
        boot_ids={host: frozenset(ids) for host, ids in boot_ids.items()},
    )
