"""The blocks of ``report.json`` of recovery, bounds, predictions and comparisons."""

from typing import Annotated, Any

from msgspec import UNSET, UnsetType, field

from failback.analytics.report.blocks import FIGURES, Amount, Block, Count, Large, text
from failback.analytics.report.blocks.run import VerdictWord


class PullOutage(Block, kw_only=True):
    """``rto.consume_ms``."""

    p50: Annotated[float | None, text("Median.")]
    max: Annotated[float | None, text("The greatest.")]


class Recovery(Block, kw_only=True):
    """``rto``."""

    fid: Annotated[str, text("The fault that it belongs to.")]
    broker: Annotated[str | None, text("Broker name of the pair.")]
    produce_ms: Annotated[float | None, text("From the loss until a send worked again.")]
    consume_ms: Annotated[
        PullOutage, text("From the loss until pulls of a queue worked again, over queues.")
    ]
    second_stall_ms: Annotated[
        float | None, text("Longest time without a pull of a queue after the return.")
    ]
    queues_never: Annotated[Count, text("Queues that were never pulled again.")]
    ttfr_kill_ms: Annotated[float | None, text("From the kill to the first repeat.")]
    ttfr_accept_ms: Annotated[float | None, text("From the return to the first repeat.")]
    phases: Annotated[dict[str, int | None], text("Instants of the recovery.")]
    phase_rows: Annotated[dict[str, Any], text("Rows that show them.")]


class Bound(Block, kw_only=True):
    """``bounds``."""

    fid: Annotated[str, text("The fault that it belongs to.")]
    group: Annotated[str, text("The consumer group; of a broadcasting one a member of it.")]
    mechanism: Annotated[str, text("Failure modes that can have acted.")]
    formula: Annotated[str, text("Its formula.")]
    inputs: Annotated[dict[str, float], text("What was put in.")]
    bound: Annotated[float, text("The most.")]
    observed: Annotated[Count, text("What was re-consumed and counts here.")]
    ratio: Annotated[Amount | None, text("observed / bound.")]
    exceeded: Annotated[bool, text("Whether more was re-consumed.")]


class Predicted(Block, kw_only=True):
    """``prediction``."""

    fid: Annotated[str, text("The fault that it belongs to.")]
    group: Annotated[str, text("The consumer group; of a broadcasting one a member of it.")]
    p5: Annotated[int, text("Fifth percentile of the draws.")]
    p50: Annotated[int, text("Median.")]
    p95: Annotated[int, text("Ninety-fifth percentile of the draws.")]
    max: Annotated[int, text("The greatest.")]
    mean: Annotated[float | UnsetType, text("Mean of the draws.")] = UNSET
    worst: Annotated[int | UnsetType, text("Closed form of the worst case.")] = UNSET
    causes: Annotated[dict[str, float] | UnsetType, text("Mean duplicates by cause.")] = UNSET
    observed: Annotated[int, text("What was re-consumed and counts here.")]
    inside: Annotated[bool, text("Whether observed lies from p5 to p95.")]
    validated: Annotated[bool, text("Whether the predictor has held in its grid of runs.")]


class Exposure(Block, kw_only=True):
    """``exposure``."""

    p50: Annotated[Large | None, text("Median.")]
    max: Annotated[Large | None, text("The greatest.")]
    at_kill: Annotated[Large | None, text("When the master died.")]
    broker: Annotated[str | UnsetType | None, text("Broker name of the pair.")] = UNSET


class Knob(Block, kw_only=True):
    """``knobs``."""

    name: Annotated[str, text("Name of the setting.")]
    from_: Annotated[float | str | bool | None, text("Its value.")] = field(name="from")
    to: Annotated[float | str | bool | None, text("The value that is proposed.")]
    fault: Annotated[str | UnsetType, text("The fault that was predicted.")] = UNSET
    predicted_reduction: Annotated[float, text("Fewer duplicates, mean.")]
    worst_reduction: Annotated[int | UnsetType, text("Fewer in the worst case.")] = UNSET
    cost: Annotated[str, text("What it costs.")]


class Latency(Block, kw_only=True):
    """``producer.latency_ms``."""

    p50: Annotated[float | None, text("Median.")]
    p99: Annotated[float | None, text("Ninety-ninth percentile.")]
    p999: Annotated[float | None, text("999th permille.")]
    max: Annotated[float | None, text("The greatest.")]


class Producer(Block, kw_only=True):
    """``producer``."""

    attempts: Annotated[Count, text("Attempts.")]
    timeouts: Annotated[Count, text("Attempts that timed out.")]
    conn_errors: Annotated[Count, text("Attempts that lost their connection.")]
    degraded: Annotated[Count, text("Answers such as FLUSH_DISK_TIMEOUT.")]
    resends: Annotated[int, text("Messages that were sent again.")]
    latency_ms: Annotated[Latency, text("Latency of attempts.")]


class Spread(Block, kw_only=True):
    """``compare.arms.dup``."""

    median: Annotated[float | None, text("Median.")]
    min: Annotated[float | None, text("The least.")]
    max: Annotated[float | None, text("The greatest.")]


_Figure = float | UnsetType | None


class ArmRun(Block, kw_only=True):
    """``compare.arms.runs``."""

    run: Annotated[str, text("Id of the run.")]
    repetition: Annotated[int | UnsetType | None, text("Number of the repetition, from 0.")] = UNSET
    verdict: Annotated[VerdictWord, text("Verdict of the run.")]
    dup: Annotated[_Figure, FIGURES["dup"]] = UNSET
    dup_ratio: Annotated[_Figure, text("dup / distinct.")] = UNSET
    dup_after_success: Annotated[_Figure, FIGURES["dup_after_success"]] = UNSET
    wasted_seconds: Annotated[_Figure, FIGURES["wasted_seconds"]] = UNSET
    lost: Annotated[_Figure, FIGURES["lost"]] = UNSET
    produce_rto_ms: Annotated[_Figure, text("Worst outage of sends.")] = UNSET
    consume_rto_ms: Annotated[_Figure, text("Worst outage of pulls.")] = UNSET


class Arm(Block, kw_only=True):
    """``compare.arms``."""

    name: Annotated[str, text("Its name.")]
    n: Annotated[int, text("Its runs.")]
    dup: Annotated[Spread, FIGURES["dup"]]
    dup_ratio: Annotated[Spread, text("dup / distinct.")]
    dup_after_success: Annotated[Spread | UnsetType, FIGURES["dup_after_success"]] = UNSET
    wasted_seconds: Annotated[Spread | UnsetType, FIGURES["wasted_seconds"]] = UNSET
    lost: Annotated[Spread | UnsetType, FIGURES["lost"]] = UNSET
    produce_rto_ms: Annotated[Spread, text("Worst outage of sends.")]
    consume_rto_ms: Annotated[Spread, text("Worst outage of pulls.")]
    verdicts: Annotated[dict[str, int], text("Verdicts and how often.")]
    runs: Annotated[list[ArmRun] | UnsetType, text("Its runs.")] = UNSET


class Difference(Block, kw_only=True):
    """``compare.difference``."""

    arm: Annotated[str | UnsetType, text("Name of the arm.")] = UNSET
    metric: Annotated[str, text("What is compared.")]
    median: Annotated[float | None, text("Difference of medians.")]
    ci_low: Annotated[float | None, text("95 % interval from.")]
    ci_high: Annotated[float | None, text("To.")]
    significant: Annotated[
        bool | None, text("Whether 0 lies outside; null with fewer than five runs.")
    ]


class Compare(Block, kw_only=True):
    """``compare``."""

    baseline: Annotated[str, text("The arm that others are compared with.")]
    samples: Annotated[int | UnsetType, text("Resamplings.")] = UNSET
    seed: Annotated[int | UnsetType, text("Their seed.")] = UNSET
    arms: Annotated[list[Arm], text("Each arm.")]
    difference: Annotated[list[Difference], text("Each arm against the baseline.")]
