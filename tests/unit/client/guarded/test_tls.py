"""TLS of the asking side: who is trusted, and one sentence for each handshake that fails."""

from __future__ import annotations

import re
import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from failback.client.remoting.connection import RemotingClient, RemotingSettings
from failback.client.remoting.guarded.access import ClusterAccess
from failback.client.remoting.guarded.tls import Tls, TlsFiles
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import ConfigError, RemotingConnectError, RemotingError
from tests.support.net.certificates import Authority, Certificate
from tests.support.net.ports import free_port
from tests.support.net.remoting_peer import RemotingPeer


class World:
    """A CA of the cluster and a stranger, with certificates of both."""

    def __init__(self, folder: Path) -> None:
        self.ours, self.strangers = Authority(folder / "ours"), Authority(folder / "strangers")
        self.server = self.ours.issue("server")
        self.named = self.ours.issue("named", "DNS:broker.example")
        self.expired = self.ours.issue("expired", expired=True)
        self.client = self.ours.issue("client")
        self.stranger = self.strangers.issue("stranger")
        self.files = TlsFiles(self.ours.file)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"))


def serving(certificate: Certificate, clients_of: Path | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.chain, certificate.key)
    if clients_of is not None:
        context.load_verify_locations(clients_of)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


async def asked(peer: RemotingPeer, files: TlsFiles | None, **settings: bool) -> str:
    """Ask once in each style; return the answer's code, or the error of the synchronous one."""
    access = None if files is None else ClusterAccess(tls=Tls(files))
    made = RemotingSettings(access=access, **settings)
    async with RemotingClient(settings=made) as client:
        try:
            await client.invoke(peer.addr, RemotingCommand.request(105), 3000)
            answer = await client.invoke_async(peer.addr, RemotingCommand.request(105))
        except RemotingError as error:
            return str(error)
        return str(answer.code)


@pytest.mark.sample
async def test_calls_go_over_tls_to_who_is_trusted(world: World) -> None:
    async with RemotingPeer(tls=serving(world.server)) as peer:
        assert await asked(peer, world.files) == "0"
    async with RemotingPeer(tls=serving(world.named)) as peer:
        assert await asked(peer, replace(world.files, server_name="broker.example")) == "0"
        assert await asked(peer, replace(world.files, server_name="*")) == "0"


async def test_a_client_certificate_is_shown_to_who_asks(world: World) -> None:
    async with RemotingPeer(tls=serving(world.server, world.ours.file)) as peer:
        own = replace(world.files, certificate=world.client.chain, key=world.client.key)
        assert await asked(peer, own) == "0"
        both = world.client.chain.with_name("both.pem")
        both.write_text(world.client.chain.read_text() + world.client.key.read_text())
        assert await asked(peer, replace(world.files, certificate=both)) == "0"
        assert "give --tls-cert and --tls-key" in await asked(peer, world.files)
        strange = replace(world.files, certificate=world.stranger.chain, key=world.stranger.key)
        assert "does it take the client certificate" in await asked(peer, strange)


@pytest.mark.parametrize(
    ("certificate", "words"),
    [
        ("expired", "its certificate has expired"),
        (
            "named",
            "its certificate is not for 127.0.0.1: give the name that it has by",
        ),
        ("stranger", "its certificate is signed by no CA in .*ca.pem: give the file of its CA"),
    ],
)
async def test_who_is_not_trusted_is_not_asked(world: World, certificate: str, words: str) -> None:
    async with RemotingPeer(tls=serving(getattr(world, certificate))) as peer:
        error = await asked(peer, world.files)
        assert not peer.received
    assert re.search(words, error), error
    assert error.startswith(f"connect to {peer.addr} failed")


async def test_a_plain_peer_is_told_from_a_broken_one(world: World) -> None:
    async with RemotingPeer(lambda request: b"") as peer:
        assert "leave out --tls" in await asked(peer, world.files)


@pytest.mark.full
@pytest.mark.parametrize("fails_at_once", [True, False])
async def test_a_plain_client_is_told_of_tls(world: World, fails_at_once: bool) -> None:
    """Whether calls under way fail with the connection, or run into their timers."""
    async with RemotingPeer(tls=serving(world.server)) as peer:
        found = await asked(peer, None, fail_inflight_on_eof=fails_at_once)
    assert "give --tls if it takes TLS alone" in found


async def test_certificates_that_changed_are_read_for_the_next_connection(
    world: World, tmp_path: Path
) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_bytes(world.strangers.file.read_bytes())
    access = ClusterAccess(tls=Tls(TlsFiles(ca)))
    async with (
        RemotingPeer(tls=serving(world.server)) as peer,
        RemotingClient(settings=RemotingSettings(access=access)) as client,
    ):
        with pytest.raises(RemotingConnectError):
            await client.invoke(peer.addr, RemotingCommand.request(105))
        ca.write_text("half")
        with pytest.raises(RemotingConnectError):
            await client.invoke(peer.addr, RemotingCommand.request(105))
        ca.write_bytes(world.ours.file.read_bytes())
        assert (await client.invoke(peer.addr, RemotingCommand.request(105))).code == 0


def test_files_that_are_none_are_refused_by_their_option(world: World, tmp_path: Path) -> None:
    missing, text = tmp_path / "missing.pem", tmp_path / "text.pem"
    text.write_text("hello")
    encrypted = tmp_path / "encrypted.key"
    encrypted.write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\n")
    chain, key = world.client.chain, world.client.key
    for files, words in (
        (TlsFiles(missing), "--tls-ca: .*missing.pem: no such file"),
        (TlsFiles(text), "--tls-ca: .*text.pem: has no certificate in PEM"),
        (TlsFiles(certificate=missing), "--tls-cert: .*missing.pem: no such file"),
        (TlsFiles(certificate=chain, key=missing), "--tls-key: .*missing.pem: no such file"),
        (TlsFiles(certificate=chain), "client.pem holds no key"),
        (TlsFiles(certificate=chain, key=world.server.key), "server.key is no key of .*client.pem"),
        (TlsFiles(certificate=chain, key=encrypted), "encrypted.key: the key has a password"),
        (TlsFiles(key=key), "--tls-key: needs --tls-cert"),
    ):
        with pytest.raises(ConfigError, match=words):
            Tls(files)


async def test_a_port_at_which_nobody_listens_is_refused_as_without_tls(world: World) -> None:
    settings = RemotingSettings(access=ClusterAccess(tls=Tls(world.files)))
    async with RemotingClient(settings=settings) as client:
        with pytest.raises(RemotingConnectError) as refused:
            await client.invoke(f"127.0.0.1:{free_port()}", RemotingCommand.request(105))
    assert refused.value.is_refused
