"""The witness: what peers of a broker see, told apart; samples; gaps that are noticed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from failback.chaos.cluster.view import Member
from failback.chaos.recorder.sampler import ALL_QUEUES, MARKER_KEY, Sampler
from failback.chaos.recorder.witness import (
    AnswerEvent,
    Event,
    OffsetEvent,
    PeerEvent,
    QueueEvent,
    RouteEvent,
    RouteWatch,
    WireWatch,
)
from failback.protocol.command import RemotingCommand
from failback.protocol.fastjson import dumps
from tests.support.chaos.fake_target import FakeTarget
from tests.support.common.polling import wait_until
from tests.support.net.fake_remoting import FakeBroker, FakeRemoting


class Rows:
    """Keeps what would be logged."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, dict[str, Any]]] = []

    def write(self, table: str, /, **columns: Any) -> int:
        self.rows.append((table, columns))
        return len(self.rows)

    def of(self, table: str) -> list[dict[str, Any]]:
        return [columns for name, columns in self.rows if name == table]


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        yield broker


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def watch(broker: FakeBroker, events: list[Event]) -> Iterator[WireWatch]:
    watch = WireWatch(broker.address, events.append)
    watch.set_window(True)
    watch.start()
    wait_until(lambda: of(events, AnswerEvent), "the first answer")
    yield watch
    watch.stop()
    assert watch.join(5)


def of(events: list[Event], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def peer_after(events: list[Event], act: Callable[[], None]) -> tuple[PeerEvent, int]:
    before = time.monotonic_ns()
    act()
    wait_until(lambda: of(events, PeerEvent), "a peer event")
    return of(events, PeerEvent)[0], before


def test_an_answer_carries_the_incarnation(watch: WireWatch, events: list[Event]) -> None:
    assert of(events, AnswerEvent)[0].boot_ms == 1_000


def test_a_fin_is_stamped_when_it_comes(
    watch: WireWatch, broker: FakeBroker, events: list[Event]
) -> None:
    event, before = peer_after(events, broker.hang_up)
    assert event.kind == "FIN"
    assert event.stamp.mono_ns >= before


def test_a_reset_is_told_from_a_fin(
    watch: WireWatch, broker: FakeBroker, events: list[Event]
) -> None:
    event, _ = peer_after(events, lambda: broker.hang_up(reset=True))
    assert event.kind == "RST"


def test_silence_is_neither(
    watch: WireWatch,
    broker: FakeBroker,
    events: list[Event],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("failback.chaos.recorder.witness.SILENCE_SECONDS", 0.6)
    event, before = peer_after(events, broker.silent.set)
    assert event.kind == "SILENCE"
    assert event.stamp.mono_ns - before >= 0.6e9
    assert len(of(events, PeerEvent)) == 1
    seen = len(of(events, AnswerEvent))
    broker.silent.clear()
    wait_until(lambda: len(of(events, AnswerEvent)) > seen, "the answer after the silence")


def test_a_return_is_seen_with_its_new_incarnation(events: list[Event]) -> None:
    with FakeBroker(boot_ms=1) as first:
        port = int(first.address.split(":")[1])
        watch = WireWatch(first.address, events.append)
        watch.set_window(True)
        watch.start()
        wait_until(lambda: of(events, AnswerEvent), "the first answer")
    wait_until(lambda: of(events, PeerEvent), "the end of the first")
    with FakeBroker(boot_ms=2, port=port):
        wait_until(lambda: of(events, AnswerEvent)[-1].boot_ms == 2, "the second")
        watch.stop()
        assert watch.join(5)


def member(address: str, role: Any = "master", store: Path | None = None) -> Member:
    return Member("pair-0", 0, "p-0", "b", 0, role, address, True, None, str(store or ""))


def sampler(broker: FakeBroker, rows: Rows, events: list[Event], target: FakeTarget) -> Sampler:
    return Sampler(
        member(broker.address),
        target=target,
        topics=["orders"],
        groups=["billing"],
        log=rows,
        listener=events.append,
        period_seconds=0.05,
    )


def test_a_sample_holds_the_run_s_groups_and_the_size_of_the_table(
    broker: FakeBroker, events: list[Event]
) -> None:
    broker.offsets = {"orders@billing": {0: 5, 1: 7}, "orders@other": {0: 1}}
    broker.queues = {"orders": {0: (0, 9), 1: (2, 8)}}
    rows = Rows()
    target = FakeTarget()
    target.files["config/consumerOffset.json"] = (b'{"offsetTable":{"orders@billing":{0:3}}}', 77)
    look = sampler(broker, rows, events, target)
    look.look()
    look.look()
    look.close()
    samples = rows.of("broker_offset_sample")
    live = [(row["grp"], row["qid"], row["off"]) for row in samples if row["source"] == "code43"]
    assert live[:3] == [("billing", 0, 5), ("billing", 1, 7), ("", ALL_QUEUES, 3)]
    assert {row["binc"] for row in samples if row["source"] == "code43"} == {1_000}
    on_disk = [row for row in samples if row["source"] == "file"]
    assert [(row["grp"], row["off"], row["file_mtime_ns"]) for row in on_disk] == [
        ("billing", 3, 77),
        ("", 1, 77),
    ]
    queues = rows.of("broker_queue_sample")
    assert [(row["qid"], row["min"], row["max"]) for row in queues[:2]] == [(0, 0, 9), (1, 2, 8)]
    assert of(events, QueueEvent)[0].queues == {("orders", 0): (0, 9), ("orders", 1): (2, 8)}


def test_the_marker_shows_a_slave_s_synchronisation_and_is_in_no_row(
    broker: FakeBroker, events: list[Event]
) -> None:
    rows = Rows()
    look = sampler(broker, rows, events, FakeTarget())
    before = time.monotonic_ns() // 1_000_000
    look.look()
    look.close()
    seen: OffsetEvent = of(events, OffsetEvent)[0]
    assert MARKER_KEY in broker.offsets
    assert seen.marker_ms is not None
    assert seen.marker_ms >= before
    assert all(row["grp"] == "" for row in rows.of("broker_offset_sample"))
    assert rows.of("broker_offset_sample")[0]["off"] == 0


def test_a_master_of_5_is_sampled_and_marked_once_it_has_the_marker_s_topic_and_group(
    broker: FakeBroker, events: list[Event]
) -> None:
    known: set[int] = set()
    commit = broker.answers[15]

    def make(code: int) -> Callable[[RemotingCommand], RemotingCommand]:
        def answer(request: RemotingCommand) -> RemotingCommand:
            known.add(code)
            return request.response(0)

        return answer

    broker.answers[15] = lambda request: (
        commit(request) if known == {17, 200} else request.response(26, "no such group")
    )
    look = sampler(broker, Rows(), events, FakeTarget())
    look.look()
    assert of(events, OffsetEvent)[0].marker_ms is None, "it is sampled without a marker"
    broker.answers |= {17: make(17), 200: make(200)}
    look.look()
    assert len(of(events, OffsetEvent)) == 2, "a refusal of both is no end of samples"
    look.close()
    again = sampler(broker, Rows(), events, FakeTarget())
    again.look()
    again.look()
    again.close()
    assert of(events, OffsetEvent)[-1].marker_ms is not None


def test_a_torn_offset_file_is_noted_and_survived(broker: FakeBroker, events: list[Event]) -> None:
    target = FakeTarget()
    target.files["config/consumerOffset.json"] = (b'{"offsetTable":{"orders@bil', 1)
    look = sampler(broker, Rows(), events, target)
    look.look()
    look.close()
    assert "consumerOffset.json" in look.notes[0]
    assert of(events, OffsetEvent)


def test_a_sample_of_a_dead_broker_is_no_sample_and_no_failure(events: list[Event]) -> None:
    with FakeBroker() as broker:
        look = sampler(broker, Rows(), events, FakeTarget())
    look.look()
    assert events == []
    assert look.samples == 1


def test_route_changes_are_rows(events: list[Event]) -> None:
    addresses = {0: "127.0.0.1:1", 1: "127.0.0.1:2"}
    shown = [{"cluster": "c", "brokerName": "b", "brokerAddrs": addresses}]
    rows = Rows()
    with FakeRemoting(
        {105: lambda r: r.response(0, body=dumps({"brokerDatas": shown}))}
    ) as nameserver:
        watch = RouteWatch(nameserver.address, "orders", rows, events.append)
        watch.look()
        watch.look()
        shown[0]["brokerAddrs"] = {1: "127.0.0.1:2"}
        watch.look()
        watch.close()
    assert [row["after"] for row in rows.of("route")] == [
        "b/0=127.0.0.1:1,b/1=127.0.0.1:2",
        "b/1=127.0.0.1:2",
    ]
    last: RouteEvent = of(events, RouteEvent)[-1]
    assert last.brokers == {"b": {1: "127.0.0.1:2"}}


def test_a_watcher_s_death_is_kept(broker: FakeBroker) -> None:
    def fail(_: Event) -> None:
        raise ZeroDivisionError

    watch = WireWatch(broker.address, fail)
    watch.start()
    assert watch.join(5)
    assert isinstance(watch.failure, ZeroDivisionError)
    assert not watch.alive
    assert threading.active_count() >= 1
