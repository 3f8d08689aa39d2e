"""``groups[]`` and ``totals``: what each group was delivered, and how much of it again. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow.compute as pc

from failback.analytics.analysis.causes.labels import REPORT_GROUPS, report_group
from failback.analytics.analysis.counting import families
from failback.analytics.report.measures.lookups import Figures, declared_group, topics_of
from failback.analytics.report.measures.loss import LOST_FATES, send_figures
from failback.analytics.report.measures.numbers import NS, Row, ratio, seconds
from failback.analytics.report.measures.repeats import affected_of, ages_of, dedupe_of

ORDERS: Final = ("unknown_order", "before_success", "after_success")
"""By ``DupCount.success_order``."""


def group_figures(figures: Figures, name: str, losses: Mapping[str, Row] | None) -> Row:
    """One entry of ``groups[]``."""
    depths = figures.depths(families.MESSAGE)
    mine = depths.filter(
        pc.and_(pc.equal(depths.column("grp"), name), pc.greater(depths.column("figure"), 0))
    )
    counts: Counter[int] = Counter()
    for lo, hi, depth in zip(
        *(mine.column(c).to_pylist() for c in ("lo", "hi", "figure")), strict=True
    ):
        counts[depth] += hi - lo
    for row in figures.values(families.MESSAGE_TIMES):
        if row["grp"] == name and row["figure"]:
            counts[row["figure"]] += row["value"]
    delivered, distinct = figures.group_sums(families.DELIVERED)[name], sum(counts.values())
    retry, messages = (
        figures.group_sums(family)[name] for family in (families.RETRIES, families.DUP_MESSAGES)
    )
    by_cause = _by_cause(figures, name)
    causes = {cause: counts.total() for cause, counts in by_cause.items()}
    orders = sum(by_cause.values(), Counter[str]())
    dup = orders.total()
    by_group: Counter[str] = Counter()
    for cause, count in causes.items():
        by_group[report_group(cause)] += count
    order = [row for row in figures.analysis.order.to_pylist() if row["grp"] == name]
    declared = [
        group
        for group in figures.analysis.folder.groups
        if group.name == declared_group(figures, name)
    ]
    fates = None if losses is None else losses.get(name, {})
    return {
        "group": name,
        "topic": ",".join(topics_of(figures, name)),
        "members": declared[0].members if declared else None,
        "model": declared[0].model if declared else None,
        **send_figures(figures, topics_of(figures, name)),
        "delivered": delivered,
        "distinct": distinct,
        "primary": delivered - retry - dup,
        "retry": retry,
        "dup": dup,
        "dup_after_success": orders["after_success"],
        "dup_before_success": orders["before_success"],
        "dup_unknown_order": orders["unknown_order"],
        "dup_messages": messages,
        "lost": None if fates is None else sum(fates.get(fate, 0) for fate in LOST_FATES),
        "skipped": None if fates is None else fates.get("SKIPPED", 0),
        "store_lost": None if fates is None else fates.get("STORE_LOST", 0),
        "ooo_first": sum(row["ooo_first"] for row in order),
        "ooo_replay": sum(row["ooo_replay"] for row in order),
        "max_redelivery": max(counts, default=0),
        "abandoned": figures.group_sums(families.ABANDONED)[name],
        "dup_ratio": ratio(dup, distinct),
        "dup_msg_ratio": ratio(messages, distinct),
        "amplification": ratio(delivered, distinct),
        "wasted_seconds": seconds(_wasted(figures, name)),
        "handler_seconds": seconds(figures.group_sums(families.HANDLER_NS)[name]),
        "causes": {cause: causes[cause] for cause in sorted(filter(None, causes))},
        "causes_split": {
            cause: {order: by_cause[cause][order] for order in reversed(ORDERS)}
            for cause in sorted(filter(None, causes))
        },
        "report_groups": {group: by_group[group] for group in REPORT_GROUPS},
        "unattributed": by_group["unattributed"],
        "inherited": figures.group_sums(families.INHERITED)[name],
        "partial_view": figures.group_sums(families.PARTIAL_VIEWS)[name],
        "redelivery_counts": {str(k): counts[k] for k in sorted(counts)},
        "repeat_age_seconds": ages_of(figures, name),
        "dedupe": dedupe_of(figures, name),
        "blast": affected_of(figures, name),
    }


def _by_cause(figures: Figures, name: str) -> dict[str | None, Counter[str]]:
    """Duplicates of a group by cause, and of each by its order to the first success."""
    found: dict[str | None, Counter[str]] = defaultdict(Counter)
    for each in figures.dups:
        if each.queue.grp == name:
            found[each.cause][ORDERS[each.success_order]] += each.count
    return found


def _wasted(figures: Figures, name: str) -> int:
    """How long handlers worked on duplicates after a success, ns."""
    return sum(
        row["value"] * (1 if row["unit"] else NS)
        for row in figures.values(families.WASTED)
        if row["grp"] == name
    )


def totals_of(figures: Figures, groups: Sequence[Row], losses: Mapping[str, Row] | None) -> Row:
    """``totals``: sums over groups where that adds up; messages of a topic count once."""
    topics = sorted({topic for row in groups for topic in row["topic"].split(",")})
    summed = {
        name: sum(row[name] for row in groups)
        for name in (
            "delivered", "distinct", "primary", "retry", "dup", "dup_after_success",
            "dup_before_success", "dup_unknown_order", "dup_messages", "ooo_first", "ooo_replay",
            "abandoned",
        )
    }  # fmt: skip
    fates = [row["group"] for row in groups] if losses is not None else None
    return {
        **send_figures(figures, topics),
        **summed,
        **{
            name: None if fates is None else sum(row[name] for row in groups)
            for name in ("lost", "skipped", "store_lost")
        },
        "max_redelivery": max((row["max_redelivery"] for row in groups), default=0),
        "dup_ratio": ratio(summed["dup"], summed["distinct"]),
        "dup_msg_ratio": ratio(summed["dup_messages"], summed["distinct"]),
        "amplification": ratio(summed["delivered"], summed["distinct"]),
        "wasted_seconds": round(sum(row["wasted_seconds"] for row in groups), 6),
        "handler_seconds": round(sum(row["handler_seconds"] for row in groups), 6),
    }
