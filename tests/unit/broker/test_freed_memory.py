"""What the broker frees after a request serves the next one."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from tests.support.processes.child_process import ROOT, SOURCES

pytestmark = [
    pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator"),
]

PROGRAM = """
import resource
from failback.broker.__main__ import keep_freed_memory
def page_faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def batch(): blocks = [b"x" * 600_000 for _ in range(6)]
keep_freed_memory()
for _ in range(5): batch()
before = page_faults()
for _ in range(20): batch()
print(page_faults() - before)
"""


def test_blocks_of_a_batch_are_reused() -> None:
    """20 batches of 3.6 MB: 14,000 page faults where all of it is given back each time."""
    environment = {key: value for key, value in os.environ.items() if "MALLOC" not in key}
    environment["PYTHONPATH"] = os.pathsep.join(str(ROOT / each) for each in SOURCES)
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 500
