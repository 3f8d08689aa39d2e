"""The report of a run that was observed, not made: what returns of masters cost, and the verdict.

No fault was injected, so nothing of it is judged unless the user set a limit: the verdict is
``Observed``. It is Inconclusive where what a master came back with was not seen.

For ``knobs`` the predictor is asked about the group that may have consumed most again, with its
measured rate and backlog, the settings that its broker reported, and the time that the master was
down. No setting saves more than was re-consumed.
Settings of clients are not on the wire, so Apache's defaults are assumed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
from msgspec import UNSET

from failback.analytics.analysis.causes.attribution import PROVED
from failback.analytics.lake.lake import Lake
from failback.analytics.live.facts import is_canary
from failback.analytics.observe.canary.ledger import Ledger, with_canary
from failback.analytics.observe.canary.measured import sharpen
from failback.analytics.observe.folder import LOOKS, looks_in
from failback.analytics.observe.observation import Observation, hidden, sentences
from failback.analytics.observe.redelivery import GroupReturn, Return
from failback.analytics.observe.traced import (
    DELIVER_COLUMNS,
    NOTHING_TRACED,
    SCAN_COLUMNS,
    Deliveries,
    deliveries_of,
)
from failback.analytics.predict.faults import FAULTS
from failback.analytics.predict.knobs import rank_knobs
from failback.analytics.predict.settings import Settings
from failback.analytics.predict.sources import with_broker_config
from failback.analytics.report.checks import FAIL, INCONCLUSIVE, PASS, Check
from failback.analytics.report.checks import OBSERVED as OBSERVED_VERDICT
from failback.analytics.report.measures.forecast import knob_rows
from failback.analytics.report.measures.numbers import Row
from failback.analytics.report.outcome import NO_LIMIT
from failback.analytics.run.align import clocks_of
from failback.analytics.run.documents import OBSERVED, Limits, Observed
from failback.analytics.run.run_source import RunSource
from failback.common.times import utc
from failback.protocol.errors import ConfigError

_NAMED: Final = 5
"""So many lines that cannot be read are named."""


class Seen(NamedTuple):
    """What was observed."""

    block: Row
    """``observation`` of the report."""
    observation: Observation
    limits: Limits
    causes: pa.Table
    """Causes of traced deliveries that it proves, ``attribution.PROVED``."""
    unseen: tuple[str, ...] = ()
    """Why looks are missing."""


def observed(source: RunSource) -> Seen | None:
    """Return what was observed of an observed run; ``None`` of another.

    Raises:
        ReportInputError: Looks, or the ledger of a canary, can't be read.
    """
    run = source.folder.run
    return _seen(source, run.observed) if run.source == OBSERVED and run.observed else None


def with_observation(document: Row, seen: Seen) -> None:
    """Add what was observed to the report of an observed run, and judge it as such."""
    found = seen.block
    document["observation"] = found
    document["knobs"], why_none = observed_knobs(seen.observation)
    if not document["knobs"]:
        document["notes"]["knobs"] = why_none
    unread = seen.observation.finder.unread()
    problems = [*hidden(found, unread), *seen.unseen]
    said = sentences(found, seen.observation.zero)
    judged = [
        each
        for each in (_duplicates(found, seen.limits), _outages(found, seen.limits))
        if each is not None
    ]
    document["checks"] = [
        _check(problems, len(found["returns"]) + len(unread)),
        *(row for row, _ in judged),
    ]
    document["outcome"] = _outcome(judged)
    document["verdict"] = {
        "value": _verdict(problems, [row["value"] for row, _ in judged]),
        "sentence": " ".join(said) or "No master went and came back.",
        "reasons": [
            *(
                {"code": "EXPECT", "detail": f"{words}: {row['observed']} {row['unit']}"}
                for row, words in judged
                if row["value"] == FAIL
            ),
            *({"code": "RECORDER_GAP", "detail": each} for each in problems),
        ],
    }


def _seen(source: RunSource, asked: Observed) -> Seen:
    """What looks show, and what single deliveries that were traced or logged add to it."""
    path = source.folder.path
    ledger = Ledger.read(path)
    damaged: list[str] = []
    about = with_canary((asked.groups, asked.topics), ledger)
    observation = Observation.of(looks_in(path, damaged.append), *about)
    deliveries = _traced(source.lake)

    def counts(returned: Return, group: GroupReturn) -> dict[int, int]:
        return {} if is_canary(group.group) else deliveries.counts(returned, group)

    observation.zero = source.folder.zero_wall_ns / 1e9

    def doubles(returned: Return, group: GroupReturn) -> dict[int, int]:
        return (
            {}
            if is_canary(group.group)
            else deliveries.doubles(returned, group, observation.returns)
        )

    found = observation.document(counts, doubles)
    if asked.trace and all(map(is_canary, deliveries.groups)):
        ended, topics = round(observation.ended or 0.0, 3), ", ".join(asked.trace)
        what = f"no delivery was traced in {topics}: switch message trace on in the clients"
        found["gaps"].append(
            {"from": 0.0, "until": ended, "at": utc(observation.zero), "what": what}
        )
    if ledger is not None:
        sharpen(found, source.lake, ledger)
    causes = pa.Table.from_pylist(list(deliveries.causes(observation.returns)), PROVED)
    limits = asked.limits or Limits()
    return Seen(found, observation, limits, causes, tuple(_unseen(path, damaged, observation)))


def _unseen(path: Path, damaged: Sequence[str], observation: Observation) -> Iterator[str]:
    """Why looks are missing, a sentence each."""
    for each in damaged[:_NAMED]:
        yield f"{path / LOOKS}: {each}"
    if len(damaged) > _NAMED:
        yield f"{path / LOOKS}: {len(damaged) - _NAMED} more lines cannot be read"
    if observation.ended is None and not damaged:
        what = "has no look" if (path / LOOKS).exists() else "is missing"
        yield f"{path / LOOKS} {what}: nothing was seen; observe again into a new folder"


def _traced(lake: Lake) -> Deliveries:
    if not lake.rows("deliver"):
        return NOTHING_TRACED
    clocks = clocks_of(lake.records("clock"), 0)
    return deliveries_of(
        lake.chunks("deliver", DELIVER_COLUMNS), lake.chunks("scan", SCAN_COLUMNS), clocks
    )


def _verdict(problems: Sequence[str], values: Sequence[str]) -> str:
    if FAIL in values:
        return FAIL
    if problems:
        return INCONCLUSIVE
    return PASS if values and set(values) == {PASS} else OBSERVED_VERDICT


def _outcome(judged: Sequence[tuple[Row, str]]) -> Row:
    if not judged:
        return dict(NO_LIMIT)
    values = {row["value"] for row, _ in judged}
    met = False if FAIL in values else True if values == {PASS} else None
    return {"limit": "; ".join(words for _, words in judged), "met": met}


def _judged(spans: Sequence[tuple[float, float]], limit: float) -> str:
    """Fail if one is surely above, Pass if none can be."""
    if any(least > limit for least, _ in spans):
        return FAIL
    return PASS if all(most <= limit for _, most in spans) else INCONCLUSIVE


def _duplicates(observation: Row, limits: Limits) -> tuple[Row, str] | None:
    """``--max-duplicates``: each group at each return, in messages or in percent of consumed."""
    limit = limits.max_duplicates
    if limit is UNSET:
        return None
    is_share = limit.endswith("%")
    most = float(limit.removesuffix("%"))
    by_group: dict[tuple[int, str], list[Row]] = {}
    for number, back in enumerate(observation["returns"]):
        for row in back["groups"]:
            if is_canary(row["group"]):
                continue  # it is there to be re-consumed
            by_group.setdefault((number, row["group"]), []).append(row)
    spans = []
    for rows in by_group.values():
        lo, hi, consumed = (sum(row[name] for row in rows) for name in ("lo", "hi", "consumed"))
        per = 100 / max(1, consumed) if is_share else 1.0
        spans.append((lo * per, hi * per))
    unit = "%" if is_share else "messages"
    row = _limit_row("each group consumes at most so much again", most, spans, unit)
    return row, f"duplicates of each group at most {limit}"


def _outages(observation: Row, limits: Limits) -> tuple[Row, str] | None:
    """``--max-rto``: how long a canary's clients stood still, else how long masters were away."""
    limit = limits.max_rto
    if limit is UNSET:
        return None
    spans = [_standstill(back) or _away(back) for back in observation["returns"]]
    title, words = "no master is down for longer", "no master down for more than"
    if any(map(_standstill, observation["returns"])):
        title, words = "no client stands still for longer", "no canary stands still for more than"
    row = _limit_row(title, float(limit), spans, "seconds")
    return row, f"{words} {float(limit):g} s"


def _away(back: Row) -> tuple[float, float]:
    least = max(0.0, back["back_from"] - back["gone_until"])
    return least, back["back_until"] - back["gone_from"]


def _standstill(back: Row) -> tuple[float, float] | None:
    """How long sends or pulls of a canary stood still; ``None`` where they did not both go on."""
    found = back["recovery"] or {"produce_s": None}
    if None in found.values():
        return None
    longest = max(found.values())
    return longest, longest


def _limit_row(title: str, limit: float, spans: Sequence[tuple[float, float]], unit: str) -> Row:
    worst = max(spans, key=lambda span: span[1], default=(0.0, 0.0))
    shown = " to ".join(dict.fromkeys(f"{value:,.6g}" for value in worst))
    return Check(f"expect.{unit}", title, _judged(spans, limit), limit, shown, unit).row


def _check(problems: Sequence[str], returns: int) -> Row:
    title = "what each master came back with was seen"
    value, seen = INCONCLUSIVE if problems else PASS, returns - len(problems)
    return Check(
        "returns_seen", title, value, returns, seen, "returns", evidence=tuple(problems)
    ).row


_OURS = "failback"
"""What settings begin with that Apache's brokers don't have."""
_APACHE_LACKS = frozenset({"slaveSyncInterval"})


def observed_knobs(observation: Observation) -> tuple[list[Row], str]:
    """Return ``knobs``, and why there are none."""
    found = [
        (group.at_most, each, group)
        for each in observation.returns
        if each.outage.back is not None
        for group in each.groups
        if group.at_most and group.consumed and not is_canary(group.group)
    ]
    if not found:
        return [], "no group is known to have consumed anything again"
    _, returned, group = max(found, key=lambda each: each[0])
    try:
        rows = _ranked(observation, returned, group)
    except ConfigError as error:
        return [], str(error)
    return rows, "no setting that the predictor knows would have saved anything"


def _ranked(observation: Observation, returned: Return, group: GroupReturn) -> list[Row]:
    outage, key = returned.outage, f"{group.topic}@{group.group}"
    assert outage.back is not None
    config = observation.configs.get(outage.pair, {})
    began = observation.began or 0.0
    settings = with_broker_config(Settings(), config)
    settings = replace(
        settings,
        rate=max(0.1, group.consumed / max(1.0, outage.gone[0] - began)),
        queues=len(group.queues),
        members=max(1, group.members),
        slaves=1,
        pairs=max(1, sum(key in keys for keys in observation.first_offsets().values())),
        backlog=min(group.waiting, default=None),
        backlog_most=max(group.waiting, default=None),
    )
    plan = replace(
        FAULTS["handover" if group.owner_changed else "kill"],
        down_seconds=max(1.0, (sum(outage.back) - sum(outage.gone)) / 2),
    )
    known = [knob for knob in rank_knobs(settings, plan) if _exists(knob.key, config)]
    return knob_rows(known, group.at_most)


def _exists(key: str, config: dict[str, str]) -> bool:
    """Whether the broker has such a setting, or it is none of a broker."""
    is_ours = any(name.startswith(_OURS) for name in config)
    return is_ours or not (key.startswith(_OURS) or key in _APACHE_LACKS)
