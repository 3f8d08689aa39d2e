"""One handover after another, event by event: the predictor's oracle, in plain Python.

Nothing here knows the predictor: a client, a master and a slave live on one time line with real
ticks, and what the new owner is given again is counted at the end. Times are seconds, the kill is
at 0, progress is in messages.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

Event = tuple[float, int, str]


@dataclass(frozen=True)
class Lab:
    """The settings of a run of the simulation."""

    rate: float = 100.0
    queues: int = 4
    threshold: int = 64
    batch: int = 32
    flush: float = 5.0
    commit: float = 5.0
    sync: float = 10.0
    route: float = 30.0
    retry: float = 1.0
    back: float = 60.0
    served: int | None = None
    """Stop at the commit with which the slave's offsets have moved so far."""
    stop: float | None = None
    clean: bool = True
    start: float = 65.0
    """When the new owner asks; before ``back`` the slave answers."""


def ticks(started: float, first: float, period: float, until: float) -> list[float]:
    """Every tick of a timer from its owner's start to ``until``."""
    found, at = [], started + first
    while at <= until:
        found.append(at)
        at += period
    return found


def one_run(lab: Lab, rng: random.Random) -> float:
    """Messages that the new owner is given again."""
    client = -rng.uniform(60, 180)
    commits = ticks(client, 10.0, lab.commit, lab.back + 120)
    routes = ticks(client, 0.01, lab.route, 60)
    flushes = ticks(-rng.uniform(60, 180), 10.0, lab.flush, 0)
    syncs = ticks(-rng.uniform(60, 180), 3.0, lab.sync, 0)

    def told_at(moment: float) -> float:
        """What the master had been told by then: pulls carry commits, batch by batch."""
        behind = lab.queues * lab.batch * sum(rng.random() for _ in range(lab.queues)) / lab.queues
        return lab.rate * moment - min(behind, lab.rate * lab.commit)

    memory = told_at(0.0)
    file = min(told_at(flushes[-1]), memory)
    slave = min(told_at(syncs[-1]), memory)
    master = file

    cache = lab.queues * (lab.threshold + lab.batch * rng.random())
    left, consumed, now = cache, 0.0, 0.0
    route = next(at for at in routes if at >= 0)
    serving_from = route + rng.uniform(0, lab.retry)
    events: list[Event] = [(serving_from, 1, "serving")]
    events += [(at, 2, "commit") for at in commits if at >= 0]
    if lab.stop is not None:
        events.append((lab.stop, 3, "stop"))
    serving, base = False, None
    for at, _, what in sorted(events):
        if serving:
            consumed += lab.rate * (at - now)
        else:
            taken = min(left, lab.rate * (at - now))
            consumed, left = consumed + taken, left - taken
        now = at
        if what == "serving":
            serving = True
        elif what == "commit" and at >= lab.back:
            master = consumed
        elif what == "commit" and at >= route:
            slave = consumed
            base = consumed if base is None else base
            if lab.served is not None and consumed - base >= lab.served - 1e-6:
                break
        elif what == "stop":
            break
    if lab.clean:
        handled = cache if serving else left
        consumed, now = consumed + handled, now + handled / lab.rate
        if now >= lab.back:
            master = consumed
        elif now >= route:
            slave = consumed
    return consumed - (slave if lab.start < lab.back else master)


def quantiles(lab: Lab, runs: int, seed: int) -> tuple[float, float, float, float]:
    """5 %, median, 95 % and mean of so many runs."""
    rng = random.Random(seed)
    found = sorted(one_run(lab, rng) for _ in range(runs))
    low, middle, high = (found[int(share * (runs - 1))] for share in (0.05, 0.5, 0.95))
    return low, middle, high, sum(found) / runs
