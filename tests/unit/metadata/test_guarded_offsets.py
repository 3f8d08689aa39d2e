"""Consumer offsets under the guarded rules: what a slave keeps and what a master takes back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.broker.cluster.hand_back import HandBack, Members, OwnStore
from failback.broker.cluster.outer_api import BrokerOuterApi
from failback.broker.cluster.slave_synchronize import MasterOffsets
from failback.broker.metadata.offsets.consumer_offset_manager import (
    ConsumerOffsetManager,
    IndexedTable,
    OffsetTable,
)
from failback.protocol.codes import RequestCode
from failback.protocol.errors import ProtocolError
from tests.support.brokers.fake_peers import Ends, FakePeers
from tests.support.store.store_kit import open_store, put_all

KEY = "T@g"
OWN = "127.0.0.2:10911"
SLAVES = ("127.0.0.3:10911", "127.0.0.4:10911")
TABLES = st.dictionaries(
    st.sampled_from(["T@g", "T@h", "%RETRY%g@g"]),
    st.dictionaries(st.integers(0, 3), st.integers(0, 20), min_size=1),
)


def one(offset: int) -> OffsetTable:
    return {KEY: {0: offset}}


class GuardedSlave:
    """A slave's table, and how it copies its master's."""

    def __init__(self) -> None:
        self.table: OffsetTable = {}
        self.master = MasterOffsets()

    def copies(self, offset: int, life: int = 1) -> int:
        self.master.merge(self.table, one(offset), life)
        return self.table[KEY][0]


def test_a_larger_value_of_the_master_is_taken() -> None:
    slave = GuardedSlave()
    assert [slave.copies(5), slave.copies(9), slave.copies(9)] == [5, 9, 9]
    assert slave.master.kept == 0


def test_what_was_consumed_from_the_slave_outlives_the_master_s_return() -> None:
    slave = GuardedSlave()
    slave.copies(500, life=1)
    slave.table[KEY][0] = 2000
    assert slave.copies(500, life=2) == 2000
    assert slave.copies(600, life=2) == 2000
    assert slave.copies(2100, life=2) == 2100
    assert slave.master.kept == 1, "one offset was kept, however often it was compared"


def test_a_reset_within_one_life_is_followed() -> None:
    slave = GuardedSlave()
    slave.copies(2000)
    assert slave.copies(100) == 100
    slave.table[KEY][0] = 2000
    slave.copies(2000, life=2)
    assert slave.copies(100, life=2) == 100


def test_a_lower_value_of_another_life_is_no_reset() -> None:
    slave = GuardedSlave()
    slave.copies(2000, life=1)
    assert slave.copies(100, life=2) == 2000


def test_what_the_master_does_not_know_stays_and_others_are_not_mixed_up() -> None:
    slave = GuardedSlave()
    slave.table = {"mine@g": {3: 7}, KEY: {1: 8}}
    slave.copies(5)
    assert slave.table == {"mine@g": {3: 7}, KEY: {0: 5, 1: 8}}


@given(TABLES, TABLES, st.lists(TABLES, max_size=4))
def test_without_resets_nothing_ever_goes_back(
    mine: OffsetTable, first: OffsetTable, later: list[OffsetTable]
) -> None:
    master = MasterOffsets()
    kept = {key: dict(queues) for key, queues in mine.items()}
    for life, table in enumerate([first, *later]):
        before = {key: dict(queues) for key, queues in kept.items()}
        master.merge(kept, table, life)
        for source in (before, table):
            for key, queues in source.items():
                assert all(kept[key][queue] >= offset for queue, offset in queues.items())


# --- a master that comes back -------------------------------------------------------------------


class ReturnedMaster:
    """A starting master with its offsets, and the peers that it may ask."""

    def __init__(self, folder: Path) -> None:
        self.peers = FakePeers()
        self.offsets = ConsumerOffsetManager(folder / "consumerOffset.json")
        self.ends = {("T", 0): 3000}
        self.named: tuple[str, ...] = SLAVES
        self.members = Members(lambda: self.named)
        self.outer = BrokerOuterApi(self.peers, ["ns1:9876", "ns2:9876"])  # type: ignore[arg-type]

    def lists(self, name_server: str, members: dict[int, str]) -> None:
        pair = {"cluster": "c", "brokerName": "b", "brokerAddrs": members}
        body = json.dumps({"brokerAddrTable": {"b": pair}, "clusterAddrTable": {"c": ["b"]}})
        self.peers.answers[name_server, RequestCode.GET_BROKER_CLUSTER_INFO] = body.encode()

    def slave_has(self, slave: str, offset: int) -> None:
        body = json.dumps({"offsetTable": one(offset)}).encode()
        self.peers.answers[slave, RequestCode.GET_ALL_CONSUMER_OFFSET] = body

    def slave_ends(self, slave: str, offset: int) -> None:
        self.peers.fields[slave, RequestCode.GET_MAX_OFFSET] = {"offset": str(offset)}

    def shows(self, slave: str, record: bytes) -> None:
        """A slave answers with this record, wherever it is asked for one."""
        self.peers.answers[slave, RequestCode.VIEW_MESSAGE_BY_ID] = record

    async def starts(self, store: OwnStore | None = None) -> int:
        hand_back = HandBack(
            self.outer, self.offsets, broker_name="b", own_address=OWN, members=self.members
        )
        ends = Ends(lambda topic, queue_id: self.ends.get((topic, queue_id), 0))
        return await hand_back.take_returned_offsets(store or ends)


@pytest.fixture
def master(tmp_path: Path) -> ReturnedMaster:
    found = ReturnedMaster(tmp_path)
    found.offsets.table = IndexedTable(one(500))
    found.lists("ns1:9876", {0: OWN, 1: SLAVES[0]})
    found.slave_has(SLAVES[0], 2000)
    return found


async def test_a_returned_master_takes_what_its_slave_knows_better(
    master: ReturnedMaster, tmp_path: Path
) -> None:
    assert await master.starts() == 1
    assert master.offsets.table == one(2000)
    reborn = ConsumerOffsetManager(tmp_path / "consumerOffset.json")
    reborn.load()
    assert reborn.table == one(2000), "it is on the disk before anybody is served"
    assert await master.starts() == 0


async def test_it_asks_the_slaves_of_every_name_server_and_takes_the_largest(
    master: ReturnedMaster,
) -> None:
    master.lists("ns2:9876", {1: SLAVES[0], 2: SLAVES[1]})
    master.slave_has(SLAVES[1], 2100)
    await master.starts()
    assert master.offsets.table == one(2100)
    asked = [address for address, code in master.peers.calls if code == 43]
    assert sorted(asked) == sorted(SLAVES), "each once, and never itself"


async def test_a_slave_that_is_behind_takes_nothing_away(master: ReturnedMaster) -> None:
    master.slave_has(SLAVES[0], 400)
    assert await master.starts() == 0
    assert master.offsets.table == one(500)


async def test_an_offset_beyond_the_log_becomes_its_end(master: ReturnedMaster) -> None:
    master.ends = {("T", 0): 1500}
    master.slave_ends(SLAVES[0], 2500)
    await master.starts()
    assert master.offsets.table == one(1500)


@pytest.mark.foreign
@pytest.mark.parametrize("end", [1999, 0, None])
async def test_an_offset_beyond_the_slaves_own_queue_is_not_believed(
    master: ReturnedMaster, end: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    master.ends = {("T", 0): 1500}
    if end is not None:
        master.slave_ends(SLAVES[0], end)
    assert await master.starts() == 0
    assert master.offsets.table == one(500)
    assert master.members.refused == 1
    assert f"broker {SLAVES[0]} is not believed: T@g queue 0 at 2000" in caplog.text


@pytest.mark.foreign
@pytest.mark.parametrize("named", [(), (OWN,), (SLAVES[1],), ("elsewhere.invalid:10911",)])
async def test_who_registered_and_is_no_member_is_not_asked(
    master: ReturnedMaster, named: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    master.named = named
    assert await master.starts() == 0
    assert master.offsets.table == one(500)
    assert [code for _, code in master.peers.calls if code == 43] == []
    assert f"broker {SLAVES[0]} is not believed" in caplog.text


async def test_a_member_may_be_named_by_its_host(master: ReturnedMaster) -> None:
    master.named = ("localhost:10911",)
    local = "127.0.0.1:10911"
    master.lists("ns1:9876", {0: OWN, 1: local})
    master.slave_has(local, 2000)
    assert await master.starts() == 1


async def test_a_topic_that_is_not_here_gets_no_offset(master: ReturnedMaster) -> None:
    master.offsets.table = IndexedTable({})
    master.ends = {}
    assert await master.starts() == 0
    assert master.offsets.table == {}


@pytest.mark.parametrize("answer", [None, b"refused", b"torn{"])
@pytest.mark.parametrize("who", ["slave", "name server"])
async def test_without_an_answer_it_starts_with_what_it_has(
    master: ReturnedMaster, who: str, answer: bytes | None
) -> None:
    key = (SLAVES[0], 43) if who == "slave" else ("ns1:9876", 106)
    del master.peers.answers[key]
    if answer is not None:
        master.peers.answers[key] = answer
    assert await master.starts() == 0
    assert master.offsets.table == one(500)


async def test_a_boot_time_that_nobody_can_read_is_said(master: ReturnedMaster) -> None:
    master.peers.answers[OWN, 28] = b'{"table":{"bootTimestamp":"soon"}}'
    with pytest.raises(ProtocolError, match="bootTimestamp 'soon'"):
        await master.outer.get_boot_ms(OWN)


@pytest.mark.parametrize(("is_same", "stands"), [(True, 50), (False, 10)])
async def test_a_slave_of_another_log_is_not_believed(
    master: ReturnedMaster,
    tmp_path: Path,
    is_same: bool,
    stands: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = open_store(tmp_path / "store")
    put_all(store, *(b"%d" % number for number in range(60)), topic="T")
    record = store.record_at(store.physical_offset_of("T", 0, 49))
    assert record is not None
    master.shows(SLAVES[0], record if is_same else record[:-1] + b"?")
    master.offsets.table = IndexedTable(one(10))
    master.slave_has(SLAVES[0], 50)
    assert await master.starts(store) == int(is_same)
    store.close()
    assert master.offsets.table == one(stands)
    assert ("its log is another than this master's" in caplog.text) is not is_same


@pytest.mark.parametrize(("theirs", "stands"), [(2000, 500), (2001, 2001)])
async def test_what_it_lowered_itself_before_it_stopped_stays(
    master: ReturnedMaster, theirs: int, stands: int, caplog: pytest.LogCaptureFixture
) -> None:
    for offset in (2000, 500):
        master.offsets.table = IndexedTable(one(offset))
        master.offsets.persist()
    master.slave_has(SLAVES[0], theirs)
    await master.starts()
    assert master.offsets.table == one(stands)
    assert ("stays at 500, which this master lowered itself" in caplog.text) is (stands == 500)
