"""``foreign``: what the report of another engine has in place of mechanisms of RocketMQ. Pure."""

from __future__ import annotations

from typing import Final

from failback.analytics.report.measures.lookups import Figures
from failback.analytics.report.measures.numbers import Row, millis

LEFT_OUT: Final = (
    "This run is of {engine}: it has no staircase of offsets, no bounds and no prediction, because"
    " those rest on the mechanisms of RocketMQ."
)


def without_mechanisms(figures: Figures) -> Row:
    """The blocks that rest on mechanisms, empty, and ``foreign`` with both sides of the equation.

    In every row ``observed`` has to be ``expected``; a check of the report compares.
    """
    analysis = figures.analysis
    assert analysis.foreign is not None
    says = LEFT_OUT.format(engine=(analysis.folder.run.engine or "").capitalize())
    rows = []
    for each in analysis.foreign.resumed:
        again = analysis.redelivered.get(each.number)
        observed = again.finished if again else 0
        sides = {"expected": each.expected, "observed": observed}
        rows.append({**each.key.place, "consumed": each.consumed, "start": each.start, **sides})
    receive_ms = {name: millis(gap) for name, gap in sorted(analysis.foreign.receive_gaps.items())}
    return {
        **{name: [] for name in ("bounds", "handover", "prediction", "knobs")},
        "exposure": {},
        "notes": dict.fromkeys(("prediction", "exposure", "knobs"), says),
        "foreign": {"says": says, "resumed": rows, "receive_ms": receive_ms},
    }


def with_gaps(figures: Figures, outages: list[Row]) -> list[Row]:
    """``rto`` of another engine: its clients try again by themselves, so gaps are what is seen."""
    foreign = figures.analysis.foreign
    if foreign is not None:
        longest = max(foreign.receive_gaps.values(), default=None)
        for row in outages:
            row["produce_ms"] = None if foreign.send_gap is None else millis(foreign.send_gap)
            row["consume_ms"] = {"p50": None, "max": None if longest is None else millis(longest)}
    return outages
