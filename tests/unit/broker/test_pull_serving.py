"""Who serves a pull: the whole table, against the rule alone and against a whole broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from failback.broker.processors.pulling.pull_routing import route_pull
from failback.broker.store.log.results import GetStatus
from failback.protocol.command import RemotingCommand
from failback.protocol.route import SubscriptionGroupConfig, TopicConfig
from tests.support.brokers.broker_lab import BrokerLab, LabClient, broker_lab
from tests.support.brokers.serving_rules import SITUATIONS, Case, Served, combinations, expected

STATUSES = {
    "found-near": GetStatus.FOUND,
    "found-far": GetStatus.FOUND,
    "filtered-near": GetStatus.NO_MATCHED_MESSAGE,
    "filtered-far": GetStatus.MESSAGE_WAS_REMOVING,
    "at-end": GetStatus.OFFSET_OVERFLOW_ONE,
    "behind-end": GetStatus.OFFSET_OVERFLOW_BADLY,
    "before-begin": GetStatus.OFFSET_TOO_SMALL,
    "empty-at-0": GetStatus.NO_MESSAGE_IN_QUEUE,
    "empty-at-5": GetStatus.NO_MATCHED_LOGIC_QUEUE,
}
EVERYTHING = ";".join(map(str, range(24)))


def group_of(case: Case) -> SubscriptionGroupConfig:
    return SubscriptionGroupConfig(
        "CG",
        broker_id=case.group_broker_id,
        which_broker_when_consume_slowly=case.slow_broker_id,
    )


def test_every_combination_has_one_rule() -> None:
    cases = list(combinations())
    assert len(cases) == len(set(cases)) == 2 * 2 * 2 * 3 * 3 * len(SITUATIONS)
    assert {expected(case).code for case in cases} == {0, 19, 20, 21}
    assert {expected(case).suggested for case in cases} == {0, 1, 3, 7}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_rule_alone(situation: str) -> None:
    for case in combinations():
        if case.situation != situation:
            continue
        verdict = route_pull(
            STATUSES[situation],
            0 if situation == "empty-at-0" else 5,
            group_of(case),
            is_slave=case.is_slave,
            slave_read_enable=case.slave_read_enable,
            offset_check_in_slave=case.offset_check_in_slave,
            suggest_slave=case.is_far,
        )
        found = expected(case)
        assert (verdict.code, verdict.suggested_broker_id) == (found.code, found.suggested), case
        assert verdict.offset_moved == (found.code == 21), case


# --- a whole broker -------------------------------------------------------------------------------

LOW, HIGH = "begin", "end"


async def fill(root: Path) -> dict[str, int]:
    """Make a store whose queue 0 neither begins at 0 nor is empty; return its two ends."""
    settings = {"fileReservedTime": 0, "deleteWhen": EVERYTHING, "mappedFileSizeCommitLog": 4096}
    async with broker_lab(root, **settings) as lab:
        client = lab.connect()
        lab.controller.topics.update(TopicConfig("TopicTest", 2, 2))
        for number in range(40):
            await client.send(b"%d" % number + bytes(100), properties="TAGS\x01TagA")
        await lab.controller.store.expire()
        store = lab.controller.store
        low = store.min_queue_offset("TopicTest", 0)
        assert 10 < low < 35
        return {LOW: low, HIGH: store.max_queue_offset("TopicTest", 0)}


def asked_offset(case: Case, ends: dict[str, int]) -> int:
    return {
        "at-end": ends[HIGH],
        "behind-end": ends[HIGH] + 3,
        "before-begin": ends[LOW] - 1,
        "empty-at-0": 0,
        "empty-at-5": 5,
    }.get(case.situation, ends[LOW])


async def serve(lab: BrokerLab, client: LabClient, case: Case, asked: int) -> RemotingCommand:
    controller = lab.controller
    controller.config.slave_read_enable = case.slave_read_enable
    controller.config.offset_check_in_slave = case.offset_check_in_slave
    controller.store.config.offset_check_in_slave = case.offset_check_in_slave
    controller.store.config.physical_memory_bytes = 0 if case.is_far else 2**40
    controller.groups.table["CG"] = group_of(case)
    return await client.pull(
        queue_id=1 if case.situation.startswith("empty") else 0,
        queue_offset=asked,
        subscription="TagB" if case.situation.startswith("filtered") else "*",
        max_msg_nums=2,
    )


@pytest.mark.parametrize("role", ["master", "slave"])
async def test_a_whole_broker(tmp_path: Path, role: str) -> None:
    ends = await fill(tmp_path)
    settings: dict[str, object] = {"mappedFileSizeCommitLog": 4096}
    if role == "slave":
        settings |= {"brokerRole": "SLAVE", "brokerId": 1}
    wrong = []
    async with broker_lab(tmp_path, **settings) as lab:
        client = lab.connect()
        lab.controller.topics.update(TopicConfig("TopicTest", 2, 2))
        for case in combinations():
            if case.role != role:
                continue
            asked = asked_offset(case, ends)
            ends_here = {LOW: 0, HIGH: 0} if case.situation.startswith("empty") else ends
            answer = await serve(lab, client, case, asked)
            ext = answer.ext_fields or {}
            following = int(ext["nextBeginOffset"])
            rule = expected(case)
            if rule.following == "read":
                is_right = asked < following <= ends[HIGH]
            else:
                is_right = following == ({"asked": asked} | ends_here)[rule.following]
            found = Served(answer.code, int(ext["suggestWhichBrokerId"]), rule.following)
            if found != rule or not is_right:
                wrong.append((case, found, following))
        events = lab.controller.store.max_queue_offset("OFFSET_MOVED_EVENT", 0)
    assert wrong == []
    moved = sum(expected(case).code == 21 for case in combinations() if case.role == role)
    assert events == (moved if role == "master" else 0)


@pytest.mark.parametrize(("spare", "suggested"), [(0, 3), (-1, 7)])
async def test_far_begins_one_byte_beyond_the_share_of_memory(
    tmp_path: Path, spare: int, suggested: int
) -> None:
    """From the last entry that was looked at, the one that found the answer full, to the end."""
    async with broker_lab(tmp_path, slaveReadEnable="true") as lab:
        client, store = lab.connect(), lab.controller.store
        for _ in range(10):
            await client.send()
        case = Case("master", True, False, 3, 7, "found-near")
        lab.controller.groups.table["CG"] = group_of(case)
        distance = store.max_physical_offset - store.physical_offset_of("TopicTest", 0, 2)
        store.config.access_message_in_memory_max_ratio = 100
        store.config.physical_memory_bytes = distance + spare
        answer = await client.pull(max_msg_nums=2)
    assert int((answer.ext_fields or {})["suggestWhichBrokerId"]) == suggested
