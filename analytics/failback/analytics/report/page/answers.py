"""What the top of a page says: what happened, why, and what each folded part found. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from failback.analytics.report.outcome import Report, worst_outage
from failback.analytics.report.page.tables.redeliveries import reset_hint
from failback.analytics.report.page.words import cause_meaning
from failback.analytics.report.wording import many, number, percent, seconds

MAX_CAUSES: Final = 3
_SLAVE_ONLY: Final = "ROLLBACK_SLAVE_ONLY_PROGRESS"
_RESTART: Final = "ROLLBACK_RESTART"
_NOT_TOLD: Final = "The evidence does not tell which of several causes it was."
_FROM_A_TRACE: Final = (
    "A trace has neither offsets nor owners, so it names no cause. For causes observe the next"
    " outage with failback observe --trace."
)


@dataclass(frozen=True, slots=True)
class CauseLine:
    """One cause of the run: how much, what happened, what helps, where it is explained."""

    count: str
    name: str
    happened: str
    fix: str
    page: str


def heading(report: Report) -> str:
    """``failback-demo, arm handover``; the repetition where there may be several."""
    text = str(report["experiment"] or report["run"])
    if report["arm"]:
        text += f", arm {report['arm']}"
    return f"{text}, repetition {report['repetition'] + 1}" if report["repetition"] else text


def banner(report: Report) -> str:
    """What a reader must know before any time: the timers were scaled."""
    scale = report["source"]["time_scale"]
    if scale == 1:
        return ""
    factor = 1 / scale
    return (
        f"Timers ran at 1/{factor:g}: on a real cluster this takes {factor:g} times as long. Times"
        " on this page are as measured; intervals in the run card are as configured, before the"
        " scale."
    )


Tile = tuple[str, str, str]
"""Value, label, and the term that explains it."""


def answer_tiles(report: Report) -> list[Tile]:
    """The three figures of the answer; of an observed run those that it measured."""
    totals = report["totals"]
    if "observation" in report:
        canary = [back["recovery"] for back in report["observation"]["returns"] if back["recovery"]]
        sends = [row["produce_s"] for row in canary if row["produce_s"] is not None]
        return [(seconds(max(sends)), "send outage (canary)", "rto")] if sends else []
    return [
        (f"{number(totals['dup'])} ({percent(totals['dup_ratio'])})", "re-consumed", "ratio"),
        (number(totals["lost"]), "lost", "lost"),
        (_outage(report, "produce_ms"), "send outage", "rto"),
    ]


def further_tiles(report: Report) -> list[Tile]:
    """Figures that are folded."""
    totals = report["totals"]
    return [
        (number(totals["delivered"]), "deliveries", "delivered"),
        (number(totals["distinct"]), "distinct messages", "distinct"),
        (number(totals["dup_after_success"]), "repeats after a success", "after-success"),
        (seconds(totals["wasted_seconds"]), "of work done twice", ""),
    ]


def explained_causes(report: Report) -> list[CauseLine]:
    """Every cause of the report with its meaning, in the order of their names."""
    rows = [*report.get("groups", [])]
    rows += [
        g for back in (report.get("observation") or {}).get("returns", []) for g in back["groups"]
    ]
    names = {name for row in rows for name in row.get("causes", ())}
    return [CauseLine("", name, *cause_meaning(name)) for name in sorted(names)]


def cause_lines(report: Report) -> list[CauseLine]:
    """The causes with the most duplicates, in words."""
    found: Counter[str | None] = Counter()
    for group in report.get("groups", []):
        found.update(group.get("causes", {}))
        if group.get("unattributed"):
            found[None] += group["unattributed"]
    total = sum(found.values())
    unknown = _FROM_A_TRACE if report["source"]["deliver"] == "trace" else _NOT_TOLD
    lines = []
    for cause, count in found.most_common(MAX_CAUSES):
        happened, fix, page = cause_meaning(cause)
        lines.append(
            CauseLine(
                f"{number(count)} of {many(total, 'duplicate')}",
                cause or "unattributed",
                happened or ("" if cause else unknown),
                fix,
                page,
            )
        )
    return lines


def carry_advice(report: Report) -> str:
    """How many repeats a carry would have saved; empty where it prevents none that came.

    A carry gives a master that is about to start what its slaves know. So it prevents the repeat of
    progress that only a slave knew, and of all before it in the same queue.
    """
    if report["system"].get("engine") != "apache":
        return ""
    saved = 0
    for queue in report.get("queues", []):
        known = [each["hi"] for each in queue["windows"] if each["cause"] == _SLAVE_ONLY]
        saved += sum(
            each["size"]
            for each in queue["windows"]
            if each["cause"] in (_SLAVE_ONLY, _RESTART) and each["hi"] <= max(known, default=-1)
        )
    if not saved:
        return ""
    return (
        f"`failback carry` before the master's start would have saved {number(saved)} of"
        f" {many(report['totals']['dup'], 'duplicate')}: a slave knew that they were consumed."
        " docs/howto/prevent-it.md says how."
    )


def worst_figure(titles: Mapping[str, str]) -> str | None:
    """The offsets of the queue with the most duplicates; it is the first."""
    return next((name for name in titles if name.startswith("staircase-")), None)


def findings(report: Report, titles: Mapping[str, str]) -> dict[str, str]:
    """What each folded part found, in one clause, by its anchor."""
    return {
        "timeline": titles.get("timeline", ""),
        "staircase": _queues(report),
        "causes": _causes(report),
        "intervals": titles.get("intervals", "No interval was re-consumed"),
        "rto": _recovery(report),
        "bounds": _bounds(report),
        "harm": f"{seconds(report['totals']['wasted_seconds'])} of work was done twice",
        "loss": _loss(report),
        "checks": _checks(report),
        "run-card": " ".join(filter(None, map(report["system"].get, ("engine", "version")))),
        "words": "what the terms mean, and where the documents say more",
    }


def _checks(report: Report) -> str:
    """Checks of the evidence, and limits that were set, are counted by themselves."""
    said = []
    for limits, noun in ((False, "check"), (True, "expectation")):
        mine = [
            check["value"] == "Pass"
            for check in report.get("checks", [])
            if check["id"].startswith("expect.") == limits
        ]
        if mine:
            said.append(f"{sum(mine)} of {many(len(mine), noun)} passed")
    return ", ".join(said) or "No check was made"


def _queues(report: Report) -> str:
    if "observation" in report:
        return ""
    queues = report.get("queues", [])
    hit = sum(1 for queue in queues if queue["dup"])
    behind = sum(1 for queue in queues if reset_hint(queue) is not None)
    said = f"{hit} of {many(len(queues), 'queue')} with repeats"
    return f"{said}, {behind} below a safe offset" if behind else said


def _causes(report: Report) -> str:
    lines = cause_lines(report)
    if not lines:
        return "no duplicate was delivered"
    return ", ".join(f"{line.count.partition(' of ')[0]} {line.name}" for line in lines)


def _recovery(report: Report) -> str:
    if not report.get("rto"):
        return "no master was killed"
    sends, pulls = _outage(report, "produce_ms"), _outage(report, "consume_ms")
    return f"send outage {sends}, receive outage {pulls}"


def _outage(report: Report, name: str) -> str:
    worst = worst_outage(report, name)
    return seconds(None if worst is None else worst / 1000)


def _bounds(report: Report) -> str:
    rows = [row for row in report.get("bounds", []) if row["bound"] is not None]
    if not rows:
        return "no bound applies"
    observed, bound = sum(row["observed"] for row in rows), sum(row["bound"] for row in rows)
    return f"{number(observed)} were re-consumed, of at most {number(round(bound))}"


def _loss(report: Report) -> str:
    lost = report["totals"]["lost"]
    if lost is None:
        return "losses cannot be told"
    return "no acknowledged message was lost" if not lost else f"{many(lost, 'message')} lost"
