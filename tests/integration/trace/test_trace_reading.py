"""Trace topics read from real brokers: all of it, once, going on after a stop, from a slave."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from failback.analytics.report import make_report
from failback.analytics.report.make_report import read_report, report
from failback.analytics.trace import reading
from failback.analytics.trace.ingest import Request, ingest
from failback.analytics.trace.pages import Pages, Place
from failback.analytics.trace.reading import Span, TopicReader, copy_rows
from failback.cli.__main__ import main
from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.message import UNIQ_KEY, deflate_body, encode_properties
from failback.protocol.route import TopicConfig
from tests.support.analytics.trace_builder import TRACE_TOPIC, after, before, made_id, record
from tests.support.brokers.broker_lab import send_header
from tests.support.common.polling import SCALE, until
from tests.support.java.apache import Broker, NameServer
from tests.support.java.java_lab import Lab

GROUP = "billing"
SETTINGS: dict[str, object] = {"failbackTimeScale": 0.05, "traceTopicEnable": "true"}
OWN_TOPIC = "traces"
"""Customised: the system's trace topic has one queue."""
MESSAGES = [made_id(9, number) for number in range(12)]


class Traced:
    """A name server, a broker, and what traced clients would have sent to it."""

    def __init__(self, lab: Lab, admin: AdminClient, client: RemotingClient, ns: NameServer):
        self.lab = lab
        self.admin = admin
        self.ns = ns
        self._client = client
        self.master: Broker = lab.broker("failback", ns, settings=SETTINGS)

    async def send(self, topic: str, body: bytes, qid: int = 0, **fields: object) -> None:
        header = send_header(
            topic=topic, queue_id=qid, born_timestamp=time.time_ns() // 1_000_000, **fields
        )
        request = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, body)
        assert (await self._client.invoke(self.master.address, request, 5000 * SCALE)).code == 0

    async def consumed(self, number: int, t: int, process: int) -> None:
        """The trace of one handling; every third body is compressed."""
        request = made_id(process, number)
        body = before(MESSAGES[number], t, request, group=GROUP)
        body += after(MESSAGES[number], t + 3, request, group=GROUP)
        flags: dict[str, object] = {}
        if number % 3 == 0:
            body, flag = deflate_body(body, 0)
            flags["sys_flag"] = flag
        await self.send(OWN_TOPIC, body, number % 2, **flags)

    async def produce(self) -> None:
        """The messages that the traces are about, and the group's offset of their topic."""
        for number, message in enumerate(MESSAGES):
            properties = encode_properties({UNIQ_KEY: message})
            await self.send("orders", b"x", number % 4, properties=properties)
        await self.admin.update_offset(self.master.address, GROUP, "orders", 0, 3)

    def request(self, folder: Path, **changed: object) -> Request:
        topics = (OWN_TOPIC, TRACE_TOPIC)
        return Request([self.ns.address], folder, "traced", topics, **changed)  # type: ignore[arg-type]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path / "lab")
    try:
        yield lab
    finally:
        lab.dispose()


@asynccontextmanager
async def traced(lab: Lab) -> AsyncIterator[Traced]:
    ns = lab.namesrv()
    async with AdminClient([ns.address]) as admin, RemotingClient() as client:
        found = Traced(lab, admin, client, ns)
        found.master.start()
        await admin.create_topic(found.master.address, TopicConfig(OWN_TOPIC, 2, 2))
        await admin.create_topic(found.master.address, TopicConfig("orders", 4, 4))
        await found.produce()
        yield found


async def test_a_trace_is_read_to_its_end_and_later_on(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PAGE_ROWS", 4)
    monkeypatch.setattr(make_report, "_html_can_be_made", lambda: False)
    async with traced(lab) as there:
        for number in range(12):
            await there.consumed(number, number, process=1)
        written = await ingest(there.request(tmp_path / "run"))
        assert (written.deliveries, written.counts.unplaced, written.gaps) == (12, 0, ())
        for number in range(5):
            await there.consumed(number, 100 + number, process=2)
        written = await ingest(there.request(tmp_path / "run"))
        assert (written.records, written.deliveries) == (34, 17)
        again = await ingest(there.request(tmp_path / "run"))
        assert again == written
    document = read_report(report(tmp_path / "run", "local").json)
    totals = document["totals"]
    assert (totals["delivered"], totals["distinct"], totals["dup"]) == (17, 12, 5)
    assert totals["dup_after_success"] == 5
    assert document["groups"][0]["topic"] == "orders"
    assert {queue["topic"] for queue in document["queues"]} == {"orders"}


async def test_a_reader_that_was_stopped_goes_on(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PAGE_ROWS", 2)
    monkeypatch.setattr(reading, "PULLED_AT_ONCE", 1)

    class Stopped(Exception):
        """Some reader's end."""

    left = 7

    def stop(topic: str, count: int) -> None:
        nonlocal left
        left -= count
        if left == 0:
            raise Stopped(topic)

    async with traced(lab) as there:
        for number in range(12):
            await there.consumed(number, number, process=1)
        with pytest.raises(Stopped):
            await ingest(there.request(tmp_path / "stopped"), stop)
        begun = Pages(tmp_path / "stopped").read("records").num_rows
        assert 0 < begun < 24
        assert not (tmp_path / "stopped" / "manifest.json").exists()
        went_on = await ingest(there.request(tmp_path / "stopped"))
        at_once = await ingest(there.request(tmp_path / "at-once"))
    assert went_on.deliveries == at_once.deliveries == 12
    for table in ("records", "copies"):
        found = [Pages(tmp_path / name).read(table) for name in ("stopped", "at-once")]
        assert found[0].combine_chunks().equals(found[1].combine_chunks())


async def test_only_traces_of_the_time_that_was_asked_for(lab: Lab, tmp_path: Path) -> None:
    async with traced(lab) as there:
        bounds = []
        for part in (range(4), range(4, 8), range(8, 12)):
            for number in part:
                await there.consumed(number, number, process=1)
            after_it = round(time.time() * 1000) + 2
            await until(lambda: time.time() * 1000 > after_it + 2, "the clock goes on")  # noqa: B023 - at once
            bounds.append(after_it)
        span = Span(*bounds[:2])
        written = await ingest(there.request(tmp_path / "run", span=span))
        assert (written.deliveries, written.gaps) == (4, ())
        assert (await ingest(there.request(tmp_path / "run", span=span))).deliveries == 4


@pytest.mark.sample
async def test_a_slave_is_read_while_the_master_is_dead(lab: Lab, tmp_path: Path) -> None:
    async with traced(lab) as there:
        for number in range(12):
            await there.consumed(number, number, process=1)
        slave = lab.broker(
            "failback",
            there.ns,
            broker_id=1,
            role="SLAVE",
            settings=SETTINGS,
        )
        slave.start()
        await _until_equal(there.admin, there.master.address, slave.address)
        there.master.kill()
        written = await ingest(there.request(tmp_path / "run"))
        assert (written.deliveries, written.counts.unplaced) == (12, 0)
    assert set(Pages(tmp_path / "run").read("copies").column("bid").to_pylist()) == {1}


async def _until_equal(admin: AdminClient, master: str, slave: str) -> None:
    """Wait until a slave has every queue of both topics, and the groups' offsets."""
    deadline = time.monotonic() + 60 * SCALE
    while True:
        try:
            found = [
                [
                    *[(await admin.topic_stats(addr, topic)).offset_table[queue].max_offset
                      for topic in (OWN_TOPIC, "orders")
                      for queue in sorted((await admin.topic_stats(master, topic)).offset_table)],
                    await admin.all_offsets(addr),
                ]
                for addr in (master, slave)
            ]  # fmt: skip
        except Exception as error:  # it is not there yet, whatever it says
            found = [[str(error)], []]
        if found[0] == found[1]:
            return
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.1)


async def test_the_command_line(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with traced(lab) as there:
        handled = before(MESSAGES[1], 1, made_id(1, 1)) + after(MESSAGES[1], 2, made_id(1, 1))
        await there.send(TRACE_TOPIC, record("SubBefore", "x"))
        await there.send(TRACE_TOPIC, handled)
        words = ["trace", "--namesrv", there.ns.address, "--out", str(tmp_path / "run")]
        assert await asyncio.to_thread(main, words) == 3
        shown = capsys.readouterr().out
        assert "3 trace records" in shown
        assert "record 0 of RMQ_SYS_TRACE_TOPIC broker-a/0 offset 0 is a SubBefore of 2" in shown
        assert await asyncio.to_thread(main, [*words, "--json", "--group", "other"]) == 3
        assert json.loads(capsys.readouterr().out)["deliveries"] == 0
        other = [*words[:-1], str(tmp_path / "other"), "--trace-topic", "none"]
        assert await asyncio.to_thread(main, other) == 3
        assert "missing: the name server knows no topic none" in capsys.readouterr().out
        assert await asyncio.to_thread(main, [*words, "--trace-topic", "none"]) == 2
        assert "was begun with trace_topics" in capsys.readouterr().err
        assert await asyncio.to_thread(main, [*words, "--since", "soon"]) == 2
        assert '--since: must be like 2026-01-31T12:00:00, milliseconds or now, got "soon"' in (
            capsys.readouterr().err
        )


async def test_a_queue_is_read_from_a_begin_and_later_from_an_earlier_one(
    lab: Lab, tmp_path: Path
) -> None:
    async with traced(lab) as found, RemotingClient() as client:
        pages = Pages(tmp_path / "run")
        reader = TopicReader(client, found.admin, pages)
        place = Place(found.master.name, "orders", 0)

        async def offsets(begin: int) -> list[int]:
            assert await reader.read("copies", "orders", copy_rows, begins={place: begin}) == []
            rows = pages.read("copies").to_pylist()
            return [row["qoff"] for row in rows if row["qid"] == 0]

        assert await offsets(2) == [2]
        assert await offsets(1) == [1, 2]
        assert await offsets(2) == [1, 2]
        assert await offsets(0) == [0, 1, 2]
        assert pages.holes("copies") == []
