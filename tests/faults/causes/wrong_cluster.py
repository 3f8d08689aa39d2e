"""A cluster of the local runtime whose brokers keep consumer offsets in a wrong way."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from failback.operator.local.background import wait_ready
from failback.operator.local.root import Root
from tests.faults.causes import wrong_brokers
from tests.support.chaos.chaos_lab import LocalCluster, run_failback
from tests.support.common.polling import SCALE
from tests.support.processes.child_process import TestProcess, failback_environment


@contextmanager
def wrong_cluster(wrong: str, folder: Path, resources: str) -> Iterator[LocalCluster]:
    """The cluster of a resource file, its brokers with a fault; stopped afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    file, root = folder / "cluster.yaml", Root(folder / "root")
    file.write_text(resources)
    command = [sys.executable, wrong_brokers.__file__, wrong]
    command += ["up", "-f", str(file), "--root", str(root.path)]
    process = TestProcess("up", command, folder, environment=failback_environment())
    process.start()
    try:
        wait_ready(root, process.pid, seconds=60 * SCALE)
        yield LocalCluster(root.path)
    finally:
        run_failback("down", "--root", str(root.path))
        process.dispose()
