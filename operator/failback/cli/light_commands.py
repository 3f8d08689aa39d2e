"""The commands that start before typer is imported.

A broker should not carry the memory of a command line, and an init container should not wait
for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from failback.client.program import CommandParser
    from failback.client.remoting.guarded.cluster import Cluster, Given

Main = Callable[[Sequence[str]], int]


class Light(NamedTuple):
    """Where the function of a light command is, and the one that makes its parser."""

    module: str
    main: str = "main"
    parser: str = ""


LIGHT: Final = {
    ("broker",): Light("failback.broker.__main__", parser="parser"),
    ("namesrv",): Light("failback.namesrv.__main__", parser="parser"),
    ("workload",): Light(__name__, "run_workload", "workload_parser"),
    ("ship",): Light("failback.client.consumelog.upload.__main__", parser="parser"),
    ("carry",): Light("failback.carry.command", parser="parser"),
    ("offsets",): Light("failback.cli.administer.offsets", parser="parser"),
    ("lake",): Light("failback.cli.measure.lake", parser="parser"),
    ("operator", "run"): Light("failback.operator.process.main", "run"),
    ("tools", "install-conf"): Light("failback.cli.container.install_conf"),
    ("tools", "verify-prefix"): Light("failback.cli.container.verify_prefix"),
    ("tools", "carry-serve"): Light("failback.carry.sidecar"),
    ("executor",): Light("failback.cli.container.spark_pod", "executor"),
    ("driver",): Light("failback.cli.container.spark_pod", "driver"),
}


def run_workload(argv: Sequence[str]) -> int:
    """Run one process of the workload; without a name server the local cluster is asked."""
    from failback.chaos.workload.commands import main

    return main(argv, find=_cluster)


def workload_parser() -> CommandParser:
    """Return what reads the command line of the workload."""
    from failback.chaos.workload.commands import parser

    return parser()


def _cluster(given: Given) -> Cluster:
    from failback.cli.shared.clusters import ClusterOptions

    return ClusterOptions(given).found()


def light_command(words: list[str]) -> tuple[Main, list[str]] | None:
    """Return the function of a light command and its arguments, or ``None``."""
    for name, light in LIGHT.items():
        if tuple(words[: len(name)]) == name:
            main: Main = getattr(import_module(light.module), light.main)
            return main, words[len(name) :]
    return None


def parser_of(words: Sequence[str]) -> CommandParser | None:
    """Return the parser of a light command, or ``None``."""
    light = LIGHT.get(tuple(words))
    if light is None or not light.parser:
        return None
    made: CommandParser = getattr(import_module(light.module), light.parser)()
    return made
