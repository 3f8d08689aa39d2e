"""One client process of a comparison: ``python -m failback.chaos.compare PLAN``."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from threading import Event

from failback.chaos.compare.rows import Plan, Rows
from failback.chaos.compare.settings import KAFKA


def main(path: str) -> int:
    """Run the client that a plan describes until SIGTERM."""
    plan = Plan.read(Path(path))
    stop = Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    rows = Rows(plan)
    try:
        _work_of(plan)(plan, rows, stop)
    finally:
        rows.close()
    return 0


def _work_of(plan: Plan) -> Callable[[Plan, Rows, Event], None]:
    """What the process does; the client of the other engine may not be installed."""
    name = "kafka_member" if plan.engine == KAFKA else "redis_member"
    member = import_module(f"failback.chaos.compare.{name}")
    work: Callable[[Plan, Rows, Event], None] = getattr(
        member, "produce" if plan.role == "producer" else "consume"
    )
    return work


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
