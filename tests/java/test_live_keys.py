"""Live keys change what a running broker does, in both engines alike."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import nullcontext

import pytest

from failback.operator.engines.catalogue import config_keys
from failback.protocol.codes import ResponseCode
from failback.protocol.errors import BrokerError
from tests.support.brokers.request_client import SENT, STORED, Asker, asker
from tests.support.common.polling import SCALE
from tests.support.java.apache import Broker, Engine, server_home
from tests.support.java.java_lab import Lab

FAR = str(2**62)
WHILE_MS = 2_000 * SCALE
"""How long a broker that holds a pull for an hour is listened to."""
AFTER_MS = 60_000 * SCALE


@pytest.fixture(scope="module", params=["failback", "apache"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    engine: Engine = request.param
    lab = Lab(tmp_path_factory.mktemp(engine))
    try:
        server_home()
        found = lab.broker(engine, lab.namesrv())
        found.start()
        yield found
    finally:
        lab.dispose()


# --- questions: what is done, and what of the answer counts ---------------------------------------


async def count(ask: Asker, turn: str) -> object:
    return (await ask.pull()).messages


async def count_from_disk(ask: Asker, turn: str) -> object:
    """Pull while the broker takes everything for older than its memory."""
    await ask.set(accessMessageInMemoryMaxRatio="0")
    found = await ask.pull()
    await ask.set(accessMessageInMemoryMaxRatio="40")
    return found.messages


async def suggested(ask: Asker, turn: str) -> object:
    """Pull one of several messages: a slow consumer is sent to the slave."""
    return (await ask.pull(most=1)).suggested


async def suggested_when_slow(ask: Asker, turn: str) -> object:
    await ask.set(accessMessageInMemoryMaxRatio="0")
    found = await suggested(ask, turn)
    await ask.set(accessMessageInMemoryMaxRatio="40")
    return found


async def pull_of_a_new_group(ask: Asker, turn: str) -> object:
    found = await ask.pull(f"group-{turn}")
    return found.code, found.messages


async def send(ask: Asker, turn: str) -> object:
    return (await ask.send(SENT)).code


async def trace_switch(ask: Asker, turn: str) -> object:
    return ((await ask.send(SENT)).ext_fields or {}).get("TRACE_ON")


Question = Callable[[Asker, str], Awaitable[object]]
BEHAVIOUR: dict[tuple[str, str], tuple[Question, object, object]] = {
    # key and value: the question, its answer before, its answer after
    ("accessMessageInMemoryMaxRatio", "0"): (suggested, 0, 1),
    ("autoCreateSubscriptionGroup", "false"): (
        pull_of_a_new_group,
        (ResponseCode.SUCCESS, STORED),
        (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, 0),
    ),
    ("maxTransferBytesOnMessageInDisk", "1"): (count_from_disk, STORED, 1),
    ("maxTransferBytesOnMessageInMemory", "1"): (count, STORED, 1),
    ("maxTransferCountOnMessageInDisk", "2"): (count_from_disk, STORED, 2),
    ("maxTransferCountOnMessageInMemory", "1"): (count, STORED, 1),
    ("slaveReadEnable", "false"): (suggested_when_slow, 1, 0),
    ("startAcceptSendRequestTimeStamp", FAR): (
        send,
        ResponseCode.SUCCESS,
        ResponseCode.SYSTEM_ERROR,
    ),
    ("traceOn", "false"): (trace_switch, "true", "false"),
}


@pytest.mark.parametrize(("key", "value"), BEHAVIOUR, ids=lambda item: str(item)[:40])
async def test_a_live_key_changes_what_a_running_broker_does(
    broker: Broker, key: str, value: str
) -> None:
    assert config_keys()[key].change == "live"
    question, first, second = BEHAVIOUR[key, value]
    async with asker(broker.address) as ask:
        before = (await ask.admin.broker_config(broker.address))[key]
        found = [await question(ask, f"{key}-a")]
        await ask.set(**{key: value})
        found.append(await question(ask, f"{key}-b"))
        await ask.set(**{key: before})
        found.append(await question(ask, f"{key}-c"))
    assert found == [first, second, first]


async def test_without_long_polling_a_pull_at_the_end_is_answered_soon(broker: Broker) -> None:
    async with asker(broker.address) as ask:
        try:
            assert await ask.is_held(WHILE_MS)
            await ask.set(longPollingEnable="false")
            assert not await ask.is_held(AFTER_MS)
            await ask.set(shortPollingTimeMills=FAR)
            assert await ask.is_held(WHILE_MS)
        finally:
            await ask.set(longPollingEnable="true", shortPollingTimeMills="1000")
        assert await ask.is_held(WHILE_MS)


async def test_a_permission_is_announced_at_once(broker: Broker) -> None:
    """Topics without an order are still written to: clients stay away because of the route."""
    async with asker(broker.address, broker.namesrv) as ask:
        for permission in (4, 6):
            await ask.set(brokerPermission=str(permission))
            for _ in range(200):
                route = await ask.admin.route(SENT)
                if [queue.perm for queue in route.queue_datas] == [permission]:
                    break
                await asyncio.sleep(0.05 * SCALE)
            else:
                raise AssertionError(f"the route never showed {permission}")
            assert (await ask.send(SENT)).code == 0


async def test_topics_of_the_names_are_made_at_start_only(broker: Broker) -> None:
    """Apache's broker takes these keys, and nothing happens; ours refuses them: no live keys."""
    keys = ("brokerTopicEnable", "clusterTopicEnable")
    is_ours = broker.engine == "failback"
    refused = pytest.raises(BrokerError, match="nothing was changed")
    async with asker(broker.address) as ask:
        before = await ask.admin.all_topic_config(broker.address)
        with refused if is_ours else nullcontext():
            await ask.set(**dict.fromkeys(keys, "false"))
        assert await ask.admin.all_topic_config(broker.address) == before
        await ask.set(**dict.fromkeys(keys, "true"))
    assert {config_keys()[key].change for key in keys} == {"roll"}


async def test_automatic_topics_stop_at_once_and_do_not_come_back(broker: Broker) -> None:
    """The first refusal takes the right to be inherited from TBW102, and it stays taken."""
    async with asker(broker.address) as ask:
        found = [(await ask.send("First")).code]
        for value, topic in (("false", "Second"), ("true", "Third")):
            await ask.set(autoCreateTopicEnable=value)
            found.append((await ask.send(topic)).code)
        template = (await ask.admin.all_topic_config(broker.address)).topic_config_table["TBW102"]
    assert found == [0, ResponseCode.TOPIC_NOT_EXIST, ResponseCode.TOPIC_NOT_EXIST]
    assert template.perm == 6
