"""What only a member that stays out has, beside the latest that is known of its master's log."""

from __future__ import annotations

import pytest

from failback.operator.planning.observed.observed import Broker, Claim, MemberView, Pod
from failback.operator.planning.state.log_ends import given_up

CHECKED_AT = 1_000.0
OUT = MemberView(
    0,
    1,
    pod=Pod("orders-0-1-0", "u", prefix="Diverged", own_end=3_382, tail_bytes=172,
            master_end=3_400, checked_at=CHECKED_AT),
)  # fmt: skip


def master(end: int | None, end_at: float | None = None, mark: int | None = None) -> MemberView:
    claim = Claim("data", "c", log_end=mark)
    return MemberView(0, 0, broker=Broker("a:1", end=end, end_at=end_at), claim=claim)


@pytest.mark.parametrize(
    ("known", "end"),
    [
        (master(0, CHECKED_AT - 5), 3_400),  # before the messages that the check saw
        (master(0, CHECKED_AT + 0.5), 3_400),  # a platform tells whole seconds
        (master(5_000, CHECKED_AT + 5), 5_000),
        (master(700, CHECKED_AT + 5), 700),  # it lost its end since
        (master(700), 700),  # an answer of this pass
        (master(None, mark=0), 3_400),
        (master(None, mark=9_000), 9_000),
    ],
)
def test_the_younger_answer_of_the_master_counts(known: MemberView, end: int) -> None:
    assert given_up(known, OUT).master == end


def test_an_old_answer_does_not_make_the_members_log_the_longer_one() -> None:
    lost = given_up(master(0, CHECKED_AT - 5), OUT)
    assert (lost.is_longer, lost.bytes) == (False, 172)
