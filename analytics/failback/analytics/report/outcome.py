"""Two answers about a run: is the evidence complete, and is what was re-consumed acceptable. Pure.

The second one is the user's: ``outcome`` of a report names the limits that an experiment, or
``failback report --expect``, set on what was re-consumed. Without one the number is not judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from failback.analytics.live.facts import is_canary
from failback.analytics.observe.observation import at_risk
from failback.analytics.report.wording import many, number, percent

Row = dict[str, Any]
Report = Mapping[str, Any]

NO_LIMIT: Final[Row] = {"limit": None, "met": None}
_FAIL: Final = "Fail"
_INCONCLUSIVE: Final = "Inconclusive"

REPEATS: Final = {
    "dup": "duplicates",
    "dup_ratio": "duplicates/distinct messages",
    "dup_messages": "messages delivered more than once",
    "dup_msg_ratio": "share of messages delivered more than once",
    "dup_after_success": "repeats after a success",
    "amplification": "deliveries per distinct message",
    "wasted_seconds": "seconds of work done twice",
    "max_redelivery": "deliveries of one message",
}
"""Figures of what was re-consumed, by their names in ``totals`` and ``groups``."""
SHARES: Final = frozenset({"dup_ratio", "dup_msg_ratio"})
_TONES: Final = {
    "no limit set": "plain",
    "limit met": "good",
    "limit missed": "bad",
    "limit not judged": "doubt",
}
_LIMITS: Final = {"<=": "at most", "<": "under", "==": "exactly", "between": "between"}
"""A floor is an expectation, but no limit on what was re-consumed."""
_TITLE: Final = re.compile(
    r"(?:(?P<group>\S+): )?(?P<metric>\S+) (?P<op><=|>=|==|<|>|between)(?: (?P<value>.*))?"
)


@dataclass(frozen=True, slots=True)
class Badge:
    """One answer in a few words; ``tone`` is ``plain``, ``good``, ``doubt`` or ``bad``."""

    tone: str
    text: str
    why: str = ""


def outcome_of(checks: Iterable[Mapping[str, Any]]) -> Row:
    """The ``outcome`` of a report by its ``checks``: the limits on what was re-consumed, in words.

    ``met`` is null without a limit, and where one could not be measured.
    """
    words, values = [], []
    for check in checks:
        found = _TITLE.fullmatch(str(check.get("title")))
        if not str(check.get("id")).startswith("expect.") or found is None:
            continue
        name = found["metric"].rpartition(".")[2]
        if name not in REPEATS or found["op"] not in _LIMITS:
            continue
        words.append(_limit_words(found["group"], name, found["op"], check.get("expected")))
        values.append(check.get("value"))
    if not words:
        return dict(NO_LIMIT)
    met = None if _INCONCLUSIVE in values else True
    return {"limit": "; ".join(words), "met": False if _FAIL in values else met}


def _limit_words(group: str | None, name: str, op: str, limit: Any) -> str:
    shown = percent if name in SHARES else number
    values = limit if isinstance(limit, Sequence) and not isinstance(limit, str) else [limit]
    amount = " and ".join(shown(_plain(value)) for value in values)
    return f"{f'{group}: ' if group else ''}{REPEATS[name]} {_LIMITS[op]} {amount}"


def _plain(value: Any) -> float | None:
    """A number of a check: thresholds of a resource are texts."""
    if value is None or isinstance(value, int | float):
        return value
    return float(value)


def evidence_badge(report: Report) -> Badge:
    """Whether the measurement is sound; where it is not, why."""
    if "observation" in report:
        return _observed_evidence(report)
    doubts = [each for each in report.get("checks", []) if each["value"] == _INCONCLUSIVE]
    if not doubts and report["verdict"]["value"] != _INCONCLUSIVE:
        checks = many(len(report.get("checks", [])), "check")
        return Badge("plain", "Evidence: complete", f"{checks} made")
    said = [each["detail"] for each in report["verdict"]["reasons"]]
    why = said[0] if said else ", ".join(check["title"] for check in doubts)
    return Badge("doubt", "Evidence: incomplete", why)


def _observed_evidence(report: Report) -> Badge:
    """What an observation rests on, and whether something was not seen."""
    observation = report["observation"]
    if report["verdict"]["value"] == _INCONCLUSIVE:
        return Badge("doubt", "Evidence: incomplete", report["verdict"]["reasons"][0]["detail"])
    if observation["gaps"]:
        gaps = many(len(observation["gaps"]), "gap")
        return Badge("doubt", f"Evidence: with {gaps}", observation["gaps"][0]["what"])
    groups = _groups(observation)
    basis = {each for group in groups for each in group["basis"]}
    if "E4" in basis:
        traced = [group for group in groups if group["exact"]]
        if len(traced) == len(groups):
            return Badge("plain", "Evidence: trace, complete")
        rows = many(len(groups), "row")
        return Badge("plain", "Evidence: trace, in part", f"complete for {len(traced)} of {rows}")
    return Badge(
        "plain", "Evidence: members and offsets" if "E3" in basis else "Evidence: offsets only"
    )


def worst_outage(report: Report, name: str) -> float | None:
    """The longest outage of a run: of sends (``produce_ms``), or of pulls (``consume_ms``)."""
    found = [row.get(name) for row in report.get("rto", [])]
    values = [each.get("max") if isinstance(each, Mapping) else each for each in found]
    return max((value for value in values if value is not None), default=None)


def rows_missing(report: Report) -> bool:
    """Whether rows are known to be missing: counts are what is left, and shares say nothing."""
    return any(
        check["id"] == "recorder_complete" and check["value"] != "Pass"
        for check in report.get("checks", [])
    )


def outcome_badge(report: Report) -> Badge:
    """Repeats against the user's limit; green only where there is one and it is met."""
    totals, outcome = report["totals"], report.get("outcome") or NO_LIMIT
    if "observation" in report:
        return _observed_outcome(report["observation"], outcome)
    if not totals["distinct"]:
        return Badge("plain", "Re-consumed: nothing was measured")
    again = f"Re-consumed {percent(totals['dup_ratio'])}"
    if rows_missing(report):
        again = f"Re-consumed at least {many(totals['dup'], 'message')}"
    return Badge(_TONES[outcome_state(outcome)], f"{again}: {outcome_state(outcome)}",
                 outcome["limit"] or "")  # fmt: skip


def _groups(observation: Mapping[str, Any]) -> list[Row]:
    """The user's groups at each return: a canary's say nothing of them."""
    groups = [group for back in observation["returns"] for group in back["groups"]]
    return [group for group in groups if not is_canary(group["group"])]


def _observed_outcome(observation: Mapping[str, Any], outcome: Mapping[str, Any]) -> Badge:
    """Repeats at returns; of an outage that goes on, or was not read, nothing is known."""
    groups = _groups(observation)
    lo, hi = (sum(group[name] for group in groups) for name in ("lo", "hi"))
    span = many(hi, "message") if lo == hi else f"{number(lo)} to {many(hi, 'message')}"
    unknown = [f"{row['broker']} is still down" for row in observation["down"]]
    unknown += [
        f"the table of {row['broker']} was not read"
        for row in observation["returns"]
        if not row["read"] and not row["groups"]
    ]
    left = sum(map(at_risk, groups))
    if unknown:
        so_far = f" {span} so far" if hi else ""
        return Badge("doubt", f"Re-consumed{so_far}: not known yet", ", ".join(unknown))
    if left:
        return Badge("bad", f"Re-consumed {span} so far", f"{number(left)} more are at risk")
    if not observation["returns"]:
        return Badge("plain", "Re-consumed: no master was down")
    state = outcome_state(outcome)
    return Badge(_TONES[state], f"Re-consumed {span}: {state}", outcome["limit"] or "")


def outcome_state(outcome: Mapping[str, Any]) -> str:
    """``limit met``, ``limit missed``, ``limit not judged``, or ``no limit set``."""
    if outcome["limit"] is None:
        return "no limit set"
    return {True: "limit met", False: "limit missed"}.get(outcome["met"], "limit not judged")
