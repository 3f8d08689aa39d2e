"""TLS on the ports of a broker and a name server, over real sockets."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from failback.broker.config.config import BrokerConfig
from failback.broker.startup.controller import BrokerController
from failback.client.remoting.connection import RemotingClient, RemotingSettings
from failback.client.remoting.guarded.access import ClusterAccess
from failback.client.remoting.guarded.tls import Tls, TlsFiles
from failback.client.remoting.tls_server import MOST_HANDSHAKES_PER_ADDRESS, ServerTls
from failback.namesrv.config import NamesrvConfig
from failback.namesrv.server import NameServer
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import RemotingError
from failback.protocol.frames import FrameReader
from tests.support.brokers.broker_lab import send_header
from tests.support.common.polling import SCALE, until
from tests.support.net.certificates import Authority, Certificate
from tests.support.net.ports import free_port_block
from tests.support.net.tls_files import TlsFolder

HOST = "127.0.0.1"
ENDED = (OSError, asyncio.IncompleteReadError, ssl.SSLError)


class World:
    """A CA and a stranger's, with certificates of both."""

    def __init__(self, folder: Path) -> None:
        self.authority, strangers = Authority(folder / "ours"), Authority(folder / "strangers")
        self.server = self.authority.issue("server")
        self.renewed = self.authority.issue("renewed")
        self.client = self.authority.issue("client")
        self.stranger = strangers.issue("stranger")

    def context(self, own: Certificate | None = None) -> ssl.SSLContext:
        """Return what a client needs that shows ``own``."""
        context = ssl.create_default_context(cafile=self.authority.file)
        if own is not None:
            context.load_cert_chain(own.chain, own.key)
        return context


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"))


@pytest.fixture
def folder(world: World, tmp_path: Path) -> TlsFolder:
    return TlsFolder(tmp_path / "access", world.authority, world.server)


class Peer:
    """One connection, in the hands of a test."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._frames = FrameReader()

    async def ask(self, request: RemotingCommand) -> RemotingCommand:
        self.writer.write(request.encode())
        async with asyncio.timeout(20 * SCALE):
            while (frame := self._frames.next_frame()) is None:
                data = await self.reader.read(65536)
                if not data:
                    raise asyncio.IncompleteReadError(b"", None)
                self._frames.receive_data(data)
        return RemotingCommand.from_frame(frame)

    @property
    def certificate(self) -> str:
        """The common name of the certificate that the server has shown."""
        shown = self.writer.get_extra_info("ssl_object").getpeercert()
        return str(dict(pair[0] for pair in shown["subject"])["commonName"])

    async def closed(self) -> None:
        """Return once the server has closed."""
        async with asyncio.timeout(20 * SCALE):
            with suppress(*ENDED):
                while await self.reader.read(65536):
                    pass


@asynccontextmanager
async def connected(
    port: int, context: ssl.SSLContext | None = None, host: str = HOST
) -> AsyncIterator[Peer]:
    reader, writer = await asyncio.open_connection(
        HOST, port, ssl=context, local_addr=(host, 0), server_hostname=HOST if context else None
    )
    try:
        yield Peer(reader, writer)
    finally:
        writer.close()
        with suppress(*ENDED):
            await writer.wait_closed()


async def is_answered(port: int, context: ssl.SSLContext | None = None) -> bool:
    """Tell whether a question is answered; false: the server has closed the connection."""
    try:
        async with connected(port, context) as peer:
            await peer.ask(RemotingCommand.request(RequestCode.GET_KV_CONFIG, ext={}))
    except ENDED:
        return False
    return True


class Cluster:
    """A name server and a broker in this process."""

    def __init__(self, namesrv: NameServer, broker: BrokerController) -> None:
        self.namesrv = namesrv
        self.broker = broker

    @property
    def ports(self) -> dict[str, int]:
        port = self.broker.config.listen_port
        return {"broker": port, "fast": port - 2, "namesrv": self.namesrv.port}

    @property
    def tls(self) -> tuple[ServerTls, ServerTls]:
        return self.broker.tls, self.namesrv.tls

    async def closes_all(self) -> None:
        """Return once no handshake and no TLS connection is counted."""
        await until(
            lambda: not any(each.connections or each.handshakes.total for each in self.tls),
            "no TLS is spoken",
        )


@asynccontextmanager
async def serving(server: NameServer | BrokerController) -> AsyncIterator[None]:
    """Run a server until the end of the block."""
    ready, shutdown = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(server.run(shutdown, ready.set))
    waiting = asyncio.create_task(ready.wait())
    async with asyncio.timeout(30 * SCALE):
        await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    try:
        yield
    finally:
        shutdown.set()
        await running


@asynccontextmanager
async def cluster(root: Path, access: Path, **settings: str) -> AsyncIterator[Cluster]:
    """Run both with the files of ``access``; ``settings`` are more of broker.conf."""
    port = free_port_block(8)
    namesrv_settings = {
        "listenPort": str(port),
        "bindAddress": HOST,
        "kvConfigPath": str(root / "kvConfig.json"),
        "failbackAccessFolder": str(access),
    }
    broker_settings = {
        "brokerName": "broker-a",
        "brokerIP1": HOST,
        "listenPort": str(port + 4),
        "namesrvAddr": f"{HOST}:{port}",
        "storePathRootDir": str(root / "store"),
        "mappedFileSizeCommitLog": str(1024 * 1024),
        "failbackHttpPort": "0",
        "failbackAccessFolder": str(access),
    }
    namesrv = NameServer(NamesrvConfig(namesrv_settings))
    broker = BrokerController(BrokerConfig.from_properties(broker_settings | settings))
    async with serving(namesrv), serving(broker):
        yield Cluster(namesrv, broker)


@pytest.mark.parametrize(
    ("mode", "plain", "encrypted"),
    [("disabled", True, False), ("permissive", True, True), ("enforcing", False, True)],
)
async def test_the_first_byte_tells_what_a_connection_speaks(
    world: World, folder: TlsFolder, tmp_path: Path, mode: str, plain: bool, encrypted: bool
) -> None:
    folder.set(server_mode=mode)
    async with cluster(tmp_path, folder.path) as made:
        for name, port in made.ports.items():
            assert await is_answered(port) == plain, name
            assert await is_answered(port, world.context()) == encrypted, name
        await made.closes_all()
        for tls in made.tls:
            refused = {reason: count for reason, count in tls.failures.counts.items() if count}
            assert set(refused) == (set() if plain else {"plain"})


@pytest.mark.parametrize(
    ("wanted", "none", "ours", "strangers"),
    [
        ("none", True, True, True),
        ("optional", True, True, False),
        ("require", False, True, False),
    ],
)
async def test_client_certificates(
    world: World,
    folder: TlsFolder,
    tmp_path: Path,
    wanted: str,
    none: bool,
    ours: bool,
    strangers: bool,
) -> None:
    folder.set(server_need_client_auth=wanted, server_authClient="true")
    cases = ((None, none), (world.client, ours), (world.stranger, strangers))
    async with cluster(tmp_path, folder.path) as made:
        for name, port in made.ports.items():
            for certificate, expected in cases:
                assert await is_answered(port, world.context(certificate)) == expected, name
        await made.closes_all()
        refused = [none, strangers].count(False)
        assert [tls.failures.counts["certificate"] for tls in made.tls] == [2 * refused, refused]


async def test_own_connections_of_a_broker_speak_tls_with_its_certificate(
    world: World, folder: TlsFolder, tmp_path: Path
) -> None:
    folder.set(server_mode="enforcing", server_need_client_auth="require", enable="true")
    folder.set(server_authClient="true", client_certPath="tls.crt", client_keyPath="tls.key")
    async with cluster(tmp_path, folder.path) as made:
        assert list(made.namesrv.routes.live_brokers()) == [made.broker.identity.address]
        assert made.namesrv.tls.connections == 1


async def test_a_new_certificate_is_taken_under_traffic(
    world: World, folder: TlsFolder, tmp_path: Path
) -> None:
    async with cluster(tmp_path, folder.path) as made:
        port, sends = made.ports["broker"], 0
        is_renewed = asyncio.Event()

        async def send_on(peer: Peer) -> int:
            count = 0
            while not is_renewed.is_set():
                header = send_header(topic="Renewed", queue_id=0)
                code = RequestCode.SEND_MESSAGE_V2
                answer = await peer.ask(RemotingCommand.request(code, header, b"x" * 100_000))
                assert answer.code == ResponseCode.SUCCESS
                count += 1
            return count

        async with connected(port, world.context()) as old:
            sending = asyncio.create_task(send_on(old))
            before = made.broker.tls.context
            for broken in (b"", b"no certificate"):
                (folder.path / "tls.crt").write_bytes(broken)
                await until(lambda: made.broker.tls.problem, "the broken file is seen")
                async with connected(port, world.context()) as peer:
                    assert peer.certificate == "server"
                folder.serve_with(world.server)
                await until(lambda: not made.broker.tls.problem, "the file is whole again")
            before = made.broker.tls.context
            folder.serve_with(world.renewed)
            await until(lambda: made.broker.tls.context is not before, "the new certificate")
            async with connected(port, world.context()) as peer:
                assert peer.certificate == "renewed"
            is_renewed.set()
            sends = await sending
            assert old.certificate == "server"
            assert (await old.ask(RemotingCommand.request(RequestCode.GET_BROKER_CONFIG))).body
        assert sends == made.broker.store.max_queue_offset("Renewed", 0)


async def test_a_handshake_that_never_ends_is_closed(
    world: World, folder: TlsFolder, tmp_path: Path
) -> None:
    folder.set(server_mode="enforcing")
    async with cluster(tmp_path, folder.path) as made:
        for tls in made.tls:
            tls.handshake_seconds = 0.05
        for port in (made.ports["broker"], made.ports["namesrv"]):
            for begin in (b"", b"\x16", b"\x16\x03\x01\x02\x00"):
                async with connected(port) as peer:
                    peer.writer.write(begin)
                    await peer.closed()
        await made.closes_all()
        assert [tls.failures.counts["timeout"] for tls in made.tls] == [3, 3]
        assert not made.broker.server.connections


async def test_a_silent_connection_that_may_be_plain_stays(
    folder: TlsFolder, tmp_path: Path
) -> None:
    async with cluster(tmp_path, folder.path) as made:
        made.broker.tls.handshake_seconds = 0.05
        async with connected(made.ports["broker"]) as silent:
            async with connected(made.ports["broker"]) as late:
                late.writer.write(b"\x16")
                await late.closed()
            assert (await silent.ask(RemotingCommand.request(RequestCode.GET_BROKER_CONFIG))).body


async def test_what_breaks_a_handshake_is_counted(
    world: World, folder: TlsFolder, tmp_path: Path
) -> None:
    async with cluster(tmp_path, folder.path) as made:
        port, counts = made.ports["broker"], made.broker.tls.failures.counts
        async with connected(port) as peer:
            peer.writer.write(b"\x16\x03\x01\x00\x05hello")
            await peer.closed()
        assert counts["protocol"] == 1
        async with connected(port) as peer:
            peer.writer.write(b"\x16")
            await until(lambda: made.broker.tls.handshakes.total, "the handshake has begun")
        await until(lambda: counts["closed"] == 1, "the peer has left")
        with pytest.raises(ssl.SSLError):  # the client does not trust the server, and leaves
            async with connected(port, ssl.create_default_context()):
                pass
        await until(lambda: counts["closed"] == 2, "the client's refusal")
        await made.closes_all()


@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
async def test_unfinished_handshakes_are_bounded_for_each_address(
    world: World, folder: TlsFolder, tmp_path: Path, mode: str
) -> None:
    folder.set(server_mode=mode)
    async with cluster(tmp_path, folder.path) as made:
        tls, port = made.broker.tls, made.ports["broker"]
        peers = []
        for _ in range(MOST_HANDSHAKES_PER_ADDRESS + 10):
            reader, writer = await asyncio.open_connection(HOST, port, local_addr=("127.0.0.2", 0))
            writer.write(b"\x16")
            peers.append(Peer(reader, writer))
        await until(lambda: tls.failures.counts["bound"] == 10, "ten are refused")
        assert tls.handshakes.total == MOST_HANDSHAKES_PER_ADDRESS
        assert await is_answered(port, world.context())
        for peer in peers:
            peer.writer.close()
        await made.closes_all()
        assert await is_answered(port, world.context())


async def test_connections_are_bounded_before_their_handshake(
    world: World, folder: TlsFolder, tmp_path: Path
) -> None:
    async with (
        cluster(tmp_path, folder.path, failbackMaxConnectionsPerAddress="2") as made,
        connected(made.ports["broker"], host="127.0.0.3"),
        connected(made.ports["broker"], host="127.0.0.3"),
        connected(made.ports["broker"], host="127.0.0.3") as third,
    ):
        await third.closed()
        assert made.broker.server.limits.refusals.counts["connections"] == 1


async def test_the_mode_changes_in_a_running_broker(
    world: World, folder: TlsFolder, tmp_path: Path
) -> None:
    async with cluster(tmp_path, folder.path, failbackTlsMode="disabled") as made:
        port = made.ports["broker"]

        async def change(mode: str, peer: Peer) -> RemotingCommand:
            request = RemotingCommand.request(RequestCode.UPDATE_BROKER_CONFIG)
            request.body = f"failbackTlsMode={mode}\n".encode()
            return await peer.ask(request)

        async with connected(port) as old:
            assert (await change("enforcing", old)).code == ResponseCode.SUCCESS
            assert not await is_answered(port)
            assert await is_answered(port, world.context())
            assert (await change("permissive", old)).code == ResponseCode.SUCCESS
            assert await is_answered(port)
            assert (await change("strict", old)).code == ResponseCode.SYSTEM_ERROR


async def test_a_mode_that_needs_a_certificate_is_refused_while_running(tmp_path: Path) -> None:
    (tmp_path / "access").mkdir()
    async with cluster(tmp_path, tmp_path / "access") as made:
        async with connected(made.ports["broker"]) as peer:
            request = RemotingCommand.request(RequestCode.UPDATE_BROKER_CONFIG)
            request.body = b"failbackTlsMode=enforcing\n"
            answer = await peer.ask(request)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "failbackTlsMode: is enforcing, but" in str(answer.remark)
        assert made.broker.config.failback_tls_mode == "file"
        assert await is_answered(made.ports["broker"])


async def test_the_answers_that_a_tls_peer_leaves_unread_are_bounded(
    world: World, folder: TlsFolder, tmp_path: Path
) -> None:
    async with cluster(tmp_path, folder.path, failbackMaxUnreadBytes=str(1024**2)) as made:
        limits = made.broker.server.limits
        async with connected(made.ports["broker"], world.context()) as peer:
            request = RemotingCommand.request(RequestCode.GET_BROKER_CONFIG).encode()
            for _ in range(100):
                peer.writer.write(request * 100)
                await asyncio.sleep(0)
            await until(lambda: limits.refusals.counts["unread"], "it is closed", seconds=30)


async def test_metrics_show_certificate_connections_and_failures(
    world: World, folder: TlsFolder, tmp_path: Path
) -> None:
    folder.set(server_mode="enforcing", enable="true")
    async with (
        cluster(tmp_path, folder.path) as made,
        connected(made.ports["broker"], world.context()),
        connected(made.ports["broker"], world.context()),
        connected(made.ports["namesrv"], world.context()),  # and the broker's own
    ):
        assert not await is_answered(made.ports["broker"])
        assert not await is_answered(made.ports["namesrv"])
        answers = made.broker._endpoints.metrics("GET"), made.namesrv._metrics("GET")
        for text in (answer.body.decode() for answer in answers):
            lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
            found = {
                name.partition("tls_")[2]: float(value)
                for name, value in lines.items()
                if "tls_" in name and ("reason" not in name or 'reason="plain"' in name)
            }
            ends = {name.partition("{")[0]: value for name, value in found.items()}
            assert ends == {
                "certificate_not_after_timestamp_seconds": 2524521600.0,
                "connections": 2.0,
                "handshake_failures_total": 1.0,
            }


async def test_a_client_of_ours_is_told_what_is_wrong(
    world: World, folder: TlsFolder, tmp_path: Path
) -> None:
    folder.set(server_need_client_auth="require", server_authClient="true")
    folder.set(server_mode="enforcing")
    async with cluster(tmp_path, folder.path) as made:
        address = f"{HOST}:{made.ports['broker']}"
        cases = {
            "give --tls if": None,
            "give --tls-cert": TlsFiles(world.authority.file),
            "": TlsFiles(world.authority.file, world.client.chain, world.client.key),
        }
        for words, files in cases.items():
            access = None if files is None else ClusterAccess(tls=Tls(files))
            async with RemotingClient(settings=RemotingSettings(access=access)) as client:
                request = RemotingCommand.request(RequestCode.GET_BROKER_CONFIG)
                try:
                    await client.invoke(address, request, 20_000 * SCALE)
                    said = ""
                except RemotingError as error:
                    said = str(error)
            assert words in said, (words, said)
            assert bool(said) == bool(words)
