"""``groups[]`` and ``totals``: what each group was delivered, and how much of it again. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow.compute as pc

from failback.analytics.analysis.causes.labels import REPORT_GROUPS, report_group
from failback.analytics.analysis.counting import families
from failback.analytics.report.measures.dups import Dups
from failback.analytics.report.measures.lookups import Figures, declared_group, topics_of
from failback.analytics.report.measures.loss import LOST_FATES
from failback.analytics.report.measures.numbers import Row, ratio, seconds, total
from failback.analytics.report.measures.repeats import affected_of, ages_of, dedupe_of
from failback.analytics.report.measures.sends import send_figures


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
    delivered, distinct = figures.group_sums(families.DELIVERED)[name], sum(counts.values())
    dups = figures.dups.of_group(name)
    retry = figures.retries[name]
    messages = dups.distinct("lane", "lseq", "fkey")
    causes = {cause: count for (cause,), count in dups.counts("cause").items()}
    by_group: Counter[str] = Counter()
    for cause, count in causes.items():
        by_group[report_group(cause)] += count
    after_success = dups.where(dups.flags("after_success"), "bt", "et", "ok_end")
    known = int(dups.valid("after_success").sum())
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
        "primary": delivered - retry - len(dups),
        "retry": retry,
        "dup": len(dups),
        "dup_after_success": len(after_success),
        "dup_before_success": known - len(after_success),
        "dup_unknown_order": len(dups) - known,
        "dup_messages": messages,
        "lost": None if fates is None else sum(fates.get(fate, 0) for fate in LOST_FATES),
        "skipped": None if fates is None else fates.get("SKIPPED", 0),
        "store_lost": None if fates is None else fates.get("STORE_LOST", 0),
        "ooo_first": sum(row["ooo_first"] for row in order),
        "ooo_replay": sum(row["ooo_replay"] for row in order),
        "max_redelivery": max(counts, default=0),
        "abandoned": figures.group_sums(families.ABANDONED)[name],
        "dup_ratio": ratio(len(dups), distinct),
        "dup_msg_ratio": ratio(messages, distinct),
        "amplification": ratio(delivered, distinct),
        "wasted_seconds": seconds(_handled(after_success)),
        "handler_seconds": seconds(figures.group_sums(families.HANDLER_NS)[name]),
        "causes": {cause: causes[cause] for cause in sorted(filter(None, causes))},
        "causes_split": _split(dups),
        "report_groups": {group: by_group[group] for group in REPORT_GROUPS},
        "unattributed": by_group["unattributed"],
        "inherited": int(dups.flags("inherited").sum()),
        "partial_view": int(dups.flags("partial_view").sum()),
        "redelivery_counts": {str(k): counts[k] for k in sorted(counts)},
        "repeat_age_seconds": ages_of(after_success),
        "dedupe": dedupe_of(figures, name, after_success),
        "blast": affected_of(figures, name, dups),
    }


def _handled(dups: Dups) -> int:
    """How long handlers worked on them, ns."""
    return total((dups.ints("et") - dups.ints("bt"))[dups.valid("et")])


def _split(dups: Dups) -> Row:
    found: dict[str, Row] = {}
    names = ("unknown_order", "before_success", "after_success")
    order = dups.valid("after_success").astype(np.int64) + dups.flags("after_success")
    for (cause, number), count in dups.counts("cause", order).items():
        if cause is not None:
            found.setdefault(cause, dict.fromkeys(reversed(names), 0))[names[number]] = count
    return dict(sorted(found.items()))


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
