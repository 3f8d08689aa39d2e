"""Families of partial rows: what one half of the analysis counts and the other half reads. Pure.

A family is one kind of sum, extreme or interval over the rows of a large table. Its rows have a key
of names and numbers, and an operation that joins rows with an equal key. A batch writes rows of a
family by :class:`~failback.analytics.analysis.counting.partials.sums.Partials`; a reader gets them
back under the names of the key's columns by :meth:`Family.of`.
``docs/design/partial-rows.md`` is made from this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

INTERVAL: Final = 0
SUM: Final = 1
MAX: Final = 2
MIN: Final = 3
OPERATIONS: Final = {INTERVAL: "depths", SUM: "sum", MAX: "max", MIN: "min"}

NAMES: Final = ("grp", "broker", "topic")
NUMBERS: Final = ("n1", "n2", "n3", "n4", "n5", "n6")
_DEPTH_COLUMNS: Final = ("lo", "hi", "depth", "figure")


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a key. ``stored`` is the text column that holds it; numbers have none."""

    name: str
    meaning: str
    stored: str | None = None


@dataclass(frozen=True)
class Family:
    """One kind of partial rows.

    ``name`` is what the rows carry, also in the result table ``counters``; it does not change.
    """

    name: str
    op: int
    source: str
    """Table of the consume log, or several."""
    key: tuple[Column, ...]
    value: str

    @cached_property
    def stored(self) -> dict[str, str]:
        """By the name of a key's column the column of the partial rows that holds it."""
        numbers = iter(NUMBERS)
        return {each.name: each.stored or next(numbers) for each in self.key}

    @cached_property
    def held(self) -> dict[str, str]:
        """By the column of the partial rows the name of the key's column in it."""
        return {stored: name for name, stored in self.stored.items()}

    def named(self, rows: pa.Table, *columns: str) -> pa.Table:
        """Rows of this family with the key's own names, and ``columns`` as they are."""
        kept = rows.select([*self.stored.values(), *columns])
        return kept.rename_columns([*self.stored, *columns])

    def of(self, tables: Mapping[str, pa.Table]) -> pa.Table:
        """This family's table of several: the key, then ``value`` or the columns of depths."""
        columns = _DEPTH_COLUMNS if self.op == INTERVAL else ("value",)
        found = tables.get(self.name)
        if found is not None:
            return self.named(found, *columns)
        text = {each.name for each in self.key if each.stored}
        kinds = [(name, pa.utf8() if name in text else pa.int64()) for name in self.stored]
        return pa.schema([*kinds, *((name, pa.int64()) for name in columns)]).empty_table()

    def rows(self, tables: Mapping[str, pa.Table]) -> list[dict[str, Any]]:
        """The same as rows, for families with few."""
        found: list[dict[str, Any]] = self.of(tables).to_pylist()
        return found


GRP: Final = Column("grp", "group; with `@client` where every client gets every message", "grp")
BROKER: Final = Column("broker", "broker name", "broker")
TOPIC: Final = Column("topic", "physical topic", "topic")
RESULT: Final = Column("result", "result of the send attempt", "grp")
PHASE: Final = Column("phase", "phase and table, `first_send_ok/produce`", "grp")
FILE: Final = Column("file", "file that cannot be read, and why", "grp")
QID: Final = Column("qid", "queue id")
EPOCH: Final = Column("epoch", "epoch of the queue's log: +1 with each truncation")
LANE: Final = Column("lane", "lane of the message's identity; below 0 its number is a hash")
INC: Final = Column("inc", "incarnation of the client that holds the queue")
PQE: Final = Column("pqe", "number of the process queue in that client")
SECOND: Final = Column(
    "second", "last full second of a span after run zero; a span is a second up to an hour"
)
BUCKET: Final = Column("bucket", "time between two assignments or resets of the queue")
BIN: Final = Column("bin", "bin of `ok_bin_ns`, 10 ms in runs of up to 11 minutes")
LATENCY_BIN: Final = Column("latency_bin", "latency from the send's due time, in bins of 0.1 ms")
TENTH: Final = Column("tenth", "tenth of a second after run zero, one of each wide span")
BOOT_MS: Final = Column("boot_ms", "bootTimestamp of the master that began")
OUTAGE: Final = Column("outage", "number of the outage")
ASSIGNMENT: Final = Column("assignment", "number of the assignment that the commit may explain")
OFFSET: Final = Column("off", "committed offset")
BID: Final = Column("bid", "broker id that the commit was sent to; null is -2^62")
BINC: Final = Column("binc", "incarnation of that broker; null is -2^62")
PULL: Final = Column("pull", "1: the commit was carried by a pull")
PROC_NO: Final = Column("proc_no", "number of the process")
BEGUN_OUTAGE: Final = Column("begun_outage", "number of the last outage that began before its end")
QUIET_BIN: Final = Column("quiet_bin", "its begin, in bins of five seconds")
REASON: Final = Column(
    "reason", "1: times that cannot be, 2: offset or LAB_ID that cannot be, 3: unknown status"
)
DID: Final = Column("did", "delivery id of a `deliver_end` row")
CAUSE: Final = Column("cause", "place of the cause in `labels.CAUSES`; null is -2^62")
SUCCESS_ORDER: Final = Column(
    "success_order", "0: order to the first success unknown, 1: before it, 2: after it"
)
CLIENT_ID: Final = Column("client_id", "client that got the delivery", "broker")
UNIT: Final = Column("unit", "0: full seconds, 1: ns beyond them")
AGE: Final = Column("age", "ns since the first success ended; rounded down in large runs")
END_BIN: Final = Column("end_bin", "bin in which the first success ended; wider in large runs")
BEGIN_BIN: Final = Column("begin_bin", "bin in which the repeat began; wider in large runs")
KEY_HASH: Final = Column("key_hash", "hash of the ordering key; in large runs its last 14 bits")
SINCE_OUTAGE: Final = Column("since_outage", "number of the last outage that began before")
INSTANT: Final = Column("instant", "number of the last kill or return of a broker before")
HOLDER: Final = Column("holder", "number of the assignment; null is -2^62")
PREV_INC: Final = Column("prev_inc", "incarnation of the client that had the copy before")
FAULT: Final = Column("fault", "number of the fault; null is -2^62")
DEPTH: Final = Column("depth", "how often, in all rows")
FIGURE: Final = Column("figure", "how often, in rows that are in figures")
OMID_HASH: Final = Column("omid_hash", "hash of the broker's message id; in large runs a share")

_QUEUE: Final = (GRP, BROKER, TOPIC, QID)
_MESSAGES: Final = (TOPIC, LANE)

# Of deliveries.
COPY: Final = Family("copy", INTERVAL, "deliver", (*_QUEUE, EPOCH), "queue offsets")
MESSAGE: Final = Family(
    "message", INTERVAL, "deliver", (GRP, LANE), "messages by what counts as the same one"
)
HANDED: Final = Family(
    "handed", INTERVAL, "deliver", (GRP, LANE),
    "messages by their producer's identity, where `message` is by another",
)  # fmt: skip
DONE: Final = Family("done", INTERVAL, "deliver", (GRP, LANE), "messages consumed with success")
COPY_TIMES: Final = Family(
    "copy_times", SUM, "deliver", (*_QUEUE, EPOCH, DEPTH, FIGURE), "queue offsets, where crowded"
)
COPY_RANGES_LEFT_OUT: Final = Family(
    "copy_ranges", SUM, "deliver", _QUEUE, "ranges of repeats, where crowded"
)
MESSAGE_TIMES: Final = Family(
    "message_times", SUM, "deliver", (GRP, DEPTH, FIGURE), "messages, where crowded"
)
MESSAGE_SPANS: Final = Family(
    "message_span", INTERVAL, "deliver", (GRP, LANE), "around repeated messages, where crowded"
)
PROGRESS: Final = Family(
    "progress", MAX, "deliver", (*_QUEUE, EPOCH, BUCKET), "offset + 1 consumed with success"
)
RATE: Final = Family("rate", SUM, "deliver", (*_QUEUE, SECOND), "deliveries")
DELIVERED_END: Final = Family("front", MAX, "deliver", (*_QUEUE, SECOND), "offset + 1 begun")
FINISHED: Final = Family(
    "finished", MAX, "deliver", (*_QUEUE, INC, PQE, SECOND), "offset + 1 ended"
)
UNFINISHED: Final = Family(
    "open", MIN, "deliver", (*_QUEUE, INC, PQE, SECOND), "offset in work at the second's end"
)
SUCCESSES: Final = Family("ok_bin", SUM, "deliver", (GRP, BIN), "successes that ended in the bin")
DELIVERED: Final = Family("delivered", SUM, "deliver", (GRP,), "deliveries in figures")
HANDLER_NS: Final = Family("handler_ns", SUM, "deliver", (GRP,), "ns in the handler")
ABANDONED: Final = Family("abandoned", SUM, "deliver", (GRP,), "deliveries without an end")
FOREIGN: Final = Family("foreign", SUM, "deliver", (GRP,), "deliveries without a LAB_ID")
KNOWN_OFFSETS: Final = Family(
    "known", MAX, "deliver, produce", (BROKER, TOPIC, QID, BOOT_MS),
    "offset + 1 that existed before the master began",
)  # fmt: skip
DROPPED: Final = Family("bad", SUM, "deliver", (REASON,), "rows that cannot be true")
RESENT: Final = Family("resent", SUM, "deliver", (), "duplicates whose send attempts were not read")
UNREADABLE: Final = Family("unreadable", MAX, "any", (FILE,), "1 (Spark only)")
LATE_ENDS: Final = Family("end_begun", MAX, "deliver", (DID,), "1: its begin exists")

# Of send attempts and of the scan.
SENT: Final = Family("sent", INTERVAL, "produce", _MESSAGES, "messages sent")
ACKED: Final = Family("acked", INTERVAL, "produce", _MESSAGES, "messages acknowledged with OK")
DEGRADED: Final = Family(
    "degraded", INTERVAL, "produce", _MESSAGES, "messages acknowledged, not by flush or slave"
)
DOUBTFUL: Final = Family("doubtful", INTERVAL, "produce", _MESSAGES, "messages of open outcome")
STORED: Final = Family("stored", INTERVAL, "scan", _MESSAGES, "messages that the scan found")
UNKNOWN_RESULTS: Final = Family(
    "unknown_result",
    SUM,
    "produce",
    (),
    "attempts whose result is not known, or whose LAB_ID none can be",
)
ATTEMPTS: Final = Family("attempts", SUM, "produce", (RESULT,), "attempts in figures")
SEND_LATENCIES: Final = Family("send_bin", SUM, "produce", (LATENCY_BIN,), "answered sends")
SLOWEST_SENDS: Final = Family(
    "send_point", MAX, "produce", (RESULT, TENTH), "ns from the send's due time to its end"
)
SEND_RATE: Final = Family("send_rate", SUM, "produce", (SECOND,), "acknowledged sends")
_FAILED: Final = (BROKER, BEGUN_OUTAGE, QUIET_BIN)
FIRST_FAILED: Final = Family("failed_first", MIN, "produce", _FAILED, "begin of a failed attempt")
LAST_FAILED: Final = Family("failed_last", MAX, "produce", _FAILED, "the same")
RESUMED: Final = Family(
    "resumed", MIN, "produce", (OUTAGE,), "end of the first lasting good send, ns after run zero"
)

# Of sends and pulls around an outage. All values are ns after run zero.
OLD_ROUTE: Final = Family(
    "old_route", MAX, "produce, pull", (OUTAGE,), "begin of the last try at the dead address"
)
FIRST_SEND: Final = Family(
    "first_send", MIN, "produce", (OUTAGE,), "end of the first good send to the returned master"
)
PULLED_BEFORE: Final = Family(
    "pulled_before", MAX, "pull", (*_QUEUE, OUTAGE), "begin of the last pull before the outage"
)
PULLED_AFTER: Final = Family(
    "pulled_after", MIN, "pull", (*_QUEUE, OUTAGE), "end of the first good pull after its begin"
)
PULLED_ACCEPTED: Final = Family(
    "pulled_accepted", MIN, "pull", (*_QUEUE, OUTAGE),
    "end of the first good pull after the broker accepted again",
)  # fmt: skip
FIRST_SLAVE_PULL: Final = Family(
    "first_slave_pull", MIN, "pull", (OUTAGE,), "end of the first good pull from a slave"
)
FIRST_MASTER_PULL: Final = Family(
    "first_master_pull", MIN, "pull", (OUTAGE,), "the same from the returned master"
)
PHASE_ROWS: Final = Family(
    "phase", MIN, "produce, pull", (PHASE, OUTAGE, PROC_NO), "`seq` of the row with the instant"
)

# Of commits.
COVERED: Final = Family(
    "covered", MAX, "commit", (*_QUEUE, BUCKET, EPOCH, BID, BINC), "offset sent"
)
TAKEN: Final = Family("taken", MAX, "commit", (*_QUEUE, BUCKET), "offset that nothing contradicts")
MEMORY: Final = Family("memory", MAX, "commit", (*_QUEUE, SECOND), "offset in the client's memory")
UNKNOWN_INCARNATIONS: Final = Family(
    "binc_unknown", SUM, "commit", (), "commits to an address whose incarnation is not known"
)
RESUME_COMMITS: Final = Family(
    "told", MAX, "commit", (*_QUEUE, ASSIGNMENT, OFFSET, BID, BINC, PROC_NO),
    "`seq` of the commit, near the answer that the assignment starts from",
)  # fmt: skip
OWNER_COMMITS: Final = Family(
    "owned", MAX, "commit", (*_QUEUE, ASSIGNMENT, OFFSET, BINC, PULL),
    "`seq` of the commit to the master, near the end of the owner before",
)  # fmt: skip

# Of deliveries that occur more than once, classified.
CANDIDATES: Final = Family("candidates", SUM, "deliver", (), "deliveries that were classified")
OUTSIDE: Final = Family("outside", SUM, "deliver", (), "of them in figures, of no assignment")
RETRIES: Final = Family("retry", SUM, "deliver", (GRP,), "wanted retries")
DUPS: Final = Family("dup", SUM, "deliver", (*_QUEUE, CAUSE, SUCCESS_ORDER), "duplicates")
DUP_SECONDS: Final = Family("dup_second", SUM, "deliver", (*_QUEUE, SECOND), "duplicates")
CAUSE_SECONDS: Final = Family("cause_second", SUM, "deliver", (GRP, CAUSE, SECOND), "duplicates")
CAUSE_OUTAGES: Final = Family(
    "cause_outage", SUM, "deliver", (GRP, CAUSE, SINCE_OUTAGE), "duplicates"
)
DUP_MESSAGES: Final = Family("dup_message", SUM, "deliver", (GRP,), "messages with duplicates")
DUP_MEMBERS: Final = Family("dup_member", SUM, "deliver", (GRP, CLIENT_ID), "duplicates")
DUP_KEYS: Final = Family(
    "dup_key", MAX, "deliver", (GRP, KEY_HASH),
    "1; in large runs the place of the lowest one bit of the rest of the hash",
)  # fmt: skip
INHERITED: Final = Family("inherited", SUM, "deliver", (GRP,), "duplicates of inherited cause")
PARTIAL_VIEWS: Final = Family(
    "partial_view", SUM, "deliver", (GRP,), "duplicates under a partial list of members"
)
AMBIGUOUS: Final = Family("ambiguous", SUM, "deliver", (GRP,), "duplicates of open order")
WASTED: Final = Family(
    "wasted", SUM, "deliver", (GRP, UNIT), "time in the handler of duplicates after a success"
)
DUP_AGES: Final = Family("dup_age", SUM, "deliver", (GRP, AGE), "duplicates after a success")
DUP_BINS: Final = Family(
    "dup_bin", SUM, "deliver", (GRP, BEGIN_BIN, END_BIN), "duplicates after a success"
)
SUCCESSES_AGAIN: Final = Family(
    "ok_again", SUM, "deliver", (GRP, BIN), "successes that are not a message's first"
)
FIRST_DUPS: Final = Family(
    "first_dup", MIN, "deliver", (INSTANT,), "begin of a duplicate, ns after run zero"
)
REDELIVERED: Final = Family(
    "redelivered", INTERVAL, "deliver", (HOLDER,), "queue offsets that another had before"
)
REDELIVERED_COUNT: Final = Family(
    "redelivered_count", SUM, "deliver", (HOLDER,), "the same, where crowded: how many"
)
REDELIVERED_LEAST: Final = Family(
    "redelivered_least", MIN, "deliver", (HOLDER,), "the same: the lowest"
)
REDELIVERED_END: Final = Family(
    "redelivered_end", MAX, "deliver", (HOLDER,), "the same: the highest + 1"
)
REDELIVERED_FINISHED: Final = Family(
    "redelivered_finished", SUM, "deliver", (HOLDER,), "the same: below what had been processed"
)
OLDEST_AGAIN: Final = Family(
    "oldest_again", MIN, "deliver", (HOLDER,), "store time of a duplicate below what was committed"
)
NEWEST_AGAIN: Final = Family("newest_again", MAX, "deliver", (HOLDER,), "the same")
_WINDOW: Final = (*_QUEUE, INC, HOLDER, CAUSE, PREV_INC, FAULT)
WINDOWS: Final = Family("window", INTERVAL, "deliver", _WINDOW, "queue offsets of duplicates")
WINDOW_BEGINS: Final = Family(
    "window_begin", MIN, "deliver", _WINDOW, "begin of a duplicate of no assignment"
)
WINDOWS_LEFT_OUT: Final = Family(
    "windows_left_out", SUM, "deliver", _QUEUE, "smaller windows, where crowded"
)
NAMED: Final = Family(
    "named", INTERVAL, "deliver", (BROKER, TOPIC, QID, EPOCH), "queue offsets, once per message"
)
NAMED_TIMES: Final = Family("named_times", SUM, "deliver", (DEPTH,), "the same, where crowded")
PLACED_LEAST: Final = Family(
    "placed_least", MIN, "deliver", (OMID_HASH,), "hash of queue and offset of the copy"
)
PLACED_MOST: Final = Family("placed_most", MAX, "deliver", (OMID_HASH,), "the same")


def all_families() -> Iterator[tuple[str, Family]]:
    """Every family with the name of its constant, in the order of this module."""
    for name, value in globals().items():
        if isinstance(value, Family):
            yield name, value
