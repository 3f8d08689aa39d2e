"""A pair replicates over TLS with certificates of both sides; a stranger gets nothing."""

from __future__ import annotations

import asyncio
import logging
import ssl
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from failback.broker.ha.service import HaService
from failback.client.remoting.guarded.tls_properties import TlsProperties
from failback.client.remoting.tls_server import ServerTls
from tests.integration.ha.test_replication import HA, log_bytes, pair, put, replicated
from tests.support.brokers.ha_pair import bare_slave, running, slave_of
from tests.support.common.polling import SCALE, until
from tests.support.net.certificates import Authority, Certificate
from tests.support.net.tls_files import TlsFolder

HOST = "127.0.0.1"


class World:
    """The pair's CA, and a stranger's."""

    def __init__(self, folder: Path) -> None:
        self.authority, self.others = Authority(folder / "pair"), Authority(folder / "others")
        self.member = self.authority.issue("member")
        self.renewed = self.authority.issue("renewed")
        self.elsewhere = self.authority.issue("elsewhere", "DNS:other.example")
        self.stranger = self.others.issue("stranger")

    def folder(self, path: Path, certificate: Certificate | None = None) -> TlsFolder:
        """Return the files of a member that shows its certificate on both sides."""
        made = TlsFolder(path, self.authority, certificate or self.member)
        made.set(server_mode="enforcing", enable="true")
        made.set(server_need_client_auth="require", server_authClient="true")
        made.set(client_certPath="tls.crt", client_keyPath="tls.key")
        return made


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"))


async def test_a_pair_replicates_with_certificates_of_both_sides(
    world: World, tmp_path: Path
) -> None:
    folder = world.folder(tmp_path / "access")
    tls = ServerTls(folder.path)
    slave_tls = TlsProperties(folder.path).client_tls()
    with pair(tmp_path) as (master, slave):
        put(master, range(100))
        async with running(master, replace(HA, tls=tls)) as source:
            settings = replace(slave_of(source, HA), dial_tls=lambda: slave_tls)
            async with running(slave, settings) as target:
                await replicated(master, slave)
                old = target._client._connection
                folder.serve_with(world.renewed)
                tls.look()
                put(master, range(100, 600))
                await replicated(master, slave)
                assert target._client._connection is old
                assert tls.connections == 1
            async with running(slave, settings):  # by the new certificate on both sides
                put(master, range(600, 700))
                await replicated(master, slave)
        assert log_bytes(slave) == log_bytes(master)
        assert not any(tls.failures.counts.values())


async def _stranger(source: HaService, context: ssl.SSLContext | None) -> bytes:
    """Report as a slave that has nothing; return what comes until the master closes."""
    got = b""
    with suppress(OSError, ssl.SSLError):
        reader, writer = await asyncio.open_connection(
            HOST, source.bound_port, ssl=context, server_hostname=HOST if context else None
        )
        writer.write(bytes(8) + (1 << 40).to_bytes(8, "big"))
        with suppress(OSError, ssl.SSLError):
            async with asyncio.timeout(20 * SCALE):
                while data := await reader.read(65536):
                    got += data
        writer.close()
        with suppress(OSError, ssl.SSLError):
            await writer.wait_closed()
    return got


async def test_a_stranger_gets_nothing_and_acknowledges_nothing(
    world: World, tmp_path: Path
) -> None:
    tls = ServerTls(world.folder(tmp_path / "access").path)
    context = ssl.create_default_context(cafile=world.authority.file)
    other = ssl.create_default_context(cafile=world.authority.file)
    other.load_cert_chain(world.stranger.chain, world.stranger.key)
    with pair(tmp_path) as (master, _):
        put(master, range(100))
        async with running(master, replace(HA, tls=tls, role="SYNC_MASTER")) as source:
            for case in (None, context, other):
                assert await _stranger(source, case) == b""
            assert source.push2slave_max_offset == 0
            assert (tls.failures.counts["plain"], tls.failures.counts["certificate"]) == (1, 2)
            async with bare_slave(source):
                await until(lambda: source.connection_count, "the silent stranger")
                assert not source.is_slave_ok(master.max_physical_offset)


async def test_a_master_without_tls_closes_a_handshake(world: World, tmp_path: Path) -> None:
    with pair(tmp_path) as (master, _):
        put(master, range(100))
        async with running(master, HA) as source:
            context = ssl.create_default_context(cafile=world.authority.file)
            with pytest.raises((OSError, ssl.SSLError)):
                await asyncio.open_connection(HOST, source.bound_port, ssl=context)
            await until(lambda: not source.connection_count, "it is closed")


async def test_a_slave_counts_from_its_report_on(world: World, tmp_path: Path) -> None:
    folder = world.folder(tmp_path / "access")
    tls, slave_tls = ServerTls(folder.path), TlsProperties(folder.path).client_tls()
    with pair(tmp_path) as (master, slave):
        async with running(master, replace(HA, tls=tls)) as source:
            settings = replace(slave_of(source, HA), dial_tls=lambda: slave_tls)
            async with running(slave, settings):
                await until(lambda: source.is_slave_ok(0), "the slave counts")


async def test_a_slave_takes_no_master_of_another_name(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    tls = ServerTls(world.folder(tmp_path / "access", world.elsewhere).path)
    slave_tls = TlsProperties(world.folder(tmp_path / "slave-access").path).client_tls()
    with pair(tmp_path) as (master, slave):
        put(master, range(100))
        async with running(master, replace(HA, tls=tls)) as source:
            async with running(slave, replace(slave_of(source, HA), dial_tls=lambda: slave_tls)):
                await until(lambda: "its certificate is not for 127.0.0.1" in caplog.text, "why")
            assert slave.max_physical_offset == 0
