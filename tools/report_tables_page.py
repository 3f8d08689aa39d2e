"""The page of the tables beside a report, ``docs/reference/report-tables.md``.

``tools/reference_pages.py`` writes it; a test compares. Columns come from the declared tables, what
they mean from the fields of ``report.json`` of the same name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from failback.analytics.report.page.tables.over_time import file_tables
from failback.analytics.report.schema import report_schema

TABLES: Final[Mapping[str, str]] = {
    "rates": "Messages a second, over time.",
    "send_latency": "Attempts to send, over time.",
    "offsets": "Each queue's offset as client, master, file and slave knew it, over time.",
    "duplicates_by_second": "When duplicates came, by group of causes.",
    "duplicates_by_queue": "When duplicates came, by queue.",
    "exposure_by_second": "What a kill at each second would have repeated.",
    "events": "What happened to brokers, routes and consumers.",
    "checks": "Every question that was asked of the run.",
    "faults": "What was done to the cluster, and what of it was seen.",
    "rto": "How long sends and pulls did not work.",
    "phases": "Steps of each recovery.",
    "clock": "Clocks of hosts.",
    "queues": "Each queue of each group.",
    "causes": "Duplicates by cause.",
    "causes_by_group": "Duplicates by group and cause; without a cause they are unattributed.",
    "causes_by_broker": "Duplicates by group, broker, topic and group of causes.",
    "windows": "Intervals of offsets that were re-consumed: from `lo` to before `hi`.",
    "rollbacks": "Where consumers resumed below what was committed or handled.",
    "offset_drops": "Stored offsets that went down.",
    "groups": "Each consumer group. `dup_ratio` is `dup / distinct`.",
    "dedupe_by_seconds": "Repeats that remembering for so many seconds would have stopped.",
    "dedupe_by_keys": "Repeats that remembering so many messages would have stopped.",
    "repeat_age": "Repeats by their age.",
    "redelivery_counts": "Messages by how often they were delivered.",
    "loss": "What became of the messages that were sent.",
    "order": "Deliveries out of order.",
    "bounds": "The most that each fault can repeat, against what was re-consumed.",
    "prediction": "What the predictor says of each fault.",
    "exposure": "Exposure by group.",
    "knobs": "Settings that would have saved something.",
    "compare_runs": "Each run of each arm.",
    "compare_arms": "Each arm's medians and ranges.",
    "compare_difference": "Each arm against the baseline.",
    "returns": "Of an observed cluster: what each group re-consumed at each return of a master.",
    "safe_offsets": "Of an observed cluster: queues that were still behind at the last look.",
    "recovery": "Of an observed cluster with a canary: how long it stood still at a return.",
    "seen": "Of an observed cluster: what happened, each event between two looks.",
    "unseen": "Of an observed cluster: when something was not seen.",
}
_COLUMNS: Final[Mapping[str, str]] = {
    "at_s": "When, in seconds after run zero.",
    "width_s": "How many seconds, from then on, it is of.",
    "what": "What is counted.",
    "messages_per_second": "The rate.",
    "result": "Answer to the attempt.",
    "latency_ms": "Until it was answered, or failed.",
    "copy": "Who knew the offset.",
    "offset": "The offset.",
    "report_group": "Group of causes.",
    "event": "What happened, in words.",
    "intended_s": "When the schedule meant it.",
    "intended_end_s": "When the schedule meant it to end.",
    "effect_s": "When its effect was seen.",
    "healed_s": "When it was seen to be gone.",
    "away_s": "How long the broker was down.",
    "consume_median_ms": "From the loss until pulls worked again, median of the queues.",
    "consume_worst_ms": "The same, worst queue.",
    "first_repeat_ms": "From the kill to the first repeat.",
    "phase": "Step of the recovery.",
    "after_the_kill_s": "When it was seen; empty if never.",
    "age_s": "Age of the offset that was told.",
    "window_s": "Seconds.",
    "above_s": "Older than so many seconds.",
    "at_most_s": "At most so many seconds.",
    "repeats": "Repeats of that age.",
    "deliveries": "So many deliveries.",
    "fate": "What became of them.",
    "least": "The least.",
    "most": "The greatest.",
    "gone_from_s": "The master answered last.",
    "gone_until_s": "It was asked in vain first.",
    "back_from_s": "It was asked in vain last.",
    "back_until_s": "It answered again.",
    "safe_offset": "Where to set the queue.",
    "from_s": "Not before this second.",
    "until_s": "Not after this second.",
}
_BLOCKS: Final[Mapping[str, str]] = {
    "checks": "checks",
    "faults": "faults",
    "rto": "rto",
    "clock": "clock.hosts",
    "queues": "queues",
    "windows": "queues.windows",
    "rollbacks": "rollbacks",
    "offset_drops": "offset_drops",
    "groups": "groups",
    "dedupe_by_seconds": "groups.dedupe.by_seconds",
    "dedupe_by_keys": "groups.dedupe.by_keys",
    "order": "order",
    "bounds": "bounds",
    "prediction": "prediction",
    "exposure": "exposure",
    "knobs": "knobs",
    "compare_runs": "compare.arms.runs",
    "compare_arms": "compare.arms.dup",
    "compare_difference": "compare.difference",
    "returns": "observation.returns.groups",
    "recovery": "observation.returns.recovery",
    "seen": "observation.events",
    "unseen": "observation.gaps",
}
"""Where ``report.json`` has the rows of a table."""
_TYPES: Final = {"s": "text", "i": "integer", "f": "number", "b": "flag"}


def render() -> str:
    """Return the page."""
    anywhere = _meanings(report_schema())
    parts = [
        "# Tables of a report",
        "`failback report` writes every table as `tables/NAME.csv` and `tables/NAME.parquet`. Types"
        " are the same in every run; what was not measured is empty.",
        "Made by `python tools/reference_pages.py` from the code.",
    ]
    for name, table in file_tables({}, []).items():
        block = _meanings(_at(_BLOCKS[name])) if name in _BLOCKS else {}
        meanings = {**anywhere, **_COLUMNS, **block}
        rows = [
            f"| `{column.field}` | {_TYPES[column.type]} | {meanings[column.field]} |"
            for column in table.columns
            if column.field
        ]
        head = ["| column | type | meaning |", "|---|---|---|"]
        parts += [f"## {name}", TABLES[name], "\n".join([*head, *rows])]
    return "\n\n".join(parts) + "\n"


def _at(path: str) -> Mapping[str, Any]:
    """The schema of the entries at a path."""
    node: Mapping[str, Any] = report_schema()
    for part in path.split("."):
        node = node["properties"][part]
        node = next((each for each in node.get("anyOf", ()) if "properties" in each), node)
        node = node.get("items", node)
        more = node.get("additionalProperties")
        node = more if isinstance(more, dict) else node
    return node


def _meanings(node: Mapping[str, Any]) -> dict[str, str]:
    """What fields mean, by their names."""
    found: dict[str, str] = {}
    for name, field in node.get("properties", {}).items():
        found = {name: field["description"]} | found if "description" in field else found
        found |= {inner: said for inner, said in _meanings(field).items() if inner not in found}
    for part in ("items", "additionalProperties"):
        if isinstance(node.get(part), dict):
            inner = _meanings(node[part])
            found |= {name: said for name, said in inner.items() if name not in found}
    return found
