"""The blocks of ``report.json`` about the run itself: evidence, verdict, faults, clocks."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from failback.analytics.report.blocks import Amount, Block, Count, Large, text


class Gap(Block, kw_only=True):
    """``evidence.gaps``."""

    proc_no: Annotated[int, text("Number of the process.")]
    from_seq: Annotated[int, text("First missing record.")]
    to_seq: Annotated[int, text("Last missing record.")]


class Evidence(Block, kw_only=True):
    """``evidence``."""

    run_sha256: Annotated[
        str | None, text("Hash of the run folder's documents when the run was closed.")
    ]
    manifest: Annotated[str | None, text("Name of the list of hashes.")]
    segments: Annotated[Count, text("Segments that were read.")]
    rows: Annotated[dict[str, Count], text("Rows by table.")]
    torn: Annotated[Count, text("Segments of processes that died while writing.")]
    gaps: Annotated[list[Gap], text("Records that are missing.")]
    recorder_gaps: Annotated[list[str] | UnsetType, text("When the recorder did not look.")] = UNSET
    unreadable: Annotated[list[str] | UnsetType, text("Files that could not be read.")] = UNSET
    changed: Annotated[
        list[str] | UnsetType, text("Files that were changed after the run was closed.")
    ] = UNSET
    absent: Annotated[list[str] | UnsetType, text("Files that are gone.")] = UNSET
    filled_columns: Annotated[
        dict[str, list[str]] | UnsetType,
        text("Columns that an older writer did not have, by table."),
    ] = UNSET


class Source(Block, kw_only=True):
    """``source``."""

    deliver: Annotated[
        Literal["log", "trace", "ranges", "observe", "workload"],
        text("The consume log, a trace, or ranges; without an experiment: workload, observe."),
    ]
    rule_set: Annotated[str | None, text("Release whose rules the brokers followed.")]
    time_scale: Annotated[float, text("Factor of all timers; 1 is real time.")]
    log_mode: Annotated[str, text("How much clients logged.")]


class Definitions(Block, kw_only=True):
    """``definitions``."""

    key: Annotated[
        Literal["lid", "messageId", "businessKey"], text("What messages are the same by.")
    ]
    window_ns: Annotated[Large | None, text("Deliveries further apart are no duplicates.")]
    ignore_retry_topics: Annotated[bool, text("Whether deliveries from retry topics are left out.")]
    since_ns: Annotated[Large | UnsetType | None, text("Figures begin there.")] = UNSET
    until_ns: Annotated[Large | UnsetType | None, text("Figures end there.")] = UNSET


class System(Block, kw_only=True):
    """``system``."""

    engine: Annotated[str | None, text("Engine of the brokers.")]
    version: Annotated[str | None, text("Their version.")]
    topology: Annotated[dict[str, Any], text("Pairs and their members.")]
    roles: Annotated[list[str], text("Members as broker/id.")]
    switches: Annotated[dict[str, Any], text("Switches of the clients.")]
    image_digests: Annotated[dict[str, Any], text("Images by name.")]
    slave_read_enable: Annotated[bool | UnsetType | None, text("Whether slaves serve pulls.")] = (
        UNSET
    )
    flush_interval_ms: Annotated[
        float | UnsetType | None, text("flushConsumerOffsetInterval, before the time scale.")
    ] = UNSET
    slave_sync_interval_ms: Annotated[
        float | UnsetType | None,
        text("Between two copies of offsets by the slave, before the time scale."),
    ] = UNSET
    slave_copies_offsets: Annotated[
        bool | UnsetType | None, text("Whether its slaves copy offsets: 5.5.0's do not.")
    ] = UNSET
    delay_flush_interval_ms: Annotated[
        float | UnsetType | None, text("flushDelayOffsetInterval, before the time scale.")
    ] = UNSET
    client_commit_interval_ms: Annotated[
        float | UnsetType | None, text("persistConsumerOffsetInterval, before the time scale.")
    ] = UNSET
    cluster: Annotated[str | UnsetType | None, text("Name of the cluster.")] = UNSET
    workload: Annotated[dict[str, Any] | UnsetType, text("What was sent, and who consumed it.")] = (
        UNSET
    )


class Reason(Block, kw_only=True):
    """``verdict.reasons``."""

    code: Annotated[str, text("Name of the reason.")]
    detail: Annotated[str, text("What went wrong, in words.")]


VerdictWord = Literal["Pass", "Fail", "Inconclusive", "Observed"]


class Verdict(Block, kw_only=True):
    """``verdict``."""

    value: Annotated[
        VerdictWord,
        text("Fail over Inconclusive over Pass; Observed: nothing was to be judged."),
    ]
    sentence: Annotated[str, text("What happened, in one sentence.")]
    reasons: Annotated[list[Reason], text("What went wrong, worst first.")]


class Outcome(Block, kw_only=True):
    """``outcome``."""

    limit: Annotated[str | None, text("The limits in words; null without one.")]
    met: Annotated[bool | None, text("Whether all were met; null where that cannot be told.")]


class Check(Block, kw_only=True):
    """``checks``."""

    id: Annotated[str, text("Name of the check; expect.N are limits and expectations.")]
    title: Annotated[str, text("What was wished.")]
    value: Annotated[Literal["Pass", "Fail", "Inconclusive"], text("The answer.")]
    expected: Annotated[Any, text("What was expected.")]
    observed: Annotated[Any, text("What was observed.")]
    unit: Annotated[str, text("Unit of both.")]
    evidence: Annotated[list[str], text("Examples, or places of the evidence.")]


class Window(Block, kw_only=True):
    """``window``."""

    zero_wall_ns: Annotated[str, text("Wall clock at run zero, ns since 1970.")]
    warmup_end_ns: Annotated[int | None, text("Figures begin there.")]
    first_fault_ns: Annotated[int | None, text("The first fault.")]
    last_heal_ns: Annotated[int | None, text("The last fault was healed.")]
    drain_end_ns: Annotated[int | None, text("Everything was consumed.")]
    end_ns: Annotated[int | None, text("The run ended.")]


class Host(Block, kw_only=True):
    """``clock.hosts``."""

    host: Annotated[str, text("Name of the host.")]
    offset_ns: Annotated[int, text("How far its clock is ahead.")]
    error_ns: Annotated[Count, text("How well that is known.")]


class Clock(Block, kw_only=True):
    """``clock``."""

    hosts: Annotated[list[Host], text("Clocks of hosts against the first.")]
    steps: Annotated[Count, text("Steps of wall clocks.")]
    ambiguous_dup: Annotated[Count, text("Duplicates whose order is within the error.")]
    ambiguous_share: Annotated[Amount | None, text("Their share of all duplicates.")]


class Fault(Block, kw_only=True):
    """``faults``."""

    fid: Annotated[str, text("The fault that it belongs to.")]
    name: Annotated[str, text("Name of the fault in the catalogue.")]
    kind: Annotated[str, text("What happened to the process.")]
    victims: Annotated[list[str], text("Who was hit.")]
    intended_ns: Annotated[int | None, text("When the schedule meant it.")]
    issued_ns: Annotated[
        Annotated[list[int | None], Meta(min_length=2, max_length=2)],
        text("Between which instants it was done."),
    ]
    effect_ns: Annotated[int | None, text("When its effect was seen.")]
    heal_ns: Annotated[int | None, text("When it was seen to be gone.")]
    proved: Annotated[bool, text("Whether no step of its proof is missing.")]
    proof: Annotated[dict[str, Any], text("Instants and facts that prove it, by step.")]
    peer_saw: Annotated[
        str | None, text("How the end of connections looked to clients: FIN, RST or SILENCE.")
    ]
    down_seconds: Annotated[float | None, text("How long the broker was down.")]
    why: Annotated[str | UnsetType | None, text("Why it is not proved.")] = UNSET
    intended_end_ns: Annotated[
        int | UnsetType | None, text("When the schedule meant it to end.")
    ] = UNSET


class Quality(Block, kw_only=True):
    """``quality``."""

    binc_unknown: Annotated[Count, text("Rows of unknown broker incarnations.")]
    sampler_max_gap_ms: Annotated[float | None, text("Longest time without a look into a table.")]
    runs_per_row: Annotated[Amount | None, text("Intervals per row; small is quick.")]
    dropped_rows: Annotated[dict[str, Count], text("Rows that cannot be, by why.")]
    unknown_values: Annotated[Count, text("Rows with a name that this version does not know.")]
    foreign_rows: Annotated[Count, text("Deliveries without an identity of the workload.")]
    trace_missing_end: Annotated[int | None, text("Deliveries of a trace without an end.")]
    outside_assignment: Annotated[
        Count | UnsetType, text("Deliveries outside of any assignment.")
    ] = UNSET
    unknown_names: Annotated[dict[str, int] | UnsetType, text("The same by column.")] = UNSET
    notes: Annotated[list[str] | UnsetType, text("What made counting slow.")] = UNSET
