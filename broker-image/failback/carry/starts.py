"""A carry at each start of a broker that is run in a pod or by the local runtime, in a few figures.

What is asked and answered lies in a folder that broker and sidecar share: the broker writes a word
of its own into ``asked`` and starts when ``carried`` has the same word.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from failback.carry.master_store import MasterConf, read_conf
from failback.carry.offline import Report, Request, carry
from failback.client.program import CommandParser
from failback.client.remoting.addresses import addresses_of
from failback.client.remoting.guarded.own_access import OwnAccess
from failback.common.times import shown
from failback.protocol.errors import ConfigError
from failback.protocol.route import split_offset_key

FILE: Final = "carry.json"
_MOST_WARNINGS: Final = 5
_AGAIN_SECONDS: Final = 1.0
SLAVE_SILENT: Final = "SlaveSilent"
IDLE: Final = "Idle"
"""Of a slave, and where offsets follow an election."""


def parser() -> CommandParser:
    """Return what reads the options of the sidecar."""
    made = CommandParser(
        "failback tools carry-serve",
        "Give a broker that asks, before it starts, what its slaves know better.",
    )
    add = made.add_argument
    add("--conf", type=Path, required=True, metavar="FILE", help="broker.conf of the member.")
    add(
        "--members",
        type=Path,
        required=True,
        metavar="FILE",
        help="HOST:PORT of the pair's other members, one a line.",
    )
    add("--run-dir", type=Path, required=True, metavar="FOLDER", help="Shared with the broker.")
    add("--address", default="", metavar="HOST:PORT", help="Where the member itself answers.")
    add("--port", type=int, default=0, metavar="PORT", help="Of /readyz, /metrics and /carry.")
    add("--wait", type=float, default=0.0, metavar="SECONDS", help="Wait so long for a slave.")
    add("--must-know", action="store_true", help="Wait until a slave has answered.")
    add("--report", action="store_true", help="Write nothing, say what would be raised.")
    add("--top-up", type=float, default=0.0, metavar="SECONDS", help="Top up a started master.")
    add("--keep-members", action="store_true", help="Of a slave: ask members without a master.")
    return made


@dataclass(frozen=True, slots=True)
class Starts:
    """What is done at each start of one member."""

    options: argparse.Namespace
    access: OwnAccess
    """That of the broker itself, by its broker.conf of now."""

    @classmethod
    def of(cls, words: Sequence[str]) -> Starts:
        """Read the options of the sidecar."""
        options = parser().parse_args(list(words))
        return cls(options, OwnAccess(lambda: read_conf(options.conf).own))

    def conf(self) -> MasterConf:
        """Return what broker.conf says now.

        Raises:
            ConfigError: It cannot be read.
        """
        return read_conf(self.options.conf)

    def members(self) -> tuple[str, ...]:
        """Return the addresses of the pair's other members.

        Raises:
            ConfigError: The file cannot be read, or one is no address.
        """
        path: Path = self.options.members
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError("--members", f"{path}: {error}") from None
        return addresses_of("--members", ";".join(text.split()), file=path)

    def carry(self, is_wanted: Callable[[], bool] = lambda: True) -> dict[str, Any]:
        """Carry, and with ``--must-know`` again until a slave has answered; return the figures.

        It takes as long as ``--wait`` and some seconds, and raises nothing: a broker starts in any
        case.

        Args:
            is_wanted: Whether a broker still waits.
        """
        while True:
            try:
                found = self._once()
            except ConfigError as error:
                found = {"outcome": "Refused", "line": str(error)}
            if not (self.options.must_know and found["outcome"] == SLAVE_SILENT and is_wanted()):
                return {"at": shown(int(time.time() * 1000)), **found}
            time.sleep(_AGAIN_SECONDS)

    def _once(self) -> dict[str, Any]:
        conf, members = self.conf(), self.members()
        if not members and not conf.idle:
            return {"outcome": "NothingToCarry", "line": "nothing to carry: the pair has no slave"}
        report = carry(
            Request(
                conf=conf,
                slaves=members,
                access=self.access,
                wait_seconds=self.options.wait,
                dry_run=self.options.report,
            )
        )
        return figures(report, conf, is_dry=self.options.report)


def figures(report: Report, conf: MasterConf, *, is_dry: bool) -> dict[str, Any]:
    """Return what became of a carry, as ``/carry`` and a status show it."""
    rows = report.merged.raised
    return {
        "outcome": _outcome(report, conf, is_dry=is_dry),
        "offsets": len(rows),
        "groups": len({split_offset_key(row.key)[1] for row in rows}),
        "messages": sum(row.messages for row in rows),
        "cut": len(report.merged.beyond),
        "sources": report.answered,
        "line": report.line,
        "warnings": report.warnings[:_MOST_WARNINGS],
    }


def _outcome(report: Report, conf: MasterConf, *, is_dry: bool) -> str:
    if conf.idle:
        return IDLE
    if conf.unreadable:
        return "Unsupported"
    if report.refused or report.failed:
        return "Refused" if report.refused else "DiskFailed"
    if report.merged.raised:
        return "WouldCarry" if is_dry else "Carried"
    if report.silent.keys() >= set(report.asked) and report.asked:
        return "OtherLog" if report.other_log else SLAVE_SILENT
    return "NothingToCarry"


def read_last(run_dir: Path) -> dict[str, Any]:
    """Return the figures of the last start; empty without one."""
    try:
        found = json.loads((run_dir / FILE).read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
