"""Where each copy of a consumer offset stands, and what is safe to go on from. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from failback.analytics.dashboard.sources.clusters import ClusterRef
from failback.analytics.dashboard.sources.observe import BrokerSeen, GroupTopic
from failback.analytics.dashboard.views.fleet import (
    Json,
    PairSeen,
    Rates,
    Seen,
    ahead_of,
    overwrite_countdown,
    pairs_of,
    slave_ahead,
    user_keys,
)

ClientMemory = Mapping[tuple[str, str, int], tuple[int, str]]
"""(broker, topic, queue id): (offset, client id)."""

BEHIND: Final = "master behind slave"
FILE_BEHIND: Final = "file behind memory"
EQUAL: Final = "equal"
SLAVE_BEHIND: Final = "slave behind master"
MASTER_AWAY: Final = "master away"


def offset_rows(clusters: Sequence[ClusterRef], seen: Seen) -> list[Json]:
    """One row per cluster, group, topic, broker and queue; what needs a person comes first."""
    rows = []
    for cluster in clusters:
        for pair in pairs_of(cluster, seen):
            tables = [each.offsets for each in pair.brokers]
            for key in user_keys(tables):
                rows += _rows_of(pair, key)
    rows.sort(key=lambda row: (-row["ahead"], row["cluster"], row["group"], row["topic"],
                               row["broker"], row["qid"]))  # fmt: skip
    return rows


def rows_about(rows: list[Json], group: str, topic: str) -> list[Json]:
    """Those of a group and a topic; empty names mean all."""
    return [row for row in rows if group in ("", row["group"]) and topic in ("", row["topic"])]


def _rows_of(pair: PairSeen, key: GroupTopic) -> list[Json]:
    queues = {queue for broker in pair.brokers for queue in broker.offsets.get(key, {})}
    return [queue_row(pair, key, queue) for queue in sorted(queues)]


def queue_row(pair: PairSeen, key: GroupTopic, qid: int) -> Json:
    """One queue. ``ahead``: what the best slave has beyond the master's memory, in messages."""
    master, slave = pair.last_master, best_slave(pair, key, qid)
    memory = offset_in(master, key, qid)
    file = _in_file(master, key, qid)
    there = offset_in(slave, key, qid)
    known = [value for value in (memory, file, there) if value is not None]
    safe = max(known, default=None)
    end = _end(pair, key.topic, qid)
    away = pair.master is None
    ahead = ahead_of(master, key, qid, there) if there is not None else 0
    return {
        "cluster": pair.cluster.key,
        "broker": pair.broker_name,
        "group": key.group,
        "topic": key.topic,
        "qid": qid,
        "master_memory": memory,
        "master_file": file,
        "slave_table": there,
        "end": end,
        "lag": None if end is None or safe is None else max(0, end - safe),
        "ahead": ahead,
        "at_risk": at_risk(memory, file, there, away=away),
        "safe_offset": safe,
        "state": state_of(memory, file, there, ahead=ahead, away=away),
        "command": set_command(pair, key, qid, safe, memory) if ahead else None,
    }


def at_risk(memory: int | None, file: int | None, slave: int | None, *, away: bool) -> int | None:
    """Messages redelivered if a new consumer asks the master after a kill at this moment."""
    if file is None:
        return None
    best = max(value for value in (memory, slave, file) if value is not None)
    return best - file if away or memory is not None else None


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


def best_slave(pair: PairSeen, key: GroupTopic, qid: int) -> BrokerSeen | None:
    return max(
        pair.slaves,
        key=lambda slave: slave.offsets.get(key, {}).get(qid, -1),
        default=None,
    )


def offset_in(broker: BrokerSeen | None, key: GroupTopic, qid: int) -> int | None:
    return None if broker is None else broker.offsets.get(key, {}).get(qid)


def _in_file(broker: BrokerSeen | None, key: GroupTopic, qid: int) -> int | None:
    if broker is None or broker.file_offsets is None:
        return None
    return broker.file_offsets.get(key, {}).get(qid)


def _end(pair: PairSeen, topic: str, qid: int) -> int | None:
    ends = [each.ends[topic, qid] for each in pair.brokers if (topic, qid) in each.ends]
    return max(ends, default=None)


def set_command(
    pair: PairSeen, key: GroupTopic, qid: int, safe: int | None, memory: int | None
) -> str | None:
    """What stores the safe offset on the master; ``None`` when it is there already."""
    if safe is None or (memory is not None and memory >= safe):
        return None
    words = [
        *("failback", "admin", "resetOffset", "--group", key.group, "--topic", key.topic),
        *("--broker", pair.broker_name, "--queue", str(qid), "--offset", str(safe)),
    ]
    if pair.cluster.namesrv:
        words += ["--namesrv", ";".join(pair.cluster.namesrv)]
    return shlex.join(words)


def warnings(clusters: Sequence[ClusterRef], seen: Seen, now: float) -> list[Json]:
    """Pairs whose slave has the better table and whose master is back, or still away."""
    found = []
    for cluster in clusters:
        for pair in pairs_of(cluster, seen):
            if not slave_ahead(pair):  # nearly always: then no row is made
                continue
            rows = [row for key in user_keys([each.offsets for each in pair.slaves])
                    for row in _rows_of(pair, key) if row["ahead"]]  # fmt: skip
            found.append(_warning(pair, rows, now))
    return found


def _warning(pair: PairSeen, rows: Sequence[Json], now: float) -> Json:
    left = overwrite_countdown(pair, now)
    messages = sum(row["ahead"] for row in rows)
    groups = sorted({row["group"] for row in rows})
    if pair.master is None:
        text = "The master is away. What its file knows is older than what the slave knows."
        advice = (
            "When it returns, members that are started anew repeat this much. Keep the members"
            " that run, or store the slave's offsets on the master as soon as it answers:"
        )
    elif left is not None:
        text = "The master is back with an old table, and the slave will copy it."
        advice = "Store the slave's offsets on the master before that:"
    else:
        text = "The slave's table is ahead of the master's."
        advice = "If it stays so, the slave does not copy its master. Store the better offsets:"
    return {
        "cluster": pair.cluster.key,
        "pair": pair.ref.name,
        "broker": pair.broker_name,
        "messages": messages,
        "groups": groups,
        "seconds_left": left,
        "text": text,
        "advice": advice,
        "commands": [row["command"] for row in rows if row["command"]],
    }


def lineage(
    pair: PairSeen,
    key: GroupTopic,
    qid: int,
    memory: ClientMemory,
    rates: Rates,
    now: float,
) -> Json:
    """The chain from the client to the slave, each copy with value, age, and where it went down."""
    row = queue_row(pair, key, qid)
    master, slave = pair.last_master, best_slave(pair, key, qid)
    client = memory.get((pair.broker_name, key.topic, qid))
    steps = [
        _step(
            "client memory",
            client[0] if client else None,
            client[1] if client else "no member of the group answered",
            None,
        ),
        _step("master, in memory", row["master_memory"], _who(master, now), 0.0),
        _step(
            "master, consumerOffset.json",
            row["master_file"],
            "what a killed master starts with",
            master.persist_age if master and master.answered else _file_age(master),
        ),
        _step("slave, in memory", row["slave_table"], _who(slave, now), _sync_age(slave)),
    ]
    best: int | None = None
    for step in steps:
        value = step["offset"]
        if value is not None:
            step["below_best"] = max(0, best - value) if best is not None else 0
            best = value if best is None else max(best, value)
    known = [step["offset"] for step in steps if step["offset"] is not None]
    safe = max(known, default=None)
    return {
        **row,
        "safe_offset": safe,
        # What the members have finished and not committed is redelivered too.
        "at_risk": row["at_risk"]
        if row["at_risk"] is None or client is None
        else max(row["at_risk"], client[0] - row["master_file"]),
        "steps": steps,
        "command": set_command(pair, key, qid, safe, row["master_memory"]),
        "rate": rates.get((pair.cluster.key, pair.broker_name, key)),
        "unseen": [step["copy"] for step in steps if step["offset"] is None],
    }


def _step(copy: str, offset: int | None, note: str, age: float | None) -> Json:
    return {"copy": copy, "offset": offset, "note": note, "age_seconds": age, "below_best": None}


def _who(broker: BrokerSeen | None, now: float) -> str:
    if broker is None:
        return "nobody has this role"
    if not broker.answered:
        return f"{broker.member.address} is silent; this is what it said last"
    return f"{broker.member.address}, up for {now - broker.boot_ms / 1000:.0f} s"


def _file_age(broker: BrokerSeen | None) -> float | None:
    return broker.file_age if broker is not None else None


def _sync_age(broker: BrokerSeen | None) -> float | None:
    return broker.sync_age if broker is not None else None


def find_pair(
    clusters: Sequence[ClusterRef], seen: Seen, cluster: str, broker: str
) -> PairSeen | None:
    """The pair of a broker name."""
    for each in clusters:
        if each.key == cluster:
            for pair in pairs_of(each, seen):
                if pair.broker_name == broker:
                    return pair
    return None
