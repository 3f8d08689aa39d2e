"""``failback workload``: the workload generator, with the name servers that all commands know."""

from __future__ import annotations

from collections.abc import Sequence

from failback.chaos.workload import commands
from failback.chaos.workload.commands import parser

__all__ = ["main", "parser"]


def main(argv: Sequence[str]) -> int:
    """Run one process of the workload; where no name server is named, find it as others do."""
    return commands.main(argv, find=_name_servers)


def _name_servers() -> list[str]:
    from failback.cli.shared.asking import name_servers

    return name_servers("", None)
