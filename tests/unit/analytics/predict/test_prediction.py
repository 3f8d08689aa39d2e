"""What a prediction says: seeded, split by cause, and never above its worst case."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failback.analytics.analysis.causes.labels import CAUSES
from failback.analytics.predict.faults import FAULTS, FaultPlan, Start, Stop
from failback.analytics.predict.members import _kept_share, _part
from failback.analytics.predict.prediction import draw, predict
from failback.analytics.predict.settings import Settings
from failback.analytics.predict.worst import worst_case, worst_terms
from failback.client.consumer.strategies import average
from failback.protocol.body import MessageQueue
from failback.protocol.errors import ConfigError
from tests.support.common.counts import examples

intervals = st.sampled_from([500.0, 1_000.0, 5_000.0, 7_300.0, 30_000.0])
optional_counts = st.one_of(st.none(), st.integers(0, 20_000).map(float))


@st.composite
def any_settings(draw_from: st.DrawFn) -> Settings:
    def of(strategy: st.SearchStrategy[float]) -> float:
        return draw_from(strategy)

    handler = of(st.sampled_from([0.0, 1.0, 8.0, 200.0]))
    return Settings(
        flush_consumer_offset_interval=of(intervals),
        flush_delay_offset_interval=of(intervals),
        slave_sync_interval=of(intervals),
        persist_consumer_offset_interval=of(intervals),
        poll_name_server_interval=of(intervals),
        heartbeat_broker_interval=of(intervals),
        rebalance_interval=of(intervals),
        guard_returned_offsets=draw_from(st.booleans()),
        guard_consumer_list=draw_from(st.booleans()),
        pull_batch_size=of(st.sampled_from([1.0, 32.0, 256.0])),
        pull_threshold_for_queue=of(st.sampled_from([1.0, 64.0, 1_000.0])),
        consume_threads=of(st.sampled_from([1.0, 20.0])),
        await_termination=of(st.sampled_from([0.0, 300.0, 30_000.0])),
        rate=of(st.sampled_from([0.0, 0.5, 40.0, 900.0])),
        capacity=draw_from(st.sampled_from([None, 1_500.0])),
        queues=float(draw_from(st.integers(1, 40))),
        members=float(draw_from(st.integers(1, 5))),
        slaves=float(draw_from(st.integers(0, 1))),
        pairs=float(draw_from(st.integers(1, 3))),
        backlog=draw_from(optional_counts),
        handler_ms=handler,
        handler_jitter_ms=of(st.sampled_from([0.0, 0.5])) * handler,
        delayed_rate=of(st.sampled_from([0.0, 3.0])),
        retry_rate=of(st.sampled_from([0.0, 3.0])),
        broker_uptime_seconds=draw_from(st.sampled_from([None, 4.0, 60.0])),
        client_uptime_seconds=draw_from(st.sampled_from([None, 4.0, 18.0])),
        time_scale=of(st.sampled_from([1.0, 0.1])),
    )


@st.composite
def any_fault(draw_from: st.DrawFn) -> FaultPlan:
    known = draw_from(st.sampled_from([*FAULTS.values()]))
    if draw_from(st.booleans()):
        return known
    stop = Stop(
        draw_from(st.sampled_from(["outage", "serving", "served", "return"])),
        draw_from(st.sampled_from([None, 0.5, 20.0, 90.0])),
        draw_from(st.sampled_from([1.0, 1_200.0, 1e9])),
        draw_from(st.sampled_from(["TERM", "KILL"])),
    )
    start = Start(draw_from(st.sampled_from([0.0, 5.0, 40.0])), draw_from(st.booleans()))
    down = draw_from(st.sampled_from([1.0, 12.0, 60.0, 300.0]))
    plan = replace(FAULTS["kill"], down_seconds=down, stop=stop, start=start)
    return replace(plan, slaves=draw_from(st.sampled_from([None, 0])))


@settings(max_examples=examples(200), deadline=None, derandomize=True)
@given(cluster=any_settings(), fault=any_fault(), seed=st.integers(0, 2**32))
def test_no_draw_is_above_the_worst_case(cluster: Settings, fault: FaultPlan, seed: int) -> None:
    check_worst_case(cluster, fault, seed)


@pytest.mark.soak
@settings(max_examples=10_000, deadline=None)
@given(cluster=any_settings(), fault=any_fault(), seed=st.integers(0, 2**32))
def test_no_draw_of_many_is_above(cluster: Settings, fault: FaultPlan, seed: int) -> None:
    check_worst_case(cluster, fault, seed)


def check_worst_case(cluster: Settings, fault: FaultPlan, seed: int) -> None:
    scaled, plan = cluster.scaled(), fault.scaled(cluster.time_scale)
    drawn = draw(scaled, plan, 300, seed)
    assert set(drawn) <= set(CAUSES)
    for cause, values in drawn.items():
        assert np.min(values) >= 0, cause
    terms = worst_terms(scaled, plan)
    total = np.sum([*drawn.values()], axis=0) if drawn else np.zeros(1)
    assert np.max(total) <= worst_case(terms) + 1e-6, (terms, fault)


def test_a_stop_between_the_soonest_and_the_slowest_return_has_a_worst_case() -> None:
    """The master is back after 1.7 s, at its slowest after 3.2 s; consumers are killed at 2 s."""
    cluster = Settings(time_scale=0.1, queues=1, consume_threads=1)
    stop = Stop("outage", 20.0, signal="KILL")
    fault = replace(FAULTS["kill"], down_seconds=12.0, stop=stop, start=Start(0.0))
    for seed in range(20):
        check_worst_case(cluster, fault, seed)


def test_a_clean_stop_after_the_return_repeats_nothing() -> None:
    fault = replace(FAULTS["restart-after-return"], stop=Stop("return", 1.0, signal="TERM"))
    assert predict(Settings(await_termination=30_000), fault).most == 0


def test_whether_an_owner_drops_its_queues_depends_on_what_comes_first() -> None:
    base = Settings(members=2, rate=100, backlog=0)
    drops = predict(base.with_values({"I_hb": 3_000, "I_rb": 20}), FAULTS["kill"])
    keeps = predict(base.with_values({"I_hb": 1, "I_rb": 3_000}), FAULTS["kill"])
    assert drops.causes["ROLLBACK_OVERWRITTEN"] > 0
    assert "ROLLBACK_OVERWRITTEN" not in keeps.causes


def test_an_owner_that_returns_before_others_leaves_some_of_its_queues_to_members() -> None:
    first_heartbeats = {"I_hb": 1, "I_rb": 3_000}
    three = Settings(members=3, rate=100, backlog=0).with_values(first_heartbeats)
    assert predict(three, FAULTS["kill"]).causes["ROLLBACK_OVERWRITTEN"] > 0
    # Where there is no queue for a third member, the first two have theirs whatever comes first.
    one_each = Settings(members=2, queues=2, rate=100, backlog=0).with_values(first_heartbeats)
    assert "ROLLBACK_OVERWRITTEN" not in predict(one_each, FAULTS["kill"]).causes


def test_queues_are_parted_as_clients_do_it() -> None:
    for members, queues in product(range(1, 7), range(1, 10)):
        ids = [f"client-{place}" for place in range(members)]
        all_queues = [MessageQueue("t", "b", number) for number in range(queues)]
        begin, end = _part(np.arange(members), members, queues)
        for place, client in enumerate(ids):
            mine = average(client, all_queues, ids)
            assert mine == all_queues[begin[place] : end[place]], (members, queues)


def test_the_last_to_return_is_given_all_of_its_own() -> None:
    beat = np.array([[1.0, 2.0, 3.0], [3.0, 1.0, 2.0], [2.0, 3.0, 1.0]])
    share = _kept_share(Settings(members=3, queues=8), beat, np.random.default_rng(1))
    assert share.max(axis=1).tolist() == [1, 1, 1]
    assert [row[place] for row, place in zip(share, (2, 0, 1), strict=True)] == [1, 1, 1]


def test_the_same_seed_gives_the_same_figures() -> None:
    settings_, fault = Settings(), FAULTS["handover"]
    first = predict(settings_, fault, draws=500, seed=7)
    assert predict(settings_, fault, draws=500, seed=7) == first
    assert predict(settings_, fault, draws=500, seed=8) != first


def test_causes_add_up_to_the_mean_and_the_band_is_in_order() -> None:
    for fault in FAULTS.values():
        found = predict(Settings(members=3, retry_rate=2, delayed_rate=1), fault, draws=2_000)
        assert sum(found.causes.values()) == pytest.approx(found.mean, abs=0.5)
        assert found.p5 <= found.median <= found.p95 <= found.most <= found.worst


def test_one_member_that_runs_on_repeats_nothing() -> None:
    found = predict(Settings(members=1), FAULTS["kill"])
    assert (found.mean, found.most, found.worst, dict(found.causes)) == (0, 0, 0, {})


def test_several_members_repeat_because_one_claims_every_queue() -> None:
    found = predict(Settings(members=4, rate=100, backlog=0), FAULTS["kill"])
    assert found.mean > 0
    assert set(found.causes) >= {"OVERLAP"}
    quiet = predict(
        Settings(members=4, rate=100, backlog=0, guard_consumer_list=True), FAULTS["kill"]
    )
    assert quiet.worst == 0


def test_a_claim_lasts_until_the_owners_next_rebalance() -> None:
    short = {"I_b": 0.5, "I_c": 0.5}
    base = Settings(members=2, rate=100, consume_threads=1, broker_start_seconds=0).with_values(
        short
    )
    found = predict(base.with_values({"I_rb": 30}), replace(FAULTS["kill"], down_seconds=1))
    assert 100 * (1 + 0.5 + 3 * 0.5) < found.most <= found.worst
    assert found.worst == 100 * (1 + 0.5 + 2 * 0.5 + 30) + 100 * (0.5 + 30)
    prompt = predict(base.with_values({"I_rb": 1}), replace(FAULTS["kill"], down_seconds=1))
    assert prompt.mean < found.mean / 2


def test_without_a_slave_a_topic_on_other_brokers_loses_its_queues() -> None:
    alone = predict(Settings(pairs=1), FAULTS["kill-without-slave"])
    spread = predict(Settings(pairs=2), FAULTS["kill-without-slave"])
    assert alone.worst == 0
    assert spread.causes["TAIL_REBALANCE"] > 0
    assert spread.causes["ROLLBACK_RESTART"] > 0


def test_a_clean_stop_that_lasts_into_the_return_commits_to_the_returned_master() -> None:
    fault = replace(FAULTS["handover"], stop=Stop("outage", 45.0))
    long = Settings(await_termination=30_000)  # 20 s for what is cached
    short = replace(long, pull_threshold_for_queue=64)
    assert predict(long, fault).most == 0
    assert predict(short, fault).mean > 1_000


def test_without_a_slave_no_slave_is_a_cause() -> None:
    found = predict(Settings(consume_threads=1), FAULTS["restart-without-slave"])
    assert set(found.causes) == {"ROLLBACK_RESTART", "TAIL_CRASH"}
    with_one = predict(Settings(consume_threads=1), FAULTS["restart-after-return"])
    assert with_one.causes["ROLLBACK_SLAVE_ONLY_PROGRESS"] > with_one.causes["TAIL_CRASH"]


def test_the_guard_of_returned_offsets_leaves_nothing_of_a_clean_handover_on_the_slave() -> None:
    fault = replace(FAULTS["handover"], stop=Stop("outage", 35.0))
    base = Settings(await_termination=30_000)
    assert predict(base, fault).mean > 1_000
    assert predict(replace(base, guard_returned_offsets=True), fault).most == 0


def test_a_planned_switch_repeats_less_the_more_offsets_it_carries_over() -> None:
    base = Settings(rate=200)
    means = [predict(base, FAULTS[f"switch-{policy}"]).mean for policy in ("none", "copymax")]
    assert means[0] > means[1] > 0
    still = Settings(rate=200, backlog=0)
    assert (
        predict(still, FAULTS["switch-waitsync"]).mean < predict(still, FAULTS["switch-none"]).mean
    )


def test_delayed_and_retried_messages_come_again_as_new_copies() -> None:
    found = predict(Settings(retry_rate=3, delayed_rate=1), FAULTS["delayed"])
    assert found.worst == 40  # four a second, ten seconds
    assert found.mean == pytest.approx(20, abs=0.5)
    assert set(found.causes) == {"DELAY_REPLAY", "BROKER_COPY"}


def test_a_second_kill_finds_nothing_persisted_since_the_start() -> None:
    one = predict(Settings(), replace(FAULTS["double-kill"], broker_uptime_seconds=None))
    two = predict(Settings(), FAULTS["double-kill"])
    assert two.causes["ROLLBACK_RESTART"] > 2 * one.causes["ROLLBACK_RESTART"]


def test_the_worst_case_is_the_report_s_formula() -> None:
    # A demo's report: R 340/s, D 56.072 s, both intervals 5 s, no holes, bound 22,465.
    measured = Settings(
        rate=340, queues=4, consume_threads=1, await_termination=0, broker_start_seconds=0
    )
    fault = replace(FAULTS["handover"], down_seconds=56.072, stop=Stop("serving", signal="TERM"))
    found = predict(measured, fault, draws=1)
    offsets = [term for term in found.terms if term.formula != "handlers"]
    assert [term.formula for term in offsets] == ["R·I_b", "R·D", "R·I_c"]
    assert worst_case(tuple(offsets)) == 22_465


@pytest.mark.parametrize("draws", [0, -1, 1_000_001])
def test_draws_out_of_range_are_refused(draws: int) -> None:
    with pytest.raises(ConfigError, match="--draws: must be between 1 and 1000000"):
        predict(Settings(), FAULTS["kill"], draws=draws)


@pytest.mark.parametrize(
    ("fault", "is_bounded"),
    [
        ("restart-on-slave", False),
        ("switch-none", False),
        ("switch-waitsync", False),
        ("switch-copymax", True),
        ("handover", True),
        ("restart-after-return", True),
        ("kill", True),
    ],
)
def test_what_rests_on_the_copy_of_a_slave_that_copies_nothing_has_no_bound(
    fault: str, is_bounded: bool
) -> None:
    settings = Settings(slave_copies_offsets=False)
    if is_bounded:
        assert predict(settings, FAULTS[fault], draws=10).worst >= 0
        return
    with pytest.raises(ConfigError, match=f"{fault}: a slave of Apache 5.5.0 copies no offsets"):
        predict(settings, FAULTS[fault], draws=10)
    assert predict(replace(settings, slaves=0), FAULTS["restart-on-slave"], draws=10)
