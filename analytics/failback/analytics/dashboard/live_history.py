"""The last quarter of an hour of what groups have at risk and how far they are behind. Bounded.

A figure that a kill would cost rises and falls within seconds: of each ten seconds the most is
kept. A series is four arrays of 90 numbers, and there are at most 1,000 of them: under 3 MB.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping
from typing import Any, Final

STEP_SECONDS: Final = 10
STEPS: Final = 90
MOST_SERIES: Final = 1_000
FIGURES: Final = ("most", "lag", "after_return", "on_slave")
"""At risk if the master is killed now, messages behind the end, and both parts of the first."""
_MINUTE: Final = 60 // STEP_SECONDS

Json = dict[str, Any]
Key = tuple[str, str, str]
"""Cluster, broker and group."""


class LiveHistory:
    """Series by group on a pair; those that are gone are forgotten when their last step is."""

    def __init__(self) -> None:
        self._step = 0
        self._series: dict[Key, Mapping[str, array[float]]] = {}

    def note(self, at: float, clusters: Iterable[Json]) -> None:
        """Add what was seen, and put the series as ``history`` into each row of a group.

        ``minute`` is the most of the last minute, of figures that are known now.
        """
        self._advance(int(at // STEP_SECONDS))
        for cluster in clusters:
            for pair in cluster["pairs"]:
                for row in pair["groups"]:
                    series = self._of((cluster["cluster"], pair["broker"], row["group"]))
                    for name, values in series.items():
                        value = row.get(name)
                        if value is not None and not values[-1] >= value:
                            values[-1] = value
                    row["history"] = document(series)
                    row["minute"] = {
                        name: None if row.get(name) is None else _most(series[name])
                        for name in series
                    }

    def _advance(self, step: int) -> None:
        """Begin the step, with gaps for those without a look."""
        new = min(max(0, step - self._step), STEPS)
        self._step = max(step, self._step)
        if not new:
            return
        for key, series in list(self._series.items()):
            for values in series.values():
                del values[:new]
                values.extend([math.nan] * new)
            if all(map(math.isnan, (each for values in series.values() for each in values))):
                del self._series[key]

    def _of(self, key: Key) -> Mapping[str, array[float]]:
        found = self._series.get(key)
        if found is None:
            found = {name: array("d", [math.nan] * STEPS) for name in FIGURES}
            if len(self._series) < MOST_SERIES:
                self._series[key] = found
        return found


def _most(values: array[float]) -> float:
    return max(each for each in values[-_MINUTE:] if not math.isnan(each))


def document(series: Mapping[str, array[float]]) -> Json:
    """Return a series, the oldest first; ``null`` for steps without a look."""
    return {"step_seconds": STEP_SECONDS} | {
        name: [None if math.isnan(each) else each for each in values]
        for name, values in series.items()
    }
