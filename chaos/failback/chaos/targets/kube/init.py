"""Containers of ours: ``failback-init`` is their PID 1. Pure.

It knows its one child, keeps it down while a hold file exists, and has written how earlier children
died. It ends with its child, so a death is read from the container that was started afterwards; the
records lie on a volume of the pod.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from typing import Any, Final

from failback.chaos.cluster.view import LIMIT_SECONDS, Stamp
from failback.chaos.targets.kube.inside import Child, Death, Inside

COMMAND: Final = "failback-init"
_SENDER: Final = "failback-chaos"


class InitKeeper:
    """Asks ``failback-init``."""

    engine = "failback"
    keeps_deaths = True

    def status(self) -> list[str]:
        return [COMMAND, "status", "--json"]

    def read_status(self, answer: bytes) -> Inside:
        said = _object(answer)
        try:
            child = said["child"]
            return Inside(
                child=_child(child) if child else None,
                held=bool(said["held"]),
                deaths=tuple(_death(each) for each in said["deaths"] if not _is_a_step(each)),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"no status of an init: {error}") from error

    def kill(self, signum: int, pid: int, ticks: int) -> list[str]:
        words = [COMMAND, "kill", str(signum), "--expect", f"{pid}:{ticks}", "--by", _SENDER]
        if signum == signal.SIGSTOP:
            words += ["--until", str(LIMIT_SECONDS)]
        return words

    def read_receipt(self, answer: bytes) -> tuple[Stamp, Stamp]:
        said = _object(answer)
        try:
            return _stamp(said["issued"]), _stamp(said["returned"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"no receipt of an init: {error}") from error

    def hold(self, by: str) -> list[str]:
        return [COMMAND, "hold", "--by", by, "--until", str(LIMIT_SECONDS)]

    def renew(self) -> list[str]:
        return [COMMAND, "renew", str(LIMIT_SECONDS)]

    def release(self) -> list[str]:
        return [COMMAND, "release"]


def _is_a_step(said: Mapping[str, Any]) -> bool:
    """Init containers share the run directory; their ends are no broker's death."""
    return list(said.get("command") or ())[1:2] == ["tools"]


def _child(said: Mapping[str, Any]) -> Child:
    return Child(int(said["pid"]), int(said["ticks"]), str(said["state"]))


def _death(said: Mapping[str, Any]) -> Death:
    signum, code = said.get("signal"), said.get("code")
    return Death(
        int(said["pid"]),
        int(said["ticks"]),
        None if signum is None else int(signum),
        None if code is None else int(code),
        _stamp(said),
        bool(said.get("sent_by")),
    )


def _stamp(said: Mapping[str, Any]) -> Stamp:
    return Stamp(int(said["wall_ns"]), int(said["mono_ns"]))


def _object(text: bytes) -> dict[str, Any]:
    try:
        said = json.loads(text)
    except UnicodeDecodeError as error:
        raise ValueError(str(error)) from error
    if not isinstance(said, dict):
        raise ValueError("not an object")
    return said
