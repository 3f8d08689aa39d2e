"""Faults that are made of others: F3, F4 and F17 as kills and restarts that wait for each other.

What a run knows, proves and undoes are the parts. The first part keeps the id that the file gives,
so whatever waits for the fault waits for its first kill; the others are called after it. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from failback.chaos.experiment.catalogue import CATALOGUE
from failback.chaos.experiment.model import Fault, FaultTarget


def taken_apart(fault: Fault) -> tuple[Fault, ...]:
    """Return the faults that this one is made of, itself if it is made of none."""
    made = _PARTS.get(fault.fault)
    return made(fault) if made is not None else (fault,)


def _then_restart(fault: Fault) -> tuple[Fault, ...]:
    return (
        _kill(fault),
        _consumers(fault, f"accept:{fault.id}", _value(fault, "afterAcceptSeconds")),
    )


def _restart_during(fault: Fault) -> tuple[Fault, ...]:
    return (
        _kill(fault),
        _consumers(fault, f"gone:{fault.id}", _value(fault, "consumerAtSeconds")),
    )


def _again(fault: Fault) -> tuple[Fault, ...]:
    """The later kills: of the same broker, or in turn with the pair's other one."""
    parts = [_kill(fault)]
    other = "slave" if fault.target.role in (None, "master") else "master"
    for number in range(1, int(_value(fault, "times"))):
        turned = _value(fault, "second") == "slave" and number % 2 == 1
        target = fault.target.model_copy(update={"role": other}) if turned else fault.target
        parts.append(
            _kill(fault).model_copy(
                update={
                    "id": f"{fault.id}-again-{number}",
                    "at": float(_value(fault, "gapSeconds")),
                    "jitter_seconds": 0.0,
                    "target": target,
                    "with_": _down(fault) | {"after": f"accept:{parts[-1].id}"},
                }
            )
        )
    return tuple(parts)


_PARTS: Final[dict[str, Callable[[Fault], tuple[Fault, ...]]]] = {
    "kill-then-restart-consumers": _then_restart,
    "kill-and-restart-consumers-during": _restart_during,
    "double-kill": _again,
}


def _kill(fault: Fault) -> Fault:
    after = {"after": fault.with_["after"]} if fault.with_.get("after") else {}
    return fault.model_copy(
        update={
            "fault": "kill",
            "target": fault.target.model_copy(update={"group": ""}),
            "with_": _down(fault) | after,
        }
    )


def _down(fault: Fault) -> dict[str, Any]:
    down = _value(fault, "downSeconds")
    return {} if down is None else {"downSeconds": down}


def _consumers(fault: Fault, after: str, at: Any) -> Fault:
    return Fault.model_validate(
        {
            "id": f"{fault.id}-consumers",
            "fault": "kill-consumer",
            "at": float(at),
            "target": FaultTarget.model_validate({"group": fault.target.group, "mode": "all"}),
            "with": {
                "signal": _value(fault, "consumerSignal"),
                "after": after,
                "restartAfterSeconds": _value(fault, "restartAfterSeconds"),
            },
        }
    )


def _value(fault: Fault, name: str) -> Any:
    """A parameter as given, else the catalogue's default."""
    parameter = CATALOGUE[fault.fault].parameter(name)
    return fault.with_.get(name, parameter.default if parameter is not None else None)
