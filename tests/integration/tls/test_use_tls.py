"""A pair changes to TLS and back by live keys, and goes on replicating."""

from __future__ import annotations

import ssl
from pathlib import Path

from failback.broker.config.config import BrokerConfig
from failback.broker.startup.controller import BrokerController
from failback.namesrv.config import NamesrvConfig
from failback.namesrv.server import NameServer
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.headers import UpdateConsumerOffsetRequestHeader
from tests.integration.tls.test_tls_ports import HOST, Peer, connected, serving
from tests.support.brokers.broker_lab import send_header
from tests.support.common.polling import until
from tests.support.net.certificates import Authority
from tests.support.net.ports import free_port_block
from tests.support.net.tls_files import TlsFolder

TOPIC, GROUP, A_BATCH = "Orders", "billing", 50


class Pair:
    """A name server, and two brokers with the files of one folder."""

    def __init__(self, root: Path, access: Path) -> None:
        self.port = free_port_block(16)
        common = {"failbackAccessFolder": str(access)}
        ours = {"listenPort": str(self.port), "bindAddress": HOST}
        kept = {"kvConfigPath": str(root / "kvConfig.json")}
        self.namesrv = NameServer(NamesrvConfig(common | ours | kept))
        self.mounted = root / "mounted.conf"
        self.mounted.touch()
        self.master = self._broker(root / "master", 4, common)
        self.slave = self._broker(root / "slave", 8, common, brokerRole="SLAVE", brokerId="1")
        self.slave.config.mounted = self.mounted
        self.sent = 0

    def _broker(
        self, root: Path, port: int, common: dict[str, str], **settings: str
    ) -> BrokerController:
        own = {
            "brokerName": "broker-a",
            "brokerIP1": HOST,
            "listenPort": str(self.port + port),
            "namesrvAddr": f"{HOST}:{self.port}",
            "storePathRootDir": str(root),
            "mappedFileSizeCommitLog": str(1024 * 1024),
            "failbackHttpPort": "0",
            "failbackTimeScale": "0.02",
        }
        return BrokerController(BrokerConfig.from_properties(common | own | settings))

    async def set_on_master(self, peer: Peer, **settings: str) -> RemotingCommand:
        request = RemotingCommand.request(RequestCode.UPDATE_BROKER_CONFIG)
        request.body = "".join(f"{key}={value}\n" for key, value in settings.items()).encode()
        return await peer.ask(request)

    async def use_tls(self, peer: Peer, wanted: bool) -> None:
        """Change both brokers: one by a request, the other by its mounted file."""
        text = str(wanted).lower()
        answer = await self.set_on_master(peer, useTLS=text)
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        self.mounted.write_text(f"useTLS={text}\n")
        await until(lambda: self.slave.config.use_tls == wanted, "the mounted key is taken")

    def cut(self) -> None:
        """Cut the connections that both have made."""
        for broker in (self.master, self.slave):
            for connection in list(broker.client._living):
                connection.close("the test cuts it", cut=True)
        if self.slave.ha.client._connection is not None:
            self.slave.ha.client._connection.close("the test cuts it")

    async def goes_on(self, peer: Peer) -> None:
        """Send and commit, and wait until the slave has the log and the offset."""
        for _ in range(A_BATCH):
            code, header = RequestCode.SEND_MESSAGE_V2, send_header(topic=TOPIC, queue_id=0)
            answer = await peer.ask(RemotingCommand.request(code, header, b"x" * 500))
            assert answer.code == ResponseCode.SUCCESS
            self.sent += 1
        place = UpdateConsumerOffsetRequestHeader(
            consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=self.sent
        )
        await peer.ask(RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, place))
        slave = self.slave
        await until(lambda: slave.store.max_queue_offset(TOPIC, 0) == self.sent, "the log", 30)
        await until(lambda: slave.offsets.query(GROUP, TOPIC, 0) == self.sent, "the offset", 30)

    @property
    def spoken(self) -> tuple[bool, bool]:
        """Whether connections of the slave and those to the name server speak TLS."""
        return self.master.tls.connections > 0, self.namesrv.tls.connections > 0


async def test_a_pair_changes_to_tls_and_back_while_it_replicates(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    folder = TlsFolder(tmp_path / "access", authority, authority.issue("server"))
    pair = Pair(tmp_path, folder.path)
    trusted = ssl.create_default_context(cafile=authority.file)
    async with serving(pair.namesrv), serving(pair.master), serving(pair.slave):
        async with connected(pair.port + 4) as old:
            await pair.goes_on(old)
            assert pair.spoken == (False, False)

            await pair.use_tls(old, True)
            await pair.goes_on(old)
            assert pair.spoken == (False, False), "open connections stay as they are"
            await pair.set_on_master(old, failbackTlsMode="enforcing")
            pair.cut()
            await pair.goes_on(old)
            await until(lambda: pair.spoken == (True, True), "all speak TLS")
            assert not pair.master.tls.failures.counts["plain"]
            async with connected(pair.port + 4, trusted) as peer:
                shown = await peer.ask(RemotingCommand.request(RequestCode.GET_BROKER_CONFIG))
                assert b"useTLS=true\n" in shown.body

            await pair.use_tls(old, False)
            await pair.set_on_master(old, failbackTlsMode="disabled")
            pair.cut()
            await pair.goes_on(old)
            await until(lambda: pair.spoken == (False, False), "none speaks TLS")
        end = pair.master.store.max_physical_offset
        assert pair.slave.store.read_raw(0, end) == pair.master.store.read_raw(0, end)


async def test_a_switch_to_tls_without_its_files_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "access").mkdir()
    pair = Pair(tmp_path, tmp_path / "access")
    async with serving(pair.namesrv), serving(pair.master), connected(pair.port + 4) as peer:
        answer = await pair.set_on_master(peer, useTLS="true", fileReservedTime="24")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "useTLS: is true, but there is no tls.properties in" in str(answer.remark)
        shown = await peer.ask(RemotingCommand.request(RequestCode.GET_BROKER_CONFIG))
        assert b"useTLS=false\n" in shown.body
        assert pair.master.config.file_reserved_time == 72
