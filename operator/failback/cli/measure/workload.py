"""``failback workload``: the workload generator, with the clusters that all commands know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from failback.chaos.workload import commands
from failback.chaos.workload.commands import parser

if TYPE_CHECKING:
    from failback.client.remoting.guarded.cluster import Cluster, Given

__all__ = ["main", "parser"]


def main(argv: Sequence[str]) -> int:
    """Run one process of the workload; where no name server is named, find it as others do."""
    return commands.main(argv, find=_cluster)


def _cluster(given: Given) -> Cluster:
    from failback.cli.shared.clusters import ClusterOptions

    return ClusterOptions(given).found()
