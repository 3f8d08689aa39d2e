"""What ``failback predict --json`` prints: ``failback.predict/1``, and its published schema."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

import jsonschema

from failback.analytics.predict.knobs import Knob
from failback.analytics.predict.prediction import Prediction
from failback.analytics.predict.settings import Settings

SCHEMA: Final = "failback.predict/1"


@dataclass(frozen=True, slots=True)
class Case:
    """One group under one set of settings: an arm, a cluster, or what options say."""

    name: str
    settings: Settings
    predictions: tuple[Prediction, ...]
    knobs: tuple[Knob, ...] = ()
    observed: int | None = None
    """Duplicates that the run's report counted, where the source is a run with a report."""
    notes: tuple[str, ...] = ()

    @property
    def exceeded(self) -> bool:
        """Whether more was observed than the worst case allows: a bug or an unknown mechanism."""
        return self.observed is not None and any(
            self.observed > each.worst for each in self.predictions
        )

    def to_dict(self) -> dict[str, Any]:
        """As the schema says."""
        return {
            "name": self.name,
            "settings": self.settings.to_dict(),
            "predictions": [
                {
                    **each.to_dict(),
                    "observed": self.observed,
                    "inside": None if self.observed is None else each.holds(self.observed),
                }
                for each in self.predictions
            ],
            "knobs": [knob.to_dict() for knob in self.knobs],
            "exceeded": self.exceeded,
            "notes": list(self.notes),
        }


def document(source: str, cases: Sequence[Case], *, draws: int, seed: int) -> dict[str, Any]:
    """Return the checked document."""
    found = {
        "schema": SCHEMA,
        "source": source,
        "draws": draws,
        "seed": seed,
        "cases": [case.to_dict() for case in cases],
    }
    jsonschema.Draft202012Validator(schema()).validate(found)
    return found


@cache
def schema() -> dict[str, Any]:
    """The JSON Schema of the document."""
    file = resources.files("failback.analytics.predict").joinpath("predict.schema.json")
    found: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return found
