"""The four copies of a slave, against masters that answer, refuse, or are not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from failback.broker.cluster import slave_synchronize
from failback.broker.cluster.outer_api import BrokerOuterApi, RegisterResult, fast_address
from failback.broker.cluster.slave_synchronize import SlaveSynchronize
from failback.broker.config.config import BrokerConfig
from failback.broker.config.identity import BrokerIdentity
from failback.broker.metadata.delay_offsets import DelayOffsets
from failback.broker.metadata.groups import SubscriptionGroupManager
from failback.broker.metadata.offsets.consumer_offset_manager import ConsumerOffsetManager
from failback.broker.metadata.topics import TopicConfigManager
from failback.protocol.codes import RequestCode
from failback.protocol.headers import RegisterBrokerRequestHeader, from_ext
from failback.protocol.route import RegisterBrokerBody, SubscriptionGroupConfig, TopicConfig
from failback.protocol.stats import KVTable
from tests.support.brokers.fake_peers import FakePeers

MASTER = "127.0.0.2:10911"
OWN = "127.0.0.3:10921"


class Slave:
    """A slave's tables, with the peers it talks to."""

    def __init__(self, folder: Path, *, is_guarded: bool = False) -> None:
        config = BrokerConfig(broker_cluster_name="c", broker_name="b")
        self.folder = folder
        self.peers = FakePeers()
        self.outer = BrokerOuterApi(self.peers, ["ns1:9876", "ns2:9876"])  # type: ignore[arg-type]
        self.topics = TopicConfigManager(folder / "topics.json", config)
        self.groups = SubscriptionGroupManager(folder / "subscriptionGroup.json", config)
        self.offsets = ConsumerOffsetManager(folder / "consumerOffset.json")
        self.delay = DelayOffsets(folder / "delayOffset.json")
        self.sync = SlaveSynchronize(
            self.outer,
            self.topics,
            self.groups,
            self.offsets,
            self.delay,
            own_address=OWN,
            is_guarded=lambda: is_guarded,
        )

    def master_answers(self, address: str = MASTER) -> None:
        self.peers.answers |= {
            (fast_address(address), 21): (
                b'{"dataVersion":{"counter":4,"timestamp":17},"topicConfigTable":'
                b'{"T":{"topicName":"T","readQueueNums":8,"writeQueueNums":8}}}'
            ),
            (address, 43): b'{"offsetTable":{"T@g":{0:5,1:6}}}',
            (address, 45): b'{"offsetTable":{3:12}}',
            (address, 201): (
                b'{"dataVersion":{"counter":2,"timestamp":18},'
                b'"subscriptionGroupTable":{"g":{"groupName":"g"}}}'
            ),
        }


@pytest.fixture
def slave(tmp_path: Path) -> Slave:
    return Slave(tmp_path)


async def test_the_four_copies_are_made_and_kept(slave: Slave) -> None:
    slave.master_answers()
    slave.sync.set_master_addr(MASTER)
    await slave.sync.sync_all()
    assert slave.peers.calls == [
        ("127.0.0.2:10909", RequestCode.GET_ALL_TOPIC_CONFIG),
        (MASTER, RequestCode.GET_ALL_CONSUMER_OFFSET),
        (MASTER, RequestCode.GET_ALL_DELAY_OFFSET),
        (MASTER, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
    ]
    assert slave.topics.table == {"T": TopicConfig("T", 8, 8)}
    assert slave.offsets.table == {"T@g": {0: 5, 1: 6}}
    assert slave.groups.table == {"g": SubscriptionGroupConfig("g")}
    assert (slave.folder / "delayOffset.json").read_bytes() == b'{"offsetTable":{3:12}}'
    assert slave.delay.table == {}  # the table in memory is not touched
    reborn = Slave(slave.folder)
    reborn.topics.load()
    reborn.offsets.load()
    reborn.delay.load()
    assert reborn.topics.data_version == slave.topics.data_version
    assert reborn.offsets.table == slave.offsets.table
    assert reborn.delay.table == {3: 12}


@pytest.mark.parametrize("missing", [21, 43, 45, 201])
@pytest.mark.parametrize("answer", [None, b"refused", b"torn{"])
async def test_one_failing_copy_does_not_stop_the_others(
    slave: Slave, missing: int, answer: bytes | None
) -> None:
    slave.master_answers()
    for address, code in list(slave.peers.answers):
        if code == missing:
            del slave.peers.answers[address, code]
            if answer is not None:
                slave.peers.answers[address, code] = answer
    slave.sync.set_master_addr(MASTER)
    await slave.sync.sync_all()
    copied = {
        21: "T" in slave.topics.table,
        43: slave.offsets.query("g", "T", 0) == 5,
        45: (slave.folder / "delayOffset.json").exists(),
        201: "g" in slave.groups.table,
    }
    assert copied == {code: code != missing for code in copied}


@pytest.mark.parametrize("address", [None, OWN])
async def test_without_a_master_nothing_is_asked(slave: Slave, address: str | None) -> None:
    slave.sync.set_master_addr(MASTER)
    slave.sync.set_master_addr(address)
    await slave.sync.sync_all()
    assert slave.peers.calls == []


async def test_an_outage_keeps_commits_and_the_return_overwrites_them(slave: Slave) -> None:
    slave.master_answers()
    slave.sync.set_master_addr(MASTER)
    await slave.sync.sync_all()
    answers, slave.peers.answers = slave.peers.answers, {}
    slave.offsets.commit("g", "T", 0, 2000)
    await slave.sync.sync_all()
    assert slave.offsets.query("g", "T", 0) == 2000
    slave.peers.answers = answers
    await slave.sync.sync_all()
    assert slave.offsets.query("g", "T", 0) == 5


IDENTITY = BrokerIdentity("c", "b", 1, True, OWN, "127.0.0.3:10922", b"")


@pytest.mark.parametrize("compressed", [False, True])
async def test_registration_reaches_every_name_server(slave: Slave, compressed: bool) -> None:
    slave.peers.answers = {("ns1:9876", 103): b'{"table":{"T":"b:8"}}', ("ns2:9876", 103): b""}
    slave.peers.ext = {"haServerAddr": "127.0.0.2:10912", "masterAddr": MASTER}
    results = await slave.outer.register_all(
        IDENTITY, slave.topics.to_wrapper(), compressed=compressed
    )
    assert results == [
        RegisterResult("ns1:9876", "127.0.0.2:10912", MASTER, {"T": "b:8"}),
        RegisterResult("ns2:9876", "127.0.0.2:10912", MASTER, None),
    ]
    request = slave.peers.requests[0]
    header = from_ext(RegisterBrokerRequestHeader, request.ext_fields)
    assert (header.broker_addr, header.ha_server_addr, header.broker_id) == (
        OWN,
        "127.0.0.3:10922",
        1,
    )
    read = RegisterBrokerBody.from_compressed if compressed else RegisterBrokerBody.from_json
    body = read(request.body)
    assert body.topic_config_serialize_wrapper == slave.topics.to_wrapper()


async def test_a_dead_name_server_costs_its_own_answer_only(slave: Slave) -> None:
    slave.peers.answers = {("ns2:9876", 103): b""}
    results = await slave.outer.register_all(IDENTITY, slave.topics.to_wrapper())
    assert results == [RegisterResult("ns2:9876", None, None, None)]


async def test_one_way_registration_asks_for_no_answer(slave: Slave) -> None:
    results = await slave.outer.register_all(IDENTITY, slave.topics.to_wrapper(), oneway=True)
    assert results == []
    assert slave.peers.calls == [("ns1:9876", 103), ("ns2:9876", 103)]


async def test_leaving_asks_every_name_server(slave: Slave) -> None:
    slave.peers.answers = {("ns2:9876", 104): b""}
    await slave.outer.unregister_all(IDENTITY)
    assert slave.peers.calls == [("ns1:9876", 104), ("ns2:9876", 104)]


async def test_under_guard_a_restarted_master_does_not_take_progress_away(tmp_path: Path) -> None:
    slave = Slave(tmp_path, is_guarded=True)
    slave.master_answers()
    slave.sync.set_master_addr(MASTER)
    slave.peers.answers[MASTER, 28] = b'{"table":{"bootTimestamp":"100"}}'
    assert await slave.sync.sync_all()
    slave.offsets.commit("g", "T", 0, 50)
    slave.peers.answers[MASTER, 28] = b'{"table":{"bootTimestamp":"200"}}'
    assert await slave.sync.sync_all()
    assert slave.offsets.table == {"T@g": {0: 50, 1: 6}}


async def test_under_guard_a_master_that_does_not_tell_its_start_changes_nothing(
    tmp_path: Path,
) -> None:
    slave = Slave(tmp_path, is_guarded=True)
    slave.master_answers()
    slave.sync.set_master_addr(MASTER)
    assert not await slave.sync.sync_all()
    assert slave.offsets.table == {}
    assert "g" in slave.groups.table, "the other copies go on"


@pytest.mark.foreign
@pytest.mark.parametrize(("behind", "kept"), [(0, True), (-1, True), (1, False)])
async def test_delay_offsets_are_not_kept_ahead_of_the_log(
    slave: Slave, monkeypatch: pytest.MonkeyPatch, behind: int, kept: bool
) -> None:
    """A master that dies then takes with it what it had delivered."""
    monkeypatch.setattr(slave_synchronize, "_TRIES", 2)
    slave.master_answers()
    info = KVTable({"commitLogMaxOffset": "4711"}).to_json()
    slave.peers.answers[MASTER, RequestCode.GET_BROKER_RUNTIME_INFO] = info
    slave.sync.log_end = lambda: 4711 - behind
    slave.sync.set_master_addr(MASTER)
    assert await slave.sync.sync_all()
    assert (slave.folder / "delayOffset.json").exists() == kept
