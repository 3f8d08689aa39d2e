"""The blocks of ``report.json`` that count: groups, queues, losses, order."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from failback.analytics.report.blocks import FIGURES, Amount, Block, Count, Large, OfQueue, text


class Counts(Block, kw_only=True):
    """Counts of a group, or of all."""

    produced: Annotated[Count, text("Messages that producers sent.")]
    acknowledged: Annotated[Count, text("Messages whose send a broker acknowledged.")]
    ambiguous_sends: Annotated[
        Count, text("Messages whose send has an open outcome: neither acknowledged nor refused.")
    ]
    delivered: Annotated[Count, text("Deliveries to handlers, repeats too.")]
    distinct: Annotated[Count, text("Messages that were delivered at least once.")]
    primary: Annotated[Count, text("First deliveries.")]
    retry: Annotated[Count, text("Wanted retries: deliveries after a failed handling.")]
    dup: Annotated[Count, FIGURES["dup"]]
    dup_after_success: Annotated[Count, FIGURES["dup_after_success"]]
    dup_before_success: Annotated[Count, text("Duplicates before any handling had ended well.")]
    dup_unknown_order: Annotated[
        Count, text("Duplicates of which clocks do not tell whether a success came before.")
    ]
    dup_messages: Annotated[Count, text("Messages with at least one duplicate.")]
    ooo_first: Annotated[
        Count, text("First deliveries that overtook an older message of their key or queue.")
    ]
    ooo_replay: Annotated[Count, text("Repeats out of order.")]
    max_redelivery: Annotated[Count, text("Deliveries of the message that came most often.")]
    abandoned: Annotated[Count, text("Deliveries without an end.")]
    lost: Annotated[Count | None, FIGURES["lost"]]
    skipped: Annotated[Count | None, text("Of those lost: stored, and never delivered.")]
    store_lost: Annotated[Count | None, text("Of those lost: no longer in any log.")]
    dup_ratio: Annotated[Amount | None, text("dup / distinct.")]
    dup_msg_ratio: Annotated[Amount | None, text("dup_messages / distinct.")]
    amplification: Annotated[Amount | None, text("delivered / distinct.")]
    wasted_seconds: Annotated[float, FIGURES["wasted_seconds"]]
    handler_seconds: Annotated[float, text("All handler time.")]


class CauseSplit(Block, kw_only=True):
    """``groups.causes_split``."""

    after_success: Annotated[Count, text("After a success.")]
    before_success: Annotated[Count, text("Before any success.")]
    unknown_order: Annotated[Count, text("Order unknown.")]


class AgeBucket(Block, kw_only=True):
    """``groups.repeat_age_seconds.histogram``."""

    le: Annotated[float, text("At most so many seconds.")]
    count: Annotated[Count, text("Repeats of at most that age.")]


class RepeatAge(Block, kw_only=True):
    """``groups.repeat_age_seconds``."""

    p50: Annotated[float | None, text("Median.")]
    p90: Annotated[float | None, text("Ninetieth percentile.")]
    p99: Annotated[float | None, text("Ninety-ninth percentile.")]
    max: Annotated[float | None, text("The greatest.")]
    histogram: Annotated[list[AgeBucket], text("Cumulative counts.")]
    error: Annotated[
        Amount | UnsetType,
        text("By what share an age may be too small; in large runs, else they are exact."),
    ] = UNSET


class RememberedSeconds(Block, kw_only=True):
    """``groups.dedupe.by_seconds``."""

    window: Annotated[float, text("Seconds.")]
    share: Annotated[Amount | None, text("Share of repeats after a success that is stopped.")]


class RememberedKeys(Block, kw_only=True):
    """``groups.dedupe.by_keys``."""

    keys: Annotated[Count, text("Messages.")]
    share: Annotated[Amount | None, text("Share of repeats after a success that is stopped.")]
    error: Annotated[Amount | None, text("Error of that share.")]


class Dedupe(Block, kw_only=True):
    """``groups.dedupe``."""

    by_seconds: Annotated[list[RememberedSeconds], text("By the seconds that are remembered.")]
    by_keys: Annotated[list[RememberedKeys], text("By the number of messages that are remembered.")]


class Blast(Block, kw_only=True):
    """``groups.blast``."""

    queues: Annotated[Count, text("Queues with duplicates.")]
    queue_share: Annotated[Amount | None, text("Their share of the group's queues.")]
    members: Annotated[Count, text("Members that got duplicates.")]
    keys: Annotated[Count, text("Keys with duplicates.")]
    keys_error: Annotated[
        Amount | UnsetType,
        text("By what share their number may differ; in large runs, else it is exact."),
    ] = UNSET


class Group(Counts, kw_only=True):
    """``groups``."""

    group: Annotated[str, text("The consumer group; of a broadcasting one a member of it.")]
    topic: Annotated[str, text("The topic; several are joined by commas.")]
    members: Annotated[int | None, text("Members that the workload started.")]
    model: Annotated[str | None, text("Push, pull or broadcasting.")]
    causes: Annotated[dict[str, Count], text("Duplicates by cause.")]
    report_groups: Annotated[dict[str, Count], text("Duplicates by group of causes.")]
    unattributed: Annotated[Count, text("Duplicates without a cause.")]
    partial_view: Annotated[
        Count, text("Duplicates under an assignment that was made of a partial list of members.")
    ]
    inherited: Annotated[
        Count, text("Retry copies of a repeated handling, with that repeat's cause.")
    ]
    redelivery_counts: Annotated[
        dict[str, Count], text("Messages by how often they were delivered.")
    ]
    repeat_age_seconds: Annotated[RepeatAge, text("Ages of repeats after a success.")]
    dedupe: Annotated[Dedupe, text("What remembering handled messages would have stopped.")]
    blast: Annotated[Blast, text("How far repeats reached.")]
    causes_split: Annotated[
        dict[str, CauseSplit] | UnsetType,
        text("Duplicates of a cause by whether a success came before."),
    ] = UNSET


class DepthRange(Block, kw_only=True):
    """``queues.depth_ranges``."""

    lo: Annotated[Large, text("First offset.")]
    hi: Annotated[Large, text("Offset behind the last one.")]
    depth: Annotated[Annotated[int, Meta(ge=2)], text("Deliveries of each of these offsets.")]
    epoch: Annotated[Count, text("Log epoch.")]


class Interval(Block, kw_only=True):
    """``queues.windows``."""

    lo: Annotated[Large, text("First offset.")]
    hi: Annotated[Large, text("Offset behind the last one.")]
    size: Annotated[Count, text("Messages.")]
    cause: Annotated[
        str | None, text("Cause, as reference/causes.md lists them; null is unattributed.")
    ]
    from_proc: Annotated[int, text("Process that had them before.")]
    to_proc: Annotated[int, text("Process that got them again.")]
    t_ns: Annotated[int, text("When, in ns after run zero.")]
    fid: Annotated[str | None, text("The fault that it belongs to.")]


class Queue(OfQueue, kw_only=True):
    """``queues``."""

    epochs: Annotated[Count, text("Log epochs that were seen.")]
    delivered: Annotated[Count, text("Deliveries to handlers, repeats too.")]
    distinct: Annotated[Count, text("Messages that were delivered at least once.")]
    dup: Annotated[Count, FIGURES["dup"]]
    depth_ranges: Annotated[
        list[DepthRange], text("How often offsets were delivered, where that is more than once.")
    ]
    depth_ranges_left_out: Annotated[
        Count | UnsetType,
        text("Such ranges that are left out: they were more than 2,048 in 262,144 offsets."),
    ] = UNSET
    windows: Annotated[list[Interval], text("Intervals that were re-consumed.")]
    windows_left_out: Annotated[
        Count | UnsetType,
        text("Smaller intervals that were re-consumed: a report has the largest of each cause."),
    ] = UNSET
    master_offset: Annotated[Large | None, text("What the master's table says at the end.")]
    slave_offset: Annotated[Large | None, text("What the slave's table says at the end.")]
    safe_offset: Annotated[
        Large | None,
        text("Highest offset that a table held or a broker took since the last reset."),
    ]
    report_groups: Annotated[dict[str, int] | UnsetType, text("Duplicates by group of causes.")] = (
        UNSET
    )


class Loss(Block, kw_only=True):
    """``loss``."""

    fates: Annotated[dict[str, Count] | None, text("Messages by fate.")]
    examples: Annotated[dict[str, list[str]], text("Messages of each fate.")]
    intervals: Annotated[
        dict[str, dict[str, list[Annotated[list[Large], Meta(min_length=2, max_length=2)]]]],
        text("Intervals of lanes of each fate."),
    ]
    groups: Annotated[dict[str, Any] | UnsetType | None, text("The same by group.")] = UNSET


class Order(Block, kw_only=True):
    """``order``."""

    group: Annotated[str, text("The consumer group; of a broadcasting one a member of it.")]
    topic: Annotated[str, text("The topic; several are joined by commas.")]
    ooo_first: Annotated[
        Count, text("First deliveries that overtook an older message of their key or queue.")
    ]
    ooo_replay: Annotated[Count, text("Repeats out of order.")]
    first_key: Annotated[str | None, text("First key out of order.")]
