"""How a broker and its tools ask others: settings and files that change while they run."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from failback.broker.ha.prefix import PrefixSettings
from failback.client.remoting.guarded import access, own_access
from failback.client.remoting.guarded.own_access import OwnAccess, OwnSettings
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import ConfigError
from tests.support.net.certificates import Authority, Certificate
from tests.support.net.tls_files import TlsFolder

KEY = "accessKey: {}\nsecretKey: hush-of-own-requests\n"


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at files with each request."""
    for module in (access, own_access):
        monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)


World = tuple[Authority, Certificate]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    authority = Authority(tmp_path_factory.mktemp("authority"))
    return authority, authority.issue("server")


@pytest.fixture
def folder(world: World, tmp_path: Path) -> TlsFolder:
    return TlsFolder(tmp_path / "access", *world)


class Own:
    """Settings that change, and the access by them."""

    def __init__(self, folder: Path | None, *, use_tls: bool = False) -> None:
        self.settings = OwnSettings(folder, use_tls)
        self.access = OwnAccess(lambda: self.settings)
        self.access.load()

    def use_tls(self, wanted: bool) -> None:
        """Change the setting as a broker does: checked first."""
        settings = self.settings._replace(use_tls=wanted)
        self.access.check(settings)
        self.settings = settings

    @property
    def signs_as(self) -> str | None:
        request = RemotingCommand.request(RequestCode.GET_BROKER_CONFIG)
        self.access.sign(request)
        return (request.ext_fields or {}).get("AccessKey")


def test_the_key_in_force_counts_for_the_next_connection(folder: TlsFolder) -> None:
    own = Own(folder.path)
    assert own.access.tls is None
    own.use_tls(True)
    found = own.access.tls
    assert found is not None
    assert found.files.ca == folder.path / "ca.crt"
    assert own.access.tls is found
    own.use_tls(False)
    assert own.access.tls is None
    folder.set(enable="true")
    assert own.access.tls is not None
    folder.set(enable="false")
    assert own.access.tls is None


def test_a_switch_without_usable_files_is_refused(folder: TlsFolder, tmp_path: Path) -> None:
    missing = tmp_path / "nothing"
    for place, words in [
        (None, "useTLS: is true, but there is no tls.properties in a folder: set failbackAccess"),
        (missing, "useTLS: is true, but there is no tls.properties in .*nothing"),
        (folder.path, "tls.client.trustCertPath: .*none: no such file"),
    ]:
        folder.set(client_trustCertPath="none")
        own = Own(place)
        with pytest.raises(ConfigError, match=words):
            own.use_tls(True)
        assert own.access.tls is None
    assert Own(missing, use_tls=True).access.tls is not None, "a start trusts the system's CAs"
    with pytest.raises(ConfigError, match=r"tls\.client\.trustCertPath"):
        Own(folder.path, use_tls=True)


def test_files_that_cannot_be_used_leave_what_was(
    folder: TlsFolder, caplog: pytest.LogCaptureFixture
) -> None:
    own = Own(folder.path, use_tls=True)
    before = own.access.tls
    file = folder.path / "tls.properties"
    text = file.read_text()
    file.write_text(text + "tls.client.authServer=false\n")
    assert [own.access.tls for _ in range(3)] == [before] * 3
    file.unlink()
    assert [own.access.tls for _ in range(3)] == [before] * 3
    errors = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert ["must be true" in errors[0], "is gone" in errors[1], len(errors)] == [True, True, 2]
    file.write_text(text)
    assert own.access.tls is not None


def test_a_new_ca_is_taken_for_the_next_connection(folder: TlsFolder, tmp_path: Path) -> None:
    own = Own(folder.path, use_tls=True)
    assert own.access.tls is not None
    before = own.access.tls.context
    assert own.access.tls.context is before
    (folder.path / "new").write_bytes(Authority(tmp_path / "other").file.read_bytes())
    (folder.path / "new").rename(folder.path / "ca.crt")
    assert own.access.tls.context is not before


@pytest.mark.usefixtures("at_once")
def test_a_key_that_comes_later_signs_and_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own, file = Own(tmp_path), tmp_path / "tools.yml"
    assert own.signs_as is None
    file.write_text("accessKey: half\n")
    assert [own.signs_as, own.signs_as] == [None, None]
    assert caplog.text.count("secretKey: is missing") == 1
    for name in ("first", "second-key"):
        file.write_text(KEY.format(name))
        assert own.signs_as == name
    file.unlink()
    assert own.signs_as == "second-key"
    assert "hush" not in caplog.text


def test_the_folder_is_that_of_the_key_or_of_the_file() -> None:
    conf = Path("/conf/broker.conf")
    for properties, expected in [
        ({}, OwnSettings(Path("/conf"), False)),
        ({"failbackAccessFolder": " ", "useTLS": "yes"}, OwnSettings(Path("/conf"), False)),
        ({"failbackAccessFolder": "/keys", "useTLS": " TRUE"}, OwnSettings(Path("/keys"), True)),
    ]:
        assert OwnSettings.of(properties, conf) == expected
    assert OwnSettings.of({}, None) == OwnSettings(None, False)


def test_the_check_of_a_log_signs_by_the_file_beside_broker_conf(tmp_path: Path) -> None:
    lines = dict.fromkeys(("brokerName", "brokerRole", "storePathRootDir"), "x")
    lines["namesrvAddr"] = "127.0.0.1:1"
    conf, file = tmp_path / "broker.conf", tmp_path / "tools.yml"
    file.write_text(KEY.format("beside"))
    found = PrefixSettings.of(lines, conf).access.key_file
    assert found is not None
    assert found.path == file
    file.write_text("accessKey: half\n")
    with pytest.raises(ConfigError, match="secretKey"):
        PrefixSettings.of(lines, conf)
