"""A local process that was frozen ends as fast as any other."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from failback.operator.local.process import Child
from tests.support.common.polling import until

OBEYS = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("ready", flush=True)
time.sleep(60)
"""


async def test_a_frozen_process_is_stopped_in_order(tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = Child.spawn([sys.executable, "-c", OBEYS], {}, tmp_path, log)
    child.open_gate()
    await until(lambda: "ready" in log.read_text(), "the process")
    child.signal(signal.SIGSTOP)
    death = await child.terminate(10)
    assert death.text == "exit code 0"
