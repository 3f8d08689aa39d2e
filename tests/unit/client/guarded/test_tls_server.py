"""tls.properties of a server: what it takes, what it refuses, what it reads again."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from failback.client.remoting.guarded.tls_properties import TlsProperties
from failback.client.remoting.tls_server import ServerTls
from failback.protocol.errors import ConfigError
from tests.support.brokers.broker_lab import FakeTransport
from tests.support.net.certificates import Authority
from tests.support.net.tls_files import TlsFolder

FAR = 2524521600.0
"""The end of the certificates of tests: 2049-12-31 00:00 UTC."""


class World:
    """A CA and its certificates."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.server = self.authority.issue("server")
        self.other = self.authority.issue("other")
        self.locked = folder / "locked.key"
        words = ["openssl", "pkcs8", "-topk8", "-passout", "pass:s3same", "-in"]
        subprocess.run([*words, self.server.key, "-out", self.locked], check=True)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"))


@pytest.fixture
def folder(world: World, tmp_path: Path) -> TlsFolder:
    return TlsFolder(tmp_path / "access", world.authority, world.server)


def test_the_key_counts_before_the_file(folder: TlsFolder) -> None:
    for settings, key, mode in [
        ({}, "file", "permissive"),
        ({"server_mode": "enforcing"}, "file", "enforcing"),
        ({"server_mode": "Disabled"}, "file", "disabled"),
        ({"server_mode": "enforcing"}, "permissive", "permissive"),
        ({"server_certPath": "", "server_keyPath": ""}, "file", "disabled"),
        ({"test_mode_enable": "true"}, "disabled", "disabled"),
    ]:
        with folder.but(**settings):
            assert ServerTls(folder.path, partial(str, key)).mode == mode


def test_without_a_file_tls_is_disabled(tmp_path: Path) -> None:
    for folder in (tmp_path, None):
        tls = ServerTls(folder)
        tls.look()
        assert (tls.mode, tls.context, tls.not_after, tls.problem) == ("disabled", None, None, "")


def test_versions_below_1_2_and_the_date_of_the_certificate(folder: TlsFolder) -> None:
    tls = ServerTls(folder.path)
    assert tls.context is not None
    assert tls.context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert tls.not_after == FAR


def test_a_start_is_refused_by_key_and_file(world: World, folder: TlsFolder) -> None:
    for settings, words in [
        ({"server_certPath": "none.crt"}, "tls.server.certPath: .*none.crt: no such file"),
        ({"server_keyPath": "none.key"}, "tls.server.keyPath: .*none.key: no such file"),
        ({"server_keyPath": ""}, "tls.server.keyPath: must be set"),
        ({"server_keyPath": "other.key"}, "certPath: .*other.key is no key of .*tls.crt"),
        ({"server_keyPath": "locked.key"}, "or its password is another one"),
        (
            {"server_keyPath": "locked.key", "server_keyPassword": "wrong"},
            "or its password is another one",
        ),
        ({"server_mode": "strict"}, "tls.server.mode: must be one of disabled, permissive, enf"),
        ({"server_need_client_auth": "all"}, "tls.server.need.client.auth: must be one of none"),
        ({"server_need_client_auth": "require"}, "tls.server.authClient: must be true"),
        (
            {"server_need_client_auth": "optional", "server_authClient": "true"}
            | {"server_trustCertPath": ""},
            "tls.server.trustCertPath: must be set",
        ),
        (
            {"server_need_client_auth": "require", "server_authClient": "true"}
            | {"server_trustCertPath": "tls.key"},
            "tls.server.trustCertPath: .*tls.key has no certificate in PEM",
        ),
    ]:
        (folder.path / "other.key").write_bytes(world.other.key.read_bytes())
        (folder.path / "locked.key").write_bytes(world.locked.read_bytes())
        with folder.but(**settings):
            with pytest.raises(ConfigError, match=words) as caught:
                ServerTls(folder.path)
            assert ServerTls(folder.path, lambda: "disabled").problem == str(caught.value)
        assert str(folder.path / "tls.properties") in str(caught.value)
        assert "s3same" not in str(caught.value)


def test_a_mode_without_a_certificate_is_refused(tmp_path: Path) -> None:
    for with_folder in [True, False]:
        folder = tmp_path if with_folder else None
        with pytest.raises(ConfigError, match="failbackTlsMode: is enforcing, but"):
            ServerTls(folder, lambda: "enforcing")
        with pytest.raises(ConfigError, match="failbackTlsMode: is permissive, but"):
            ServerTls(folder).check("permissive")
        ServerTls(folder).check("disabled")


def test_a_key_with_a_password(world: World, folder: TlsFolder) -> None:
    (folder.path / "tls.key").write_bytes(world.locked.read_bytes())
    folder.set(server_keyPassword="s3same")
    assert ServerTls(folder.path).context is not None


def _mounted(folder: TlsFolder, name: str) -> Callable[[str], None]:
    """Turn a file into a link, as in a mounted Secret; return what changes where it leads."""
    file = folder.path / name
    file.rename(folder.path / f"first-{name}")

    def lead_to(target: str) -> None:
        file.unlink(missing_ok=True)
        file.symlink_to(folder.path / target)

    lead_to(f"first-{name}")
    return lead_to


class Connection(asyncio.Protocol):
    """A server's end, which remembers what it was given."""

    transport: object = None

    def __init__(self) -> None:
        self.read = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def take_transport(self, transport: asyncio.Transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.read += data


class Socket(FakeTransport):
    """A transport whose protocol changes."""

    protocol: asyncio.BaseProtocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol


async def test_nothing_stands_before_a_plain_connection(folder: TlsFolder) -> None:
    connection = Connection()
    assert ServerTls(folder.path, lambda: "disabled").protect(connection) is connection
    socket = Socket(("10.0.0.1", 1))
    first = ServerTls(folder.path).protect(connection)
    assert first is not connection
    first.connection_made(socket)
    first.data_received(b"\0\0\0\1")
    assert (socket.protocol, connection.transport) == (connection, socket)
    assert connection.read == b"\0\0\0\1"


def test_a_certificate_that_is_needed_is_not_taken_away(folder: TlsFolder) -> None:
    tls = ServerTls(folder.path, lambda: "enforcing")
    context = tls.context
    folder.set(server_mode="disabled", server_certPath="", server_keyPath="")
    tls.look()
    assert tls.context is context is not None
    assert "failbackTlsMode: is enforcing, but" in tls.problem


def test_a_mode_of_the_file_is_checked_where_the_key_leaves_it_to_the_file(
    folder: TlsFolder,
) -> None:
    folder.set(server_mode="enforcing", server_certPath="", server_keyPath="")
    with pytest.raises(ConfigError, match=r"tls.server.mode: is enforcing, but .* does not name"):
        ServerTls(folder.path)
    tls = ServerTls(folder.path, lambda: "disabled")
    with pytest.raises(ConfigError, match="failbackTlsMode: is enforcing, but"):
        tls.check("file")


class Broken(Connection):
    """A server's end with a fault."""

    def data_received(self, data: bytes) -> None:
        raise ZeroDivisionError


_GARBAGE = b"\x17\x03\x03\x00\x20" + bytes(32)


@pytest.mark.parametrize(
    ("connection", "end", "counted"),
    [(Connection(), b"", 1), (Connection(), _GARBAGE, 1), (Broken(), b"text", 0)],
)
async def test_connections_are_counted_once_however_they_end(
    world: World, folder: TlsFolder, connection: Connection, end: bytes, counted: int
) -> None:
    tls, socket = ServerTls(folder.path), Socket(("10.0.0.1", 1))
    first = tls.protect(connection)
    first.connection_made(socket)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cafile=world.authority.file)
    client = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    first.data_received(outgoing.read())
    assert (tls.connections, tls.handshakes.total) == (0, 1)
    incoming.write(b"".join(socket.writes))
    client.do_handshake()
    if end == b"text":
        client.write(end)
    with suppress(ZeroDivisionError):  # a transport that is real ends the connection then
        first.data_received(outgoing.read() + (end if end == _GARBAGE else b""))
    assert (tls.connections, socket.aborted) == (counted, end == _GARBAGE)
    first.connection_lost(None)
    assert (tls.connections, tls.handshakes.total) == (0, 0)
    assert not any(tls.failures.counts.values())


def test_what_changes_by_its_content_is_taken_and_nothing_else(
    world: World, folder: TlsFolder
) -> None:
    certificate, key = _mounted(folder, "tls.crt"), _mounted(folder, "tls.key")
    tls = ServerTls(folder.path)
    first = tls.context
    (folder.path / "first-tls.crt").write_bytes(world.server.chain.read_bytes())
    tls.look()
    assert tls.context is first
    (folder.path / "second.crt").write_bytes(world.other.chain.read_bytes())
    (folder.path / "second.key").write_bytes(world.other.key.read_bytes())
    certificate("second.crt")
    tls.look()
    assert "is no key of" in tls.problem
    assert tls.context is first
    key("second.key")
    tls.look()
    assert tls.problem == ""
    assert tls.context is not first


@pytest.mark.parametrize("name", ["tls.crt", "tls.key", "tls.properties"])
def test_files_that_go_leave_what_is_in_use(
    folder: TlsFolder, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    tls = ServerTls(folder.path)
    context, file = tls.context, folder.path / name
    text = file.read_bytes()
    file.unlink()
    for _ in range(3):
        tls.look()
    assert (tls.mode, tls.context) == ("permissive", context)
    assert name in tls.problem
    assert len([each for each in caplog.records if each.levelname == "ERROR"]) == 1
    file.write_bytes(text)
    tls.look()
    assert tls.problem == ""


def test_a_certificate_that_comes_after_the_start_is_taken(
    world: World, tmp_path: Path, folder: TlsFolder
) -> None:
    place = tmp_path / "empty"
    place.mkdir()
    tls = ServerTls(place)
    folder.path.rename(tmp_path / "gone")
    TlsFolder(place, world.authority, world.server)
    tls.look()
    assert (tls.mode, tls.not_after) == ("permissive", FAR)


def test_own_connections_are_plain_unless_asked(folder: TlsFolder) -> None:
    assert TlsProperties(folder.path).client_tls() is None
    assert TlsProperties(folder.path).client_tls(use_tls=True) is not None
    folder.set(enable="true")
    found = TlsProperties(folder.path).client_tls()
    assert found is not None
    assert found.files.ca == folder.path / "ca.crt"
    assert found.context.check_hostname


def test_own_connections_are_refused_by_key_and_file(folder: TlsFolder) -> None:
    for settings, words in [
        ({"client_authServer": "false"}, "tls.client.authServer: must be true"),
        ({"client_trustCertPath": "none"}, "tls.client.trustCertPath: .*none: no such file"),
        ({"client_certPath": "tls.crt"}, "tls.client.certPath: .*tls.crt holds no key"),
        ({"client_keyPath": "tls.key"}, "tls.client.keyPath: needs tls.client.certPath"),
    ]:
        with (
            folder.but(enable="true", **settings),
            pytest.raises(ConfigError, match=words) as caught,
        ):
            TlsProperties(folder.path).client_tls()
        assert caught.value.file == folder.path / "tls.properties"


def test_own_key_with_a_password(world: World, folder: TlsFolder) -> None:
    (folder.path / "tls.key").write_bytes(world.locked.read_bytes())
    folder.set(enable="true", client_certPath="tls.crt", client_keyPath="tls.key")
    with pytest.raises(ConfigError, match="the key has a password"):
        TlsProperties(folder.path).client_tls()
    folder.set(client_keyPassword="s3same")
    found = TlsProperties(folder.path).client_tls()
    assert found is not None
    assert "s3same" not in repr(found.files)


def test_hints_name_the_keys_of_the_file(folder: TlsFolder) -> None:
    folder.set(enable="true")
    found = TlsProperties(folder.path).client_tls()
    assert found is not None
    assert "give tls.client.certPath and tls.client.keyPath if" in found.unread_hint
