"""Producer and consumers against our own name server and broker, as processes."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from failback.client.admin.admin import AdminClient
from failback.client.consumelog.hook import LogHook
from failback.client.consumelog.reader import read_hot
from failback.client.consumelog.schema import TABLES, order
from failback.client.consumelog.writer import ConsumeLog
from failback.client.consumer.consumer import PushConsumer
from failback.client.model import ConsumeFrom, ConsumeResult, Message, SendStatus
from failback.client.producer.producer import Producer
from failback.protocol.body import MessageQueue
from failback.protocol.message import MessageExt
from failback.protocol.route import TopicConfig
from tests.support.brokers.cluster_processes import ClusterProcesses
from tests.support.common.polling import until
from tests.support.processes.child_process import ROOT, TestProcess, failback_environment

TOPIC, GROUP = "orders", "billing"
QUEUES = 4


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path / "cluster") as cluster:
        yield cluster


class Handled:
    """A handler that counts the copies it gets."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.copies: Counter[tuple[int, int]] = Counter()
        self.bodies: list[bytes] = []
        self._seconds = seconds

    async def __call__(self, messages: list[MessageExt]) -> ConsumeResult:
        for message in messages:
            self.copies[(message.queue_id, message.queue_offset)] += 1
            self.bodies.append(message.body)
        if self._seconds:
            await asyncio.sleep(self._seconds)
        return ConsumeResult.SUCCESS


async def create_topic(cluster: ClusterProcesses, topic: str = TOPIC) -> None:
    async with AdminClient([cluster.namesrv_addr]) as admin:
        await admin.create_topic(cluster.broker_addr, TopicConfig(topic, QUEUES, QUEUES))


async def stored_offsets(cluster: ClusterProcesses) -> dict[int, int]:
    async with AdminClient([cluster.namesrv_addr]) as admin:
        table = await admin.all_offsets(cluster.broker_addr)
    return table.get(f"{TOPIC}@{GROUP}", {})


def consumer(cluster: ClusterProcesses, handler: Any, **options: Any) -> PushConsumer:
    options.setdefault("consume_from", ConsumeFrom.FIRST_OFFSET)
    settings = cluster.settings(**options.pop("settings", {}))
    made = PushConsumer(GROUP, settings, handler, **options)
    made.subscribe(TOPIC)
    return made


SEND_MS = 20_000
"""A tenth of 4.9.8's three seconds, as these clients have, is short on a busy machine."""


async def send_all(producer: Producer, count: int, first: int = 0) -> None:
    """Send ``count`` numbered messages, in groups of 50 at once."""
    for begin in range(first, first + count, 50):
        await asyncio.gather(
            *(
                producer.send(Message(TOPIC, b"%d" % number), timeout_ms=SEND_MS)
                for number in range(begin, min(begin + 50, first + count))
            )
        )


async def test_what_is_sent_is_consumed_once_and_committed(cluster: ClusterProcesses) -> None:
    await create_topic(cluster)
    handled = Handled()
    async with Producer("shop", cluster.settings()) as producer:
        result = await producer.send(Message(TOPIC, b"0"))
        assert result.status is SendStatus.SEND_OK
        await send_all(producer, 199, first=1)
        big = Message(TOPIC, b"big " * 5000)  # compressed on the wire
        await producer.send(big)
        await producer.send_batch([Message(TOPIC, b"batch-%d" % n) for n in range(10)])
        member = consumer(cluster, handled)
        async with member:
            await until(lambda: len(handled.bodies) >= 211, "all messages", 30)
            assert max(handled.copies.values()) == 1
            assert sorted(handled.bodies) == sorted(
                [
                    *(b"%d" % n for n in range(200)),
                    big.body,
                    *(b"batch-%d" % n for n in range(10)),
                ]
            )
            async with AdminClient([cluster.namesrv_addr]) as admin:
                offset = await admin.max_offset(cluster.broker_addr, TOPIC, 0)
            queue = MessageQueue(TOPIC, "broker-a", 0)
            assert member.offset_store.memory(queue) == offset
    assert sum((await stored_offsets(cluster)).values()) == 211


@pytest.mark.sample
async def test_two_members_share_and_the_second_takes_over(cluster: ClusterProcesses) -> None:
    await create_topic(cluster)
    first, second = Handled(), Handled()
    one, two = consumer(cluster, first), consumer(cluster, second)
    async with Producer("shop", cluster.settings()) as producer:
        await one.start()
        await until(lambda: len(_of_topic(one)) == QUEUES, "all queues at the first member")
        await two.start()
        await until(
            lambda: len(_of_topic(one)) == len(_of_topic(two)) == QUEUES // 2, "an even split", 20
        )
        await send_all(producer, 100)
        await until(lambda: len(first.bodies) + len(second.bodies) >= 100, "all messages", 30)
        assert set(first.bodies).isdisjoint(second.bodies)
        assert first.bodies
        assert second.bodies
        await one.shutdown()
        await until(lambda: len(_of_topic(two)) == QUEUES, "the rest at the second member", 20)
        await send_all(producer, 100, first=100)
        everything = {b"%d" % number for number in range(200)}
        await until(lambda: {*first.bodies, *second.bodies} == everything, "all messages", 30)
        await two.shutdown()


def _of_topic(member: PushConsumer) -> set[MessageQueue]:
    return {queue for queue in member.held_queues if queue.topic == TOPIC}


@pytest.mark.sample
async def test_one_member_goes_on_from_memory_over_a_broker_killed_and_restarted(
    cluster: ClusterProcesses, tmp_path: Path
) -> None:
    """The master's offset file may be old; nothing asks it while the member lives: 0 duplicates."""
    await create_topic(cluster)
    handled = Handled()
    log = ConsumeLog(tmp_path / "log", run="r", proc_no=1, role="consumer", host="h")
    member = consumer(cluster, handled, hook=LogHook(log), settings={"fail_inflight_on_eof": True})
    async with Producer("shop", cluster.settings()) as producer, member:
        await send_all(producer, 300)
        await until(lambda: len(handled.copies) == 300, "the first half", 30)
        cluster.broker.kill()
        cluster.start_broker()
        sent = 0
        while sent < 300:  # the producer's connection has to be found dead first
            try:
                await send_all(producer, 50, first=300 + sent)
                sent += 50
            except Exception:
                await asyncio.sleep(0.1)
        expected = {b"%d" % number for number in range(600)}
        await until(lambda: set(handled.bodies) >= expected, "the second half", 60)
        assert max(handled.copies.values()) == 1
    log.close()
    rows = _rows(tmp_path / "log")
    assert len([row for row in rows["assign"] if row["ptopic"] == TOPIC]) == QUEUES
    assert {row["end_reason"] for row in rows["assign_end"]} == {"SHUTDOWN"}


async def test_sigkill_of_the_consumer_leaves_a_begin_row_for_every_handler_call(
    cluster: ClusterProcesses, tmp_path: Path
) -> None:
    await create_topic(cluster)
    async with Producer("shop", cluster.settings()) as producer:
        for round_number, kill_after in enumerate((5, 60, 200)):
            folder = tmp_path / f"log-{round_number}"
            folder.mkdir()
            await send_all(producer, 400)
            process = _consume_program(cluster, folder)
            process.start()
            notes = folder / "handled"
            try:
                await until(
                    lambda: notes.exists() and notes.read_bytes().count(b"\n") >= kill_after,  # noqa: B023
                    "some handler calls",
                    30,
                )
                process.kill()
            finally:
                process.dispose()
            handled = {tuple(map(int, line.split())) for line in notes.read_text().splitlines()}
            rows = _rows(folder)
            begun = {(row["qid"], row["qoff"]) for row in rows["deliver"] if row["ptopic"] == TOPIC}
            assert handled <= begun
            # A begin whose handler hadn't noted it yet: at most one per handler under way.
            assert len(begun - handled) <= 20
            ended = {row["did"] for row in rows.get("deliver_end", [])}
            assert any(row["did"] not in ended for row in rows["deliver"])


def _consume_program(cluster: ClusterProcesses, folder: Path) -> TestProcess:
    environment = failback_environment()
    environment["PYTHONPATH"] += f":{ROOT}"
    command = [
        sys.executable,
        "-m",
        "tests.integration.client.consume_program",
        cluster.namesrv_addr,
    ]
    command += [str(cluster.time_scale), GROUP, TOPIC, str(folder), "5"]
    return TestProcess("consumer", command, folder, environment=environment)


def _rows(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """All rows of the hot logs in ``folder``; ``seq`` must have no gaps."""
    names = {table.code: table.name for table in TABLES.values()}
    found: dict[str, list[dict[str, Any]]] = {}
    seq = 0
    for path in sorted(folder.glob("*.fblog")):
        for code, number, _, _, *values in read_hot(path).records:
            seq += 1
            assert number == seq
            columns = order(names[code])
            padded = [*values, *[None] * (len(columns) - len(values))]
            row = dict(zip(columns, padded, strict=True))
            found.setdefault(names[code], []).append(row)
    return found


async def test_broadcasting_members_keep_their_offsets_in_a_file(
    cluster: ClusterProcesses, tmp_path: Path
) -> None:
    await create_topic(cluster)
    handlers = [Handled(), Handled()]
    members = [
        consumer(
            cluster,
            handler,
            message_model="BROADCASTING",
            settings={"local_offset_store_dir": tmp_path / "offsets", "unit_name": f"u{number}"},
        )
        for number, handler in enumerate(handlers)
    ]
    async with Producer("shop", cluster.settings()) as producer:
        for member in members:
            await member.start()
        await send_all(producer, 40)
        for handler in handlers:
            await until(lambda: len(handler.bodies) == 40, "every message at each member", 30)  # noqa: B023
        for member in members:
            await member.shutdown()
        assert await stored_offsets(cluster) == {}
        files = list((tmp_path / "offsets").glob(f"*/{GROUP}/offsets.json"))
        assert len(files) == 2
        again = Handled()
        restarted = consumer(
            cluster,
            again,
            message_model="BROADCASTING",
            settings={"local_offset_store_dir": tmp_path / "offsets", "unit_name": "u0"},
        )
        await restarted.start()
        await send_all(producer, 10, first=40)
        await until(lambda: len(again.bodies) >= 10, "the new messages", 30)
        assert sorted(again.bodies) == sorted(b"%d" % number for number in range(40, 50))
        await restarted.shutdown()


async def test_a_failed_message_is_answered_by_the_broker_or_retried_here(
    cluster: ClusterProcesses,
) -> None:
    """Whatever the broker makes of a send-back: the message is handled again and not lost."""
    await create_topic(cluster)
    times: Counter[bytes] = Counter()

    async def handle(messages: list[MessageExt]) -> ConsumeResult:
        times[messages[0].body] += 1
        fails = messages[0].body == b"3" and times[b"3"] == 1
        return ConsumeResult.RECONSUME_LATER if fails else ConsumeResult.SUCCESS

    async with Producer("shop", cluster.settings()) as producer, consumer(cluster, handle):
        await send_all(producer, 5)
        await until(lambda: times[b"3"] == 2, "the second delivery", 30)
        assert all(times[b"%d" % number] == 1 for number in (0, 1, 2, 4))
