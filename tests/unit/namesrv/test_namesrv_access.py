"""Who may register at a name server that checks signatures, and change what it knows."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from failback.client.remoting.guarded.signing import AccessKey, sign
from failback.namesrv.config import NamesrvConfig
from failback.namesrv.processor import ADMIN_CODES
from failback.namesrv.server import NameServer
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import ConfigError
from failback.protocol.route import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)

ADMIN = AccessKey("admin-key", "hush-of-the-admin")
KEYS = {
    "unknown": AccessKey("stranger-key", "hush-of-strangers"),
    "wrong": AccessKey("admin-key", "hush-of-strangers"),
    "bare": AccessKey("bare-key", "hush-of-the-bare"),
}
ACL = """accounts:
- {accessKey: admin-key, secretKey: hush-of-the-admin, admin: true}
- {accessKey: bare-key, secretKey: hush-of-the-bare}
"""
REFUSED = "org.apache.rocketmq.acl.common.AclException: "
SAID = {
    "none": "No accessKey is configured",
    "unknown": "No acl config for stranger-key",
    "wrong": "Check signature failed for accessKey=admin-key",
    "bare": "Need admin permission for request code={code}, but accessKey=bare-key is not",
}
VERSION = DataVersion(1000, 1)


def registered(*topics: str) -> bytes:
    table = {topic: TopicConfig(topic, 4, 4) for topic in topics}
    version = DataVersion(1000, len(topics))
    return RegisterBrokerBody(TopicConfigSerializeWrapper(table, version)).to_json()


EXT = {
    "brokerName": "broker-a",
    "brokerAddr": "10.0.0.1:10911",
    "clusterName": "C",
    "haServerAddr": "10.0.0.1:10912",
    "brokerId": "0",
    "cluster": "C",
    "topic": "T",
    "namespace": "ns",
    "key": "k",
    "value": "another",
}
"""Fields by which each request that changes anything does so."""
BODIES = {
    RequestCode.REGISTER_BROKER: registered("T", "U"),
    RequestCode.QUERY_DATA_VERSION: VERSION.to_json(),
    RequestCode.UPDATE_NAMESRV_CONFIG: b"orderMessageEnable=true\n",
}


class Peer:
    host = peer = "10.1.1.1"


class Lab:
    """A name server without sockets, with a broker and a key, as its admin has left it."""

    def __init__(self, folder: Path, mode: str = "enforce", acl: str = ACL) -> None:
        self.folder = folder
        self.clock = 0
        (folder / "plain_acl.yml").write_text(acl)
        settings = {
            "aclEnable": "true",
            "failbackAclMode": mode,
            "failbackAccessFolder": str(folder),
            "kvConfigPath": str(folder / "kv.json"),
        }
        config = NamesrvConfig(settings, folder / "namesrv.conf")
        self.server = NameServer(config, lambda: self.clock)
        self.peer = Peer()
        assert self.server.access is not None
        self.access = self.server.access
        self.codes = sorted(self.server.processor._handlers)
        assert self.ask(100, ADMIN, value="v") == ""
        for name, addr in (("broker-a", "10.0.0.1:10911"), ("closed", "10.0.0.2:10911")):
            for code in (103, 205)[: 1 if name == "broker-a" else 2]:
                body = registered("T") if code == 103 else b""
                assert self.ask(code, ADMIN, body=body, brokerName=name, brokerAddr=addr) == ""

    def ask(
        self,
        code: int,
        key: AccessKey | None,
        *,
        oneway: bool = False,
        body: bytes | None = None,
        **ext: str,
    ) -> str | None:
        """Return the remark of an answer; ``None``: there is none."""
        self.clock += 1
        body = BODIES.get(RequestCode(code), b"") if body is None else body
        closed = {"brokerName": "closed"} if code == RequestCode.ADD_WRITE_PERM_OF_BROKER else {}
        fields = EXT | closed | ext
        request = RemotingCommand.request(code, None, body, ext=fields, oneway=oneway)
        request.version = 409
        if key is not None:
            sign(request, key)
        answer = self.server.serve(request, self.peer)  # type: ignore[arg-type]
        if answer is None:
            return None
        assert isinstance(answer, RemotingCommand)
        assert answer.code == 1 or not (answer.remark or "").startswith(REFUSED)
        return answer.remark or ""

    def state(self) -> str:
        """What a request may change."""
        routes, config = self.server.routes, self.server.processor.config
        live = {addr: vars_of(each) for addr, each in routes.live_brokers().items()}
        kept = [routes.cluster_info(), routes.route("T"), routes.all_topics(), live]
        files = [file.read_bytes() for file in sorted(self.folder.glob("*")) if file.is_file()]
        return repr([kept, self.server.kv_config._table, config.to_text(), files])


def vars_of(live: object) -> list[object]:
    return [getattr(live, name) for name in ("last_update_ms", "data_version", "ha_server_addr")]


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[Path]:
    """An empty folder at each turn."""

    def made() -> Iterator[Path]:
        for number in itertools.count():
            (tmp_path / str(number)).mkdir()
            yield tmp_path / str(number)

    return made()


def test_who_is_no_admin_changes_nothing(folders: Iterator[Path]) -> None:
    lab = Lab(next(folders))
    before, changing = lab.state(), sorted(ADMIN_CODES)
    for how, oneway, code in itertools.product(SAID, (False, True), lab.codes):
        said = lab.ask(code, KEYS.get(how), oneway=oneway)
        assert lab.state() == before, (how, RequestCode(code))
        if oneway:
            assert said is None
        elif code in ADMIN_CODES:
            assert said == f"{REFUSED}{SAID[how].format(code=code)}, failback.broker"
        else:
            assert not str(said).startswith(REFUSED), "a read needs no key, and may have any"
    by_key = dict.fromkeys(("admin-key", "bare-key"), 2) | {"": 4}
    refused = {(key, code, "enforce"): n for key, n in by_key.items() for code in changing}
    assert dict(lab.access.refused) == refused


def test_the_codes_that_an_admin_must_sign_are_those_that_change_something(
    folders: Iterator[Path],
) -> None:
    codes = Lab(next(folders)).codes
    for oneway in (False, True):
        changed = set()
        for code in codes:
            lab = Lab(next(folders))
            before = lab.state()
            lab.ask(code, ADMIN, oneway=oneway)
            if lab.state() != before:
                changed.add(code)
        assert changed == ADMIN_CODES


def test_a_body_is_decoded_behind_the_check(folders: Iterator[Path]) -> None:
    lab = Lab(next(folders))
    for body in (b"{", b"\xff" * 100_000):
        assert "No accessKey" in str(lab.ask(103, None, body=body))
        assert REFUSED not in str(lab.ask(103, ADMIN, body=body))


def test_a_mode_is_changed_by_a_signed_order(folders: Iterator[Path]) -> None:
    lab = Lab(next(folders), mode="warn")
    assert lab.ask(103, None) == ""
    assert dict(lab.access.refused) == {("", 103, "warn"): 1}
    assert lab.ask(318, None, body=b"failbackAclMode=enforce\n") == ""
    assert "No accessKey" in str(lab.ask(318, None, body=b"failbackAclMode=off\n"))
    assert "aclEnable" in str(lab.ask(318, ADMIN, body=b"aclEnable=false\n"))
    assert lab.ask(318, ADMIN, body=b"failbackAclMode=off\n") == ""
    counted = dict(lab.access.refused)
    assert lab.ask(103, None) == ""
    assert dict(lab.access.refused) == counted


def test_orders_are_logged_with_their_key_and_registrations_are_not(
    folders: Iterator[Path], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    lab = Lab(next(folders))
    lab.ask(205, ADMIN)
    assert "access: order 205 of admin-key, 10.1.1.1" in caplog.text
    assert "order 103" not in caplog.text
    assert "hush-" not in caplog.text


def test_a_changed_file_counts_and_a_bad_one_does_not(folders: Iterator[Path]) -> None:
    lab = Lab(next(folders))
    file = lab.folder / "plain_acl.yml"
    for text, problem, taken in (
        ("accounts: {", "line 1 is no YAML", True),
        (ACL.replace("the-admin", "another"), "", False),
        (ACL, "", True),
    ):
        file.write_text(text)
        lab.access.files.look()
        assert problem in lab.access.files.problem
        assert (lab.ask(103, ADMIN) == "") == taken
    file.write_text("- no")
    lab.access.files.look()
    shown = lab.server._metrics("GET").body.decode()
    assert "failback_namesrv_access_rules_current 0.0" in shown
    line = 'access_refused_total{access_key="admin-key",code="103",mode="enforce"} 1.0'
    assert f"failback_namesrv_{line}" in shown
    with pytest.raises(ConfigError, match=r"plain_acl\.yml"):
        Lab(next(folders), acl="- no")


def test_an_address_that_takes_everybody_is_warned_of(
    folders: Iterator[Path], caplog: pytest.LogCaptureFixture
) -> None:
    for text, warned in (
        (ACL, False),
        (f"globalWhiteRemoteAddresses: [10.9.9.9]\n{ACL}", False),
        (f"globalWhiteRemoteAddresses: ['*.*.*.*']\n{ACL}", True),
        (ACL.replace("admin: true", "admin: true, whiteRemoteAddress: '*'"), True),
    ):
        caplog.clear()
        lab = Lab(next(folders), acl=text)
        assert ("the white address *" in caplog.text) == warned
        assert (lab.ask(103, KEYS["wrong"]) == "") == warned


def test_without_a_folder_no_account_can_be_found() -> None:
    with pytest.raises(ConfigError, match="failbackAccessFolder"):
        NameServer(NamesrvConfig({"aclEnable": "true"}))
