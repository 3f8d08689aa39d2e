"""``failback predict``: how much a fault would repeat, from settings and rates. Pure.

``prediction`` is the entry, ``keys`` the table of settings. Files are read by
``failback.cli.predict``.
"""

from __future__ import annotations

from failback.analytics.predict.exposure import Exposure, exposure
from failback.analytics.predict.faults import FAULTS, FaultPlan, Start, Stop, find_fault
from failback.analytics.predict.keys import KEYS
from failback.analytics.predict.knobs import Knob, rank_knobs
from failback.analytics.predict.prediction import DRAWS, SEED, Prediction, predict, predict_all
from failback.analytics.predict.settings import Settings

__all__ = [
    "DRAWS",
    "FAULTS",
    "KEYS",
    "SEED",
    "Exposure",
    "FaultPlan",
    "Knob",
    "Prediction",
    "Settings",
    "Start",
    "Stop",
    "exposure",
    "find_fault",
    "predict",
    "predict_all",
    "rank_knobs",
]
