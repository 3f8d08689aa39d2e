"""``failback predict --json`` as structs: fields, types, and what each means.

``tools/report_schemas.py`` makes ``predict.schema.json`` of them.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

Count = Annotated[int, Meta(ge=0)]
Amount = Annotated[float, Meta(ge=0)]


def text(meaning: str) -> Meta:
    """What a field means, for the schema and the documents."""
    return Meta(description=meaning)


class Term(Struct):
    """A part of the worst case."""

    formula: Annotated[str, text("The part, in symbols.")]
    messages: Annotated[float, text("Its size.")]


class FaultPrediction(Struct):
    """What one fault costs."""

    fault: Annotated[str, text("Name of the fault.")]
    title: Annotated[str, text("The fault in words.")]
    rows: Annotated[str, text("Failure modes that act.")]
    median: Annotated[Count, text("Median of the draws.")]
    mean: Annotated[Amount, text("Mean of the draws.")]
    p5: Annotated[Count, text("Fifth percentile of the draws.")]
    p95: Annotated[Count, text("Ninety-fifth percentile of the draws.")]
    max: Annotated[Count, text("The greatest draw.")]
    worst: Annotated[Count, text("Closed form of the worst case.")]
    terms: Annotated[list[Term], text("What the worst case is made of.")]
    causes: Annotated[dict[str, Amount], text("Mean duplicates by cause.")]
    report_groups: Annotated[dict[str, Amount], text("Mean duplicates by group of causes.")]
    observed: Annotated[int | None, text("What a run observed.")]
    inside: Annotated[bool | None, text("Whether that lies from p5 to p95.")]


class Knob(Struct):
    """A setting, changed alone."""

    name: Annotated[str, text("Name of the setting.")]
    from_: Annotated[float | bool | str | None, text("Its value.")] = field(name="from")
    to: Annotated[float | bool | str, text("The value that is proposed.")]
    fault: Annotated[str, text("The fault that was predicted.")]
    predicted_reduction: Annotated[float, text("Fewer duplicates, mean.")]
    worst_reduction: Annotated[int, text("Fewer in the worst case.")]
    cost: Annotated[str, text("What it costs.")]


class Case(Struct):
    """One set of settings."""

    name: Annotated[str, text("Its name.")]
    settings: Annotated[
        dict[str, float | bool | None],
        text("Every setting under its key, as configured: times in ms before failbackTimeScale."),
    ]
    predictions: Annotated[
        Annotated[list[FaultPrediction], Meta(min_length=1)], text("Each fault.")
    ]
    knobs: Annotated[list[Knob], text("What would save how much, most first.")]
    exceeded: Annotated[bool, text("Whether more was observed than the worst case.")]
    notes: Annotated[list[str], text("What to keep in mind.")]


class PredictDocument(Struct):
    """The document as a whole."""

    schema: Annotated[Literal["failback.predict/1"], text("Name and version of this format.")]
    source: Annotated[str, text("Where the settings come from.")]
    draws: Annotated[int, Meta(ge=1), text("Draws of the phases of timers.")]
    seed: Annotated[int, text("Seed of the draws.")]
    cases: Annotated[list[Case], text("Each set of settings.")]
