"""Hand-made runs whose messages are the same by KEYS, with the cause of each repeat by that key.

No row of them has a LAB_ID unless the case is about one: that is what a business key is for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tests.support.analytics.bad_input import clean
from tests.support.analytics.run_analysis import Analysed
from tests.support.analytics.run_builder import RunBuilder, merged


class KeyCase(NamedTuple):
    """A run, and what its one group is said of it."""

    builder: RunBuilder
    dup: int
    retry: int
    causes: dict[str, int]
    unattributed: int = 0
    inherited: int = 0


def _keyed(*, foreign: bool = True) -> RunBuilder:
    """Three messages, each delivered once, known by KEYS ``order-<n>``."""
    b = clean()
    for row in b.rows["deliver"]:
        row["keys"] = f"order-{row['lseq']}"
    return _foreign(b) if foreign else b


def _foreign(b: RunBuilder) -> RunBuilder:
    for table in ("deliver", "produce", "sendback", "scan"):
        for row in b.rows[table]:
            row["ukey"] = row.get("ukey") or f"U{row['lseq']}"
            row["lane"] = row["lseq"] = None
    return b


def sent_anew_by_the_application() -> KeyCase:
    b = _keyed(foreign=False)
    b.produce(41, 5, 6, ukey="again")
    b.deliver(3, 20, 21, lid=41, ukey="again", keys="order-1")
    return KeyCase(_foreign(b), 1, 0, {"APP_RESEND": 1})


def sent_anew_under_another_lab_id() -> KeyCase:
    b = _keyed(foreign=False)
    b.produce(41, 5, 6, ukey="again")
    b.deliver(3, 20, 21, lid=41, ukey="again", keys="order-1")
    return KeyCase(b, 1, 0, {"APP_RESEND": 1})


def sent_again_after_a_timeout() -> KeyCase:
    b = _keyed(foreign=False)
    b.produce(1, 3, 4, "TIMEOUT", att=2)
    b.deliver(3, 20, 21, lid=1, keys="order-1")
    return KeyCase(_foreign(b), 1, 0, {"SEND_TIMEOUT_DUP": 1})


def sent_again_after_a_degraded_answer() -> KeyCase:
    b = _keyed(foreign=False)
    b.produce(1, 3, 4, "OK_DEGRADED", att=1)
    b.produce(1, 5, 6, att=2)
    b.deliver(3, 20, 21, lid=1, keys="order-1")
    return KeyCase(_foreign(b), 1, 0, {"NOT_STORE_OK_RESEND": 1})


def stored_twice_by_the_broker() -> KeyCase:
    b = _keyed(foreign=False)
    b.deliver(3, 20, 21, lid=1, keys="order-1")
    return KeyCase(_foreign(b), 1, 0, {"BROKER_COPY": 1})


def sent_by_somebody_who_keeps_no_log() -> KeyCase:
    """One of the two sends is not known, so neither is why there were two."""
    b = _keyed(foreign=False)
    b.deliver(3, 20, 21, lid=41, ukey="unknown", keys="order-1")
    return KeyCase(_foreign(b), 1, 0, {}, unattributed=1)


def _failed_and_retried(*backs: dict[str, Any]) -> RunBuilder:
    b = _keyed(foreign=False)
    b.produce(8, 3, 4)
    b.deliver(3, 20, 21, lid=8, status="LATER", keys="order-8")
    for at, more in enumerate(backs):
        b.sendback(8, 22 + at, **more)
    b.deliver(0, 30, 31, lid=8, rt=1, topic="%RETRY%g", keys="order-8")
    b.deliver(1, 40, 41, lid=8, rt=1, topic="%RETRY%g", keys="order-8")
    return b


def sent_back_twice() -> KeyCase:
    b = _failed_and_retried({}, {"path": "CLIENT"})
    return KeyCase(_foreign(b), 1, 1, {"SENDBACK_DUP": 1})


def sent_back_once_and_delayed_twice() -> KeyCase:
    return KeyCase(_foreign(_failed_and_retried({})), 1, 1, {"DELAY_REPLAY": 1})


def sent_back_because_it_took_too_long() -> KeyCase:
    b = _keyed(foreign=False)
    b.produce(8, 3, 4)
    b.deliver(3, 20, 100, lid=8, keys="order-8")
    b.sendback(8, 50, reason="EXPIRE")
    b.deliver(0, 60, 61, lid=8, rt=1, topic="%RETRY%g", keys="order-8")
    return KeyCase(_foreign(b), 1, 0, {"CONSUME_TIMEOUT": 1})


def sent_back_by_nobody_known() -> KeyCase:
    b = _keyed(foreign=False)
    b.produce(8, 3, 4)
    b.deliver(3, 20, 21, lid=8, keys="order-8")
    b.deliver(0, 60, 61, lid=8, rt=1, topic="%RETRY%g", keys="order-8")
    return KeyCase(_foreign(b), 1, 0, {"SENDBACK_ORPHAN": 1})


def sent_anew_and_then_retried() -> KeyCase:
    """The second send is the application's; that its handling failed makes the retry its echo."""
    b = _keyed(foreign=False)
    b.produce(41, 5, 6, ukey="again")
    b.deliver(3, 20, 21, lid=41, ukey="again", keys="order-1", status="LATER")
    b.sendback(41, 22, ukey="again")
    b.deliver(0, 30, 31, lid=41, ukey="again", rt=1, topic="%RETRY%g", keys="order-1")
    b.sendback(41, 32, ukey="again", rt_next=1, path="CLIENT")
    b.deliver(1, 40, 41, lid=41, ukey="again", rt=1, topic="%RETRY%g", keys="order-1")
    return KeyCase(_foreign(b), 2, 1, {"APP_RESEND": 2}, inherited=1)


def together(cases: Sequence[KeyCase]) -> RunBuilder:
    """Case i as group ``g<i>`` of one run, with KEYS as they are and UNIQ_KEYs of its own."""
    for number, case in enumerate(cases):
        for table in ("deliver", "produce", "sendback"):
            for row in case.builder.rows[table]:
                row["ukey"] = f"{number}-{row['ukey']}"
    return merged([case.builder for case in cases])


def assert_caused(analysis: Analysed, cases: Sequence[KeyCase]) -> None:
    """The repeats of :func:`together` have the causes that the cases say."""
    rows = [row for row in analysis.rows.to_pylist() if row["cls"] == "DUP"]
    for number, case in enumerate(cases):
        found = Counter(row["cause"] for row in rows if row["grp"] == f"g{number}")
        assert found.pop(None, 0) == case.unattributed, number
        assert found == case.causes, number


CASES: dict[str, Callable[[], KeyCase]] = {
    case.__name__: case
    for case in (
        sent_anew_by_the_application,
        sent_anew_under_another_lab_id,
        sent_again_after_a_timeout,
        sent_again_after_a_degraded_answer,
        stored_twice_by_the_broker,
        sent_by_somebody_who_keeps_no_log,
        sent_back_twice,
        sent_back_once_and_delayed_twice,
        sent_back_because_it_took_too_long,
        sent_back_by_nobody_known,
        sent_anew_and_then_retried,
    )
}
