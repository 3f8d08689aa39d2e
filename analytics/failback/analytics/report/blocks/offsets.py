"""The blocks of ``report.json`` about stored offsets and where consumers resumed."""

from typing import Annotated, Literal

from msgspec import UNSET, UnsetType, field

from failback.analytics.report.blocks import Block, Count, Large, LargeCount, OfQueue, text


class Rollback(OfQueue, kw_only=True):
    """``rollbacks``."""

    t_ns: Annotated[int, text("When, in ns after run zero.")]
    start: Annotated[Large, text("Offset that the new owner was told.")]
    src: Annotated[str, text("What told the start offset.")]
    src_bid: Annotated[int | None, text("Broker id that told it.")]
    src_binc: Annotated[int | None, text("Its incarnation.")]
    committed: Annotated[Large | None, text("Highest commit before.")]
    confirmed: Annotated[Large | None, text("Highest commit that a broker confirmed.")]
    processed: Annotated[Large | None, text("Offset below which all was handled.")]
    d_commit: Annotated[LargeCount, text("committed - start.")]
    d_proc: Annotated[LargeCount, text("processed - start.")]
    redelivered: Annotated[Count, text("Messages that were re-consumed for it.")]
    age_seconds: Annotated[float | None, text("Age of the offset that was told.")]
    explained_by: Annotated[str | None, text("Source of the start offset.")]
    fid: Annotated[str | None, text("The fault that it belongs to.")]
    explained_rows: Annotated[list[str] | UnsetType, text("Rows that show it.")] = UNSET


class Truncated(OfQueue, kw_only=True):
    """``truncated``."""

    t_ns: Annotated[int, text("When, in ns after run zero.")]
    messages: Annotated[LargeCount, text("Messages.")]


class Unexplained(OfQueue, kw_only=True):
    """``resume_points.unexplained``."""

    t_ns: Annotated[int, text("When, in ns after run zero.")]
    start: Annotated[Large, text("Offset that the new owner was told.")]
    legal: Annotated[list[Large] | UnsetType, text("Offsets that would have a source.")] = UNSET


class ResumePoints(Block, kw_only=True):
    """``resume_points``."""

    checked: Annotated[Count, text("Start offsets that were looked at.")]
    explained: Annotated[Count, text("Those with one source.")]
    unknown: Annotated[Count, text("Those with two possible sources.")]
    unexplained: Annotated[list[Unexplained], text("The first ones without a source.")]
    unexplained_count: Annotated[Count, text("All without a source.")]


class OffsetDrop(Block, kw_only=True):
    """``offset_drops``."""

    addr: Annotated[str, text("Address of the broker.")]
    bid: Annotated[int, text("Its broker id.")]
    source: Annotated[str, text("Where it was read.")]
    group: Annotated[str, text("The consumer group; of a broadcasting one a member of it.")]
    topic: Annotated[str, text("The topic; several are joined by commas.")]
    qid: Annotated[int, text("Number of the queue.")]
    t_ns: Annotated[int, text("When, in ns after run zero.")]
    from_: Annotated[Large, text("Offset before.")] = field(name="from")
    to: Annotated[Large, text("Offset after.")]
    label: Annotated[Literal["RESTART", "OVERWRITE"], text("What happened.")]


class Truncation(Block, kw_only=True):
    """``divergence.truncation_events``."""

    broker: Annotated[str, text("Broker name of the pair.")]
    topic: Annotated[str, text("The topic; several are joined by commas.")]
    qid: Annotated[int, text("Number of the queue.")]
    boot_ms: Annotated[int, text("Start of the broker that cut.")]
    cut: Annotated[Large, text("First offset that was lost.")]


class Divergence(Block, kw_only=True):
    """``divergence``."""

    conflicts: Annotated[Count, text("Offsets that named two messages.")]
    conflicts_error: Annotated[
        Count | UnsetType,
        text("By how many that may differ; in large runs, else it is exact."),
    ] = UNSET
    conflicts_at_least: Annotated[
        bool | UnsetType,
        text(
            "Of offsets that were re-consumed in more than 2,048 ranges of 262,144, only those "
            "count whose messages were re-consumed, here and as artefacts."
        ),
    ] = UNSET
    truncation_events: Annotated[list[Truncation], text("Each loss.")]
    truncation_artefacts: Annotated[
        Count, text("Repeats that are none: another message took the offset.")
    ]


class Handover(OfQueue, kw_only=True):
    """``handover``."""

    fid: Annotated[str, text("The fault that it belongs to.")]
    consumed: Annotated[Large, text("Offset that the old owner had reached.")]
    loaded: Annotated[Large, text("Offset in the file that the master loaded.")]
    loaded_source: Annotated[str | None, text("Where the master had it from.")]
    had: Annotated[Large | UnsetType, text("Offset that the returned master had.")] = UNSET
    start: Annotated[Large, text("Offset that the new owner was told.")]
    expected: Annotated[LargeCount, text("consumed - had.")]
    observed: Annotated[Count, text("What was re-consumed and counts here.")]
    clean_end: Annotated[bool, text("Whether the old owner stopped cleanly.")]
