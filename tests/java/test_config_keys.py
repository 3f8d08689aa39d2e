"""The key catalogue beside real brokers of both engines: set by 25, read back by 26."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress

import pytest

from failback.client.admin import AdminClient
from failback.client.connection import RemotingClient
from failback.operator.catalogue import (
    ConfigKey,
    config_keys,
    known_keys,
    same_value,
    unknown_key_hint,
)
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import BrokerError
from failback.protocol.headers import PullMessageRequestHeader, SendMessageRequestHeader
from failback.protocol.message import decode_records
from failback.protocol.route import TopicConfig
from tests.support.apache import Broker, Engine, client_home, java, server_home
from tests.support.java_lab import Lab
from tests.support.polling import SCALE

pytestmark = pytest.mark.java

APACHE = "4.9.7"
_TYPES = {"int": "int", "long": "int", "boolean": "bool", "String": "string", "double": "float"}
# Names of files and services, which a test must not move under a running broker.
_SKIPPED = ("namesrvAddr",)
LIVE = [row for row in config_keys().values() if row.change == "live" and row.name not in _SKIPPED]
TYPO = "fileReservedTimes"


@pytest.fixture(scope="module")
def apache_keys() -> dict[str, tuple[str, str]]:
    """Java type and default of every key of the Apache broker."""
    classes = f"{server_home()}/lib/*:{client_home()}/classes"
    command = [java(), "-Xshare:auto", "-cp", classes, "ConfigKeys"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120 * SCALE)
    rows = (line.split("\t") for line in done.stdout.splitlines())
    return {key: (kind, default) for key, kind, default in rows}


@pytest.fixture(scope="module", params=["failback", "apache"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    engine: Engine = request.param
    lab = Lab(tmp_path_factory.mktemp(engine))
    try:
        server_home()
        found = lab.broker(engine, lab.namesrv(), settings={TYPO: "48"})
        found.start()
        yield found
    finally:
        lab.dispose()


def test_the_catalogue_has_every_key_of_apache_with_type_and_default(
    apache_keys: dict[str, tuple[str, str]],
) -> None:
    known = known_keys("apache", APACHE)
    assert set(apache_keys) - set(known) == set()
    for key, (kind, default) in apache_keys.items():
        row = known[key]
        if row.type in ("int", "bool", "string", "float"):
            assert (key, row.type) == (key, _TYPES[kind])
        if row.type == "int":
            assert (key, row.bits) == (key, 64 if kind == "long" else 32)
        if row.default is not None:
            assert (key, row.default) == (key, default)


def other_value(row: ConfigKey, value: str) -> str:
    """Return a value that differs from ``value`` and hurts nobody."""
    if row.type == "bool":
        return "false" if value == "true" else "true"
    if row.name == "brokerPermission":
        return "4"
    return str(int(value) + 1)


@pytest.mark.parametrize("row", LIVE, ids=lambda row: row.name)
async def test_a_live_key_is_set_by_25_and_read_by_26(broker: Broker, row: ConfigKey) -> None:
    async with AdminClient([]) as admin:
        before = (await admin.broker_config(broker.address))[row.name]
        wanted = other_value(row, before)
        await admin.update_broker_config(broker.address, {row.name: wanted})
        after = (await admin.broker_config(broker.address))[row.name]
        await admin.update_broker_config(broker.address, {row.name: before})
        again = (await admin.broker_config(broker.address))[row.name]
    assert not same_value(row.name, before, wanted)
    assert same_value(row.name, after, wanted)
    assert same_value(row.name, again, before)


class Asker:
    """Sends and pulls, and tells what the broker made of it."""

    def __init__(self, client: RemotingClient, admin: AdminClient, address: str) -> None:
        self.client = client
        self.admin = admin
        self.address = address

    async def send(self, topic: str) -> int:
        header = SendMessageRequestHeader(
            producer_group="PG",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=0,
            sys_flag=0,
            born_timestamp=1_700_000_000_000,
            flag=0,
            properties="",
            reconsume_times=0,
            batch=False,
        )
        request = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header.to_v2(), b"hello")
        return (await self.client.invoke(self.address, request)).code

    async def pull(self, group: str) -> tuple[int, int]:
        """Return the code of the answer and how many messages came."""
        header = PullMessageRequestHeader(group, PULLED, 0, 0, 32, 4, 0, 0, 0, "*")
        request = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
        answer = await self.client.invoke(self.address, request)
        return answer.code, len(decode_records(answer.body)) if answer.body else 0

    async def three_messages(self) -> None:
        """Make both topics, with three messages in the one that is pulled from."""
        for topic in (SENT, PULLED):
            await self.admin.create_topic(self.address, TopicConfig(topic, 1, 1))
        if await self.admin.max_offset(self.address, PULLED, 0) == 0:
            assert [await self.send(PULLED) for _ in range(3)] == [0, 0, 0]
        for _ in range(200):
            if await self.admin.max_offset(self.address, PULLED, 0) == 3:
                return
            await asyncio.sleep(0.05 * SCALE)
        raise AssertionError("three messages were acknowledged and can't be pulled")


SENT, PULLED = "Sent", "Pulled"
FAR = str(2**62)
BEHAVIOUR: dict[tuple[str, str], tuple[Callable[[Asker, str], Awaitable[object]], object, object]]
BEHAVIOUR = {
    # key, value: what is asked, the answer before, the answer after
    ("autoCreateSubscriptionGroup", "false"): (
        lambda ask, turn: ask.pull(f"group-{turn}"),
        (0, 3),
        (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, 0),
    ),
    ("maxTransferCountOnMessageInMemory", "1"): (
        lambda ask, _: ask.pull("group-known"),
        (0, 3),
        (0, 1),
    ),
    ("startAcceptSendRequestTimeStamp", FAR): (
        lambda ask, _: ask.send(SENT),
        0,
        ResponseCode.SYSTEM_ERROR,
    ),
}


@pytest.mark.parametrize(("key", "value"), BEHAVIOUR, ids=lambda item: str(item)[:40])
async def test_a_live_key_changes_what_a_running_broker_does(
    broker: Broker, key: str, value: str
) -> None:
    question, first, second = BEHAVIOUR[key, value]
    async with AdminClient([]) as admin, RemotingClient() as client:
        ask = Asker(client, admin, broker.address)
        await ask.three_messages()
        before = (await admin.broker_config(broker.address))[key]
        found = [await question(ask, f"{key}-a")]
        await admin.update_broker_config(broker.address, {key: value})
        found.append(await question(ask, f"{key}-b"))
        await admin.update_broker_config(broker.address, {key: before})
        found.append(await question(ask, f"{key}-c"))
    assert found == [first, second, first]


async def test_a_permission_is_announced_at_once(broker: Broker) -> None:
    """A broker refuses nothing itself: clients stay away because of the route."""
    async with AdminClient([broker.namesrv]) as admin, RemotingClient() as client:
        ask = Asker(client, admin, broker.address)
        await ask.three_messages()
        for permission in (4, 6):
            await admin.update_broker_config(broker.address, {"brokerPermission": str(permission)})
            for _ in range(200):
                route = await admin.route(SENT)
                if [queue.perm for queue in route.queue_datas] == [permission]:
                    break
                await asyncio.sleep(0.05 * SCALE)
            else:
                raise AssertionError(f"the route never showed {permission}")
            assert await ask.send(SENT) == 0


async def test_automatic_topics_stop_at_once_and_come_back_with_a_restart(broker: Broker) -> None:
    """The first refusal takes the right to be inherited from TBW102 until the next start."""
    async with AdminClient([]) as admin, RemotingClient() as client:
        ask = Asker(client, admin, broker.address)
        found = [await ask.send("First")]
        for value, topic in (("false", "Second"), ("true", "Third")):
            await admin.update_broker_config(broker.address, {"autoCreateTopicEnable": value})
            found.append(await ask.send(topic))
    assert found == [0, ResponseCode.TOPIC_NOT_EXIST, ResponseCode.TOPIC_NOT_EXIST]


async def test_an_echo_proves_nothing_about_a_key(broker: Broker) -> None:
    """26 shows what the file held, known or not, so only the catalogue can tell a typo."""
    async with AdminClient([]) as admin:
        assert (await admin.broker_config(broker.address))[TYPO] == "48"
        await admin.update_broker_config(broker.address, {TYPO: "72", "noSuchKey": "1"})
        shown = await admin.broker_config(broker.address)
    assert (shown[TYPO], "noSuchKey" in shown) == ("72", False)
    version = APACHE if broker.engine == "apache" else "0.1.0"
    assert unknown_key_hint(TYPO, broker.engine, version) == (
        f"{TYPO} is not a broker.conf key of {broker.engine} {version},"
        " did you mean fileReservedTime"
    )


async def test_a_value_that_a_broker_cannot_read_shows_in_26(broker: Broker) -> None:
    async with AdminClient([]) as admin:
        before = (await admin.broker_config(broker.address))["fileReservedTime"]
        with suppress(BrokerError):  # Apache answers 0 and keeps silent, ours says why
            await admin.update_broker_config(broker.address, {"fileReservedTime": "soon"})
        after = (await admin.broker_config(broker.address))["fileReservedTime"]
    assert same_value("fileReservedTime", after, before)
