"""The PID 1 of every container runs where no package is installed."""

from __future__ import annotations

import subprocess
import sys

from tests.support.processes.child_process import ROOT

_IMPORT = """
import sys
sys.path.insert(0, sys.argv[1])
import failback.init.__main__
from failback.common import files, numbers, replacing, text, times
"""


def test_init_and_common_need_the_standard_library_only() -> None:
    command = [sys.executable, "-I", "-S", "-c", _IMPORT, str(ROOT / "broker-image")]
    subprocess.run(command, check=True, timeout=60)
