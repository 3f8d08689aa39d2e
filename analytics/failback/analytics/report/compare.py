"""Runs side by side: arms with median and range, differences with a confidence interval. Pure.

Everything is taken from reports (``report.json``). The first report's arm is the baseline. A
difference is that of the medians; its interval comes from resampling the repetitions of both arms
with replacement, seeded, so that equal reports give equal figures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from failback.analytics.report.outcome import worst_outage
from failback.analytics.report.status_summary import rule_set_of
from failback.analytics.run.definitions import words_of

Report = Mapping[str, Any]
Row = dict[str, Any]

SAMPLES: Final = 10_000
SEED: Final = 42
LEAST_RUNS: Final = 5
"""With fewer repetitions in an arm nothing is said about significance."""
_DIGITS: Final = 6
_TAILS: Final = (2.5, 97.5)


_OUTAGES: Final = {"produce_rto_ms": "produce_ms", "consume_rto_ms": "consume_ms"}
METRICS: Final = (
    "dup", "dup_ratio", "dup_after_success", "wasted_seconds", "lost", *_OUTAGES,
)  # fmt: skip
"""What is compared. RTO: the worst of the run's outages."""


def _figure(metric: str, report: Report) -> float | None:
    if metric in _OUTAGES:
        return worst_outage(report, _OUTAGES[metric])
    found: float | None = report["totals"][metric]
    return found


def compare_reports(reports: Sequence[Report], against: Sequence[Report] = ()) -> Row | None:
    """``compare`` of a report; ``None`` when there is nothing to compare.

    Args:
        reports: Of the runs that are reported on; the first names the baseline.
        against: Of the runs they are compared with. Should all of them be of one arm, these are
            an arm of their own.
    """
    everything = [*reports, *against]
    if len(everything) < 2:
        return None
    names = _names(everything)
    if against and len(set(names)) == 1:
        names = [*names[: len(reports)], *(f"{name} (compared)" for name in names[len(reports) :])]
    arms: dict[str, list[Report]] = {}
    for name, report in zip(names, everything, strict=True):
        arms.setdefault(name, []).append(report)
    baseline = names[0]
    return {
        "baseline": baseline,
        "samples": SAMPLES,
        "seed": SEED,
        "arms": [_arm(name, mine) for name, mine in arms.items()],
        "difference": [
            {
                "arm": name,
                "metric": metric,
                **difference(_values(metric, mine), _values(metric, arms[baseline])),
            }
            for name, mine in arms.items()
            if name != baseline
            for metric in METRICS
        ],
    }


def _names(reports: Sequence[Report]) -> list[str]:
    """An arm's name, and of experiment, engine, rules and counting what not all runs share."""
    parts = [
        (
            str(each["experiment"] or each["run"]),
            f"{each['system']['engine']}",
            f"rules {rule_set_of(each)}",
            "; ".join(words_of(each.get("definitions"))) or "counted as usual",
        )
        for each in reports
    ]
    experiments, engines, rules, countings = ({part[at] for part in parts} for at in range(4))
    found = []
    for each, (experiment, engine, rule, counting) in zip(reports, parts, strict=True):
        arm = str(each["arm"] or "-")
        name = f"{experiment}/{arm}" if len(experiments) > 1 else arm
        pairs = ((engine, engines), (rule, rules), (counting, countings))
        more = [text for text, all_ in pairs if len(all_) > 1]
        found.append(f"{name} ({', '.join(more)})" if more else name)
    return found


def _arm(name: str, reports: Sequence[Report]) -> Row:
    return {
        "name": name,
        "n": len(reports),
        **{metric: _spread(_values(metric, reports)) for metric in METRICS},
        "verdicts": dict(sorted(Counter(each["verdict"]["value"] for each in reports).items())),
        "runs": [
            {
                "run": each["run"],
                "repetition": each["repetition"],
                "verdict": each["verdict"]["value"],
                **{metric: _figure(metric, each) for metric in METRICS},
            }
            for each in reports
        ],
    }


def _values(metric: str, reports: Sequence[Report]) -> NDArray[np.float64]:
    found = [_figure(metric, each) for each in reports]
    return np.array([value for value in found if value is not None], np.float64)


def _spread(values: NDArray[np.float64]) -> Row:
    if not values.size:
        return {"median": None, "min": None, "max": None}
    return {
        "median": _number(np.median(values)),
        "min": _number(values.min()),
        "max": _number(values.max()),
    }


def difference(mine: NDArray[np.float64], base: NDArray[np.float64]) -> Row:
    """Difference of medians with its 95 % interval; null where repetitions are too few."""
    if not mine.size or not base.size:
        return dict.fromkeys(("median", "ci_low", "ci_high", "significant"))
    found: Row = {"median": _number(np.median(mine) - np.median(base))}
    if min(mine.size, base.size) < 2:
        return {**found, "ci_low": None, "ci_high": None, "significant": None}
    rng = np.random.default_rng(SEED)
    drawn = _medians(mine, rng) - _medians(base, rng)
    low, high = np.percentile(drawn, _TAILS)
    enough = min(mine.size, base.size) >= LEAST_RUNS
    return {
        **found,
        "ci_low": _number(low),
        "ci_high": _number(high),
        "significant": bool(low > 0 or high < 0) if enough else None,
    }


def _medians(values: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    found: NDArray[np.float64] = np.median(
        values[rng.integers(values.size, size=(SAMPLES, values.size))], axis=1
    )
    return found


def _number(value: Any) -> int | float:
    """Whole values as integers, others to six digits after the point."""
    plain = round(float(value), _DIGITS)
    return int(plain) if plain.is_integer() else plain


OWN: Final = frozenset({"engine", "created", "timings", "quality.runs_per_row"})
"""What a report says of its own making; the last depends on how rows were divided."""


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """``PATH: value of one, value of the other`` of everything that is not equal.

    What reports say of their own making is left out.
    """
    return list(_differing(one, other, ""))


def _differing(one: Any, other: Any, path: str) -> Iterator[str]:
    if path in OWN:
        return
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted(one.keys() | other.keys()):
            yield from _differing(
                one.get(name), other.get(name), f"{path}.{name}" if path else name
            )
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _differing(left, right, f"{path}.{number}")
    elif isinstance(one, list) and isinstance(other, list):
        yield f"{path}: {len(one)} entries, {len(other)} entries"
    elif one != other:
        yield f"{path}: {one!r}, {other!r}"
