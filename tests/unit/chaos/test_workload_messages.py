"""Messages of the workload: gap-free lanes, keys in order, bodies that prove themselves."""

from __future__ import annotations

import contextlib
import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.chaos.experiment.model import Workload
from failback.chaos.workload.plan import (
    BadBody,
    MessageMaker,
    ProcessPlan,
    TopicPlan,
    check_switches,
    consumer_plan,
    due_times,
    producer_plan,
    read_body,
    read_plan,
    written_plan,
)
from failback.client.consumelog.lab_id import parse_lab_id
from failback.protocol.errors import ConfigError


def topic(**changes: object) -> TopicPlan:
    base = {"name": "orders", "queues": 4, "rate_per_second": 100.0, "body_bytes": 128, "keys": 10}
    return TopicPlan(**{**base, **changes})  # type: ignore[arg-type]


@given(st.integers(0, 2**64 - 1), st.booleans(), st.integers(0, 300))
def test_lanes_and_keys_count_without_holes(seed: int, ordered: bool, count: int) -> None:
    maker = MessageMaker(topic(ordered=ordered), producer=3, seed=seed)
    lanes: dict[int, int] = {}
    keys: dict[str, int] = {}
    for _ in range(count):
        draft = maker.next()
        parsed = parse_lab_id(draft.lid)
        assert parsed is not None
        lane, sequence = parsed
        assert lane >> 16 == 3
        assert lane & 0xFFFF < 4
        assert sequence == lanes.get(lane, 0)
        lanes[lane] = sequence + 1
        assert draft.kseq == keys.get(draft.okey, 0)
        keys[draft.okey] = draft.kseq + 1
        assert read_body(draft.body) == (draft.lid, draft.okey, draft.kseq)
        assert len(draft.body) == 128


def test_a_seed_makes_the_same_messages() -> None:
    first, second, other = (MessageMaker(topic(), 0, seed) for seed in (1, 1, 2))
    assert [first.next() for _ in range(50)] == [second.next() for _ in range(50)]
    assert first.next() != [other.next() for _ in range(51)][-1]


@given(st.integers(0, 127), st.integers(1, 255))
def test_a_changed_byte_is_noticed(place: int, change: int) -> None:
    body = bytearray(MessageMaker(topic(), 0, 1).next().body)
    body[place] ^= change
    with contextlib.suppress(BadBody):
        assert read_body(bytes(body)) is None  # no longer looks like one of ours


def test_foreign_bodies_are_no_error() -> None:
    assert read_body(b"hello") is None
    assert read_body(b"a|b|c|d|e") is None


def test_a_small_limit_still_holds_the_identity() -> None:
    draft = MessageMaker(topic(body_bytes=64), 0, 1).next()
    assert read_body(draft.body) is not None


def test_due_times_are_open_loop() -> None:
    times = list(itertools.islice(due_times(topic(rate_per_second=50), 10.0), 101))
    assert times[0] == 10.0
    assert times[100] == pytest.approx(12.0)


def test_bursts_raise_the_rate_for_a_second() -> None:
    plan = topic(rate_per_second=10, burst_every_seconds=5.0, burst_factor=10.0)
    times = list(itertools.takewhile(lambda at: at < 10, due_times(plan, 0.0)))
    first = sum(at < 1 for at in times)
    quiet = sum(2 <= at < 3 for at in times)
    assert (first, quiet) == (100, 10)


PROCESS = ProcessPlan(
    run="r",
    hot=Path("/tmp/hot"),
    proc_no=1,
    proc="00" * 16,
    namesrv=("127.0.0.1:9876",),
    control=Path("/tmp/x.sock"),
    switches={"persist_interval_ms": 5, "ref_bugs": True},
)
WORKLOAD = Workload.model_validate(
    {
        "topics": (
            {
                "name": "orders",
                "ratePerSecond": 100.0,
                "preloadMessages": 10,
                "delayLevels": {"3": 0.25},
                "burst": {"everySeconds": 5.0, "factor": 2.0},
            },
        ),
        "producers": 2,
        "groups": ({"name": "billing", "topic": "orders", "members": 2},),
    }
)


def test_producers_share_the_load() -> None:
    plans = [producer_plan(PROCESS, WORKLOAD, index, time_scale=0.5) for index in (0, 1)]
    topics = [plan.topics[0] for plan in plans]
    assert [each.rate_per_second for each in topics] == [50.0, 50.0]
    assert [each.preload_messages for each in topics] == [3, 2]


def test_a_plan_is_read_as_it_was_written() -> None:
    producer = producer_plan(PROCESS, WORKLOAD, 1, time_scale=1.0)
    consumer = consumer_plan(PROCESS, WORKLOAD.groups[0], 1, delay_seconds=2.5)
    for plan in (producer, consumer):
        assert read_plan(json.loads(json.dumps(written_plan(plan)))) == plan


def test_an_unknown_switch_is_named_with_the_nearest() -> None:
    message = r'switches.drain_on_shutdown: unknown .* did you mean "drain_on_shutdown_ms"'
    with pytest.raises(ConfigError, match=message):
        check_switches({"drain_on_shutdown": 3})
