"""The unmodified Java 4.9.8 producer and push consumer on our name server and brokers."""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from failback.client.admin.admin import AdminClient
from tests.support.common.polling import SCALE, wait_until
from tests.support.java.apache import NameServer, failed_by, got_by, sent_by
from tests.support.java.java_lab import Lab
from tests.support.processes.child_process import TestProcess

TOPIC = "JavaTopic"


def acknowledged(producer: TestProcess) -> set[int]:
    return {sent.number for sent in sent_by(producer) if sent.status == "SEND_OK"}


def delivered(consumer: TestProcess) -> set[int]:
    return {got.number for got in got_by(consumer)}


@pytest.mark.sample
@pytest.mark.few(1)
@pytest.mark.parametrize("with_slave", [False, True])
def test_clients_go_on_through_kill_and_restart_of_the_master(lab: Lab, with_slave: bool) -> None:
    ns = lab.namesrv()
    quick = {"failbackTimeScale": 0.2}
    master = lab.broker("failback", ns, settings=quick)
    master.start()
    if with_slave:
        lab.broker("failback", ns, broker_id=1, role="SLAVE", settings=quick).start()
    producer = lab.program("Producer", ns, topic=TOPIC, interval=2, retries=0, timeout=1000)
    producer.wait_for("sent")  # without a route a consumer waits for its next rebalance, 20 s
    consumer = lab.program("PushConsumer", ns, topic=TOPIC)
    wait_until(lambda: len(delivered(consumer)) > 300, "300 deliveries")
    master.kill()
    wait_until(lambda: len(failed_by(producer)) > 3, "sends to fail")
    before = acknowledged(producer)
    master.start()
    wait_until(lambda: len(acknowledged(producer)) > len(before) + 300, "sends to go on")
    producer.end_input()
    sent = acknowledged(producer)
    wait_until(lambda: sent <= delivered(consumer), "every acknowledged message", seconds=60)
    consumer.end_input()
    got = got_by(consumer)
    assert not [one for one in got if one.number < 0]
    by_place = {(one.queue_id, one.queue_offset): one.number for one in got}
    assert len({one.number for one in got}) == len(set(by_place.values()))
    for one in sent_by(producer):  # what was acknowledged stands where the broker said
        assert by_place[one.queue_id, one.queue_offset] == one.number


def test_a_java_consumer_is_served_by_our_slave_alone(lab: Lab) -> None:
    ns = lab.namesrv()
    quick = {"failbackTimeScale": 0.1}
    master = lab.broker("failback", ns, settings=quick)
    slave = lab.broker("failback", ns, broker_id=1, role="SLAVE", settings=quick)
    master.start()
    slave.start()
    producer = lab.program("Producer", ns, topic=TOPIC, count=400)
    producer.wait_for("done")
    topics = slave.store / "config" / "topics.json"
    wait_until(lambda: topics.exists() and TOPIC in topics.read_text(), "the topic on the slave")
    master.kill()
    consumer = lab.program("PushConsumer", ns, topic=TOPIC)
    wait_until(lambda: delivered(consumer) == set(range(400)), "the whole backlog", 120)
    assert len(got_by(consumer)) == 400
    consumer.end_input()


def test_batches_tags_and_compressed_bodies_arrive(lab: Lab) -> None:
    ns = lab.namesrv()
    lab.broker("failback", ns).start()
    runs = itertools.count(0, 1000)
    for options in (
        {"tags": "TagA", "batch": 10},
        {"tags": "TagB", "size": 20_000},  # above 4 KiB the client compresses
        {"tags": "TagC"},
    ):
        producer = lab.program("Producer", ns, topic=TOPIC, first=next(runs), count=50, **options)
        producer.wait_for("done")
        assert failed_by(producer) == []
    consumer = lab.program("PushConsumer", ns, topic=TOPIC, sub="TagA || TagB")
    expected = set(range(50)) | set(range(1000, 1050))
    wait_until(lambda: delivered(consumer) >= expected, "the subscribed tags")
    consumer.end_input()
    assert delivered(consumer) == expected


async def test_a_failed_message_comes_again_and_then_rests(lab: Lab) -> None:
    ns = lab.namesrv()
    broker = lab.broker("failback", ns, settings={"messageDelayLevel": "1s 1s 1s"})
    broker.start()
    producer = lab.program("Producer", ns, topic=TOPIC, count=5)
    producer.wait_for("done")
    consumer = lab.program("PushConsumer", ns, topic=TOPIC, fail=1)
    wait_until(lambda: len(got_by(consumer)) == 10, "each message twice", seconds=40)
    consumer.end_input()
    times = sorted((got.number, got.reconsume_times) for got in got_by(consumer))
    assert times == [(number, again) for number in range(5) for again in (0, 1)]
    async with AdminClient([ns.address]) as admin:
        retried = await admin.max_offset(broker.address, "%RETRY%java-consumer", 0)
        assert retried == 5, "sent back to the broker, not kept at the consumer"
        assert await admin.delay_offsets(broker.address) == {3: 5}


@pytest.mark.soak
async def test_what_fails_too_often_becomes_a_dead_letter(lab: Lab) -> None:
    ns = lab.namesrv()
    broker = lab.broker("failback", ns, settings={"messageDelayLevel": "1s 1s 1s 1s"})
    broker.start()
    async with AdminClient([ns.address]) as admin:
        producer = lab.program("Producer", ns, topic=TOPIC, count=2)
        producer.wait_for("done")
        consumer = lab.program("PushConsumer", ns, topic=TOPIC, fail=99, maxReconsume=1)
        dead = "%DLQ%java-consumer"

        async def all_dead() -> bool:
            topics = await admin.all_topic_config(broker.address)
            known = dead in topics.topic_config_table
            return known and await admin.max_offset(broker.address, dead, 0) == 2

        deadline = time.monotonic() + 60 * SCALE
        while not await all_dead():
            assert time.monotonic() < deadline, "no dead letters"
            await asyncio.sleep(0.1)
        consumer.end_input()
        times = sorted((got.number, got.reconsume_times) for got in got_by(consumer))
        assert times == [(number, again) for number in range(2) for again in (0, 1)]


def test_delayed_messages_of_a_java_producer_arrive(lab: Lab) -> None:
    ns = lab.namesrv()
    lab.broker("failback", ns, settings={"messageDelayLevel": "1s 2s"}).start()
    for level in (1, 2, 9):
        first = level * 100
        lab.program("Producer", ns, topic=TOPIC, first=first, count=5, delayLevel=level).wait_for(
            "done"
        )
    consumer = lab.program("PushConsumer", ns, topic=TOPIC)
    expected = {level * 100 + number for level in (1, 2, 9) for number in range(5)}
    wait_until(lambda: delivered(consumer) == expected, "all of them")
    consumer.end_input()
    assert len(got_by(consumer)) == len(expected)


class FirstBytes:
    """Forwards to a name server and keeps what each connection sent first."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.seen: list[bytes] = []
        self._sockets: list[socket.socket] = [self._listener]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._port))
            self._sockets += [client, server]
            number = len(self.seen)
            self.seen.append(b"")
            for source, target, record in ((client, server, True), (server, client, False)):
                thread = threading.Thread(target=self._pipe, args=(source, target, record, number))
                self._threads.append(thread)
                thread.start()

    def _pipe(self, source: socket.socket, target: socket.socket, record: bool, at: int) -> None:
        try:
            while data := source.recv(65536):
                if record and len(self.seen[at]) < 9:
                    self.seen[at] += data[:9]
                target.sendall(data)
        except OSError:
            pass

    def close(self) -> None:
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join()


@contextmanager
def first_bytes(ns: NameServer) -> Iterator[FirstBytes]:
    proxy = FirstBytes(ns.port)
    try:
        yield proxy
    finally:
        proxy.close()


@pytest.mark.parametrize(("kind", "mark"), [("ROCKETMQ", 1), ("JSON", 0)])
def test_clients_with_either_header_serialization(lab: Lab, kind: str, mark: int) -> None:
    ns = lab.namesrv()
    lab.broker("failback", ns).start()
    with first_bytes(ns) as proxy:
        properties = {"rocketmq.serialize.type": kind}
        common = {"topic": TOPIC, "properties": properties, "address": proxy.address}
        producer = lab.program("Producer", ns, count=100, **common)
        producer.wait_for("done")
        consumer = lab.program("PushConsumer", ns, **common)
        wait_until(lambda: delivered(consumer) == set(range(100)), "every message")
        consumer.end_input()
        assert failed_by(producer) == []
        assert {head[4] for head in proxy.seen if len(head) > 4} == {mark}
