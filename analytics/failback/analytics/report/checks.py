"""The checks of a report, limits set on its figures among them, and the verdict. Pure.

Every check answers Pass, Fail or Inconclusive and knows which evidence it needs; they merge as
Fail over Inconclusive over Pass. Findings that exist by themselves (a loss, a client bug, an
unexplained resume point) are Fail even in a run that is otherwise Inconclusive. Nothing passes by
lack of data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from failback.analytics.analysis.arrays.columns import Columns
from failback.analytics.analysis.counting import families
from failback.analytics.analysis.counting.partials.sends import GOOD_RESULTS, LATENCY_POINT_NS
from failback.analytics.report.measures.bounds import handover_sums
from failback.analytics.report.measures.curves import Curve
from failback.analytics.report.measures.lookups import Figures
from failback.analytics.report.measures.loss import LOST_FATES
from failback.analytics.report.measures.numbers import NS, Row
from failback.analytics.run.definitions import DEFAULT
from failback.analytics.run.documents import Run
from failback.common.numbers import whole

PASS: Final = "Pass"
FAIL: Final = "Fail"
INCONCLUSIVE: Final = "Inconclusive"
OBSERVED: Final = "Observed"
"""The verdict where nothing was planned and no limit was set: there is nothing to pass."""
EXIT_CODES: Final = {PASS: 0, OBSERVED: 0, FAIL: 1, INCONCLUSIVE: 3}
MAX_BAD_SHARE: Final = 0.001
MAX_AMBIGUOUS_SHARE: Final = 0.01
MAX_CLOCK_ERROR_NS: Final = 50_000_000
MIN_WINDOW_DELIVERIES: Final = 100
MIN_WINDOW_WISHED: Final = 200
RESUMING_SECONDS: Final = 5
"""A client of RocketMQ waits 3 s after a pull that failed, and for a route."""
_SILENCING: Final = ("CLIENT_KILL", "CLIENT_TERM", "UNSUBSCRIBE")
"""Effects that leave members of a group without work."""
SEND_TIMEOUT_NS: Final = 15 * NS
"""A hung send has ended by then: after three attempts of 3 s, and some time."""
_RANK: Final = {PASS: 0, INCONCLUSIVE: 1, FAIL: 2}
_OPERATORS: Final = {
    "<=": lambda seen, value: seen <= value,
    ">=": lambda seen, value: seen >= value,
    "<": lambda seen, value: seen < value,
    ">": lambda seen, value: seen > value,
    "==": lambda seen, value: seen == value,
    "between": lambda seen, value: value[0] <= seen <= value[1],
}

_NOT_IN_TRACES: Final[dict[str, tuple[str, str]]] = {
    "drained": ("NO_DRAIN", "a trace says what was handled, not what was left over"),
    "no_loss": ("NO_DRAIN", "a handling without a trace looks like a lost message"),
    "no_client_bug": ("RECORDER_GAP", "a trace doesn't tell one holding of a queue from the next"),
    "resume_points": (
        "RECORDER_GAP",
        "a trace has no start offsets, so no repeat has a cause: for causes observe the next outage"
        " with `failback observe --trace`",
    ),
}
"""Checks that need rows which a trace does not have: reason code and words."""


_OF_EXPERIMENTS: Final = frozenset(
    {
        "fault_proved", "drained", "steady_before", "recovered", "no_loss", "resume_points",
        "within_bounds", "traffic", "finished",
    }
)  # fmt: skip
"""Checks of what an experiment plans and watches."""


@dataclass(frozen=True, slots=True)
class Check:
    """One answered question. ``code`` says why an Inconclusive one is."""

    id: str
    title: str
    value: str
    expected: Any = None
    observed: Any = None
    unit: str = ""
    code: str | None = None
    detail: str = ""
    evidence: tuple[str, ...] = ()

    @property
    def row(self) -> Row:
        """The check as ``checks[]`` shows it."""
        names = ("id", "title", "value", "expected", "observed", "unit")
        return {**{name: getattr(self, name) for name in names}, "evidence": list(self.evidence)}


def _unless(
    why: str,
    id_: str,
    title: str,
    expected: Any,
    observed: Any,
    unit: str = "",
    code: str | None = None,
    evidence: Sequence[str] = (),
    *,
    otherwise: str = INCONCLUSIVE,
) -> Check:
    """Pass, or ``otherwise`` where there is a ``why``."""
    if not why:
        return Check(id_, title, PASS, expected, observed, unit)
    return Check(id_, title, otherwise, expected, observed, unit, code, why, tuple(evidence))


def merge(checks: Iterable[Check]) -> str:
    """The verdict of all checks; no check at all is Inconclusive."""
    values = [check.value for check in checks]
    return max(values, key=_RANK.__getitem__) if values else INCONCLUSIVE


def run_checks(figures: Figures, report: Row, limits: Sequence[Row] = ()) -> list[Check]:
    """All built-in checks, then those of the experiment, then ``limits`` of the command line."""
    wishes = [*_wishes(figures), *limits]
    found = [
        _fault_proved(figures, report),
        _recorder_complete(report),
        _evidence(figures),
        _drained(figures),
        _steady(figures),
        _recovered(figures, report),
        _no_loss(report),
        _no_client_bug(report),
        _resume_points(report),
        *_within_bounds(figures, report),
        *_handover(report),
        *_equation(figures, report),
        _clock(figures, report),
        _traffic(figures, report),
        _rows(report),
        *_finished(figures),
        *(_expectation(number, wish, report) for number, wish in enumerate(wishes)),
    ]
    run = figures.analysis.folder.run
    if run.is_unplanned:
        return [check for check in found if check.id not in _OF_EXPERIMENTS]
    return _without_inputs(found) if run.is_trace else found


def verdict_of(checks: Sequence[Check], run: Run) -> str:
    """The verdict of all checks; an unplanned run without a limit passes nothing."""
    verdict = merge(checks)
    has_limit = any(check.id.startswith("expect.") for check in checks)
    return OBSERVED if verdict == PASS and run.is_unplanned and not has_limit else verdict


def _fault_proved(figures: Figures, report: Row) -> Check:
    title = "every fault was proved"
    faults = [fault for fault in report["faults"] if fault["fid"] != "unplanned"]
    declared = figures.analysis.folder.run.faults
    expected = len(declared) if declared is not None else len(faults)
    doubtful = [fault["fid"] for fault in faults if not fault["proved"]]
    problems = [f"{fid} was not proved" for fid in doubtful]
    if len(faults) < expected:
        problems.append(f"{expected - len(faults)} of {expected} faults were not injected")
    if len(faults) < len(report["faults"]):
        problems.append("a process died unplanned")
    observed, why = len(faults) - len(doubtful), "; ".join(problems)
    return _unless(
        why, "fault_proved", title, expected, observed, "faults", "FAULT_NOT_PROVED", doubtful
    )


def missing_evidence(report: Row) -> list[str]:
    """What is known to be missing; then nothing can be concluded from a row that is not there."""
    problems = [
        f"process {gap['proc_no']}: records {gap['from_seq']} to {gap['to_seq']}"
        for gap in report["evidence"]["gaps"]
    ]
    problems += report["evidence"]["unreadable"] + report["evidence"]["recorder_gaps"]
    problems += [f"{name} is absent" for name in report["evidence"]["absent"]]
    return problems


def unreadable_deliveries(report: Row) -> int:
    """Rows about deliveries that were left out or do not say how the handling ended.

    Each may have been a success of one message in one group, so it explains at most one loss.
    """
    quality = report["quality"]
    dropped = sum(quality["dropped_rows"].values())
    return int(dropped + quality["unknown_names"].get("deliver.status", 0))


def _loss_open(report: Row) -> tuple[str, str] | None:
    """Why no loss was observed although messages are nowhere: reason code and words."""
    if missing_evidence(report):
        return "RECORDER_GAP", "rows are missing, so what is nowhere may have been handled"
    bad, lost = unreadable_deliveries(report), report["totals"]["lost"] or 0
    if bad and lost <= bad:
        return "BAD_ROWS", f"{bad} rows are unreadable, so what is nowhere may have been handled"
    return None


def _rows_open(report: Row) -> tuple[str, str] | None:
    """Why a comparison with what was recorded decides nothing: reason code and words."""
    if missing_evidence(report):
        return "RECORDER_GAP", "rows are missing"
    if unreadable_deliveries(report):
        return "BAD_ROWS", "rows are unreadable"
    return None


def _recorder_complete(report: Row) -> Check:
    title, problems = "nothing recorded is missing", missing_evidence(report)
    why = f"missing: {'; '.join(problems[:5])}" if problems else ""
    return _unless(
        why, "recorder_complete", title, 0, len(problems), "gaps", "RECORDER_GAP", problems[:20]
    )


def _evidence(figures: Figures) -> Check:
    title, changed = "the files are those of the run", figures.analysis.folder.evidence.changed
    why = f"changed since the run was closed: {', '.join(changed[:5])}" if changed else ""
    return _unless(
        why, "evidence", title, 0, len(changed), "changed files", "EVIDENCE_CHANGED", changed[:20]
    )


def _drained(figures: Figures) -> Check:
    title, wanted = "everything was consumed and read back", "drained and scanned"
    closed = figures.analysis.folder.closed
    drained, scanned = bool(closed.drained), bool(closed.scan)
    observed = f"drained {drained}, scanned {scanned}".lower()
    why = f"the {'scan' if drained else 'drain'} did not finish, so losses cannot be told"
    if drained and scanned:
        why = ""
    return _unless(why, "drained", title, wanted, observed, code="NO_DRAIN")


def _steady(figures: Figures) -> Check:
    title, closed = "traffic was steady before the first fault", figures.analysis.folder.closed
    steady = bool(closed.steady)
    why = closed.steady_why or "traffic was not steady before the first fault"
    return _unless("" if steady else why, "steady_before", title, True, steady, code="STEADY_STATE")


def _recovered(figures: Figures, report: Row) -> Check:
    """A fault that should have healed and did not is a finding, not a lack of data."""
    title, closed = "every fault was seen to heal", figures.analysis.folder.closed
    returning = [outage["fid"] for outage in report["rto"] if outage["phases"]["accept"] is None]
    if closed.recovered is False or (closed.recovered is None and closed and returning):
        why = closed.recovered_why or f"{', '.join(returning)} did not come back"
        return Check("recovered", title, FAIL, True, False, "", None, why, tuple(returning))
    if not closed:
        return Check("recovered", title, INCONCLUSIVE, True, None, "", "ABORTED",
                     "the run ended before recovery")  # fmt: skip
    return Check("recovered", title, PASS, True, True)


def _no_loss(report: Row) -> Check:
    title, lost = "no acknowledged message was lost", report["totals"]["lost"]
    if lost is None:
        return Check("no_loss", title, INCONCLUSIVE, 0, None, "messages", "NO_DRAIN",
                     "loss cannot be told without drain and scan")  # fmt: skip
    open_ = _loss_open(report)
    if lost and open_:
        return Check("no_loss", title, INCONCLUSIVE, 0, lost, "messages", *open_)
    examples = report["loss"]["examples"]
    found = [lid for fate in LOST_FATES for lid in examples.get(fate, [])]
    why = f"{lost} acknowledged messages were lost" if lost else ""
    return _unless(why, "no_loss", title, 0, lost, "messages", evidence=found, otherwise=FAIL)


def _no_client_bug(report: Row) -> Check:
    title = "no client handled one stored copy twice while it held the queue"
    bugs = sum(group["causes"].get("CLIENT_BUG", 0) for group in report["groups"])
    why = f"{bugs} deliveries repeat a copy that the same client held (CLIENT_BUG)" if bugs else ""
    return _unless(why, "no_client_bug", title, 0, bugs, "deliveries", otherwise=FAIL)


def _resume_points(report: Row) -> Check:
    title, points = "every start offset has a source", report["resume_points"]
    why, code, open_ = "", "RESUME_UNEXPLAINED", _rows_open(report)
    if points["unexplained_count"]:
        first = points["unexplained"][0]
        why = f"{first['topic']}/{first['qid']} of {first['group']} started at {first['start']}"
        if open_:
            code, why = open_[0], f"{why}, but {open_[1]}"
    return _unless(
        why, "resume_points", title, 0, points["unexplained_count"], "assignments", code,
        otherwise=INCONCLUSIVE if open_ else FAIL,
    )  # fmt: skip


def _within_bounds(figures: Figures, report: Row) -> list[Check]:
    title = "no more was re-consumed than the mechanism allows"
    if not report["bounds"]:
        return []
    rule_set = figures.analysis.folder.run.rule_set or ""
    exceeded = [row for row in report["bounds"] if row["exceeded"]]
    bound = sum(row["bound"] for row in report["bounds"])
    observed = sum(row["observed"] for row in report["bounds"])
    if not rule_set.startswith(("4.", "5.")):
        why = f"no bounds are known for rule set {rule_set!r}"
        return [Check("within_bounds", title, INCONCLUSIVE, bound, observed, "messages",
                      "UNKNOWN_RULE_SET", why)]  # fmt: skip
    detail = ""
    if exceeded:
        worst = max(exceeded, key=lambda row: row["observed"] - row["bound"])
        detail = (
            f"{worst['fid']}, group {worst['group']}: {worst['observed']} > {worst['bound']} "
            f"({worst['formula']}): a bug or an unknown mechanism"
        )
    return [_unless(detail, "within_bounds", title, bound, observed, "messages", otherwise=FAIL)]


def _handover(report: Row) -> list[Check]:
    """Shown only where it has to hold: new owners after clean stops."""
    title = "repeats equal consumed minus what the returned master had"
    code, otherwise = _code_of_difference(report)
    found = []
    for group, (expected, seen) in sorted(handover_sums(report["handover"]).items()):
        why = "" if expected == seen else f"group {group}: {seen} repeats, {expected} expected"
        sides = (expected, seen, "messages")
        found.append(_unless(why, f"handover:{group}", title, *sides, code, otherwise=otherwise))
    return found


def _code_of_difference(report: Row) -> tuple[str | None, str]:
    """The reason code and the answer where two sides differ."""
    open_ = _rows_open(report)
    return (open_[0], INCONCLUSIVE) if open_ else (None, FAIL)


def _equation(figures: Figures, report: Row) -> list[Check]:
    """Of another engine: does what was re-consumed follow from the offsets that were seen?"""
    if "foreign" not in report:
        return []
    title = "repeats equal last processed + 1 minus the offset that was seen, in each queue"
    rows = report["foreign"]["resumed"]
    wrong = [
        "{group} {topic}/{qid}: {observed} repeats, {expected} expected".format(**row)
        for row in rows
        if row["expected"] != row["observed"]
    ]
    expected, seen = (sum(row[name] for row in rows) for name in ("expected", "observed"))
    dup = report["totals"]["dup"]
    if dup != seen and figures.analysis.folder.definitions == DEFAULT:
        wrong.append(f"{dup} repeats in all, {seen} under assignments")
    why, (code, otherwise) = "; ".join(wrong[:5]), _code_of_difference(report)
    sides = (expected, seen, "messages")
    return [_unless(why, "equation", title, *sides, code, wrong, otherwise=otherwise)]


def _clock(figures: Figures, report: Row) -> Check:
    title = "times can be compared"
    clock = report["clock"]
    problems = []
    if clock["steps"]:
        problems.append(f"{clock['steps']} wall clock steps")
    problems += [
        f"{host} was restarted in the run" for host in figures.analysis.history.clocks.rebooted
    ]
    problems += [
        f"the clock of {host['host']} is known to {host['error_ns'] / 1e6:.0f} ms only"
        for host in clock["hosts"]
        if host["error_ns"] > MAX_CLOCK_ERROR_NS and len(clock["hosts"]) > 1
    ]
    if clock["ambiguous_share"] is not None and clock["ambiguous_share"] > MAX_AMBIGUOUS_SHARE:
        problems.append(f"the order of {clock['ambiguous_dup']} duplicates is open")
    return _unless("; ".join(problems), "clock", title, 0, len(problems), code="CLOCK")


def _traffic(figures: Figures, report: Row) -> Check:
    """A group that should have traffic and has none makes every zero of it worthless."""
    title = "there was traffic to speak about"
    problems = []
    for group in report["groups"]:
        if not group["delivered"]:
            problems.append(f"group {group['group']} handled no message")
        elif figures.analysis.folder.run.is_trace:
            continue  # a trace has no assignments of any group
        elif not any(a.key.grp == group["group"] for a in figures.analysis.history.assignments):
            problems.append(f"group {group['group']} has no assignment")
    if not report["groups"]:
        problems.append("no group is known")
    problems += _quiet_windows(figures, report)
    return _unless("; ".join(problems), "traffic", title, None, None, code="NO_TRAFFIC")


def _quiet_windows(figures: Figures, report: Row) -> list[str]:
    """Groups with few deliveries in a fault's window although there was more to deliver.

    That is what the workload asked for; where its sends failed or hung in the window, as all of
    them do while an only pair has no master, no more than what brokers stored.
    """
    workload = figures.analysis.folder.run.workload or {}
    rates = {t["name"]: float(t.get("ratePerSecond") or 0) for t in workload.get("topics") or []}
    stored = Columns(figures.table(families.SEND_RATE))
    sent = Curve(stored.ints("second"), stored.ints("value"))
    problems = []
    for fault in report["faults"]:
        if fault["effect_ns"] is None or fault["kind"] == "NONE":
            continue
        # Silence is what such a fault is for.
        if fault["kind"] in _SILENCING or fault["name"] == "cut-clients":
            continue
        end = fault["heal_ns"] if fault["heal_ns"] is not None else report["window"]["end_ns"]
        if end is None or end <= fault["effect_ns"]:
            continue
        stalled = _sends_stalled(figures, fault["effect_ns"], end)
        for group in report["groups"]:
            until = _until_ended(report, group["group"], fault["effect_ns"], end)
            window = range(fault["effect_ns"] // NS, until // NS + 1)
            rate = sum(rates.get(topic, 0) for topic in group["topic"].split(","))
            wished = rate * (until - fault["effect_ns"]) / NS
            # A consumer without a broker asks again later than a producer: what was stored in the
            # last seconds may be delivered after them.
            most = sent.within(window[:-RESUMING_SECONDS]).total() if stalled else wished
            if min(wished, most) < MIN_WINDOW_WISHED:
                continue
            seen = sum(
                rate.within(window).total()
                for key, rate in figures.rates.items()
                if key.grp == group["group"]
            )
            if seen < MIN_WINDOW_DELIVERIES:
                problems.append(f"group {group['group']} handled {seen} messages in {fault['fid']}")
    return problems


def _sends_stalled(figures: Figures, begin_ns: int, end_ns: int) -> bool:
    """Whether sends failed or hung in a fault's window; those end a while after it, too."""
    sends = Columns(figures.table(families.SLOWEST_SENDS))
    at = sends.ints("tenth") * LATENCY_POINT_NS
    here = (at >= begin_ns) & (at <= end_ns + SEND_TIMEOUT_NS)
    late = np.flatnonzero(here & (sends.ints("value") > NS))
    results = sends.take("result", np.flatnonzero(here)).to_pylist()
    return bool(late.size) or any(each not in GOOD_RESULTS for each in results)


def _until_ended(report: Row, group: str, begin_ns: int, end_ns: int) -> int:
    """When a fault first ended members of a group in a window; the window's end if none did."""
    ended = [
        fault["effect_ns"]
        for fault in report["faults"]
        if fault["kind"] in _SILENCING
        and fault["effect_ns"] is not None
        and (fault["heal_ns"] is None or fault["heal_ns"] > begin_ns)
        # A member is called after its group, with a number.
        and group in {victim.rpartition("-")[0] for victim in fault["victims"]}
    ]
    return max(begin_ns, int(min([*ended, end_ns])))


def _rows(report: Row) -> Check:
    title, quality = "rows are readable", report["quality"]
    bad = sum(quality["dropped_rows"].values()) + quality["unknown_values"]
    rows = sum(report["evidence"]["rows"].values())
    why = f"{bad} of {rows} rows are unreadable" if bad > MAX_BAD_SHARE * rows else ""
    return _unless(why, "rows", title, 0, bad, "rows", "BAD_ROWS")


def _finished(figures: Figures) -> list[Check]:
    closed = figures.analysis.folder.closed
    why = str(closed.aborted or "") if closed else "the run was never closed"
    title = "the run came to its end"
    found = _unless(why, "finished", title, True, False, code="ABORTED")
    return [found] if why else []


def _wishes(figures: Figures) -> Sequence[Row]:
    """Expectations of the experiment, and the shorthand ``thresholds``."""
    run = figures.analysis.folder.run
    wishes: list[Row] = list(run.written.get("expect") or ())
    limits = run.thresholds or {}
    for name, metric in (
        ("maxDuplicateRatio", "totals.dup_ratio"),
        ("maxOutOfOrderFirst", "totals.ooo_first"),
    ):
        if limits.get(name) is not None:
            wishes.append({"metric": metric, "op": "<=", "value": limits[name]})
    return wishes


def _expectation(number: int, wish: Row, report: Row) -> Check:
    metric, op, value = str(wish["metric"]), str(wish["op"]), wish.get("value")
    group = wish.get("group")
    title = f"{f'{group}: ' if group else ''}{metric} {op} {'' if value is None else value}".strip()
    name = f"expect.{number}"
    if op == "within-bound":
        return _within_bound_wish(name, title, group, report)
    root: Any = report
    if group:
        mine = [row for row in report["groups"] if row["group"] == group]
        root = mine[0] if mine else {}
        metric = metric.removeprefix("totals.").removeprefix("groups.")
    seen = value_at(root, metric)
    if seen is None:
        why = f"{metric} could not be measured"
        return _unless(why, name, title, value, None, code="NO_TRAFFIC")
    test = _OPERATORS.get(op)
    if test is None:
        return _unless(f"unknown operator {op}", name, title, value, seen, code="ABORTED")
    # A decimal of a resource is a text.
    met = bool(test(seen, float(value) if isinstance(value, str) else value))
    said = "" if met else f"{metric} is {seen}, the limit is {op} {value}"
    open_ = None if {"lost", "loss"}.isdisjoint(metric.split(".")) else _loss_open(report)
    if not met and open_:
        return _unless(f"{said}, but {open_[1]}", name, title, value, seen, code=open_[0])
    return _unless(said, name, title, value, seen, otherwise=FAIL)


def _within_bound_wish(name: str, title: str, group: str | None, report: Row) -> Check:
    rows = [row for row in report["bounds"] if group in (None, row["group"])]
    if not rows:
        return Check(name, title, INCONCLUSIVE, None, None, "messages", "FAULT_NOT_PROVED",
                     "no outage was observed, so no bound applies")  # fmt: skip
    bound, observed = sum(row["bound"] for row in rows), sum(row["observed"] for row in rows)
    over = any(row["exceeded"] for row in rows)
    why = f"{observed} were re-consumed, the bound is {bound}" if over else ""
    return _unless(why, name, title, bound, observed, "messages", otherwise=FAIL)


def value_at(root: Any, path: str) -> Any:
    """The value at a dotted path; list entries by number or by their group, fid or id."""
    for part in path.split("."):
        if isinstance(root, list):
            root = _entry(root, part)
        elif isinstance(root, Mapping):
            root = root.get(part)
        else:
            return None
    return root


def _entry(rows: list[Any], part: str) -> Any:
    at = whole(part)
    if at is not None:
        return rows[at] if at < len(rows) else None
    for row in rows:
        if isinstance(row, Mapping) and part in (row.get("group"), row.get("fid"), row.get("id")):
            return row
    return None


def _without_inputs(checks: Sequence[Check]) -> list[Check]:
    """The checks, with those that a trace can't answer Inconclusive; what was found stays Fail."""
    found = list(checks)
    for at, check in enumerate(checks):
        if check.id in _NOT_IN_TRACES and check.value != FAIL:
            code, why = _NOT_IN_TRACES[check.id]
            found[at] = replace(check, value=INCONCLUSIVE, observed=None, code=code, detail=why)
    return found
