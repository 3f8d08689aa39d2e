"""One client process of a comparison: ``python -m failback.chaos.compare PLAN``."""

from __future__ import annotations

import json
import signal
import sys
from importlib import import_module
from pathlib import Path
from threading import Event

from failback.chaos.compare.rows import Plan, Rows


def main(path: str) -> int:
    """Run the client that a plan describes until SIGTERM."""
    plan = Plan(**json.loads(Path(path).read_bytes()))
    stop = Event()

    def end(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one would find the event locked
        stop.set()

    signal.signal(signal.SIGTERM, end)
    rows = Rows(plan)
    try:
        member = import_module(f"failback.chaos.compare.{plan.engine}_member")
        work = member.produce if plan.role == "producer" else member.consume
        work(plan, rows, stop)
    finally:
        rows.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
