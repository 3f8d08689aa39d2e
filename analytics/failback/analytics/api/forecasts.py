"""Predict what a fault would repeat, of a group as it is described or of a run that is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from failback.analytics.api.results import Result
from failback.analytics.api.runs import Run, to_frame
from failback.analytics.errors import ReportInputError
from failback.analytics.predict.prediction import DRAWS, SEED
from failback.analytics.predict.prediction_document import Case, document
from failback.analytics.predict.questions import Asked, Question, of_run
from failback.analytics.predict.settings import Settings
from failback.client.consumelog.schema import schema_of
from failback.protocol.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd

TOP: Final = 8
_PREDICTIONS: Final = schema_of(
    "case s, fault s, p5 l, median l, p95 l, mean d, max l, worst l, observed l"
)
_KNOBS: Final = schema_of(
    """case s, name s, from s, to s, fault s, predicted_reduction d, worst_reduction l, cost s"""
)


@dataclass(frozen=True)
class Forecast:
    """What was predicted: a case per group."""

    cases: tuple[Case, ...]
    """Each with its ``settings``, ``predictions``, ``knobs`` and ``notes``."""
    document: dict[str, Any]
    """As ``failback predict --json`` prints it."""

    def table(self) -> pa.Table:
        """A row per case and fault, in messages.

        ``p5`` to ``p95`` is the 90 % band, ``worst`` the bound, ``observed`` what the run's report
        counted.
        """
        rows = [
            {"case": case["name"], **each}
            for case in self.document["cases"]
            for each in case["predictions"]
        ]
        return pa.Table.from_pylist(rows, _PREDICTIONS)

    def knobs(self) -> pa.Table:
        """A row per setting that would help, the best first: from, to, what it saves and costs."""
        rows = [
            {"case": case["name"], **knob, "from": _text(knob["from"]), "to": _text(knob["to"])}
            for case in self.document["cases"]
            for knob in case["knobs"]
        ]
        return pa.Table.from_pylist(rows, _KNOBS)

    def frame(self) -> pd.DataFrame:
        """:meth:`table` for pandas."""
        return to_frame(self.table())


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float | int) else str(value)


def predict(
    run: Run | None = None,
    fault: str | Sequence[str] = (),
    *,
    group: str = "",
    down_seconds: float | None = None,
    draws: int = DRAWS,
    seed: int = SEED,
    top: int = TOP,
    observed: Result | None = None,
    **settings: Any,
) -> Forecast:
    """Predict how much a fault would make a group re-consume, and which setting would help.

    Equal arguments give equal figures.

    Args:
        run: Whose brokers, workload and faults are taken; without one ``settings`` say everything.
        fault: ``failback predict --list`` names all; by default the run's own, else all.
        group: Of the run: only this group.
        down_seconds: How long the master is down; the fault's by default.
        draws: How many phases of all timers are drawn.
        seed: Of the draws.
        top: How many settings are ranked by what each alone would save; 0: none.
        observed: A result of the same run: what it counted stands beside the prediction.
        **settings: ``rate`` (messages/s of the group on one pair), ``members``, ``queues``,
            ``backlog``, and every key of ``failback predict --list``.

    Raises:
        ReportInputError: A name or a value is wrong, or the run cannot be predicted.
    """
    faults = (fault,) if isinstance(fault, str) else tuple(fault)
    asked = Asked(settings, faults, group=group, down_seconds=down_seconds)
    try:
        if down_seconds is not None and not down_seconds > 0:
            raise ConfigError("down_seconds", f"must be above 0, got {down_seconds:g}")
        questions = _questions(run, asked, observed)
        cases = tuple(each.answer(draws, seed, top) for each in questions)
    except ConfigError as error:
        raise ReportInputError(" and ".join(str(error).splitlines())) from error
    source = run.id if isinstance(run, Run) else "settings"
    return Forecast(cases, document(source, cases, draws=draws, seed=seed))


def _questions(run: Run | None, asked: Asked, observed: Result | None) -> list[Question]:
    if run is None:
        if asked.group:
            raise ConfigError("group", "settings alone are of one group: name a run")
        return [Question("settings", Settings().with_values(asked.values), asked.plans(None))]
    if not run.documents:
        raise ConfigError(run.id, "its lake has no run.json, so nothing is known of its brokers")
    counted = {}
    if observed is not None:
        counted = {str(each["group"]): int(each["dup"]) for each in observed.document["groups"]}
    return of_run(run.documents, asked, counted)
