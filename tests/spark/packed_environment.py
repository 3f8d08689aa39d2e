"""The packed environment, as a cluster has it: nothing leads to the checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path


def environment(scratch: Path) -> dict[str, str]:
    """Variables that lead neither to the checkout nor to this virtual environment.

    ``scratch`` is where the file is unpacked when it is started.
    """
    base = Path(getattr(sys, "_base_executable", sys.executable)).parent
    java = Path(shutil.which("java") or "java").parent
    return {
        "PATH": f"{base}:{java}:/usr/bin:/bin",
        "PYTHONPATH": "",
        "VIRTUAL_ENV": "",
        "PEX_ROOT": str(scratch / "pex"),
    }


def folders_of_failback(packed: Path, scratch: Path) -> list[str]:
    """Where the packed environment has the package from."""
    code = "import failback; print(*failback.__path__, sep='\\n')"
    done = subprocess.run(
        [str(packed), "-c", code],
        cwd=scratch,
        env=environment(scratch),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()
