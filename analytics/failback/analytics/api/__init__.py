"""Runs, figures and predictions for programs and notebooks: what a person imports.

A run is opened by its folder or out of a lake, analysed, compared with others, and predicted::

    from failback.analytics.api import analyse, compare, open_lake, open_run, predict

    run = open_run("runs/latest/handover")
    result = analyse(run)
    result["totals.dup"], result["groups.billing.dup_ratio"]
    result.frame("causes")
    result.write("out")

Importing this starts nothing and writes nothing: pandas, Spark and a store are looked for when they
are asked for. What is wrong with the input is a ``ReportInputError`` of one sentence
(:mod:`failback.analytics.errors`).
"""

from failback.analytics.api.forecasts import Forecast, predict
from failback.analytics.api.results import Comparison, Figure, Result, analyse, compare, read_result
from failback.analytics.api.runs import Filter, Lake, Run, open_lake, open_run
from failback.analytics.errors import EngineUnavailable, ReportInputError, StoreUnusable

__all__ = [
    "Comparison",
    "EngineUnavailable",
    "Figure",
    "Filter",
    "Forecast",
    "Lake",
    "ReportInputError",
    "Result",
    "Run",
    "StoreUnusable",
    "analyse",
    "compare",
    "open_lake",
    "open_run",
    "predict",
    "read_result",
]
