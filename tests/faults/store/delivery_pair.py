"""A pair of our brokers that is asked, killed and given other roles: what the histories act on."""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient
from failback.protocol.codes import (
    PERM_READ,
    SCHEDULE_TOPIC,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    RequestCode,
    ResponseCode,
)
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import BrokerError, ProtocolError, RemotingError
from failback.protocol.headers import ConsumerSendMsgBackRequestHeader, EndTransactionRequestHeader
from failback.protocol.message import decode_records, parse_offset_msg_id
from failback.protocol.route import DelayOffsetTable
from tests.faults.store.fork_server import ForkServer
from tests.support.brokers.broker_lab import pull_header, send_header
from tests.support.brokers.replica_lab import eventually
from tests.support.java.apache import Broker

SETTINGS: Final[dict[str, object]] = {
    "failbackTimeScale": 0.02,
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 500,
    "transactionCheckInterval": 3_600_000,
}
_Answer = TypeVar("_Answer")


def _used(levels: Mapping[int, int]) -> dict[int, int]:
    return {level: offset for level, offset in levels.items() if offset}


_ANSWER_MS: Final = 20_000


class DeliveryPair:
    """Two members of one name; the first is the master, and roles change by a restart."""

    def __init__(self, folder: Path, forks: ForkServer, namesrv: str, rules: str) -> None:
        self._forks = forks
        self.members = [
            Broker("failback", folder / name, namesrv, folder.name, broker_id=number)
            for number, name in enumerate(("one", "two"))
        ]
        addresses = ";".join(member.address for member in self.members)
        for member in self.members:
            member.folder.mkdir(parents=True)
            own = {"failbackRules": rules, "failbackMembers": addresses}
            member.settings = SETTINGS | own
        self._pids: dict[int, int] = {}
        self.client = RemotingClient()
        self.admin = AdminClient([namesrv])
        self._set_roles()

    def _set_roles(self) -> None:
        for member, role in zip(self.members, ("SYNC_MASTER", "SLAVE"), strict=True):
            member.role, member.broker_id = role, int(role == "SLAVE")
            member.settings.pop("haMasterAddress", None)
        self.slave.settings["haMasterAddress"] = f"127.0.0.1:{self.master.port + 1}"

    @property
    def master(self) -> Broker:
        return self.members[0]

    @property
    def slave(self) -> Broker:
        return self.members[1]

    # --- processes ------------------------------------------------------------------------------

    async def start(self, member: Broker) -> None:
        """Start and wait until it answers, the master until its slave is there too."""
        conf = member.folder / "broker.conf"
        conf.write_text(member.conf())
        self._pids[member.port] = self._forks.start(conf, member.folder / "broker.log")
        await self._eventually(lambda: self.admin.runtime_info(member.address), bool, "it answers")

    async def start_both(self) -> None:
        await self.start(self.master)
        await self.start(self.slave)
        await self.until_equal()

    def _end(self, member: Broker, number: int) -> None:
        code = self._forks.end(self._pids.pop(member.port), number)
        assert code == (0 if number == signal.SIGTERM else -number), self.log(member)

    def log(self, member: Broker) -> str:
        return (member.folder / "broker.log").read_text()[-4000:]

    async def kill(self, *members: Broker) -> None:
        """Kill members at the same time and start them again."""
        for member in members:
            self._end(member, signal.SIGKILL)
        for member in members:
            await self.start(member)
        await self.until_equal()

    async def swap(self, *, by_kill: bool) -> None:
        """Make the slave the master; after a kill the old one begins with an empty store."""
        await self.until_equal()
        old = self.master
        self._end(old, signal.SIGKILL if by_kill else signal.SIGTERM)
        self._end(self.slave, signal.SIGKILL if by_kill else signal.SIGTERM)
        self.members.reverse()
        self._set_roles()
        if by_kill:
            shutil.rmtree(old.store)
        await self.start_both()

    async def close(self) -> None:
        for pid in self._pids.values():
            if not self._forks.is_dead(pid):
                self._forks.end(pid, signal.SIGKILL)
        await self.client.close()
        await self.admin.close()

    # --- waiting --------------------------------------------------------------------------------

    async def _eventually(
        self, ask: Callable[[], Awaitable[_Answer]], wanted: Callable[[_Answer], object], what: str
    ) -> _Answer:
        for member in self.members:
            pid = self._pids.get(member.port)
            assert pid is None or not self._forks.is_dead(pid), self.log(member)
        return await eventually(ask, wanted, what, 30)

    async def until_equal(self) -> None:
        """Wait until the slave has the master's log and tables."""

        async def state() -> list[object]:
            found: list[object] = []
            for member in self.members:
                info = await self.admin.runtime_info(member.address)
                topics = (await self.admin.all_topic_config(member.address)).data_version
                groups = (await self.admin.all_groups(member.address)).data_version
                queued = info["dispatchBehindBytes"]
                found.append((info["commitLogMaxOffset"], queued, topics, groups))
            return found

        def equal(found: list[object]) -> bool:
            return found[0] == found[1]

        await self._eventually(state, equal, "log, topics and groups of both")

    async def until_delivered(self) -> None:
        """Wait until nothing waits for its time, and the slave knows that."""

        async def state() -> tuple[dict[int, int], dict[int, int], dict[int, int]]:
            admin, address = self.admin, self.master.address
            known = await admin.delay_offsets(address)
            ends = {
                level: await admin.max_offset(address, SCHEDULE_TOPIC, level - 1)
                for level in (1, 2)
            }
            file = self.slave.store / "config" / "delayOffset.json"
            text = file.read_text() if file.exists() else "{}"
            return ends, _used(known), _used(DelayOffsetTable.from_json(text).offset_table)

        def same(found: tuple[dict[int, int], dict[int, int], dict[int, int]]) -> bool:
            return _used(found[0]) == found[1] == found[2]

        await self._eventually(state, same, "ends of delay levels, how far master and slave know")

    # --- requests -------------------------------------------------------------------------------

    async def ask(self, request: RemotingCommand) -> RemotingCommand | None:
        """Ask the master; ``None`` if it went away."""
        try:
            return await self.client.invoke(self.master.address, request, _ANSWER_MS)
        except RemotingError:
            return None

    async def send(self, topic: str, queue_id: int, body: bytes, properties: str = "") -> str:
        """Send; return the offset message id, empty if it was not acknowledged."""
        header = send_header(topic=topic, queue_id=queue_id, properties=properties)
        request = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, body)
        answer = await self.ask(request)
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return ""
        return (answer.ext_fields or {})["msgId"]

    async def send_transaction(self, topic: str, body: bytes) -> bool:
        """Prepare and commit a message; tell whether both were acknowledged."""
        header = send_header(
            topic=topic,
            properties="TRAN_MSG\x01true\x02PGROUP\x01PG",
            sys_flag=TRANSACTION_PREPARED,
        )
        request = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, body)
        answer = await self.ask(request)
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return False
        fields = answer.ext_fields or {}
        end = EndTransactionRequestHeader(
            producer_group="PG",
            tran_state_table_offset=int(fields["queueOffset"]),
            commit_log_offset=parse_offset_msg_id(fields["msgId"])[2],
            commit_or_rollback=TRANSACTION_COMMIT,
            msg_id="",
        )
        ended = await self.ask(RemotingCommand.request(RequestCode.END_TRANSACTION, end))
        return ended is not None and ended.code == ResponseCode.SUCCESS

    async def send_back(self, group: str, message_id: str) -> bool:
        """Send a message back as its consumer does; tell whether that was acknowledged."""
        header = ConsumerSendMsgBackRequestHeader(
            offset=parse_offset_msg_id(message_id)[2], group=group, delay_level=1
        )
        request = RemotingCommand.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        answer = await self.ask(request)
        return answer is not None and answer.code == ResponseCode.SUCCESS

    async def stored(self, member: Broker, topic: str) -> list[Counter[bytes]]:
        """Return what each queue holds that clients are told to read; none without the topic."""
        table = (await self.admin.all_topic_config(member.address)).topic_config_table
        if topic not in table or not table[topic].perm & PERM_READ:
            return []
        queues = range(table[topic].read_queue_nums)
        return [await self._queue(member, topic, queue_id) for queue_id in queues]

    async def _queue(self, member: Broker, topic: str, queue_id: int) -> Counter[bytes]:
        found = Counter[bytes]()
        offset = await self.admin.min_offset(member.address, topic, queue_id)
        end = await self.admin.max_offset(member.address, topic, queue_id)
        while offset < end:
            header = pull_header(
                consumer_group="reader", topic=topic, queue_id=queue_id, queue_offset=offset
            )
            request = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
            answer = await self.client.invoke(member.address, request, _ANSWER_MS)
            if answer.code != ResponseCode.SUCCESS:
                raise ProtocolError(f"pull of {topic}/{queue_id} at {offset}: {answer}")
            found.update(message.body for message in decode_records(answer.body))
            offset = int((answer.ext_fields or {})["nextBeginOffset"])
        return found

    async def offset(self, member: Broker, group: str, topic: str) -> int:
        """Return the committed offset of queue 0, 0 without one."""
        try:
            return await self.admin.query_offset(member.address, group, topic, 0) or 0
        except BrokerError:
            return 0
