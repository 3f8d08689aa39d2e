"""The workload generator: producers and consumers that log everything they do.

``failback workload produce`` and ``failback workload consume`` work against any RocketMQ; the
harness starts the same code as one process per producer and per group member.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one process of the workload; returns its exit code (74: the log took no more rows)."""
    from failback.chaos.workload.commands import main as run_command

    return run_command(argv)
