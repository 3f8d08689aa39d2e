"""Random runs whose brokers are looked at again and again, as the recorder of a chaos run does."""

from __future__ import annotations

from random import Random

from tests.support.analytics.histories import WALL_MS, random_history
from tests.support.analytics.run_builder import MS, RunBuilder

QUEUES = (("T", 0), ("T", 1), ("%RETRY%g", 0))


def sampled_history(r: Random) -> RunBuilder:
    """A random history whose brokers were looked at, killed, replaced and asked for offsets."""
    b = random_history(r, "sampled")
    lives = {bid: _lives(b, r, bid) for bid in (0, 1)}
    for bid, found in lives.items():
        _looks(b, r, bid, found)
    for row in b.rows["assign"]:
        if row["src_bid"] is not None:
            row["src_addr"] = _addr(row["src_bid"])
            row["src_binc"] = r.choice((None, *(boot for boot, *_ in lives[row["src_bid"]])))
    _rebalances(b, r)
    _routes(b, r)
    return b


def _addr(bid: int) -> str:
    return f"127.0.0.{bid + 1}:10911"


def _lives(b: RunBuilder, r: Random, bid: int) -> list[tuple[int, int, int]]:
    """Lives of a process in ms: boot time, from, to. Most ends were seen by somebody."""
    found = []
    t = 0
    for number in range(r.randrange(1, 4)):
        end = t + r.randrange(10, 60)
        found.append((WALL_MS - 1000 if not number and not bid else WALL_MS + t, t, end))
        if r.random() < 0.8:
            fid = f"f-{bid}-{number}"
            b.fault("KILL", end, fid=fid, bid=bid, addr=_addr(bid))
            if r.random() < 0.5:
                b.fault("GONE", end + 1, fid=fid, bid=bid, addr=_addr(bid))
            if r.random() < 0.7:
                b.fault(
                    "ACCEPT", end + 6, fid=fid, bid=bid, addr=_addr(bid), boot_ms=WALL_MS + end + 5
                )
        t = end + 5
    return found


def _looks(b: RunBuilder, r: Random, bid: int, lives: list[tuple[int, int, int]]) -> None:
    known: dict[tuple[str, int], int] = {}
    ends: dict[tuple[str, int], int] = {}
    step = r.choice((1, 1, 2, 3))
    flat = r.random() < 0.3
    for boot, begin, end in lives:
        if r.random() < 0.6:  # the file that it loads is older than what it held
            for key in list(known):
                known[key] = max(0, known[key] - r.randrange(4))
                if r.random() < 0.2:
                    del known[key]
        for t in range(begin, end, step):
            if r.random() < 0.1:
                continue
            when = t + r.random() / 2
            for key in QUEUES:
                if key in known or r.random() < 0.2:
                    moved = (
                        0 if flat else r.choice((0, 1, 1, 2, -1) if r.random() < 0.1 else (0, 1))
                    )
                    known[key] = max(0, known.get(key, 0) + moved)
                    b.sample(when, known[key], bid=bid, binc=boot, ptopic=key[0], qid=key[1])
                ends[key] = max(ends.get(key, 0) + r.randrange(2), 0)
                b.queue_sample(when, ends[key], bid=bid, binc=boot, ptopic=key[0], qid=key[1])
            b.sample(when, len(known), bid=bid, binc=boot, grp="", ptopic="", qid=-1)
            if not t % 5:
                _file(b, r, bid, boot, when + 0.1, known)
        if not bid and r.random() < 0.5:
            for key in ends:
                ends[key] = max(0, ends[key] - r.randrange(3))


def _file(
    b: RunBuilder, r: Random, bid: int, boot: int, t: float, known: dict[tuple[str, int], int]
) -> None:
    for source in ("file", "bak"):
        for (topic, qid), off in known.items():
            held = max(0, off - r.randrange(3))
            b.sample(t, held, bid=bid, binc=boot, source=source, ptopic=topic, qid=qid)
        b.sample(t, 0, bid=bid, binc=boot, source=source, grp="", ptopic="", qid=-1)


def _rebalances(b: RunBuilder, r: Random) -> None:
    for proc in (1, 2, 3):
        for t in range(0, 100, r.choice((3, 7))):
            members = [f"c{number}" for number in range(r.randrange(4))]
            b.add("rebalance", proc=proc, grp="g", inc=proc, ltopic="T", t=t, trigger="TIMER",
                  members=members, queues=1, result=0)  # fmt: skip


def _routes(b: RunBuilder, r: Random) -> None:
    shown = "broker-a/0=h:1,broker-a/1=h:2"
    for _ in range(r.randrange(9)):
        after = r.choice((shown, "broker-a/1=h:2", "broker-a/0=h:1", None))
        b.add("route", proc=r.choice((1, 2, 99)), before=r.choice((None, shown)), after=after,
              trigger=r.choice(("WITNESS:ns:9876", "POLL:T")))  # fmt: skip
        b.rows["route"][-1]["mono_ns"] += r.randrange(3) * 1_000 * MS
