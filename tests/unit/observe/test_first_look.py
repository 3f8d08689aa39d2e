"""What is refused at the first look, and what is said once while it lasts."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from failback.analytics.observe.asking import Asker
from failback.analytics.observe.folder import Wanted, seconds
from failback.analytics.observe.looks import Look
from failback.analytics.observe.observing import Complaints, check_first
from failback.client.remoting.connection import RemotingClient
from failback.protocol.errors import ConfigError
from tests.support.net.fake_remoting import FakeBroker, lists
from tests.support.observe.stories import Story

WANTED = Wanted("story", ("ns0",), 1.0)


def told() -> Story:
    story = Story()
    story.commit(5)
    story.wait(2)
    return story


def check(story: Story, look: Look, **wanted: tuple[str, ...]) -> list[str]:
    async def asked() -> list[str]:
        async with RemotingClient() as client:
            about = replace(WANTED, **wanted)  # type: ignore[arg-type]
            return await check_first(look, about, story.observation, Path("run"), client)

    return asyncio.run(asked())


def test_a_folder_about_another_cluster_is_refused() -> None:
    story = told()
    look = story.looks[-1]
    assert check(story, look, groups=("billing",), topics=("orders",)) == []
    other = msgspec.structs.replace(look, listings={"ns1": {"shop/broker-b": {0: "10.0.0.9:1"}}})
    with pytest.raises(ConfigError) as refused:
        check(story, other)
    assert str(refused.value) == (
        "--out: run is about bench/broker-a, and ns1 lists shop/broker-b: name a new folder"
    )


def test_a_group_may_be_named_as_its_clients_do() -> None:
    story = told()
    table = story.looks[-1].brokers[0].offsets or {}
    table["MQ_INST_a%pay@MQ_INST_a%audit"] = {0: 1}
    for group, topic in (("audit", "pay"), ("MQ_INST_a%audit", "MQ_INST_a%pay")):
        assert check(story, story.looks[-1], groups=(group,), topics=(topic,)) == []


def test_what_is_silent_is_said_once_until_it_answers() -> None:
    story, complaints = told(), Complaints()

    def said() -> list[str]:
        story.wait()
        return list(complaints.of(story.looks[-1]))

    assert said() == []
    story.freeze()
    assert said() == []  # a broker that dies says nothing once
    (line,) = said()
    assert line.startswith("broker-a-0 is not seen: ")
    assert said() == []
    story.thaw()
    assert said() == []
    story.freeze()
    assert said() == []
    assert len(said()) == 1
    story.kill()
    assert said() == []  # a master that is gone is an event


async def test_a_slave_that_copies_no_offsets_is_named_once_while_its_table_is_empty() -> None:
    with FakeBroker() as master, FakeBroker(broker_id=1) as slave:
        lists(master, slave)
        for each in (master, slave):
            each.version = "V5_5_0"
        async with RemotingClient() as client:
            asker = Asker([master.address], client, zero=seconds())
            slave.offsets = {"orders@billing": {0: 1}}
            await asker.look(closely=False)
            assert asker.take_notes() == []
            slave.offsets = {}
            await asker.look(closely=False)
            (note,) = asker.take_notes()
            assert note.startswith("b-1 has no consumer offsets: a slave of Apache 5.5.0")
            await asker.look(closely=False)
            assert asker.take_notes() == []
            await asker.close()
