"""A stopped master with a store that our own broker wrote, and a slave that answers for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from failback.carry.command import main
from failback.carry.master_store import MasterStore, read_conf
from failback.protocol.body import MessageQueue
from failback.protocol.command import RemotingCommand
from failback.protocol.route import ConsumerOffsetTable
from failback.protocol.stats import TopicOffset, TopicStatsTable
from tests.support.net.fake_remoting import FakeBroker
from tests.support.store.store_kit import open_store, put_all

TOPIC = "orders"
KEY = "orders@billing"
Offsets = dict[str, dict[int, int]]


def at(offset: int) -> Offsets:
    """Return a table in which the group has one offset."""
    return {KEY: {0: offset}}


class StoppedMaster:
    """A master's folder: broker.conf and a store with messages in queue 0 of a topic."""

    def __init__(self, folder: Path, messages: int = 60, **settings: object) -> None:
        self.folder = folder
        self.store = folder / "store"
        folder.mkdir(parents=True, exist_ok=True)
        if messages:
            self.add(*(b"%d" % number for number in range(messages)))
        self.conf = folder / "broker.conf"
        said = {
            "brokerClusterName": "c",
            "brokerName": "b",
            "brokerId": 0,
            "brokerRole": "ASYNC_MASTER",
            "storePathRootDir": self.store,
            "storePathCommitLog": self.store / "commitlog",
            **settings,
        }
        self.conf.write_text("".join(f"{key}={value}\n" for key, value in said.items()))

    def add(self, *bodies: bytes) -> None:
        """Store messages, as a broker that ran."""
        store = open_store(self.store)
        put_all(store, *bodies, topic=TOPIC)
        store.close()

    @property
    def file(self) -> Path:
        return self.store / "config" / "consumerOffset.json"

    @property
    def backup(self) -> Path:
        return self.beside(".bak")

    def beside(self, ending: str) -> Path:
        return self.file.with_name(self.file.name + ending)

    def has(self, offsets: Offsets, *, backup: Offsets | None = None) -> None:
        """Write the table that the master will load, and the persist before."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_bytes(ConsumerOffsetTable(offsets).to_json(pretty=True))
        if backup is not None:
            self.backup.write_bytes(ConsumerOffsetTable(backup).to_json(pretty=True))

    @property
    def loads(self) -> Offsets:
        """The table in its file."""
        return ConsumerOffsetTable.from_json(self.file.read_bytes()).offset_table

    def carry(self, *words: object) -> int:
        """Run the command."""
        return main(["--conf", str(self.conf), *map(str, words)])

    def json(self, *words: object) -> dict[str, Any]:
        """Run the command, which must end with 0, and return what it wrote for machines."""
        path = self.folder / "carried.json"
        assert self.carry("--json", path, *words) == 0
        found: dict[str, Any] = json.loads(path.read_text())
        return found


class RunningMaster(FakeBroker):
    """A master that answers again, without members; it has 60 messages in each queue."""

    def __init__(self, port: int, offsets: Offsets) -> None:
        super().__init__(port=port)
        self.offsets = offsets
        self.answers[202] = self._ends
        self.answers[14] = self._offset

    def _ends(self, request: RemotingCommand) -> RemotingCommand:
        topic = (request.ext_fields or {})["topic"]
        ends = {MessageQueue(topic, "b", 0): TopicOffset(0, 60)}
        return request.response(0, body=TopicStatsTable(ends).to_json())

    def _offset(self, request: RemotingCommand) -> RemotingCommand:
        said = request.ext_fields or {}
        found = self.offsets[f"{said['topic']}@{said['consumerGroup']}"][int(said["queueId"])]
        return request.response(0, ext={"offset": str(found)})


class AnsweringSlave(FakeBroker):
    """A slave whose log is that of ``replica``, a master's folder."""

    def __init__(self, replica: StoppedMaster, offsets: Offsets, *, port: int = 0) -> None:
        super().__init__(broker_id=1, port=port)
        self.offsets = offsets
        self.replica = replica
        self.answers[33] = self._record

    def _record(self, request: RemotingCommand) -> RemotingCommand:
        log = MasterStore(read_conf(self.replica.conf))
        record = log.record_at(int((request.ext_fields or {})["offset"]))
        return request.response(0, body=record) if record else request.response(1, "none")
