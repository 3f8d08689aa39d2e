"""An observer that runs for days holds no library that only a report needs."""

from __future__ import annotations

import subprocess
import sys

WATCHING = "failback.cli.measure.observe", "failback.analytics.observe.observing"
HEAVY = "numpy", "pyarrow", "pandas", "pyspark"


def test_watching_loads_neither_arrow_nor_numpy() -> None:
    code = f"import sys, {', '.join(WATCHING)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(HEAVY) & set(done.stdout.split())
