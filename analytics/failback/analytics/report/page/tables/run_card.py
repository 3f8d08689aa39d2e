"""Tables of the run itself: what ran, how it was counted, and its files. Only on the page."""

from __future__ import annotations

from collections.abc import Iterable

from failback.analytics.report.page.tables.advice import compact
from failback.analytics.report.page.tables.registry import Report, Table, both, named
from failback.analytics.report.status_summary import rule_set_of
from failback.analytics.report.wording import many, number
from failback.analytics.run.definitions import words_of

_TIMERS = {
    "slave_read_enable": "slaveReadEnable",
    "flush_interval_ms": "flushConsumerOffsetInterval (ms)",
    "slave_sync_interval_ms": "slave sync interval (ms)",
    "client_commit_interval_ms": "persistConsumerOffsetInterval (ms)",
}


def _pairs(name: str, heading: str, rows: Iterable[tuple[str, object]], empty: str = "") -> Table:
    columns = [both("what", heading), both("value", "value")]
    return Table(name, columns, named(("what", "value"), rows), empty)


def card(report: Report) -> Table:
    system, source = report["system"], report["source"]
    scale = source["time_scale"]
    rows: list[tuple[str, object]] = [
        ("experiment", report["experiment"]),
        ("arm", report["arm"]),
        ("repetition", None if report["repetition"] is None else report["repetition"] + 1),
        ("seed", report["seed"]),
        ("engine", f"{system['engine']} {system['version'] or ''}".strip()),
        ("rule set", rule_set_of(report)),
        ("failback", report["failback_version"]),
        ("time scale", f"{scale:g}"),
        *(("counted otherwise", words) for words in words_of(report.get("definitions"))),
    ]
    rows += [("brokers", line) for line in topology_lines(report)]
    unscaled = "" if scale == 1 else ", before the time scale"
    rows += [
        (f"{label[:-1]}{unscaled})" if label.endswith(")") else label, compact(system.get(key)))
        for key, label in _TIMERS.items()
    ]
    rows += [("workload", text) for text in workload_lines(report)]
    digests = system.get("image_digests") or {}
    rows += [(f"image {name}", digest) for name, digest in sorted(digests.items())]
    return _pairs("card", "what", rows, "run.json was missing.")


def switches(report: Report) -> Table:
    """Every switch of the clients."""
    found = report["system"].get("switches") or {}
    rows = [(name, compact(value)) for name, value in sorted(found.items())]
    return _pairs("switches", "switch", rows, "No switch is known.")


def evidence(report: Report) -> Table:
    found = report["evidence"]
    rows: list[tuple[str, object]] = [
        ("run sha256", found.get("run_sha256")),
        ("journal", "journal.json of the run folder"),
        ("segments", found.get("segments")),
    ]
    rows += [(f"rows in {name}", n) for name, n in sorted((found.get("rows") or {}).items())]
    rows += [("torn records", found.get("torn")), ("gaps", len(found.get("gaps") or []))]
    return _pairs("evidence", "what", rows, "There is no manifest.")


def resumes(report: Report) -> Table:
    """Where start offsets came from, and the log's own contradictions."""
    points, divergence = report.get("resume_points") or {}, report.get("divergence") or {}
    rows = [
        ("start offsets checked", points.get("checked")),
        ("their source is known", points.get("explained")),
        ("two sources are possible", points.get("unknown")),
        ("no source was found", points.get("unexplained_count")),
        ("sends of open outcome (never counted as lost)", report["totals"].get("ambiguous_sends")),
        ("offsets that named two messages", _conflicts(divergence)),
        ("times a log lost its tail", len(divergence.get("truncation_events") or [])),
    ]
    return _pairs("resumes", "start offsets and the log", rows)


def _conflicts(divergence: Report) -> object:
    found, error = divergence.get("conflicts"), divergence.get("conflicts_error")
    text = found if error is None else f"{found} ± {error}"
    return f"at least {text}" if divergence.get("conflicts_at_least") else text


def topology_lines(report: Report) -> list[str]:
    """``demo-0: 0 master 127.0.0.1:10911, 1 slave 127.0.0.1:10921``, one per pair."""
    lines = []
    for pair in (report["system"].get("topology") or {}).get("pairs") or []:
        members = [
            " ".join(
                str(part)
                for part in (each.get("broker_id"), each.get("role"), each.get("address"))
                if part is not None
            )
            for each in pair.get("members") or []
        ]
        lines.append(f"{pair.get('broker') or pair.get('name')}: {', '.join(members) or '–'}")
    return lines


def workload_lines(report: Report) -> list[str]:
    """The topics that were sent to and the groups that consumed them, a line each."""
    workload = report["system"].get("workload") or {}
    lines = []
    for topic in workload.get("topics") or []:
        text = f"topic {topic.get('name')}: {_plain(topic.get('ratePerSecond'))}/s, "
        text += f"{_many(topic.get('queues'), 'queue')}, {_plain(topic.get('bodyBytes'))} bytes"
        if topic.get("preloadMessages"):
            text += f", {topic['preloadMessages']:,} waiting at the start"
        lines.append(text)
    for group in workload.get("groups") or []:
        handler = group.get("handler") or {}
        lines.append(
            f"group {group.get('name')}: {_many(group.get('members'), 'member')}, "
            f"{_many(group.get('threads'), 'thread')}, handler {_plain(handler.get('meanMs'))} ms"
        )
    return lines


def _plain(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return number(value) if isinstance(value, int | float) else "–"


def _many(value: object, noun: str) -> str:
    return many(value, noun) if isinstance(value, int) else f"{_plain(value)} {noun}s"
