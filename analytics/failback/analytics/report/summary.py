"""The verdict in one sentence, and ``summary.md``: short enough to paste into a ticket. Pure."""

from __future__ import annotations

from typing import Final

from failback.analytics.analysis.causes.labels import cause_words
from failback.analytics.report.measures.numbers import Row
from failback.analytics.report.outcome import (
    Badge,
    evidence_badge,
    outcome_badge,
    rows_missing,
    worst_outage,
)
from failback.analytics.report.page.tables import observed
from failback.analytics.report.page.tables.redeliveries import group_figures
from failback.analytics.report.page.tables.registry import markdown
from failback.analytics.report.wording import number, percent, seconds
from failback.analytics.run.definitions import words_of
from failback.common.times import zone

MAX_WINDOWS: Final = 5
MAX_GROUPS: Final = 10
MAX_NAME: Final = 60


def sentence(report: Row) -> str:
    """*"Killing master of pair-0 for 34 s: 2,913 of 120,004 messages re-consumed (2.4 %), ..."*"""
    totals = report["totals"]
    what = _what_happened(report)
    dup, distinct = totals["dup"], totals["distinct"]
    share = "" if not distinct or rows_missing(report) else f" ({percent(dup / distinct)})"
    text = f"{what}: {number(dup)} of {number(distinct)} messages re-consumed{share}"
    hit = sorted((g for g in report["groups"] if g["dup"]), key=lambda g: -g["dup"])
    if hit:
        first = hit[0]
        all_to = "all to" if len(hit) == 1 else "most to"
        causes = first["causes"] | ({None: first["unattributed"]} if first["unattributed"] else {})
        main = max(causes, key=lambda cause: causes[cause])
        mostly = "" if len(causes) == 1 else "mostly "
        text += f", {all_to} group `{short(first['group'])}`, cause: {mostly}{cause_words(main)}"
    text += f"; {_loss(report)}"
    for what, name in (("send", "produce_ms"), ("receive", "consume_ms")):
        worst = worst_outage(report, name)
        text += "" if worst is None else f"; {what} outage {worst / 1000:.1f} s"
    return text + "."


def _loss(report: Row) -> str:
    lost = report["totals"]["lost"]
    if lost is None:
        return "loss not measurable"
    elsewhere = ", or in the rows that are missing" if lost and rows_missing(report) else ""
    return f"{number(lost)} lost{elsewhere}"


def _what_happened(report: Row) -> str:
    outages = [fault for fault in report["faults"] if fault["kind"] in ("KILL", "TERM")]
    if not outages:
        return "The run"
    victim, down = (outages[0]["victims"] or ["?"])[0], outages[0]["down_seconds"]
    verb = "Killing" if outages[0]["kind"] == "KILL" else "Stopping"
    lasted = "" if down is None else f" for {down:.0f} s"
    if "foreign" in report:
        return f"{verb} server {short(victim.split(' ')[0])}{lasted}"
    return f"{verb} master of {short(victim.split('/')[0])}{lasted}"


def render(report: Row) -> str:
    """``summary.md``, which has fewer than 80 lines for any run."""
    verdict = report["verdict"]
    experiment, arm = report["experiment"] or report["run"], report["arm"]
    badges = (evidence_badge(report), outcome_badge(report))
    lines = [
        f"# {_name(experiment)}" + (f" / {_name(arm)}" if arm else ""),
        "",
        *(f"* {badge.text}{_why(badge)}" for badge in badges),
        "",
        verdict["sentence"].replace("<", "&lt;"),
        "",
        *_definition_lines(report),
        *(
            f"* {reason['code']}: {_name(reason['detail'], 200)}"
            for reason in verdict["reasons"][:10]
        ),
        *([""] if verdict["reasons"] else []),
        *(_observed_lines(report) if "observation" in report else _counted_lines(report)),
        _footer(report),
    ]
    return "\n".join(lines) + "\n"


def _footer(report: Row) -> str:
    run = f"run `{_name(report['run'])}`"
    if "observation" in report:
        return f"{run} · times: {zone(observed.zero_of(report))}"
    evidence = (report["evidence"]["run_sha256"] or "none")[:16]
    return f"{run} · engine {report['engine']} · evidence `{evidence}`"


def _counted_lines(report: Row) -> list[str]:
    return [
        *markdown(group_figures(report), MAX_GROUPS + 1, _name),
        "",
        *_cause_lines(report),
        *_rto_lines(report),
        *_bound_lines(report),
        *_window_lines(report),
    ]


def _observed_lines(report: Row) -> list[str]:
    """Of a cluster that Failback did not run: what returns cost, and what was seen."""
    made = (observed.came_again, observed.canaries, observed.others, observed.recovery,
            observed.seen, observed.unseen)  # fmt: skip
    tables = [table(report) for table in made]
    shown = [markdown(table, MAX_GROUPS * 2, _name) for table in tables if table.rows]
    return [line for lines in shown for line in [*lines, ""]]


def _definition_lines(report: Row) -> list[str]:
    words = words_of(report.get("definitions"))
    if not words:
        return []
    return [f"Counted otherwise than usual, not to be compared: {'; '.join(words)}.", ""]


def _cause_lines(report: Row) -> list[str]:
    groups = [g for g in report["groups"] if g["dup"]][:10]
    if not groups:
        return ["No message was re-consumed, except wanted retries.", ""]
    causes = sorted({cause for g in groups for cause in g["causes"]})[:12]
    lines = ["| group | " + " | ".join(causes) + " | unattributed |"]
    lines.append("|---" * (len(causes) + 2) + "|")
    for g in groups:
        cells = [number(g["causes"].get(cause, 0)) for cause in causes]
        lines.append(f"| {_name(g['group'])} | {' | '.join([*cells, number(g['unattributed'])])} |")
    return [*lines, ""]


def _rto_lines(report: Row) -> list[str]:
    lines = [
        f"Outage of {row['fid']} ({_name(row['broker'] or '?')}): send {_ms(row['produce_ms'])}, "
        f"receive {_ms(row['consume_ms']['max'])} at most, first repeat "
        f"{_ms(row['ttfr_kill_ms'])} after the kill."
        for row in report["rto"][:5]
    ]
    return [*lines, ""] if lines else []


def _bound_lines(report: Row) -> list[str]:
    lines = [
        f"Bound of {row['fid']} for {_name(row['group'])}: {number(row['observed'])} of at most "
        f"{number(row['bound'])} ({row['formula']}){' **exceeded**' if row['exceeded'] else ''}"
        for row in report["bounds"][:5]
    ]
    return [*lines, ""] if lines else []


def _window_lines(report: Row) -> list[str]:
    windows = [(q, w) for q in report["queues"] for w in q["windows"]]
    windows.sort(key=lambda pair: -pair[1]["size"])
    lines = [
        f"* {_name(q['topic'])} {_name(q['broker'])}/{q['qid']}: {w['lo']} to {w['hi']} "
        f"({number(w['size'])}), {w['cause'] or 'unattributed'}"
        for q, w in windows[:MAX_WINDOWS]
    ]
    return ["Re-consumed, from one offset to before another:", *lines, ""] if lines else []


def _ms(value: float | None) -> str:
    return "never" if value is None else seconds(value / 1000)


def _why(badge: Badge) -> str:
    return f" ({_name(badge.why, 200)})" if badge.why else ""


def short(text: str, limit: int = MAX_NAME) -> str:
    """A name from outside, on one line and not too long."""
    plain = " ".join(str(text).split()).replace("`", "'")
    return plain if len(plain) <= limit else plain[: limit - 1] + "…"


def _name(text: str, limit: int = MAX_NAME) -> str:
    """The same, with nothing in it that is Markdown or HTML."""
    plain = short(text, limit)
    for sign in "\\|[]>":
        plain = plain.replace(sign, f"\\{sign}")
    return plain.replace("<", "&lt;")
