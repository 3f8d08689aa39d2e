"""Input that once broke something, or would have; each is refused or answered now."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from failback.broker.ha.client import _MasterConnection
from failback.broker.ha.stream import FRAME_HEADER
from failback.protocol.codes import RequestCode
from failback.protocol.frames import encode_frame
from failback.protocol.route import TopicConfig
from tests.faults.fuzz.fuzz_lab import (
    FILE_BYTES,
    FuzzTransport,
    LoopErrors,
    feed,
    filled_store,
    ha_config,
)
from tests.support.brokers.broker_lab import broker_lab, pull_header, send_header
from tests.support.common.polling import SCALE


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE])
async def test_a_header_that_is_no_utf8_on_the_quick_paths(tmp_path: Path, code: int) -> None:
    """It reached the event loop as an exception. It is read as 4.9.7 reads it, and refused."""
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        header = send_header() if code == RequestCode.SEND_MESSAGE_V2 else pull_header()
        request = client.make(code, header)
        frame = request.encode()
        client.feed(encode_frame(0, frame[8:].replace(b"TopicTest", b"Topic\xffest")))
        await client.turn()
        assert client.answer_to(request).code != 0
        assert not client.transport.aborted
        assert (await client.send()).code == 0


async def test_a_topic_that_claims_billions_of_queues(tmp_path: Path) -> None:
    """Listing them would have held up everybody for minutes."""
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        lab.controller.topics.update(TopicConfig("Huge", 2**31 - 1, 2**31 - 1))
        fields = {"topic": "Huge", "group": "CG", "consumerGroup": "CG"}
        for code in (RequestCode.GET_TOPIC_STATS_INFO, RequestCode.QUERY_CONSUME_TIME_SPAN):
            request = client.make(code, None, b"", ext=fields)
            client.feed(request.encode())
            async with asyncio.timeout(60 * SCALE):
                while client.find_answer(request) is None:
                    await client.turn()
            # 1: the list is longer than a frame may be.
            assert client.answer_to(request).code in (0, 1)
        assert (await client.send()).code == 0


@pytest.mark.parametrize(
    ("offset", "size"), [(2**63 - FILE_BYTES, FILE_BYTES), (2**63 - 1, 1), (2**63 - 1, 0)]
)
async def test_a_log_that_ends_where_no_offset_is_left(
    tmp_path: Path, offset: int, size: int
) -> None:
    """An empty slave takes any offset; a log whose end fits no report could never be reported."""
    errors = LoopErrors()
    async with filled_store(tmp_path, "SLAVE", 0) as slave:
        for data in (FRAME_HEADER.pack(offset, size) + bytes(size), FRAME_HEADER.pack(0, 0)):
            connection = _MasterConnection(slave, ha_config("SLAVE", guarded=False))
            transport = FuzzTransport(connection)
            feed(connection, data)
            transport.end()
        assert slave.max_physical_offset == 0
    errors.assert_none()
