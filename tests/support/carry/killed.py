"""``failback carry`` in a process of its own that dies at a given step of what it writes."""

from __future__ import annotations

import os
import subprocess
import sys

_KILLED = """
import os, sys
at, count = int(sys.argv[1]), 0
def dies(name):
    real = getattr(os, name)
    def step(*words, **named):
        global count
        count += 1
        if count == at:
            os._exit(9)
        return real(*words, **named)
    setattr(os, name, step)
for name in ("fsync", "replace", "fchmod", "fchown", "open", "unlink"):
    dies(name)
from failback.carry.command import main
from failback.carry.master_store import MasterStore, read_conf
sys.exit(main(sys.argv[2:]))
"""


def carry_until(step: int, *words: object) -> None:
    """Run a carry that dies at its ``step``-th call of the system that changes a file."""
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(step), *map(str, words)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert done.returncode in (0, 9)
