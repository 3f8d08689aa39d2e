"""Names of causes, and the groups a report sums them up in. Pure."""

from __future__ import annotations

from typing import Final

REPORT_GROUPS: Final = (
    "rollback",
    "rebalance",
    "consumer_end",
    "retry",
    "producer",
    "other",
    "unattributed",
)

CAUSES: Final[dict[str, str]] = {
    "CLIENT_BUG": "other",
    "OFFSET_RESET": "other",
    "ROLLBACK_NO_ENTRY": "rollback",
    "ROLLBACK_OVERWRITTEN": "rollback",
    "ROLLBACK_RESTART": "rollback",
    "ROLLBACK_SLAVE_ONLY_PROGRESS": "rollback",
    "ROLLBACK_STALE_SLAVE": "rollback",
    "OVERLAP": "rebalance",
    "TAIL_REBALANCE": "rebalance",
    "TAIL_PULL_EXPIRED": "rebalance",
    "TAIL_UNSUBSCRIBE": "rebalance",
    "TAIL_RESET": "other",
    "TAIL_CRASH": "consumer_end",
    "TAIL_SHUTDOWN": "consumer_end",
    "SENDBACK_DUP": "retry",
    "DELAY_REPLAY": "retry",
    "CONSUME_TIMEOUT": "retry",
    "SENDBACK_ORPHAN": "retry",
    "APP_RESEND": "producer",
    "SEND_TIMEOUT_DUP": "producer",
    "NOT_STORE_OK_RESEND": "producer",
    "BROKER_COPY": "other",
    "ROLLBACK_UNTOLD": "rollback",
    "COMMIT_STALLED": "rebalance",
    "MEMBERSHIP_LOST": "rebalance",
    "COMMIT_NEVER_TAKEN": "consumer_end",
    "OFFSETS_GONE": "rollback",
    "ACK_NOT_TAKEN": "other",
    "GROUP_WENT_BACK": "rollback",
}


OFFSET_GROUPS: Final = frozenset({"rollback", "rebalance", "consumer_end", "unattributed"})
"""Groups whose repeats come from where consumption resumed: what a bound is about."""

CAUSE_WORDS: Final[dict[str, str]] = {
    "ROLLBACK_SLAVE_ONLY_PROGRESS": "slave-only progress",
    "ROLLBACK_RESTART": "progress lost at the master's restart",
    "ROLLBACK_OVERWRITTEN": "a later commit of a smaller offset",
    "ROLLBACK_NO_ENTRY": "no stored offset",
    "ROLLBACK_STALE_SLAVE": "a slave that was behind",
    "ROLLBACK_UNTOLD": "progress that members told no broker",
    "OVERLAP": "two owners at once",
}


def report_group(cause: str | None) -> str:
    """The report group of a cause; ``None`` is *unattributed*."""
    return "unattributed" if cause is None else CAUSES.get(cause, "other")


def cause_words(cause: str | None) -> str:
    """A cause in words, for the verdict's sentence."""
    if cause is None:
        return "unattributed"
    return CAUSE_WORDS.get(cause, cause.lower().replace("_", " "))
