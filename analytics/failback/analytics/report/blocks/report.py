"""``report.json`` as a whole."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from failback.analytics.report.blocks import (
    Amount,
    Block,
    Count,
    Large,
    LargeCount,
    OfQueue,
    text,
)
from failback.analytics.report.blocks.counts import Counts, Group, Loss, Order, Queue
from failback.analytics.report.blocks.observation import Observation
from failback.analytics.report.blocks.offsets import (
    Divergence,
    Handover,
    OffsetDrop,
    ResumePoints,
    Rollback,
    Truncated,
)
from failback.analytics.report.blocks.outcomes import (
    Bound,
    Compare,
    Exposure,
    Knob,
    Predicted,
    Producer,
    Recovery,
)
from failback.analytics.report.blocks.run import (
    Check,
    Clock,
    Definitions,
    Evidence,
    Fault,
    Outcome,
    Quality,
    Source,
    System,
    Verdict,
    Window,
)


class Resumed(OfQueue, kw_only=True):
    """``foreign.resumed``."""

    consumed: Annotated[Large, text("Last processed offset plus one, before the queue was taken.")]
    start: Annotated[Large, text("The offset that the new holder saw as the group's.")]
    expected: Annotated[LargeCount, text("What follows from the two.")]
    observed: Annotated[Count, text("What was re-consumed.")]


class Foreign(Block, kw_only=True):
    """``foreign``."""

    says: Annotated[str, text("What such a report leaves out, and why.")]
    resumed: Annotated[list[Resumed], text("Each assignment of a queue after its first.")]
    receive_ms: Annotated[
        dict[str, Amount],
        text("The longest time without a delivery, by group whose one member ran through."),
    ]


class Report(Block, kw_only=True):
    """A report as a whole."""

    schema: Annotated[Literal["failback.report/1"], text("Name and version of this format.")]
    run: Annotated[str, text("Id of the run.")]
    experiment: Annotated[str | None, text("Name of the experiment.")]
    arm: Annotated[str | None, text("Name of its arm.")]
    created: Annotated[
        Annotated[str, Meta(pattern="^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\dZ$")],
        text("When the report was made, UTC."),
    ]
    engine: Annotated[Literal["local", "spark"], text("What counted.")]
    failback_version: Annotated[str, text("Version that made the report.")]
    repetition: Annotated[int | None, text("Number of the repetition, from 0.")]
    seed: Annotated[str | None, text("Seed of everything random, as text.")]
    evidence: Annotated[Evidence, text("What the report was made of.")]
    source: Annotated[Source, text("Where deliveries come from.")]
    definitions: Annotated[Definitions | UnsetType, text("What counts as the same message.")] = (
        UNSET
    )
    system: Annotated[System, text("What ran.")]
    verdict: Annotated[Verdict, text("Whether evidence is complete and expectations were met.")]
    outcome: Annotated[
        Outcome | UnsetType,
        text(
            "Whether what was re-consumed stayed in the limits that the user set for it; null "
            "without one, and where it could not be judged."
        ),
    ] = UNSET
    checks: Annotated[list[Check], text("Every question that was asked of the run.")]
    window: Annotated[Window, text("Phases of the run.")]
    clock: Annotated[Clock, text("How well times can be compared.")]
    faults: Annotated[list[Fault], text("What was done to the cluster, and what of it was seen.")]
    totals: Annotated[Counts, text("All groups together.")]
    groups: Annotated[list[Group], text("Each consumer group.")]
    queues: Annotated[
        list[Queue], text("Each queue of each group; of too many those with most duplicates.")
    ]
    queues_truncated: Annotated[
        bool, text("Whether queues were left out because there are too many.")
    ]
    rollbacks: Annotated[
        list[Rollback], text("Assignments that resumed below what was committed or handled.")
    ]
    truncated: Annotated[
        list[Truncated], text("Assignments below offsets that a log had lost with its end.")
    ]
    resume_points: Annotated[ResumePoints, text("Sources of start offsets.")]
    offset_drops: Annotated[list[OffsetDrop], text("Stored offsets that went down.")]
    divergence: Annotated[Divergence, text("Logs that lost their end.")]
    loss: Annotated[
        Loss, text("What became of the messages that were sent; null without drain and scan.")
    ]
    order: Annotated[list[Order], text("Order by key or queue.")]
    rto: Annotated[list[Recovery], text("Outages of masters.")]
    bounds: Annotated[list[Bound], text("The most that each outage can repeat.")]
    handover: Annotated[
        list[Handover],
        text("Repeats against what was consumed and what the master had, where both are exact."),
    ]
    prediction: Annotated[list[Predicted], text("What the predictor says of each outage.")]
    exposure: Annotated[dict[str, Exposure], text("By group: what a kill would have repeated.")]
    knobs: Annotated[list[Knob], text("Settings that would have saved something, most first.")]
    producer: Annotated[Producer, text("Sends.")]
    compare: Annotated[
        Compare | None, text("Arms side by side; null where a run was reported on alone.")
    ]
    quality: Annotated[Quality, text("What may make figures doubtful.")]
    timings: Annotated[dict[str, float], text("Seconds that parts of the analysis took.")]
    observation: Annotated[
        Observation | UnsetType, text("What was seen of a cluster that Failback did not run.")
    ] = UNSET
    foreign: Annotated[
        Foreign | UnsetType, text("What a run of Kafka or Redis has in place of mechanisms.")
    ] = UNSET
    notes: Annotated[dict[str, str] | UnsetType, text("Why a block is empty, by its name.")] = UNSET
