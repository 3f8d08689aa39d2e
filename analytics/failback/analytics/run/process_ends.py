"""When each process of a run ended: by wait statuses, and by what witnesses saw. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from failback.analytics.run.history import FaultStep

ENDED_KINDS: Final = frozenset({"CLIENT_KILL", "CLIENT_TERM"})
"""Steps that a harness writes once the client's process is gone."""


def process_ends(
    exits: Mapping[int, int], faults: Iterable[FaultStep], numbers: Mapping[str, Sequence[int]]
) -> dict[int, int]:
    """When each ended process ended, in ns after run zero, by process number.

    Either source gives the end: the wait status in ``closed.json``, which a harness that died left
    empty, or a fault step that a witness observed. A step without a witness proves no end. Where
    they differ the earliest holds: a process does not live on after it was seen to be gone.

    Args:
        exits: Wait statuses, by process number.
        faults: All steps, aligned.
        numbers: Process numbers by the process's id in hex.
    """
    found: dict[int, list[int]] = defaultdict(list)
    for proc_no, t in exits.items():
        found[proc_no].append(t)
    for step in faults:
        if step.kind in ENDED_KINDS and step.observed is not None:
            for proc_no in _named(step, numbers):
                found[proc_no].append(step.observed)
    return {proc_no: min(times) for proc_no, times in found.items()}


def _named(step: FaultStep, numbers: Mapping[str, Sequence[int]]) -> Sequence[int]:
    """The processes that a step is of: by its reference, else by what its detail says."""
    detail = step.details
    for name in (step.proc_ref, detail.get("proc_ref"), detail.get("proc")):
        known = numbers.get(hex_id(name)) if isinstance(name, str) else None
        if known:
            return known
    return tuple(_number(detail.get("proc_no")))


def _number(value: Any) -> Iterator[int]:
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        yield value


def hex_id(text: str) -> str:
    """A process's id, however it is spelt."""
    return text.strip().lower().removeprefix("0x").replace("-", "")
