"""Block ``observation``: what an observer saw of a cluster that was not run by Failback."""

from typing import Annotated, Literal

from msgspec import field

from failback.analytics.report.blocks import Block, Count, text


class Event(Block, kw_only=True):
    """``observation.events``."""

    kind: Annotated[
        Literal[
            "MasterGone", "SlaveServes", "MasterBack", "OffsetsWentBack", "SlaveOverwritten",
            "MembersChanged", "RoleChanged", "NameServersDiffer", "Reset", "OffsetsSet",
        ],
        text("What happened."),
    ]  # fmt: skip
    broker: Annotated[str | None, text("Broker name.")]
    member: Annotated[str | None, text("Client id of the member that joined or left.")]
    from_: Annotated[float, text("Not before this second after the observation began.")] = field(
        name="from"
    )
    until: Annotated[float, text("Seen at this second.")]
    at: Annotated[str, text("The time of `until` in UTC.")]
    detail: Annotated[str, text("What was seen, in words.")]


class SeenGap(Block, kw_only=True):
    """``observation.gaps``."""

    from_: Annotated[float, text("Second after the observation began.")] = field(name="from")
    until: Annotated[float, text("The same.")]
    at: Annotated[str, text("The time of `from` in UTC.")]
    what: Annotated[str, text("What was not seen.")]


class Down(Block, kw_only=True):
    """``observation.down``."""

    broker: Annotated[str, text("Broker name.")]
    from_: Annotated[float, text("The master answered last at this second.")] = field(name="from")
    until: Annotated[float, text("It was asked in vain first at this second.")]
    at: Annotated[str, text("The time of `until` in UTC.")]


class ReturnQueue(Block, kw_only=True):
    """``observation.returns.groups.queues``."""

    qid: Annotated[Count, text("Queue id.")]
    had: Annotated[Count, text("Offset in the first table of the returned master.")]
    reached: Annotated[Count, text("Highest offset that was committed anywhere before.")]
    now: Annotated[Count, text("Offset in the master's table at the last sample.")]
    lo: Annotated[Count, text("Messages re-consumed, at least.")]
    hi: Annotated[Count, text("Messages re-consumed, at most.")]


class ReturnGroup(Block, kw_only=True):
    """``observation.returns.groups``."""

    group: Annotated[str, text("Consumer group.")]
    topic: Annotated[str, text("Physical topic.")]
    lo: Annotated[Count, text("Distinct messages re-consumed, at least.")]
    hi: Annotated[Count, text("Distinct messages re-consumed, at most.")]
    exact: Annotated[bool, text("Whether deliveries themselves were seen.")]
    basis: Annotated[
        list[Literal["E1", "E2", "E3", "E4", "E5"]],
        text("E1 routes, E2 tables of offsets, E3 members, E4 message trace, E5 canary."),
    ]
    causes: Annotated[list[str], text("What may have caused it; the evidence tells no more.")]
    owner_changed: Annotated[bool, text("Whether a client came that had not been a member.")]
    languages: Annotated[
        list[str], text("Languages of its members from the outage on, beside Java.")
    ]
    consumed: Annotated[
        Count, text("Messages consumed from the first sample to the return, by offsets.")
    ]
    queues: Annotated[list[ReturnQueue], text("Each queue.")]
    safe_offsets: Annotated[
        dict[str, Count],
        text("By queue id the safe offset at the return, of queues that were behind."),
    ]


class Recovery(Block, kw_only=True):
    """``observation.returns.recovery``."""

    produce_s: Annotated[
        float | None, text("Longest time without an acknowledged send, in seconds.")
    ]
    consume_s: Annotated[
        float | None,
        text("Longest time without an answered pull of the member that stayed, in seconds."),
    ]


class MasterReturn(Block, kw_only=True):
    """``observation.returns``."""

    broker: Annotated[str, text("Broker name.")]
    gone_from: Annotated[float, text("The master answered last at this second.")]
    gone_until: Annotated[float, text("It was asked in vain first at this second.")]
    back_from: Annotated[float, text("It was asked in vain last at this second.")]
    back_until: Annotated[float, text("It answered again at this second.")]
    gone_at: Annotated[str, text("The time of `gone_until` in UTC.")]
    back_at: Annotated[str, text("The time of `back_until` in UTC.")]
    read: Annotated[bool, text("Whether the table that it began with was read.")]
    recovery: Annotated[
        Recovery | None, text("How long the canary's clients stood still; null without one.")
    ]
    groups: Annotated[list[ReturnGroup], text("What each group re-consumed.")]


class Observation(Block, kw_only=True):
    """``observation``. Seconds after the observation began."""

    events: Annotated[list[Event], text("What happened, in order.")]
    gaps: Annotated[list[SeenGap], text("What was not seen.")]
    down: Annotated[list[Down], text("Masters that were still down at the last sample.")]
    returns: Annotated[list[MasterReturn], text("Masters that went and came back.")]
