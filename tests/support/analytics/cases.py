"""The 21 hand-made histories with known answers, as literal rows.

One group ``g``, broker-a, queue 0, topic T unless noted. "0/2" is broker id 0, incarnation 2.
Each function returns the rows and what every engine has to find in them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.analytics.run_builder import MS, ZERO_WALL_NS, RunBuilder

RETRY = "%RETRY%g"
DLQ = "%DLQ%g"


@dataclass(frozen=True)
class Expected:
    """What a case must give. ``distances`` and ``window`` are those of the last assignment."""

    causes: dict[str, int] = field(default_factory=dict)
    retry: int = 0
    after_success: int | None = None
    distances: tuple[int, int] | None = None
    window: tuple[int, int, int] | None = None
    offsets: dict[str, list[int]] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=dict)
    """Values at dotted paths of report.json."""

    @property
    def dup(self) -> int:
        return sum(self.causes.values())


Case = tuple[RunBuilder, Expected]
CASES: dict[str, Callable[[], Case]] = {}


def case(build: Callable[[], Case]) -> Callable[[], Case]:
    CASES[build.__name__] = build
    return build


@case
def c1() -> Case:
    b = RunBuilder("c1")
    b.assign(0, 0)
    b.run_of(range(4), 10)
    return b, Expected(report={"totals.dup": 0, "totals.delivered": 4, "totals.distinct": 4})


@case
def c2() -> Case:
    b = RunBuilder("c2")
    b.assign(0, 0, at=(0, 1), end=(300, "REBALANCE"))
    b.run_of(range(7), 10)
    b.commit(40, 2)
    b.commit(70, 5)
    b.fault("KILL", 100)
    b.fault("ACCEPT", 500)
    b.assign(600, 2, pqe=2, at=(0, 2))
    b.run_of(range(2, 9), 620, pqe=2)
    return b, Expected(
        causes={"ROLLBACK_RESTART": 3, "TAIL_REBALANCE": 2},
        offsets={"ROLLBACK_RESTART": [2, 3, 4], "TAIL_REBALANCE": [5, 6]},
        after_success=5,
        distances=(3, 5),
        window=(2, 7, 5),
        report={
            "totals.dup_ratio": 0.5556,
            "rto.0.ttfr_kill_ms": 520,
            "rto.0.ttfr_accept_ms": 120,
            "groups.0.report_groups.rollback": 3,
            "groups.0.report_groups.rebalance": 2,
        },
    )


@case
def c3() -> Case:
    b = RunBuilder("c3")
    b.assign(0, 0, end=(200, "CRASH"))
    b.run_of(range(5), 10)
    b.commit(30, 1, at=(0, 1))
    b.commit(100, 4, at=(1, 1))
    b.assign(600, 1, proc=2, pqe=1, at=(0, 2))
    b.run_of(range(1, 6), 620, proc=2)
    return b, Expected(
        causes={"ROLLBACK_SLAVE_ONLY_PROGRESS": 3, "TAIL_CRASH": 1},
        offsets={"ROLLBACK_SLAVE_ONLY_PROGRESS": [1, 2, 3], "TAIL_CRASH": [4]},
        distances=(3, 4),
    )


@case
def c4() -> Case:
    b = RunBuilder("c4")
    b.assign(0, 0)
    b.run_of(range(3), 10)
    b.deliver(3, 40)
    b.commit(35, 2)
    assert b.closed is not None
    b.closed["exits"] = {"1": {"signal": 9, "t_ns": 50 * MS}}  # the end reason is derived
    b.assign(100, 2, proc=2, at=(0, 1))
    b.run_of((2, 3), 110, proc=2)
    return b, Expected(causes={"TAIL_CRASH": 2}, after_success=1, distances=(0, 1))


@case
def c5() -> Case:
    b = RunBuilder("c5")
    b.assign(0, 0, end=(50, "REBALANCE"))
    b.deliver(0, 10, 15)
    b.deliver(1, 20, 40)
    b.assign(25, 1, proc=2)
    b.deliver(1, 30, 35, proc=2)
    return b, Expected(causes={"OVERLAP": 1}, after_success=0)


@case
def c6() -> Case:
    b = RunBuilder("c6")
    b.assign(0, 0)
    b.assign(0, 0, pqe=2, ptopic=RETRY)
    b.deliver(0, 10, 15, status="LATER")
    b.sendback(0, 16)
    b.deliver(0, 30, 35, pqe=2, topic=RETRY, lid=0, rt=1)
    b.deliver(1, 50, 55, pqe=2, topic=RETRY, lid=0, rt=1)
    return b, Expected(causes={"DELAY_REPLAY": 1}, retry=1)


@case
def c7() -> Case:
    b = RunBuilder("c7")
    b.assign(0, 0)
    b.produce(0, 0, 3, "TIMEOUT", att=1)
    b.produce(0, 4, 6, "OK", att=2)
    b.deliver(0, 10, 15, lid=0)
    b.deliver(1, 20, 25, lid=0)
    return b, Expected(
        causes={"SEND_TIMEOUT_DUP": 1},
        report={"totals.ambiguous_sends": 0, "producer.resends": 1, "producer.attempts": 2},
    )


@case
def c8() -> Case:
    b = RunBuilder("c8")
    b.assign(0, 0)
    b.produce(0, 0, 3, "TIMEOUT", att=1, ukey="U1")
    b.produce(0, 4, 6, "OK", att=2, ukey="U2")
    b.deliver(0, 10, 15, lid=0)
    b.deliver(1, 20, 25, lid=0)
    return b, Expected(causes={"APP_RESEND": 1})


@case
def c9() -> Case:
    b = RunBuilder("c9")
    b.assign(0, 0, end=(100, "REBALANCE"))
    b.run_of(range(3), 10)
    b.commit(60, 3)
    # What the broker held when it answered, as the sampler saw it: a table without our entry.
    b.sample(190, 0, binc=2, qid=-1)
    b.assign(200, 0, proc=2, at=(0, 2), src_addr="127.0.0.1:10911")
    b.run_of(range(3), 210, proc=2)
    return b, Expected(causes={"ROLLBACK_NO_ENTRY": 3})


@case
def c10() -> Case:
    b = RunBuilder("c10")
    b.assign(0, 0, end=(100, "REBALANCE"))
    b.run_of(range(4), 10)
    b.commit(60, 4)
    b.assign(110, 4, proc=2, end=(200, "REBALANCE"))
    b.commit(150, 2, proc=2)
    b.assign(210, 2, pqe=2)
    b.run_of((2, 3), 220, pqe=2)
    return b, Expected(causes={"ROLLBACK_OVERWRITTEN": 2}, offsets={"ROLLBACK_OVERWRITTEN": [2, 3]})


@case
def c11() -> Case:
    b = RunBuilder("c11")
    a, lost, skipped, absent, present, dead = range(6)
    b.assign(0, 0)
    for lid in (a, lost, skipped, dead):
        b.produce(lid, 0, 2)
    b.produce(present, 0, 3, "TIMEOUT")
    b.produce(absent, 0, 3, "TIMEOUT")
    b.deliver(0, 10, 15, lid=a)
    b.deliver(3, 20, 25, lid=dead, status="LATER")
    b.scan(0, lid=a)
    b.scan(1, lid=skipped)
    b.scan(2, lid=present)
    b.scan(3, lid=dead)
    b.scan(0, lid=dead, topic=DLQ)
    return b, Expected(
        report={
            "loss.fates": {
                "OK": 1,
                "DLQ": 1,
                "STORE_LOST": 1,
                "SKIPPED": 1,
                "FAILED_NOT_DLQ": 0,
                "UNACKED_PRESENT": 1,
                "UNACKED_ABSENT": 1,
            },
            "totals.lost": 2,
            "totals.ambiguous_sends": 2,
            "loss.examples.STORE_LOST": ["00000007-00000000001"],
        }
    )


@case
def c12() -> Case:
    b = RunBuilder("c12", ordered=True)
    b.fault("KILL", 1000)
    b.assign(0, 0)
    b.produce(0, 890, 900)
    b.produce(1, 990, 3990, "TIMEOUT")
    b.produce(1, 3990, 4000, "CONN", att=2)
    b.produce(1, 4990, 5000, "OK", att=3)
    b.produce(2, 5990, 6000, "CONN")
    b.produce(2, 20000, 20010, "OK", att=2)
    b.pull(500, 30500, "TIMEOUT")
    b.pull(31500, 31510, bid=1)
    for number, (qoff, kseq) in enumerate(((0, 1), (1, 3), (2, 2), (3, 4), (0, 1))):
        t = 32000 + 10 * number
        b.deliver(qoff, t, t + 5, okey="k", kseq=kseq)
    return b, Expected(
        causes={"CLIENT_BUG": 1},
        report={
            "rto.0.produce_ms": 19010,
            "rto.0.consume_ms.max": 30510,
            "totals.ooo_first": 1,
            "totals.ooo_replay": 1,
        },
    )


@case
def c13() -> Case:
    b = RunBuilder("c13")
    b.assign(0, 0)
    b.assign(0, 0, pqe=2, ptopic=RETRY)
    b.deliver(0, 0, 1_000_000)
    b.sendback(0, 900_000, reason="EXPIRE")
    b.deliver(0, 950_000, 950_010, pqe=2, topic=RETRY, lid=0, rt=1)
    return b, Expected(causes={"CONSUME_TIMEOUT": 1}, after_success=0)


@case
def c14() -> Case:
    b = RunBuilder("c14")
    b.assign(0, 0)
    b.deliver(0, 10, 15, status="LATER")
    b.sendback(0, 16, path="BROKER", ok=False)
    b.sendback(0, 18, path="PRODUCER", ok=False)
    b.deliver(0, 5020, 5025, rt=1)
    return b, Expected(retry=1)


@case
def c15() -> Case:
    b = RunBuilder("c15")
    b.assign(0, 0, end=(100, "SHUTDOWN"))
    b.run_of(range(4), 10)
    b.commit(30, 1)
    b.commit(60, 3)
    b.assign(200, 1, proc=2, at=(1, 1))
    b.run_of((1, 2, 3), 210, proc=2)
    return b, Expected(
        causes={"ROLLBACK_STALE_SLAVE": 2, "TAIL_SHUTDOWN": 1},
        offsets={"ROLLBACK_STALE_SLAVE": [1, 2], "TAIL_SHUTDOWN": [3]},
        distances=(2, 3),
    )


@case
def c16() -> Case:
    b = RunBuilder("c16")
    wall_ms = ZERO_WALL_NS // MS
    b.assign(0, 0, end=(100, "REBALANCE"))
    b.run_of(range(4), 10)
    b.commit(60, 4)
    b.queue_sample(50, 4, binc=wall_ms - 1000)
    b.queue_sample(150, 3, binc=wall_ms + 140)  # came back without offset 3
    b.assign(200, 3, proc=2, at=(0, 2))
    b.deliver(3, 210, 215, proc=2, lid=33, omid=333, store_ms=wall_ms + 180)
    return b, Expected(
        distances=(0, 0),
        report={
            "totals.dup": 0,
            "truncated.0.messages": 1,
            "divergence.conflicts": 0,
            "divergence.truncation_events.0.cut": 3,
            "rollbacks": [],
        },
    )


@case
def c17() -> Case:
    b = RunBuilder("c17")
    b.assign(0, 0, end=(100, "RESET"))
    b.run_of(range(3), 10)
    b.commit(60, 3)
    b.commit(90, 0, proc=80, kind="ADMIN_RESET")
    b.assign(110, 0, pqe=2)
    b.run_of(range(3), 120, pqe=2)
    return b, Expected(causes={"OFFSET_RESET": 3})


@case
def c18() -> Case:
    b = RunBuilder("c18")
    b.assign(0, 0)
    b.assign(0, 0, pqe=2, ptopic=RETRY)
    b.produce(0, 0, 3, "OK_DEGRADED", att=1)
    b.produce(0, 4, 6, "OK", att=2)
    b.deliver(0, 10, 15, lid=0)
    b.deliver(1, 20, 25, lid=0)
    b.deliver(2, 30, 35, lid=5, status="LATER")
    b.sendback(5, 36, path="BROKER")
    b.sendback(5, 38, path="PRODUCER")
    b.deliver(0, 50, 55, pqe=2, topic=RETRY, lid=5, rt=1)
    b.deliver(1, 60, 65, pqe=2, topic=RETRY, lid=5, rt=1)
    return b, Expected(causes={"NOT_STORE_OK_RESEND": 1, "SENDBACK_DUP": 1}, retry=1)


@case
def c19() -> Case:
    b = RunBuilder("c19")
    b.assign(0, 0, end=(200, "SHUTDOWN"))
    b.run_of(range(5), 10)
    b.commit(70, 5, at=(0, 1))
    b.commit(150, 5, at=(1, 1))
    b.assign(400, 3, proc=2, at=(0, 2))
    b.run_of((3, 4), 410, proc=2)
    return b, Expected(causes={"ROLLBACK_RESTART": 2})


@case
def c20() -> Case:
    b = RunBuilder("c20")
    b.assign(0, 0, end=(200, "REBALANCE"))
    b.run_of(range(4), 10)
    b.commit(60, 4, at=(0, 1))
    b.commit(150, 4, at=(0, 2))
    b.assign(160, 2, proc=2, at=(0, 2), end=(180, "REBALANCE"))
    b.commit(170, 2, proc=2, at=(0, 2))
    b.assign(210, 2, pqe=2, at=(0, 2))
    b.run_of((2, 3), 220, pqe=2)
    return b, Expected(causes={"ROLLBACK_OVERWRITTEN": 2})


@case
def c21() -> Case:
    b = RunBuilder("c21")
    b.assign(0, 0, end=(200, "CRASH"))
    b.run_of(range(5), 10)
    b.commit(50, 3, at=(0, 1))
    b.commit(100, 4, at=(1, 1))
    b.commit(150, 5, at=(0, 1), sent=False)
    b.assign(400, 1, proc=2, at=(0, 2))
    b.run_of(range(1, 5), 410, proc=2)
    return b, Expected(
        causes={"ROLLBACK_RESTART": 2, "ROLLBACK_SLAVE_ONLY_PROGRESS": 1, "TAIL_CRASH": 1},
        offsets={
            "ROLLBACK_RESTART": [1, 2],
            "ROLLBACK_SLAVE_ONLY_PROGRESS": [3],
            "TAIL_CRASH": [4],
        },
    )
