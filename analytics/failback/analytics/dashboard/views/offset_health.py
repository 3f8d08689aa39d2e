"""The copies of each consumer offset, and the offset that is safe to go on from. Pure."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from failback.analytics.dashboard.sources.clusters import ClusterRef
from failback.analytics.dashboard.sources.stakes import Stake, StakesFound
from failback.analytics.dashboard.views.fleet import Json, PairSeen, Rates, Seen, pairs_of
from failback.analytics.live.facts import GroupTopic, PairFacts, user_keys
from failback.analytics.live.known import Bound
from failback.analytics.live.queues import (
    SEEN,
    GroupStake,
    QueueLineage,
    Step,
    act_or_wait,
    ahead_of,
    carry_now,
    explain_recorded,
    lineage,
    overwrite_countdown,
    reset_command,
    slave_ahead,
)
from failback.carry.restoring import restore_command
from failback.client.admin.queue_offsets import CLIENT, MASTER_FILE, MASTER_TABLE, SLAVE_TABLE, Span

ClientMemory = Mapping[tuple[str, str, int], tuple[int, str]]
"""(broker, topic, queue id): (offset, client id)."""

BEHIND: Final = "master behind slave"
FILE_BEHIND: Final = "file behind memory"
EQUAL: Final = "equal"
SLAVE_BEHIND: Final = "slave behind master"
MASTER_AWAY: Final = "master away"
BEYOND_END: Final = "beyond the end"
EXPIRED: Final = "expired"
GONE: Final = "no such queue"
OVERWRITTEN: Final = "overwritten"
NOT_KNOWN: Final = "not known"


_NOBODY: Final = {
    CLIENT: "no member of the group answered",
    MASTER_TABLE: "nobody has this role",
    MASTER_FILE: "it is not on this machine",
    SLAVE_TABLE: "nobody has this role",
}


def offset_rows(clusters: Sequence[ClusterRef], seen: Seen) -> list[Json]:
    """One row per cluster, group, topic, broker and queue; the most urgent first."""
    rows = []
    for cluster in clusters:
        for pair in pairs_of(cluster, seen):
            facts = pair.facts
            for key in user_keys([each.offsets for each in pair.brokers]):
                if facts.offsets_count(key.group):
                    rows += _rows_of(pair, facts, key)
    rows.sort(key=lambda row: (-row["ahead"], row["cluster"], row["group"], row["topic"],
                               row["broker"], row["qid"]))  # fmt: skip
    return rows


def rows_about(rows: list[Json], group: str, topic: str) -> list[Json]:
    """Those of a group and a topic; empty names mean all."""
    return [row for row in rows if group in ("", row["group"]) and topic in ("", row["topic"])]


def _rows_of(pair: PairSeen, facts: PairFacts, key: GroupTopic) -> list[Json]:
    queues = {queue for each in facts.members for queue in (each.offsets or {}).get(key, {})}
    return [_row(pair, facts, key, qid, lineage(facts, key, qid)) for qid in sorted(queues)]


def _row(pair: PairSeen, facts: PairFacts, key: GroupTopic, qid: int, found: QueueLineage) -> Json:
    """One queue. ``ahead``: what the best slave has beyond the master's memory, in messages."""
    held = {place: offset_at(found, place) for place in (MASTER_TABLE, MASTER_FILE, SLAVE_TABLE)}
    memory, file, there = held.values()
    span, safe = found.span, found.safe_offset
    odd = [each for each in (memory, there) if each is not None and span and not span.holds(each)]
    is_beyond = span is not None and any(map(span.beyond, odd))
    away = facts.master is None
    ahead = ahead_of(facts, key, qid, there) if there is not None else 0
    known = file is not None and (away or memory is not None)
    state = GONE if found.is_gone else state_of(memory, file, there, ahead=ahead, away=away)
    is_lost = not away and offset_at(found, SEEN) is not None
    if state == EQUAL and (is_lost or found.bound is not Bound.EXACT):
        state = OVERWRITTEN if is_lost else NOT_KNOWN
    return {
        "cluster": pair.cluster.key,
        "broker": pair.broker_name,
        "group": key.group,
        "topic": key.topic,
        "qid": qid,
        "master_memory": memory,
        "master_file": file,
        "slave_table": there,
        "first": None if span is None else span.first,
        "end": None if span is None else span.end,
        "outside": list(found.outside),
        "lag": None if span is None or safe is None else span.lag(safe),
        "ahead": ahead,
        "at_risk": found.after_return if known else None,
        "at_risk_on_slave": found.on_slave,
        "safe_offset": safe,
        "bound": found.bound.value,
        "state": state if away else _odd_state(span, odd) or state,
        "command": _command(pair, key, qid, safe, memory)
        if ahead or is_beyond or is_lost
        else None,
    }


def offset_at(found: QueueLineage, place: str) -> int | None:
    """The furthest at a place: of several slaves the best one counts."""
    offsets = (each.offset for each in found.steps if each.place == place)
    return max((each for each in offsets if each is not None), default=None)


def _odd_state(span: Span | None, odd: Sequence[int]) -> str:
    """The state of a queue of which a table holds an offset that it does not have."""
    if span is None or not odd:
        return ""
    return BEYOND_END if span.beyond(max(odd)) else EXPIRED


def _command(
    pair: PairSeen, key: GroupTopic, qid: int, safe: int | None, memory: int | None
) -> str | None:
    """What stores the safe offset on the master; ``None`` when it is there already.

    Never one beyond the end that the master's own log has.
    """
    master = pair.last_master
    end = None
    if master is not None and master.answered:
        end = master.ends.get(key.topic, {}).get(qid)
    if safe is not None and end is not None:
        safe = min(safe, end)
        memory = memory if memory is None or memory <= end else None
    return reset_command(
        *key, pair.broker_name, qid, safe, held=memory, namesrv=pair.cluster.namesrv
    )


def state_of(
    memory: int | None, file: int | None, slave: int | None, *, ahead: int, away: bool
) -> str:
    if away:
        return MASTER_AWAY
    if ahead:
        return BEHIND
    if memory is not None and file is not None and file < memory:
        return FILE_BEHIND
    if memory is not None and slave is not None and slave < memory:
        return SLAVE_BEHIND
    return EQUAL


def warnings(
    clusters: Sequence[ClusterRef], seen: Seen, now: float, stakes: StakesFound | None = None
) -> list[Json]:
    """Pairs whose slave has the better table, or had it and copied its master's.

    ``stakes``: what was overwritten, by pair.
    """
    found = []
    for cluster in clusters:
        for pair in pairs_of(cluster, seen):
            facts = replace(pair.facts, at=now)
            if not slave_ahead(facts):  # nearly always: then no row is made
                stake = (stakes or {}).get((cluster.key, pair.broker_name))
                if stake is not None and not stake.is_dismissed:
                    found.append(_overwritten(pair, facts, stake))
                continue
            rows = [row for key in user_keys([each.offsets or {} for each in facts.slaves])
                    if facts.offsets_count(key.group)
                    for row in _rows_of(pair, facts, key) if row["ahead"]]  # fmt: skip
            found.append(_warning(pair, facts, rows))
    return found


def _warning(pair: PairSeen, facts: PairFacts, rows: Sequence[Json]) -> Json:
    left = overwrite_countdown(facts)
    ahead: dict[str, int] = {}
    for row in rows:
        ahead[row["group"]] = ahead.get(row["group"], 0) + row["ahead"]
    command = carry_now(facts, () if facts.master is None else _named(pair))
    if facts.master is None:
        text = "The master is down. What its file knows is older than what the slave knows."
        advice = (
            "When it returns, members that are restarted repeat this much. Keep the members"
            " that run. Before it starts, type this on its host:"
        )
    elif left is not None:
        text = "The master is back with an old table, and the slave will copy it."
        advice = "Store the slave's offsets before that, of all groups at once:"
    else:
        text = "The slave's table is ahead of the master's."
        advice = "If it stays so, the slave does not copy its master. Store the better offsets:"
    return _document(pair, facts, ahead, command, left) | {"text": text, "advice": advice}


def _overwritten(pair: PairSeen, facts: PairFacts, stake: Stake) -> Json:
    groups: dict[str, int] = {}
    for key, messages in stake.messages.items():
        groups[key.group] = groups.get(key.group, 0) + messages
    command = None
    if facts.master is not None and stake.file is not None:
        command = restore_command(stake.file, broker=pair.broker_name, options=_named(pair))
    clock = time.strftime("%H:%M:%S %Z", time.localtime(stake.at))
    return _document(pair, facts, groups, command, None) | {
        "overwritten_at_ns": round(stake.at * 1e9),
        "text": f"{clock} the slave copied the old offsets.",
        "advice": "Offsets as they were, of all groups at once:",
    }


def _named(pair: PairSeen) -> tuple[str, ...]:
    """Return the option that names the cluster's name servers."""
    return ("-n", ";".join(pair.cluster.namesrv)) if pair.cluster.namesrv else ()


def _document(
    pair: PairSeen,
    facts: PairFacts,
    groups: Mapping[str, int],
    command: str | None,
    seconds_left: float | None,
) -> Json:
    is_asked = any(each.answered for each in pair.brokers)
    stakes = [
        GroupStake(group, messages, facts.group_members.get(group, 0) if is_asked else None)
        for group, messages in groups.items()
    ]
    return {
        "cluster": pair.cluster.key,
        "pair": pair.ref.name,
        "broker": pair.broker_name,
        "messages": sum(groups.values()),
        "groups": sorted(groups),
        "seconds_left": seconds_left,
        "overwritten_at_ns": None,
        "command": command,
        "lines": act_or_wait(stakes, seconds_left),
    }


def lineage_document(
    pair: PairSeen,
    key: GroupTopic,
    qid: int,
    memory: ClientMemory,
    rates: Rates,
    now: float,
) -> Json:
    """The chain from the client to the slave, each copy with value, age, and where it went down."""
    facts = replace(pair.facts, at=now)
    client = memory.get((pair.broker_name, key.topic, qid))
    found = lineage(facts, key, qid, client[0] if client else None)
    row = _row(pair, facts, key, qid, found)
    wanted = [CLIENT, MASTER_TABLE, MASTER_FILE, SLAVE_TABLE]
    wanted += [SEEN] if offset_at(found, SEEN) is not None else []
    steps = []
    for place in wanted:
        there = [each for each in found.steps if each.place == place] or [Step(place, None)]
        steps += [_step(each, client[1] if client else "", now) for each in there]
    held = {step["place"] for step in steps if step["offset"] is not None}
    return {
        **row,
        "steps": steps,
        "command": _command(pair, key, qid, found.safe_offset, row["master_memory"]),
        "recorded": explain_recorded(key, qid),
        "rate": rates.get((pair.cluster.key, pair.broker_name), {}).get(key),
        "unseen": [place for place in wanted if place not in held],
    }


def _step(step: Step, client: str, now: float) -> Json:
    holder, age = step.member, None
    if step.place == SEEN:
        what = "seen here before the master's last start"
    elif holder is None:
        what = _NOBODY[step.place] if step.offset is None else f"{client} has it in memory"
    elif step.place == MASTER_FILE:
        what = "what a killed master starts with"
        age = holder.file.age_seconds if holder.file else None
    elif not holder.answered:
        what = f"{holder.address} is silent; this is what it said last"
    else:
        what = f"{holder.address}, up for {now - holder.boot_ms / 1000:.0f} s"
        age = 0.0 if step.place == MASTER_TABLE else holder.sync_age
    return {
        "place": step.place,
        "offset": step.offset,
        "fell": step.fell,
        "what": what,
        "age_seconds": age,
    }
