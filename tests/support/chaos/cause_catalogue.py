"""The runs of the confusion matrix: one per cause that can be provoked with real processes.

Why a run has one cause only is said beside it. Two patterns recur: consumers end in order and their
commits arrive before anything is killed, so that nothing is left uncommitted; or commits are kept
from happening (a backlog that is all in the cache of the consumer, an interval that does not come
round), so that nothing is committed.
"""

from __future__ import annotations

from typing import Any, Final

from tests.support.chaos.cause_runs import ALL, BOTH, GROUP, MASTER, MINUTES, SLAVE, CauseRun
from tests.support.chaos.outside_interventions import (
    freeze_a_member,
    reset_to_run_zero,
    send_back_as_a_stranger,
)

STEADY: Final = {"ratePerSecond": 250}
BACKLOG: Final = {"ratePerSecond": 10, "preloadMessages": 40_000}
"""4,000 messages: the slave can serve while nobody can produce."""
SENT_ONCE: Final = {"retries": 0}
"""What a killed master had stored and not answered is not sent again."""
ALL_CACHED: Final = {"ratePerSecond": 0.05, "preloadMessages": 40_000}
"""Pulled within the first second or two; after that no pull carries a commit."""
ONE_BY_ONE: Final = {"threads": 1, "pullThresholdForQueue": 64, "handler": {"meanMs": 5}}
UNCOMMITTED: Final = {"persist_offset_interval_ms": MINUTES}
HELD: Final = {"broker_suspend_max_ms": MINUTES, "pull_timeout_ms": 2 * MINUTES}
"""A pull for what is not there yet is not answered and made again, which would carry a commit."""
IN_FLIGHT: Final = {
    "threads": 400,
    "pullThresholdForQueue": 5000,
    "handler": {"meanMs": 2000, "jitterMs": 1900},
}
EVERY_LEVEL: Final = " ".join(["10s"] * 18)


def _end(fid: str, at: float, **given: Any) -> dict[str, Any]:
    """The group ends in order."""
    return {
        "id": fid,
        "fault": "kill-consumer",
        "at": at,
        "target": ALL,
        "with": {"signal": "TERM", **given},
    }


def _file(**given: Any) -> tuple[dict[str, Any], ...]:
    """The group has ended and committed; the master is killed and finds another file."""
    return (
        _end("f1", 50, restartAfter="registered:f2", restartAfterSeconds=10),
        {
            "id": "f2",
            "fault": "replace-offset-file",
            "at": 15,
            "target": MASTER,
            "with": {"after": "gone:f1", **given},
        },
    )


def _kill(fid: str, at: float, **given: Any) -> dict[str, Any]:
    return {"id": fid, "fault": "kill", "at": at, "target": MASTER, "with": given}


def _nothing(seconds: float) -> dict[str, Any]:
    return {"id": "f0", "fault": "none", "with": {"durationSeconds": seconds}}


RUNS: Final = (
    CauseRun(
        "ROLLBACK_RESTART",
        "the group ended and committed; the master was killed and found its offset file of 8 s"
        " before (`replace-offset-file older`)",
        _file(content="Older", ageSeconds=80),
        load=STEADY,
        slaves=0,
        quick=True,
    ),
    CauseRun(
        "ROLLBACK_NO_ENTRY",
        "the same with both offset files deleted (`replace-offset-file delete`)",
        _file(content="Delete"),
        load=STEADY,
        slaves=0,
    ),
    CauseRun(
        "ROLLBACK_SLAVE_ONLY_PROGRESS",
        "the group moved to the slave during `long-outage`, ended there in order, and began again"
        " when the master had returned with its old table",
        (
            _end("f1", 20, restartAfter="gone:f2", restartAfterSeconds=5),
            {
                "id": "f2",
                "fault": "long-outage",
                "at": 25,
                "target": BOTH,
                "with": {
                    "after": "gone:f1",
                    "downSeconds": 120,
                    "startOwnersSeconds": 20,
                    "minServed": 3000,
                },
            },
        ),
        load=BACKLOG,
        workload=SENT_ONCE,
        group=ONE_BY_ONE,
    ),
    CauseRun(
        "ROLLBACK_STALE_SLAVE",
        "the slave was paused while the group worked on and ended in order; the master was killed,"
        " and new consumers asked the slave",
        (
            {
                "id": "f0",
                "fault": "pause",
                "at": 10,
                "target": SLAVE,
                "with": {"durationSeconds": 80},
            },
            _end("f1", 50, restartAfter="accept:f0", restartAfterSeconds=10),
            _kill("f2", 0, after="gone:f1", downSeconds=120),
        ),
        load=BACKLOG,
        workload=SENT_ONCE,
        group=ONE_BY_ONE,
    ),
    CauseRun(
        "ROLLBACK_OVERWRITTEN",
        "as SLAVE_ONLY_PROGRESS, but the master died again once the slave had copied its old"
        " table: the slave, which had been told, answered with the copy",
        (
            _end("f1", 20, restartAfter="gone:f2", restartAfterSeconds=5),
            _kill("f2", 25, after="gone:f1", downSeconds=120),
            _end(
                "f3",
                0,
                after="slave-serving:f2",
                minServed=4000,
                restartAfter="gone:f4",
                restartAfterSeconds=10,
            ),
            _kill("f4", 5, after="slave-synced:f2", downSeconds=100),
        ),
        load=BACKLOG,
        workload=SENT_ONCE,
        group=ONE_BY_ONE,
    ),
    CauseRun(
        "TAIL_CRASH",
        "SIGKILL of a consumer that had a backlog cached and did not commit",
        ({"id": "f1", "fault": "kill-consumer", "at": 20, "target": ALL},),
        load=ALL_CACHED,
        group={"threads": 2, "pullThresholdForQueue": 5000, "handler": {"meanMs": 4}},
        switches={**UNCOMMITTED, **HELD},
        slaves=0,
        quick=True,
    ),
    CauseRun(
        "TAIL_CRASH",
        "the same for a BROADCASTING group, whose offsets are a file of its own",
        ({"id": "f1", "fault": "kill-consumer", "at": 20, "target": ALL},),
        name="tail-crash-broadcasting",
        load=ALL_CACHED,
        group={
            "threads": 2,
            "pullThresholdForQueue": 5000,
            "handler": {"meanMs": 4},
            "messageModel": "BROADCASTING",
        },
        switches=UNCOMMITTED,
        slaves=0,
    ),
    CauseRun(
        "TAIL_SHUTDOWN",
        "SIGTERM of a consumer with 900 handlers under way that it does not wait for",
        (_end("f1", 20, restartAfterSeconds=10),),
        load=ALL_CACHED,
        group={**IN_FLIGHT, "threads": 900},
        switches={**UNCOMMITTED, "drain_on_shutdown_ms": 0},
        slaves=0,
    ),
    CauseRun(
        "TAIL_REBALANCE",
        "one of two masters without slaves was killed; its queues left the route, were dropped"
        " and taken again at its return, by a consumer that had not committed",
        (_kill("f1", 20, downSeconds=120),),
        load=ALL_CACHED,
        group={"threads": 2, "pullThresholdForQueue": 5000, "handler": {"meanMs": 4}},
        switches=UNCOMMITTED,
        pairs=2,
        slaves=0,
    ),
    CauseRun(
        "TAIL_UNSUBSCRIBE",
        "the members unsubscribed with a backlog cached, of which nothing was committed, and"
        " subscribed again (`unsubscribe`)",
        (
            {
                "id": "f1",
                "fault": "unsubscribe",
                "at": 20,
                "target": {"group": GROUP},
                "with": {"durationSeconds": 60},
            },
        ),
        load=ALL_CACHED,
        group={"threads": 2, "pullThresholdForQueue": 5000, "handler": {"meanMs": 4}},
        switches=UNCOMMITTED,
        slaves=0,
    ),
    CauseRun(
        "TAIL_PULL_EXPIRED",
        "pulls were held for longer than a client believes in (`pull_expired_ms` below"
        " `broker_suspend_max_ms`), with 400 handlers under way",
        (_nothing(100),),
        load=ALL_CACHED,
        group=IN_FLIGHT,
        switches={
            **UNCOMMITTED,
            "pull_expired_ms": 30_000,
            "broker_suspend_max_ms": 60_000,
            "pull_timeout_ms": 120_000,
        },
        slaves=0,
    ),
    CauseRun(
        "OVERLAP",
        "one of two members, which had handled all and committed little, was frozen (SIGSTOP) until"
        " the broker had given its queues to the other, which began at the last commit",
        (_nothing(450),),
        load=ALL_CACHED,
        group={"threads": 2, "pullThresholdForQueue": 5000, "handler": {"meanMs": 4}},
        switches={**UNCOMMITTED, **HELD, "pull_expired_ms": MINUTES},
        members=2,
        slaves=0,
        hand=freeze_a_member,
    ),
    CauseRun(
        "OFFSET_RESET",
        "an operator reset the running group by 4 s (request code 222)",
        (_nothing(100),),
        load=STEADY,
        slaves=0,
        hand=reset_to_run_zero,
    ),
    CauseRun(
        "DELAY_REPLAY",
        "half of all handler calls asked for a retry; the master was killed before it persisted"
        " how far it had delivered the delayed copies",
        (_kill("f1", 120),),
        load={"ratePerSecond": 150},
        group={"handler": {"meanMs": 1, "failRatio": 0.5}, "maxReconsumeTimes": 1},
        workload=SENT_ONCE,
        config={"messageDelayLevel": EVERY_LEVEL, "flushDelayOffsetInterval": str(MINUTES)},
        slaves=0,
    ),
    CauseRun(
        "BROKER_COPY",
        "half of all messages were sent with a delay; the master was killed before it persisted"
        " how far it had delivered them",
        (_kill("f1", 120),),
        load={"ratePerSecond": 150, "delayLevels": {"3": 0.5}},
        workload=SENT_ONCE,
        config={"messageDelayLevel": EVERY_LEVEL, "flushDelayOffsetInterval": str(MINUTES)},
        slaves=0,
    ),
    CauseRun(
        "CONSUME_TIMEOUT",
        "handlers took three times as long as `consumeTimeout` allows (`slow-handler`)",
        (
            {
                "id": "f1",
                "fault": "slow-handler",
                "at": 10,
                "target": {"group": GROUP},
                "with": {"delayMs": 3000, "durationSeconds": 110},
            },
        ),
        load={"ratePerSecond": 110, "queues": 12},
        group={"threads": 600},
        switches={"consume_timeout_ms": 10_000},
        slaves=0,
    ),
    CauseRun(
        "SENDBACK_DUP",
        "handlers failed just when the client sent their messages back as timed out, so both"
        " send-backs of one handling were stored (a `consumeTimeout` of 2 ms, with handlers of some"
        " 4 ms, makes it common)",
        (_nothing(120),),
        load={"ratePerSecond": 400},
        group={"handler": {"meanMs": 4, "failRatio": 1.0}, "maxReconsumeTimes": 1},
        switches={"consume_timeout_ms": 20},
        slaves=0,
    ),
    CauseRun(
        "SENDBACK_ORPHAN",
        "a tool that keeps no log sent messages back for the group (request code 36)",
        (_nothing(120),),
        load=STEADY,
        slaves=0,
        hand=send_back_as_a_stranger,
    ),
    CauseRun(
        "APP_RESEND",
        "the application sent half of its messages again as new ones",
        (_nothing(60),),
        load={"ratePerSecond": 200, "resendRatio": 0.5},
        slaves=0,
        quick=True,
    ),
    CauseRun(
        "SEND_TIMEOUT_DUP",
        "sends timed out at a paused master, which stored them when it went on; the application"
        " sent the same message again",
        (
            {
                "id": "f1",
                "fault": "pause",
                "at": 10,
                "target": MASTER,
                "with": {"durationSeconds": 20},
            },
        ),
        load={"ratePerSecond": 150, "resendFailed": 4},
        slaves=0,
    ),
    CauseRun(
        "NOT_STORE_OK_RESEND",
        "SYNC_MASTER with a paused slave: stored, but not acknowledged as it was asked for, and"
        " sent to another queue",
        (
            {
                "id": "f1",
                "fault": "pause",
                "at": 10,
                "target": SLAVE,
                "with": {"durationSeconds": 40},
            },
        ),
        load={"ratePerSecond": 150},
        switches={"retry_another_broker_when_not_store_ok": True},
        workload={"sendTimeoutMs": 60_000},
        master_role="SYNC_MASTER",
    ),
)

FOREIGN: Final = (
    *("COMMIT_STALLED", "MEMBERSHIP_LOST", "COMMIT_NEVER_TAKEN", "OFFSETS_GONE"),
    *("ACK_NOT_TAKEN", "GROUP_WENT_BACK"),
)
NOT_PROVOKED: Final = {
    **dict.fromkeys(FOREIGN, "of Kafka or Redis (`tests/integration/chaos/test_compare.py`)"),
    "ROLLBACK_UNTOLD": "only an observed run names it: a run's own consumers are no Go clients",
    "CLIENT_BUG": "must never occur; none did in any run",
    "TAIL_RESET": "cannot come about: a client that ends by a reset hands nothing out any more, so"
    " what is redelivered was delivered before the reset, which is OFFSET_RESET, unless a later"
    " commit went past it, and then it is a rollback (`tests/unit/analytics/test_tail_reset.py`)",
}
"""Labels without a run, and why."""


def named(name: str) -> CauseRun:
    """The run of a name. Raises ``KeyError``."""
    return {str(run): run for run in RUNS}[name]
