"""The documents of a run: what it was, how it was closed, what became of its files. Pure.

The formats are ``failback.run/1``, ``failback.closed/1`` and ``failback.manifest/1``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import UNSET

from failback.analytics.run.definitions import DEFAULT, FOREVER, Definitions
from failback.analytics.run.documents import RUN_SCHEMA, Closed, Group, Run


@dataclass(frozen=True, slots=True)
class Evidence:
    """What became of the files that the manifest lists."""

    run_sha256: str | None = None
    changed: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The documents of one run."""

    path: Path
    run: Run
    closed: Closed
    evidence: Evidence
    definitions: Definitions = DEFAULT

    @property
    def run_id(self) -> str:
        return self.run.run

    @property
    def lake(self) -> Path:
        return self.path / "lake"

    @property
    def zero_mono_ns(self) -> int:
        return self.run.zero.mono_ns

    @property
    def zero_wall_ns(self) -> int:
        return self.run.zero.wall_ns

    @property
    def phases(self) -> Mapping[str, int | None]:
        """Instants of the run in ns after run zero; what never happened is null."""
        return self.closed.phases or {}

    @property
    def warmup_end_ns(self) -> int:
        """Rows that begin before this instant are in no figure."""
        value = self.phases.get("warmup_end_ns")
        if value is None:
            value = self.run.warmup_end_ns
        warm = -(1 << 62) if value is None else value
        since = self.definitions.since_ns
        return warm if since is None else max(warm, since)

    @property
    def until_ns(self) -> int:
        """Rows that begin at or after this instant are in no figure."""
        until = self.definitions.until_ns
        return FOREVER if until is None else until

    @property
    def time_scale(self) -> float:
        return self.run.time_scale or 1.0

    @property
    def groups(self) -> Sequence[Group]:
        return self.run.groups or ()

    @property
    def ordered_topics(self) -> frozenset[str]:
        return frozenset(topic.name for topic in self.run.topics or () if topic.ordered)

    @property
    def broadcasting(self) -> frozenset[str]:
        return frozenset(group.name for group in self.groups if group.broadcasting)

    def exits(self) -> dict[int, int]:
        """When each ended process ended, in ns after run zero, by process number."""
        exits = (self.closed.exits or {}).items()
        return {int(proc): end.t_ns for proc, end in exits if end.t_ns is not UNSET}


def unplanned_run(
    run_id: str, source: str, *, wall_ns: int, mono_ns: int, **known: Any
) -> dict[str, Any]:
    """``run.json`` of a run that no experiment planned.

    Args:
        run_id: Its id.
        source: Where its rows come from.
        wall_ns: Run zero, ns since 1970.
        mono_ns: Run zero on the clock of the rows' times.
        known: Further fields, or values of fields that are empty otherwise.
    """
    return {
        "schema": RUN_SCHEMA,
        "run": run_id,
        "source": source,
        **dict.fromkeys(("experiment", "arm", "repetition", "seed", "rule_set", "engine")),
        "time_scale": 1.0,
        "log_mode": "full",
        "zero": {"wall_ns": wall_ns, "mono_ns": mono_ns},
        "warmup_end_ns": None,
        "switches": {},
        "topology": {"pairs": []},
        "system": {},
        **{name: [] for name in ("topics", "groups", "faults", "procs", "expect")},
        **known,
    }
