"""Plain words for what a report shows, and what its terms mean. Pure.

Terms name the page of the documents that says more, by its path in a checkout: a report fetches
nothing and its reader may be offline.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from failback.analytics.analysis.causes.meanings import MEANINGS
from failback.analytics.predict.keys import KEYS


@dataclass(frozen=True, slots=True)
class Term:
    """A word of the page, its meaning, and where the documents say more."""

    word: str
    meaning: str
    page: str = "docs/glossary.md"


TERMS: Final[Mapping[str, Term]] = {
    "delivered": Term("deliveries", "How often a message was handed to a consumer, repeats too."),
    "distinct": Term("distinct messages", "Messages that were delivered at least once."),
    "duplicates": Term(
        "duplicates",
        "Deliveries of a message that the group had been given before, without wanted retries.",
    ),
    "ratio": Term("ratio", "Duplicates divided by distinct messages: both stand beside it."),
    "after-success": Term(
        "repeats after a success",
        "The group had handled the message to its end, so the repeat was of no use.",
    ),
    "lost": Term(
        "lost", "Messages that a broker acknowledged and that no member of the group handled."
    ),
    "cause": Term("cause", "The one reason that a duplicate is given.", "docs/reference/causes.md"),
    "bound": Term(
        "bound",
        "The most that this fault can repeat, from the rates that were measured and the timers.",
        "docs/explanation/failure-modes.md",
    ),
    "exposure": Term(
        "exposure",
        "What a kill at this moment would repeat: handled messages whose offset is not yet in the"
        " master's file or the slave's copy.",
    ),
    "predicted": Term(
        "predicted",
        "What the same fault repeats when only the phases of timers are drawn again, 5 to 95 %.",
        "docs/explanation/predictor.md",
    ),
    "rto": Term(
        "recovery time",
        "Send outage and receive outage (RTO): from the loss of the master until sends or pulls"
        " worked again.",
    ),
    "safe-offset": Term(
        "safe offset",
        "The highest offset that a table held since the last reset: beginning there skips nothing"
        " that was committed, and repeats least.",
        "docs/howto/explain-offset.md",
    ),
    "proved": Term(
        "proved",
        "Every step of the fault was seen from outside: who was hit, that it took effect, that it"
        " is gone.",
        "docs/reference/faults.md",
    ),
    "run-zero": Term("run zero", "The instant from which a run counts its seconds."),
    "stored-offset": Term(
        "stored offset",
        "Where a group goes on in a queue: in the master's memory and file, and in the slave's.",
        "docs/explanation/failure-modes.md",
    ),
    "limit": Term(
        "limit",
        "What you call acceptable: `expect` or `thresholds` of the experiment, or"
        " `failback report --expect 'dup_ratio <= 1%'`.",
        "docs/reference/report.md",
    ),
}

FATES: Final[Mapping[str, str]] = {
    "OK": "handled",
    "DLQ": "given up after all retries (dead letter queue)",
    "STORE_LOST": "acknowledged, and no longer in any log",
    "SKIPPED": "stored and never delivered",
    "FAILED_NOT_DLQ": "delivered, never handled to the end",
    "UNACKED_PRESENT": "send not acknowledged, yet stored",
    "UNACKED_ABSENT": "send not acknowledged, not stored",
}
PEERS: Final[Mapping[str, str]] = {
    "FIN": "connections were closed (FIN)",
    "RST": "connections were reset (RST)",
    "SILENCE": "nothing: requests timed out",
}
PHASES: Final[Mapping[str, str]] = {
    "kill": "the master was killed",
    "peer_closed": "clients saw their connections end",
    "last_old_route_use": "last send to the dead master",
    "first_pull_on_slave": "first pull from the slave",
    "accept": "the master accepts connections again",
    "registered": "the master is registered again",
    "first_send_ok": "first send works again",
    "first_pull_on_master": "first pull from the master again",
    "first_fresh_slave_sync": "the slave copied its offsets again",
}
METRICS: Final[Mapping[str, tuple[str, float]]] = {
    "dup": ("duplicates", 1),
    "dup_ratio": ("duplicates/distinct messages", 1),
    "dup_after_success": ("repeats after a success", 1),
    "wasted_seconds": ("work done twice (s)", 1),
    "lost": ("lost messages", 1),
    "produce_rto_ms": ("send outage (s)", 0.001),
    "consume_rto_ms": ("receive outage (s)", 0.001),
}
"""What is compared: words, and the factor from the report's unit."""


def words_of(names: Mapping[str, str], name: object) -> str:
    """The words for a name; one that is new in a later version as it is."""
    return names.get(str(name), str(name).lower().replace("_", " "))


def cause_meaning(cause: str | None) -> tuple[str, str, str]:
    """What happened, what helps, and where it is explained; texts may be empty."""
    found = MEANINGS.get(cause or "")
    if found is None:
        return "", "", "docs/reference/causes.md"
    return found.happened, found.fix, f"docs/reference/causes.md#{(cause or '').lower()}"


def mechanism(text: str) -> str:
    """``rows 1+2+3+6`` of a bound as ``failure modes 1, 2, 3 and 6``."""
    numbers = re.findall(r"\d+", text)
    if not numbers or not text.startswith("rows"):
        return text
    if len(numbers) == 1:
        return f"failure mode {numbers[0]}"
    return f"failure modes {', '.join(numbers[:-1])} and {numbers[-1]}"


def change_of(key: str, value: Any) -> str:
    """Where and how a setting is changed: what to write, and what has to follow."""
    shown = str(value).lower() if isinstance(value, bool) else str(value)
    side = KEYS[key].side if key in KEYS else "broker"
    if key == "slaveSyncInterval":
        return "4.9 has no key for it"
    if side == "client":
        return f"{key}={shown} in the consumers"
    return f"{key}={shown} in broker.conf; then restart the brokers one by one"
