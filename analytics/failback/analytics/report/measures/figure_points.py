"""Points beside those of rates, sends and offsets: repeats per queue, owners, exposure. Pure.

They are rows of the same table (``figures-data.parquet``): ``dup_by_queue`` (deliveries
again), ``exposure`` (messages), and ``event`` where a client takes queues or a route changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from failback.analytics.analysis.counting import families
from failback.analytics.report.measures.exposures import exposure_curves, instants_of
from failback.analytics.report.measures.lookups import Figures
from failback.analytics.report.measures.numbers import NS
from failback.analytics.report.measures.point_rows import Point
from failback.analytics.report.measures.points import table_of
from failback.analytics.run.history import GroupQueue
from failback.protocol.message import RETRY_PREFIX

MAX_QUEUES: Final = 200
MAX_EVENTS: Final = 200


def figure_points(figures: Figures) -> pa.Table:
    """Further points, each kind sorted by queue and time."""
    return table_of([*_repeats(figures), *_exposure(figures), *_owners(figures), *_routes(figures)])


def _repeats(figures: Figures) -> Iterator[Point]:
    totals = figures.dups_of_queues
    shown = set(sorted(totals, key=lambda key: (-totals[key], key))[:MAX_QUEUES])
    for queue, curve in sorted(figures.curves(families.DUP_SECONDS).items()):
        if queue in shown:
            firsts, widths = figures.spans.firsts_of(curve.at), figures.spans.widths_of(curve.at)
            columns = (each.tolist() for each in (firsts, curve.value, widths))
            for second, count, width in zip(*columns, strict=True):
                yield Point("dup_by_queue", *queue, second * NS, count, None, width)


def _exposure(figures: Figures) -> Iterator[Point]:
    instants = instants_of(figures)
    for (group, broker), curve in sorted(exposure_curves(figures, instants).items()):
        for at, value in zip(instants.tolist(), curve.tolist(), strict=True):
            yield Point("exposure", group, broker, None, None, at, value, None)


def _owners(figures: Figures) -> Iterator[Point]:
    """One event per client and second in which it was given queues of a group."""
    taken: dict[tuple[int, str, str], set[GroupQueue]] = defaultdict(set)
    for a in figures.analysis.history.assignments:
        shown = figures.warmup_end_ns <= a.t < figures.until_ns
        if shown and not a.key.ptopic.startswith(RETRY_PREFIX):
            taken[a.t // NS, a.key.grp, a.client_id or f"process {a.inc}"].add(a.key)
    for (second, group, client), queues in sorted(taken.items())[:MAX_EVENTS]:
        number = "1 queue" if len(queues) == 1 else f"{len(queues)} queues"
        text = f"{number} of {group} to {_short(client)}"
        yield Point("event", group, None, None, None, second * NS, 0.0, text)


def _routes(figures: Figures) -> Iterator[Point]:
    """When name servers showed another route, and when clients took one over."""
    shown: dict[int, set[str]] = defaultdict(set)
    taken: dict[int, set[int]] = defaultdict(set)
    for change in figures.analysis.history.routes:
        if change.entry is not None:
            shown[change.second].add(change.entry)
        else:
            taken[change.second].add(change.proc_no)
    found = {second: f"route: {', '.join(sorted(what))}" for second, what in shown.items()}
    for second, clients in taken.items():
        number = "1 client" if len(clients) == 1 else f"{len(clients)} clients"
        text = f"{number} took the new route"
        found[second] = f"{found[second]}; {text}" if second in found else text
    for second, text in sorted(found.items())[:MAX_EVENTS]:
        yield Point("event", None, None, None, None, second * NS, 0.0, text)


def _short(client: str) -> str:
    """A client id without what is alike in all of them."""
    return client.split("@")[-1].split("#")[0] or client
