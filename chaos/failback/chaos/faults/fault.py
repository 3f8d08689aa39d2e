"""What a module of this folder says of its fault, for :mod:`failback.chaos.faults.catalogue`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from failback.chaos.cluster.target import Target
from failback.chaos.cluster.view import ClusterView
from failback.chaos.experiment.fault_kinds import FaultKind
from failback.chaos.experiment.model import Fault as Written


@dataclass(frozen=True, slots=True)
class Undo:
    """How one kind of ledger entry is taken back, also by another process than the one it is from.

    ``take_back`` gets the entry's arguments and a deadline on the monotonic clock. It returns what
    was seen without the fault, or ``None`` when that was not seen yet; it is safe to call twice.
    ``action`` is the name of the action that undoes all open entries of this kind.
    """

    call: str
    take_back: Callable[[Target, Mapping[str, Any], float], dict[str, Any] | None]
    action: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind that experiments may name, the action that injects it, and its undo.

    ``inject`` takes the session and then the action's arguments; it returns evidence. A fault that
    is made of others has none.
    """

    kind: FaultKind
    inject: Callable[..., dict[str, Any]] | None = None
    undo: Undo | None = None
    refuse: Callable[[Target, ClusterView, Written], str] | None = None
    """Says what the target lacks for a fault of a file, before anything starts; else nothing."""
