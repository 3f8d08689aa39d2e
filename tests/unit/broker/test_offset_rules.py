"""Consumer offsets by their rules: any order of commits, pulls, clones and removals, and resets."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failback.broker.metadata.json_config import load_json_config
from failback.protocol.body import MessageQueue
from failback.protocol.clients import ConsumerData, HeartbeatData, SubscriptionData
from failback.protocol.codes import PULL_COMMIT, PULL_SUBSCRIPTION, RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.fastjson import loads
from failback.protocol.headers import (
    CloneGroupOffsetRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    QueryConsumerOffsetRequestHeader,
    ResetOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from failback.protocol.route import TopicConfig, parse_offset_table
from failback.protocol.stats import ResetOffsetBody
from tests.support.brokers.broker_lab import BrokerLab, LabClient, broker_lab
from tests.support.common.counts import examples

GROUPS, TOPICS, QUEUES = ("g1", "g2"), ("A", "B"), (0, 1)
STORED = 3
RESET = int(RequestCode.RESET_CONSUMER_CLIENT_OFFSET)

group_names, topics, queues = map(st.sampled_from, (GROUPS, TOPICS, QUEUES))
values = st.sampled_from([-1, 0, 1, 2, 3, 7, 2**40])
steps = st.one_of(
    st.tuples(st.just("commit"), group_names, topics, queues, values),
    st.tuples(st.just("pull"), group_names, topics, queues, values, st.sampled_from([0, 3, 9])),
    st.tuples(st.just("plain pull"), group_names, topics, queues, values, st.just(0)),
    st.tuples(st.just("refused pull"), group_names, topics, st.just(99), values, st.just(0)),
    st.tuples(st.just("clone"), group_names, group_names, st.sampled_from((*TOPICS, None))),
    st.tuples(st.just("remove"), group_names, st.booleans()),
    st.tuples(st.just("persist")),
)
Model = dict[tuple[str, str], dict[int, int]]


def apply(model: Model, step: Sequence[object], is_slave: bool) -> None:
    """Do to a table of plain offsets what the rules say of one step."""
    kind, *rest = step
    if kind == "commit" or (kind == "pull" and not is_slave):
        group, topic, queue_id, value = rest[:4]
        model.setdefault((str(topic), str(group)), {})[int(str(queue_id))] = int(str(value))
    elif kind == "clone":
        source, target, topic = rest
        wanted = [topic] if topic else [name for name, owner in model if owner == source]
        for name in wanted:
            if (name, source) in model:
                model[str(name), str(target)] = dict(model[str(name), str(source)])
    elif kind == "remove" and rest[1] and not is_slave:
        for key in [key for key in model if key[1] == rest[0]]:
            del model[key]


async def carry_out(lab: BrokerLab, client: LabClient, step: Sequence[object]) -> None:
    kind, *rest = step
    if kind == "persist":
        lab.controller.offsets.persist()
    elif kind == "commit":
        header = UpdateConsumerOffsetRequestHeader(*rest)  # type: ignore[arg-type]
        await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)
    elif kind == "clone":
        clone = CloneGroupOffsetRequestHeader(*rest)  # type: ignore[arg-type]
        assert (await client.ask(RequestCode.CLONE_GROUP_OFFSET, clone)).code == 0
    elif kind == "remove":
        removal = DeleteSubscriptionGroupRequestHeader(*rest)  # type: ignore[arg-type]
        await client.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, removal)
    else:
        group, topic, queue_id, value, offset = rest
        flags = PULL_SUBSCRIPTION | (0 if kind == "plain pull" else PULL_COMMIT)
        await client.pull(
            consumer_group=group,
            topic=topic,
            queue_id=queue_id,
            commit_offset=value,
            queue_offset=offset,
            sys_flag=flags,
        )


async def query(client: LabClient, group: str, topic: str, queue_id: int) -> RemotingCommand:
    header = QueryConsumerOffsetRequestHeader(group, topic, queue_id)
    return await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, header)


@given(history=st.lists(steps, max_size=25), role=st.sampled_from(["ASYNC_MASTER", "SLAVE"]))
@settings(max_examples=examples(60), deadline=None)
def test_any_history_leaves_what_the_rules_say(
    history: list[tuple[object, ...]], role: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_replay(Path(folder), history, role))


async def _replay(root: Path, history: list[tuple[object, ...]], role: str) -> None:
    model: Model = {}
    persisted: list[Model] = [{}]
    async with broker_lab(root, brokerRole=role, brokerId=1) as lab:
        client = lab.connect()
        for topic in TOPICS:
            lab.controller.topics.update(TopicConfig(topic, 2, 2))
        for step in history:
            deletes = step[0] == "remove" and step[2] and role != "SLAVE"
            if deletes:  # in the file as well, if there is anything
                known = {group for _, group in model} | lab.controller.groups.table.keys()
                deletes = step[1] in known
            await carry_out(lab, client, step)
            apply(model, step, is_slave=role == "SLAVE")
            if step[0] == "persist" or deletes:
                persisted.append({key: dict(queues) for key, queues in model.items()})
        for group in GROUPS:
            for topic in TOPICS:
                for queue_id in QUEUES:
                    answer = await query(client, group, topic, queue_id)
                    stored = model.get((topic, group), {}).get(queue_id, -1)
                    # A queue that never lost a message answers 0 for whoever has none.
                    assert (answer.code, (answer.ext_fields or {})["offset"]) == (
                        0,
                        str(max(0, stored)),
                    )
        everything = await client.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
        file = root / "store" / "config" / "consumerOffset.json"
    assert parse_offset_table(everything.body) == as_table(model)
    # The lab never stops in order, so the file is what a kill leaves: the last persist.
    assert (load_json_config(file, parse_offset_table) or {}) == as_table(persisted[-1])


def as_table(model: Model) -> dict[str, dict[int, int]]:
    return {f"{topic}@{group}": queues for (topic, group), queues in model.items()}


# --- resets ---------------------------------------------------------------------------------------


async def member(
    lab: BrokerLab, client_id: str, *, version: int = 409, language: str = "JAVA"
) -> LabClient:
    client = lab.connect()
    consumer = ConsumerData(
        "CG", subscription_data_set=[SubscriptionData("TopicTest", "*", sub_version=1)]
    )
    request = client.make(
        RequestCode.HEART_BEAT,
        None,
        HeartbeatData(client_id, [], [consumer]).to_json(),
        version=version,
    )
    request.language = language
    client.feed(request.encode())
    await client.turn()
    assert client.answer_to(request).code == 0
    return client


def pushed(client: LabClient) -> list[RemotingCommand]:
    return [each for each in client.received if each.code == RESET and not each.is_response]


async def reset(
    client: LabClient, timestamp: int = -1, *, force: bool = True, language: str = "JAVA"
) -> RemotingCommand:
    header = ResetOffsetRequestHeader("TopicTest", "CG", timestamp, force)
    request = client.make(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    request.language = language
    client.feed(request.encode())
    await client.turn()
    return client.answer_to(request)


async def ready(lab: BrokerLab, stored: int = 1) -> None:
    """Give the group an offset on the one queue of TopicTest, which has three messages."""
    lab.controller.topics.update(TopicConfig("TopicTest", 1, 1))
    client = lab.connect()
    for _ in range(STORED):
        await client.send()
    lab.controller.offsets.commit("CG", "TopicTest", 0, stored)


async def test_a_client_in_c_gets_and_sends_a_list(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        await ready(lab)
        java = await member(lab, "java")
        native = await member(lab, "native", language="CPP")
        answer = await reset(lab.connect(), language="CPP")
        for client in (java, native):
            await client.turn()
        (of_java,), (of_native,) = pushed(java), pushed(native)
    entry = {"brokerName": "broker-a", "offset": 3, "queueId": 0, "topic": "TopicTest"}
    assert loads(answer.body) == loads(of_native.body) == {"offsetTable": [entry]}
    queue = MessageQueue("TopicTest", "broker-a", 0)
    assert ResetOffsetBody.from_json(of_java.body).offset_table == {queue: 3}
    assert of_java.body.startswith(b'{"offsetTable":{{"brokerName"')


async def test_a_member_that_is_too_old_stops_the_reset_of_all(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        await ready(lab)
        new, _ = await member(lab, "new"), await member(lab, "old", version=27)
        answer = await reset(lab.connect())
        await new.turn()
    assert answer.code == 1
    assert "does not support this feature" in (answer.remark or "")
    assert pushed(new) == []


@pytest.mark.parametrize(
    ("stored", "timestamp", "force", "told"),
    [
        (1, -1, True, 3),
        (1, -1, False, 1),
        (2, 0, False, 0),
        (2, 0, True, 0),
        (1, 2**62, True, 2),
        (1, 2**62, False, 1),
        (9, -1, False, 3),
        (0, -7, False, 0),
    ],
)
async def test_where_a_reset_goes(
    tmp_path: Path, stored: int, timestamp: int, force: bool, told: int
) -> None:
    """Unforced it only goes back; the broker's own table changes when the client commits."""
    async with broker_lab(tmp_path) as lab:
        await ready(lab, stored)
        await member(lab, "one")
        answer = await reset(lab.connect(), timestamp, force=force)
        kept = lab.controller.offsets.query("CG", "TopicTest", 0)
    (offset,) = ResetOffsetBody.from_json(answer.body).offset_table.values()
    assert (answer.code, offset, kept) == (0, told, stored)


async def test_a_reset_of_an_unknown_topic_or_group_is_refused(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        unknown_topic = await reset(lab.connect())
        lab.controller.topics.update(TopicConfig("TopicTest", 2, 2))
        lab.controller.offsets.commit("CG", "TopicTest", 0, 1)
        one_queue_without = await reset(lab.connect())
    assert (unknown_topic.code, one_queue_without.code) == (1, 1)
    assert one_queue_without.remark == "THe consumer group <CG> not exist"


async def test_a_queue_that_lost_messages_has_no_offset_for_a_new_group(tmp_path: Path) -> None:
    hours = ";".join(map(str, range(24)))
    settings = {"mappedFileSizeCommitLog": 4096, "fileReservedTime": 0, "deleteWhen": hours}
    async with broker_lab(tmp_path, **settings) as lab:
        client = lab.connect()
        for _ in range(60):
            await client.send(bytes(100))
        assert (await query(client, "CG", "TopicTest", 0)).code == 0
        await lab.controller.store.expire()
        assert lab.controller.store.min_queue_offset("TopicTest", 0) > 0
        lost = await query(client, "CG", "TopicTest", 0)
        lab.controller.offsets.commit("CG", "TopicTest", 0, 2)
        stored = await query(client, "CG", "TopicTest", 0)
    assert lost.code == 22
    assert (stored.code, (stored.ext_fields or {})["offset"]) == (0, "2"), (
        "below the first: a pull moves it"
    )
