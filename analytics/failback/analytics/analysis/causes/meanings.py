"""What each cause means and what prevents it, in words. Pure.

``docs/reference/causes.md`` is made from this by ``tools/reference_pages.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Meaning:
    """A cause in words for readers of a report."""

    happened: str
    fix: str
    modes: tuple[int, ...] = ()
    """Cases of ``docs/explanation/failure-modes.md`` that bring it about."""


GROUPS: Final[dict[str, str]] = {
    "rollback": "a new owner of the queue was told a smaller offset than the group had reached",
    "rebalance": "the queue changed hands between two consumers that both live",
    "consumer_end": "a consumer ended before it had committed what it handled",
    "retry": "the broker made a further copy for a retry or a delay",
    "producer": "the message was stored more than once when it was sent",
    "other": "none of the above",
    "unattributed": "the evidence does not tell the causes apart",
}

MEANINGS: Final[dict[str, Meaning]] = {
    "ROLLBACK_SLAVE_ONLY_PROGRESS": Meaning(
        "The group consumed from the slave while the master was down. Only the slave stored those"
        " offsets. A consumer that started after the return asked the master, which never heard of"
        " them.",
        "Let consumers run over the return, or set `failbackGuardReturnedOffsets=true`. For a group"
        " that is stopped, set the offset that `failback explain-offset` calls safe.",
        (6, 26),
    ),
    "ROLLBACK_RESTART": Meaning(
        "The group had committed to the master's memory. The master died before it wrote its offset"
        " file, so it came back with the older file.",
        "Shorten `flushConsumerOffsetInterval` (5,000 ms by default). Do not restart consumers"
        " right after a master's return.",
        (1, 4, 9, 25, 26),
    ),
    "ROLLBACK_STALE_SLAVE": Meaning(
        "A consumer started while only the slave was there. The slave's copy of the offsets was"
        " older than what the group had committed.",
        "Start no consumers during an outage. The copy is made every 10 s, which 4.9 "
        "cannot change.",
        (5,),
    ),
    "ROLLBACK_UNTOLD": Meaning(
        "Apache's client for Go commits to no broker while only a slave is there. What its members"
        " handled in the outage is known to them alone. Only an observed run names this cause.",
        "Run `failback carry --keep` beside each slave: it tells the slave what the members have"
        " finished. Without it stop no Go member while the master is down.",
        (6,),
    ),
    "ROLLBACK_OVERWRITTEN": Meaning(
        "A smaller offset was stored over a larger one: by a late commit of an old owner, or by the"
        " slave's copy of a returned master's older table.",
        "Wait for old consumers to end before new ones start. Against the slave's copy set"
        " `failbackGuardSlaveOffsets=true`.",
        (7, 23),
    ),
    "ROLLBACK_NO_ENTRY": Meaning(
        "The broker that answered knew no offset of the group for this queue, so the consumer began"
        " at the first message.",
        "Keep the offset files through a power loss (`failbackGuardOffsetFile=true`), and set a"
        " group's offsets before it starts on a restored or empty broker.",
        (4, 10),
    ),
    "OVERLAP": Meaning(
        "Two members of the group held the queue at the same time: the new owner began before the"
        " old one had given it up.",
        "After a master's restart this lasts up to one heartbeat period (30 s):"
        " `failbackGuardConsumerList=true` prevents it. Handlers must bear a message "
        "twice at once.",
        (11, 18),
    ),
    "TAIL_REBALANCE": Meaning(
        "The queue moved in a rebalance. The old owner had handled messages above the offset that"
        " it had committed.",
        "Give each master a slave, so that its queues stay in the route; avoid scaling consumers"
        " under load.",
        (3, 9, 11),
    ),
    "TAIL_PULL_EXPIRED": Meaning(
        "The client had not pulled the queue for 120 s, gave it up, and took it again from the"
        " committed offset.",
        "Find what keeps the client from pulling: a proxy that holds connections, a paused machine,"
        " a full cache behind one slow message.",
        (24,),
    ),
    "TAIL_UNSUBSCRIBE": Meaning(
        "The members dropped their subscription with uncommitted work in hand, and "
        "subscribed again.",
        "Stop consumers with a shutdown, which commits, instead of unsubscribing.",
    ),
    "TAIL_CRASH": Meaning(
        "A consumer died (SIGKILL, out of memory, a lost machine) before it had committed what it"
        " had handled.",
        "Stop consumers with SIGTERM. A shorter `persistConsumerOffsetInterval` of the client makes"
        " the rest smaller.",
        (2, 3),
    ),
    "TAIL_SHUTDOWN": Meaning(
        "A consumer was stopped in order while handlers were still at work, and did not wait for"
        " them.",
        "Raise `awaitTerminationMillisWhenShutdown` above the longest time that a handler takes.",
        (3,),
    ),
    "TAIL_RESET": Meaning(
        "A consumer gave the queue up for an offset reset with uncommitted work in hand. No run has"
        " shown it: such repeats count as OFFSET_RESET.",
        "Nothing to do.",
    ),
    "OFFSET_RESET": Meaning(
        "Somebody set the group's offset back, or the broker corrected one beyond the end of the"
        " queue.",
        "If nobody did it on purpose, look for a master that lost the end of its log.",
        (15,),
    ),
    "SENDBACK_DUP": Meaning(
        "One failed handling was sent back twice and both copies were stored: the second copy is a"
        " retry too many.",
        "Raise the client's send timeout; handlers that fail at their time limit make it likely.",
        (20,),
    ),
    "SENDBACK_ORPHAN": Meaning(
        "A copy was in the retry topic that no recorded consumer had sent back.",
        "Look for a tool, or a member without the consume log, that sends messages back.",
    ),
    "DELAY_REPLAY": Meaning(
        "The broker delivered a delayed or retried copy twice: it died before it had written how"
        " far it had delivered that delay level.",
        "Shorten `flushDelayOffsetInterval` (10,000 ms by default). Recognise messages by key, not"
        " by offset.",
        (19, 20),
    ),
    "CONSUME_TIMEOUT": Meaning(
        "A handler took longer than `consumeTimeout`, so the client sent its message back while it"
        " was still being handled.",
        "Raise `consumeTimeout` (15 minutes by default), or make the handler faster.",
    ),
    "APP_RESEND": Meaning(
        "The application sent the message again as a new one, after the first was acknowledged.",
        "Look at the producer's own retry logic.",
    ),
    "SEND_TIMEOUT_DUP": Meaning(
        "A send was stored but its answer did not come, and the producer sent it again.",
        "Raise `sendMsgTimeout`, or let consumers recognise messages by UNIQ_KEY.",
        (21,),
    ),
    "NOT_STORE_OK_RESEND": Meaning(
        "The broker stored the message but answered that flush or slave had failed, and the"
        " producer sent it again.",
        "Treat FLUSH_SLAVE_TIMEOUT and SLAVE_NOT_AVAILABLE as stored, or bring the slave back.",
        (12,),
    ),
    "BROKER_COPY": Meaning(
        "The broker made a second record of a message by itself: a delayed message delivered again,"
        " or a checked transaction that was committed twice.",
        "Shorten `flushDelayOffsetInterval`; answer transaction checks from a stored outcome.",
        (19, 22),
    ),
    "CLIENT_BUG": Meaning(
        "A consumer handed out the same message twice within one holding of its queue. This must"
        " never occur.",
        "Keep the run folder and report it.",
    ),
    "COMMIT_STALLED": Meaning(
        "Kafka. No commit is answered until a dead replica is fenced. The group's partitions were"
        " assigned to a member before that.",
        "Start and stop no members for 10 s after a broker died.",
    ),
    "MEMBERSHIP_LOST": Meaning(
        "Kafka. Heartbeats wait behind a commit that is not answered. The session expired, and the"
        " member went back to the committed offset.",
        "Keep `session.timeout.ms` at its default of 45 s, and brokers away for less than that.",
    ),
    "COMMIT_NEVER_TAKEN": Meaning(
        "Kafka. A consumer was stopped while its group had no coordinator, or one that was loading."
        " Its last commit was given up.",
        "Keep three replicas of the offsets. Repeat the last commit until it is answered.",
    ),
    "OFFSETS_GONE": Meaning(
        "Kafka. A commit had been answered, and the next owner was told less, or nothing.",
        "Keep three replicas of the offsets and no unclean election of leaders.",
    ),
    "ACK_NOT_TAKEN": Meaning(
        "Redis. `XACK` failed in the failover. The entry stayed pending and was claimed.",
        "Repeat `XACK` until it is answered.",
    ),
    "GROUP_WENT_BACK": Meaning(
        "Redis. The promoted replica had not copied the group's last deliveries.",
        "`min-replicas-to-write 1`: a master whose replica is behind takes no writes.",
    ),
}
