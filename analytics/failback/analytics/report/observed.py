"""The report of a run that was observed, not made: what returns of masters cost, and the verdict.

Nobody injected a fault, so nothing of it is judged unless the user set a limit: the verdict is
``Observed``. It is Inconclusive where what a master came back with was not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from failback.analytics.live.observe.folder import is_observed, looks_in, settings_of
from failback.analytics.live.observe.observation import Observation, hidden, sentences
from failback.analytics.report.checks import INCONCLUSIVE, PASS
from failback.analytics.report.measures.numbers import Row
from failback.analytics.report.outcome import NO_LIMIT

OBSERVED: Final = "Observed"


def with_observation(document: Row, folder: Path, run: Row) -> None:
    """Add what was observed to the report of an observed run, and judge it as such."""
    if not is_observed(run):
        return
    found = Observation.of(looks_in(folder), *settings_of(run)).document()
    document["observation"] = found
    problems = hidden(found)
    document["checks"] = [_check(problems, found["returns"])]
    document["outcome"] = dict(NO_LIMIT)
    document["verdict"] = {
        "value": INCONCLUSIVE if problems else OBSERVED,
        "sentence": " ".join(sentences(found)) or "No master went and came back.",
        "reasons": [{"code": "RECORDER_GAP", "detail": each} for each in problems],
    }


def _check(problems: Sequence[str], returns: Sequence[Row]) -> Row:
    return {
        "id": "returns_seen",
        "title": "what each master came back with was seen",
        "value": INCONCLUSIVE if problems else PASS,
        "expected": len(returns),
        "observed": len(returns) - len(problems),
        "unit": "returns",
        "evidence": list(problems),
    }
