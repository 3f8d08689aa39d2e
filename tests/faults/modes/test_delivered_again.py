"""New copies and old commits: modes 20 to 23 of the failure modes' page."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from failback.client.instance.instance import ClientManager
from failback.client.model import ConsumeResult, Message, SendStatus
from failback.client.producer.producer import Producer
from failback.client.remoting.connection import RemotingClient
from failback.protocol.clients import HeartbeatData, ProducerData
from failback.protocol.codes import TRANSACTION_PREPARED, RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.headers import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
    SendMessageResponseHeader,
    from_ext,
)
from failback.protocol.message import UNIQ_KEY, MessageExt, parse_offset_msg_id
from tests.faults.modes.losing_proxy import LosingProxy, losing_proxy
from tests.faults.modes.mode_evidence import (
    BROKER_SCALE,
    PATIENT_SECONDS,
    Bound,
    again,
    in_file,
    offset_file,
)
from tests.faults.modes.mode_lab import ENGINES_SLOW, ModeLab, unique
from tests.support.brokers.broker_lab import send_header
from tests.support.common.polling import until
from tests.support.java.apache import Broker

GROUP = "billing"
PATIENT_MS = PATIENT_SECONDS * 1000
COMMIT = 8


@asynccontextmanager
async def killed_by_an_answer(lab: ModeLab) -> AsyncIterator[tuple[Broker, LosingProxy]]:
    """Yield a master and the proxy through which clients see it, which kills it when armed."""
    master = lab.node(settings={"failbackBindAddress": "127.0.0.2"})
    async with losing_proxy(
        master.ip, master.port, ("127.0.0.2", master.port), master.kill
    ) as proxy:
        await lab.start(master)
        yield master, proxy


async def test_a_message_whose_send_was_not_answered_is_stored_again(lab: ModeLab) -> None:
    async with killed_by_an_answer(lab) as (master, proxy):
        topic = await lab.new_topic(master)
        settings = lab.settings(send_timeout_ms=PATIENT_MS)
        retries = settings.retry_times_when_send_failed
        async with Producer("shop", settings, manager=ClientManager()) as producer:
            await producer.queues(topic)
            proxy.arm(RequestCode.SEND_MESSAGE_V2)
            sending = asyncio.create_task(producer.send(Message(topic, b"once")))
            await until(lambda: proxy.lost, "the answer that nobody gets", PATIENT_SECONDS)
            await lab.start(master)
            assert (await sending).status is SendStatus.SEND_OK
        member = await lab.consume(GROUP, topic)
        await until(lambda: len(member.got) == 2, "both copies", PATIENT_SECONDS)
        assert member.bodies == [b"once", b"once"]
        assert [got.offset for got in member.got] == [0, 1]
        Bound(21, "sends in flight · retryTimesWhenSendFailed", retries).holds(again(member))


async def test_a_message_whose_send_back_was_not_answered_is_retried_twice(lab: ModeLab) -> None:
    async with killed_by_an_answer(lab) as (master, proxy):
        topic = await lab.new_topic(master)
        keys: list[str] = []

        def fail_once(message: MessageExt) -> ConsumeResult:
            keys.append(message.properties[UNIQ_KEY])
            is_first = message.reconsume_times == 0
            return ConsumeResult.RECONSUME_LATER if is_first else ConsumeResult.SUCCESS

        member = await lab.consume(
            GROUP,
            topic,
            answer=fail_once,
            send_timeout_ms=PATIENT_MS,
            send_back_timeout_ms=PATIENT_MS,
        )
        proxy.arm(RequestCode.CONSUMER_SEND_MSG_BACK)
        await lab.send(master, topic, 1, properties="UNIQ_KEY\x010A01")
        await until(lambda: proxy.lost, "the answer that nobody gets", PATIENT_SECONDS)
        await lab.start(master)
        await until(
            lambda: len(member.got) == 3,
            "the stored copy, and the consumer's own retry",
            PATIENT_SECONDS,
        )
        assert [got.reconsume_times for got in member.got] == [0, 1, 1]
        assert set(keys) == {"0A01"}
        assert len(member.hook.of("sendback", path="BROKER", ok=False)) == 1
        Bound(20, "failing messages in flight", 1).holds(len(member.got) - 2)


# --- transactions -------------------------------------------------------------------------------


@dataclass
class TransactionProducer:
    """A producer that is asked about its transactions and does not answer."""

    lab: ModeLab
    broker: Broker
    group: str
    asked: list[CheckTransactionStateRequestHeader] = field(default_factory=list)

    async def __aenter__(self) -> TransactionProducer:
        self._client = RemotingClient(on_request=self._note)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    def _note(self, _address: str, request: RemotingCommand) -> None:
        assert request.code == RequestCode.CHECK_TRANSACTION_STATE
        self.asked.append(from_ext(CheckTransactionStateRequestHeader, request.ext_fields))

    def asked_about(self) -> set[str | None]:
        return {header.msg_id for header in self.asked}

    def asked_between(self, low: int, high: int) -> list[CheckTransactionStateRequestHeader]:
        """Return the checks of half messages stored at these queue offsets, ``high`` excluded."""
        return [header for header in self.asked if low <= header.tran_state_table_offset < high]

    async def call(self, request: RemotingCommand) -> RemotingCommand:
        answer = await self._client.invoke(self.broker.address, request, 10_000)
        assert answer.code == 0, answer.remark
        return answer

    async def heartbeat(self) -> None:
        data = HeartbeatData(unique("client"), [ProducerData(self.group)], [])
        await self.call(RemotingCommand.request(RequestCode.HEART_BEAT, body=data.to_json()))

    async def prepare(self, topic: str, key: str) -> EndTransactionRequestHeader:
        """Store a half message; return what would commit it."""
        properties = f"TRAN_MSG\x01true\x02PGROUP\x01{self.group}\x02UNIQ_KEY\x01{key}"
        header = send_header(
            topic=topic,
            properties=properties,
            sys_flag=TRANSACTION_PREPARED,
            born_timestamp=time.time_ns() // 1_000_000,
        )
        request = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, key.encode())
        answer = await self.call(request)
        found = from_ext(SendMessageResponseHeader, answer.ext_fields)
        *_, physical_offset = parse_offset_msg_id(found.msg_id)
        return EndTransactionRequestHeader(
            self.group, found.queue_offset, physical_offset, COMMIT, key
        )

    async def end(self, header: EndTransactionRequestHeader) -> None:
        await self.call(RemotingCommand.request(RequestCode.END_TRANSACTION, header))


NO_CHECKS = {"transactionTimeOut": "36000000"}
CHECKER, HALF = "CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC"


@pytest.mark.parametrize("lab", ENGINES_SLOW, indirect=True)
async def test_transactions_are_asked_about_again_and_ended_ones_are_not(lab: ModeLab) -> None:
    pace = 1.0 if lab.engine == "failback" else BROKER_SCALE
    checks = {"transactionTimeOut": str(round(20_000 * pace))}
    master = lab.node(
        settings={
            **checks,
            "transactionCheckInterval": round(6_000 * pace),
            # Offsets are persisted once, soon after the start.
            "flushConsumerOffsetInterval": 36_000_000,
        }
    )
    await lab.start(master)
    await until(offset_file(master).exists, "the first persist", PATIENT_SECONDS)
    topic = await lab.new_topic(master)
    async with TransactionProducer(lab, master, unique("bank")) as producer:
        await producer.heartbeat()
        await producer.end(await producer.prepare(topic, "ended"))
        await producer.prepare(topic, "open")
        await until(lambda: len(producer.asked) >= 2, "two checks", PATIENT_SECONDS)
        await lab.admin.update_broker_config(master.address, NO_CHECKS)
        halves = await lab.admin.max_offset(master.address, HALF, 0)
        before = halves - 2  # each check stores the half message again
        await until(lambda: len(producer.asked) == before, "the last check", PATIENT_SECONDS)
        assert producer.asked_about() == {"open"}
        assert in_file(master, CHECKER, HALF) == -1 < await lab.offset(master, CHECKER, HALF)
        master.kill()
        master.settings |= NO_CHECKS
        await lab.start(master)

        # All that was stored of the open one is asked about, copy by copy.
        await producer.heartbeat()
        await lab.admin.update_broker_config(master.address, checks)
        last = 2 * halves - 1  # each is stored again, but the ended one
        await until(
            lambda: len(producer.asked_between(halves, last)) == halves - 1,
            "checks",
            PATIENT_SECONDS,
        )
        assert producer.asked_about() == {"open"}
        Bound(22, "checks since the last persist", before).holds(
            len(producer.asked_between(halves, last)) - 1
        )
        assert await lab.admin.max_offset(master.address, topic, 0) == 1, "the ended one, once"

        # A producer that answers two of the checks commits two messages.
        for check in producer.asked_between(halves, last)[:2]:
            place = check.tran_state_table_offset, check.commit_log_offset
            await producer.end(EndTransactionRequestHeader(producer.group, *place, COMMIT, "open"))
        await lab.ends(master, topic, 3)


async def test_a_smaller_commit_counts_until_the_owner_commits_again(
    lab: ModeLab, standing: Broker
) -> None:
    group, sent, old = unique(GROUP), 20, 5
    topic = await lab.new_topic(standing)
    bodies = await lab.send(standing, topic, sent)
    first = await lab.consume(group, topic)
    await first.gets(bodies)
    await lab.offset_is(standing, group, topic, sent)
    await lab.commit(standing, group, topic, old)
    await lab.offset_is(standing, group, topic, sent)  # by the owner, within one of its periods
    await first.stop()

    # An instance that is slower to end than its successor to begin has the last word.
    await lab.commit(standing, group, topic, old)
    assert await lab.offset(standing, group, topic) == old
    second = await lab.consume(group, topic)
    await second.gets(bodies[old:])
    assert second.start.offset == old
    Bound(23, "distance to the older value", sent - old).holds(again(first, second))
    assert again(first, second) == sent - old
