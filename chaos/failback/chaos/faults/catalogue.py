"""All faults: a further one is a module of this folder, a line here and one in the actions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from failback.chaos.experiment.fault_kinds import FaultKinds
from failback.chaos.faults import (
    double_kill,
    kill,
    kill_and_restart,
    kill_consumer,
    long_outage,
    none,
    pause,
    replace_offset_file,
    slow_handler,
    terminate,
    unsubscribe,
)
from failback.chaos.faults.fault import Fault, Undo

FAULTS: Final[tuple[Fault, ...]] = (
    none.FAULT,
    kill.FAULT,
    terminate.FAULT,
    kill_and_restart.THEN,
    kill_and_restart.DURING,
    long_outage.FAULT,
    pause.FAULT,
    kill_consumer.FAULT,
    double_kill.FAULT,
    replace_offset_file.FAULT,
    slow_handler.FAULT,
    unsubscribe.FAULT,
)
KINDS: Final[FaultKinds] = MappingProxyType({each.kind.name: each.kind for each in FAULTS})
UNDO: Final[Mapping[str, Undo]] = MappingProxyType(
    {each.undo.call: each.undo for each in FAULTS if each.undo is not None}
)
"""How each kind of ledger entry of a fault is taken back."""
