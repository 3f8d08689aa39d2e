"""Random small histories: members, queues, commits, truncations, retries, resends, crashes."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from tests.support.analytics.run_builder import MS, ZERO_WALL_NS, RunBuilder

WALL_MS = ZERO_WALL_NS // MS
RETRY = "%RETRY%g"


def random_history(r: Random, name: str = "random", *, warmup: bool = True) -> RunBuilder:
    """A run whose rows need not make sense together; a copy keeps its identity, though."""
    b = RunBuilder(name, ordered=r.random() < 0.5, broadcasting=r.random() < 0.1)
    if warmup and r.random() < 0.3:
        b.run["warmup_end_ns"] = r.randrange(0, 60) * MS
    queues = [("T", 0), (RETRY, 0)] + ([("T", 1)] if r.random() < 0.5 else [])
    boots = _truncations(b, r)
    copies = _copies(r, queues, boots)
    holders = [(proc, pqe) for proc in (1, 2, 3) for pqe in (1, 2)]
    for proc, pqe in holders:
        if r.random() < 0.9:
            _assign(b, r, proc, pqe, *r.choice(queues))
    for _ in range(r.randrange(0, 10)):
        _commit(b, r, *r.choice(queues))
    for _ in range(r.randrange(1, 30)):
        _deliver(b, r, r.choice(copies), *r.choice(holders))
    for _ in range(r.randrange(0, 5)):
        b.sendback(
            r.randrange(6),
            r.randrange(100),
            rt_next=r.randrange(1, 3),
            reason=r.choice(("FAIL", "EXPIRE")),
            path=r.choice(("BROKER", "PRODUCER")),
            ok=r.random() < 0.8,
            proc=r.choice((1, 2, 3)),
        )
    for _ in range(r.randrange(0, 10)):
        t0 = r.randrange(100)
        b.produce(
            r.randrange(8),
            t0,
            t0 + r.randrange(5),
            r.choice(("OK", "OK", "OK_DEGRADED", "TIMEOUT", "CONN", "BROKER_ERR")),
            att=r.randrange(1, 4),
            ukey=r.choice((None, "U-a", "U-b")),
        )
    for _ in range(r.randrange(0, 8)):
        b.scan(r.randrange(8), lid=r.randrange(8), topic=r.choice(("T", RETRY, "%DLQ%g", "other")))
    assert b.closed is not None
    for proc in (1, 2):
        if r.random() < 0.2:
            b.closed["exits"][str(proc)] = {"signal": 9, "t_ns": r.randrange(120) * MS}
    return b


def random_history_seen_by_witnesses(r: Random) -> RunBuilder:
    """The same, and witnesses saw some of the members go."""
    b = random_history(r)
    for proc in (1, 2, 3):
        if r.random() < 0.4:
            named: dict[str, Any] = (
                {"proc_ref": proc.to_bytes(16, "big").hex()}
                if r.random() < 0.5
                else {"detail": json.dumps({"proc_no": proc})}
            )
            of_client: dict[str, Any] = {"addr": None, "broker": None, "bid": None}
            b.fault(
                r.choice(("CLIENT_KILL", "CLIENT_TERM", "CLIENT_START")),
                r.randrange(120),
                **{**of_client, **named},
            )
    return b


def _truncations(b: RunBuilder, r: Random) -> list[int]:
    """Sometimes a master that came back with a shorter log; its boot times."""
    b.queue_sample(1, r.randrange(8), binc=WALL_MS - 1000)
    if r.random() < 0.6:
        return []
    boots = sorted(r.sample(range(10, 90), r.randrange(1, 3)))
    for boot in boots:
        b.queue_sample(
            boot - 1,
            r.randrange(4, 9),
            binc=WALL_MS - 1000 if boot == boots[0] else WALL_MS + boots[0],
        )
        b.queue_sample(boot + r.randrange(1, 4), r.randrange(9), binc=WALL_MS + boot)
    return boots


def _copies(r: Random, queues: list[tuple[str, int]], boots: list[int]) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for topic, qid in queues:
        retry = topic == RETRY
        for qoff in range(r.randrange(1, 7)):
            for generation, since in enumerate((0, *boots)):
                if generation and r.random() < 0.6:
                    continue
                foreign = r.random() < 0.1
                lid = (
                    r.randrange(6)
                    if retry or r.random() < 0.2
                    else qoff + 10 * qid + 20 * generation
                )
                found.append(
                    {
                        "qoff": qoff,
                        "topic": topic,
                        "qid": qid,
                        "omid": qoff + 1000 * generation + (100 if r.random() < 0.02 else 0),
                        "lid": lid,
                        "rt": r.randrange(1, 3) if retry else 0,
                        "store_ms": WALL_MS + since + r.randrange(5),
                        "okey": r.choice((None, "k1", "k2")),
                        "kseq": r.choice((None, *range(6))),
                        **({"lane": None, "lseq": None, "ukey": r.choice((None, "", f"F{lid}")),
                            "keys": r.choice((None, f"K{lid}"))} if foreign else {}),
                    }
                )  # fmt: skip
    return found


def _assign(b: RunBuilder, r: Random, proc: int, pqe: int, topic: str, qid: int) -> None:
    t = r.randrange(100)
    end = None
    if r.random() < 0.7:
        reason = r.choice(
            ("REBALANCE", "CRASH", "SHUTDOWN", "RESET", "PULL_EXPIRED", "UNSUBSCRIBE")
        )
        end = (t + r.randrange(60), reason)
    at = r.choice(((0, 1), (0, 2), (1, 1), None))
    changed: dict[str, object] = {}
    if at and r.random() < 0.1:
        changed["src_binc"] = None
    b.assign(
        t,
        r.randrange(8),
        proc=proc,
        pqe=pqe,
        at=at,
        end=end,
        ptopic=topic,
        qid=qid,
        src=r.choice(("STORE", "STORE", "STORE", "NO_ENTRY", "MEMORY")),
        **changed,
    )


def _commit(b: RunBuilder, r: Random, topic: str, qid: int) -> None:
    b.commit(
        r.randrange(120),
        r.randrange(9),
        proc=r.choice((1, 2, 3)),
        at=r.choice(((0, 1), (0, 2), (1, 1), (0, None), (None, None))),
        sent=r.random() < 0.85,
        kind=r.choice(("TIMER", "TIMER", "TIMER", "PULL", "ADMIN_RESET")),
        result=r.choice((None, "OK", "SENT", "RemotingTimeout")),
        ptopic=topic,
        qid=qid,
    )


def _deliver(b: RunBuilder, r: Random, copy: dict[str, object], proc: int, pqe: int) -> None:
    bt = r.randrange(120)
    et = None if r.random() < 0.1 else bt + r.randrange(0, 20)
    status = None if et is None else r.choice(("SUCCESS", "SUCCESS", "SUCCESS", "LATER", "EXC"))
    changed = dict(copy)
    if r.random() < 0.05:
        changed["rt"] = int(str(copy["rt"])) + 1  # a local retry
    if r.random() < 0.02 and et is not None:
        et = bt - 1  # cannot be true: dropped
    b.deliver(changed.pop("qoff"), bt, et, proc=proc, pqe=pqe, status=status, **changed)  # type: ignore[arg-type]
