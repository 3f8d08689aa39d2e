"""Messages by key (12) through a whole broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.headers import UNIQUE_KEY_QUERY, QueryMessageRequestHeader
from failback.protocol.message import decode_records
from tests.support.brokers.broker_lab import LabClient, broker_lab

SMALL = {"maxHashSlotNum": 100, "maxIndexNum": 1000}


async def ask(client: LabClient, key: str, *, unique: str = "", **fields: Any) -> RemotingCommand:
    usual: dict[str, Any] = {
        "topic": "TopicTest",
        "max_num": 64,
        "begin_timestamp": 0,
        "end_timestamp": 2**63 - 1,
    }
    header = QueryMessageRequestHeader(key=key, **usual | fields)
    ext = {UNIQUE_KEY_QUERY: unique} if unique else None
    return await client.ask(RequestCode.QUERY_MESSAGE, header, ext=ext)


async def fill(client: LabClient, count: int) -> None:
    for number in range(count):
        properties = f"UNIQ_KEY\x01id-{number}\x02KEYS\x01all k{number}"
        await client.send(b"%d" % number, properties=properties)


def bodies(answer: RemotingCommand) -> list[bytes]:
    assert answer.code == ResponseCode.SUCCESS, answer
    return [message.body for message in decode_records(answer.body, decompress=False)]


async def test_whole_records_come_oldest_first(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, **SMALL) as lab:
        client = lab.connect()
        await fill(client, 70)
        assert bodies(await ask(client, "k3", unique="false")) == [b"3"]
        assert bodies(await ask(client, "all")) == [b"%d" % n for n in range(6, 70)]
        assert bodies(await ask(client, "all", max_num=2)) == [b"68", b"69"]
        (found,) = decode_records((await ask(client, "id-5", unique="true")).body)
        assert (found.topic, found.keys, found.body) == ("TopicTest", "all k5", b"5")


async def test_a_unique_key_brings_the_default_number_at_most(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, **SMALL) as lab:
        client = lab.connect()
        for number in range(40):
            await client.send(b"%d" % number, properties="UNIQ_KEY\x01same")
        assert len(bodies(await ask(client, "same", unique="true", max_num=1))) == 32
        assert len(bodies(await ask(client, "same", unique="false", max_num=1))) == 1
        lab.controller.config.default_query_max_num = 5
        assert bodies(await ask(client, "same", unique="true")) == [
            b"%d" % n for n in range(35, 40)
        ]


async def test_the_answer_says_how_far_the_index_is(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, **SMALL) as lab:
        client = lab.connect()
        await fill(client, 2)
        answer = await ask(client, "k0")
        last = lab.controller.store.physical_offset_of("TopicTest", 0, 1)
        time = lab.controller.store.store_time_of("TopicTest", 0, 1)
        assert answer.ext_fields == {
            "indexLastUpdateTimestamp": str(time),
            "indexLastUpdatePhyoffset": str(last),
        }


async def test_nothing_found_is_code_22(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, **SMALL) as lab:
        client = lab.connect()
        await fill(client, 1)
        for answer in (
            await ask(client, "k7"),
            await ask(client, "k0", topic="Other"),
            await ask(client, "k0", end_timestamp=1),
            await ask(client, "k0", max_num=0),
        ):
            assert answer.code == ResponseCode.QUERY_NOT_FOUND
            assert answer.remark == "can not find message, maybe time range not correct"
            assert answer.ext_fields == {
                "indexLastUpdateTimestamp": "0",
                "indexLastUpdatePhyoffset": "0",
            }


async def test_a_question_without_a_key_is_refused(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, **SMALL) as lab:
        client = lab.connect()
        answer = await client.ask(RequestCode.QUERY_MESSAGE, ext={"topic": "TopicTest"})
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (await client.send()).code == ResponseCode.SUCCESS


async def test_of_large_messages_the_newest_come_that_fit_an_answer(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, mappedFileSizeCommitLog=64 << 20, **SMALL) as lab:
        client = lab.connect()
        for number in range(6):
            await client.send(bytes([number]) * (3 << 20), properties="KEYS\x01big")
        found = decode_records((await ask(client, "big")).body)
        assert [message.body[0] for message in found] == [2, 3, 4, 5]


async def test_the_switches_of_broker_conf(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, messageIndexEnable="false") as lab:
        client = lab.connect()
        await fill(client, 1)
        assert (await ask(client, "k0")).code == ResponseCode.QUERY_NOT_FOUND
    async with broker_lab(tmp_path, maxMsgsNumBatch=2, **SMALL) as lab:
        client = lab.connect()
        await fill(client, 3)
        assert bodies(await ask(client, "all")) == [b"1", b"2"]
    (file,) = (tmp_path / "store" / "index").iterdir()
    assert file.stat().st_size == 40 + 4 * 100 + 20 * 1000
