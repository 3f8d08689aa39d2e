"""A name server and brokers that sign, as processes: who is taken, and what is never shown."""

from __future__ import annotations

import os
import tarfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from failback.cli.__main__ import main
from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient, RemotingSettings
from failback.client.remoting.guarded.access import ClusterAccess, KeyFile
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from tests.support.brokers.namesrv_process import NamesrvProcess
from tests.support.common.polling import until
from tests.support.net.certificates import Authority
from tests.support.net.ports import free_port_block
from tests.support.net.tls_files import TlsFolder
from tests.support.processes.child_process import (
    TestProcess,
    failback_command,
    failback_environment,
)

SECRET = "hush-of-the-admin"
ACL = f"accounts:\n- {{accessKey: admin-key, secretKey: {SECRET}, admin: true}}\n"
TOOLS = f"accessKey: admin-key\nsecretKey: {SECRET}\n"


@contextmanager
def broker(folder: Path, namesrv: str, **settings: object) -> Iterator[TestProcess]:
    """Run a broker whose files are in ``folder``."""
    port = free_port_block(8) + 4
    settings = {
        "brokerName": folder.name,
        "brokerIP1": "127.0.0.1",
        "listenPort": port,
        "namesrvAddr": namesrv,
        "storePathRootDir": folder / "store",
        "mappedFileSizeCommitLog": 4 * 1024 * 1024,
        "failbackHttpPort": 0,
        "failbackTimeScale": 0.1,
        **settings,
    }
    folder.mkdir(exist_ok=True)
    text = "".join(f"{key}={value}\n" for key, value in settings.items())
    (folder / "broker.conf").write_text(text)
    command = failback_command("broker", "-c", str(folder / "broker.conf"))
    process = TestProcess(folder.name, command, folder, environment=failback_environment())
    try:
        process.start()
        process.wait_for("boot success")
        yield process
    finally:
        process.dispose()


def has_core_files(pid: int) -> bool:
    limits = Path(f"/proc/{pid}/limits").read_text().splitlines()
    return next(line for line in limits if "core file" in line).split()[4:6] != ["0", "0"]


def refusals(namesrv: NamesrvProcess) -> float:
    """How many registrations without a key were refused."""
    with urllib.request.urlopen(f"{namesrv.http}/metrics", timeout=30) as answer:
        shown = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines())
    labels = 'access_key="",code="103",mode="enforce"'
    return float(shown.get(f"failback_namesrv_access_refused_total{{{labels}}}", 0))


async def test_a_guarded_name_server_takes_who_signs(tmp_path: Path) -> None:
    home = tmp_path / "names"
    home.mkdir()
    (home / "plain_acl.yml").write_text(ACL)
    known, unknown = tmp_path / "known", tmp_path / "unknown"
    known.mkdir()
    (known / "tools.yml").write_text(TOOLS)
    settings = {"aclEnable": "true", "failbackTimeScale": "0.1"}
    with (
        NamesrvProcess(home, **settings) as namesrv,
        broker(known, namesrv.addr) as signs,
        broker(unknown, namesrv.addr) as does_not,
    ):
        async with AdminClient([namesrv.addr]) as admin:

            async def listed() -> set[str]:
                return set((await admin.cluster_info()).broker_addr_table)

            assert await listed() == {"known"}
            assert not has_core_files(namesrv.pid)
            assert not has_core_files(signs.pid)

            # It tries again and again, and says why once.
            await until(lambda: refusals(namesrv) > 3, "several attempts", 30)
            said = [line for line in does_not.errors().splitlines() if "registration with" in line]
            assert len(said) == 1, said
            assert "it asks for an access key" in said[0]
            assert "tools.yml" in said[0]

            (home / "plain_acl.yml").write_text("globalWhiteRemoteAddresses: [127.0.0.1]\n" + ACL)
            await until(lambda: "registered again" in does_not.errors(), "it is let in", 30)
            assert await listed() == {"known", "unknown"}
        assert signs.stop() == 0
        assert "broker unregistered broker=known" in namesrv.log


async def test_no_secret_leaves_by_answers_logs_or_a_bundle(tmp_path: Path) -> None:
    """Secrets are in every file of an access folder, and in settings where they do not belong."""
    root, home = tmp_path / "root", tmp_path / "root" / "pods" / "demo-0" / "home" / "conf"
    home.mkdir(parents=True)
    authority = Authority(tmp_path / "ca")
    certificate = authority.issue("server")
    TlsFolder(home, authority, certificate).set(server_keyPassword="hush-of-the-tls-key")
    (home / "plain_acl.yml").write_text(ACL)
    (home / "tools.yml").write_text(TOOLS)
    misplaced = {
        "aclEnable": "true",
        "tls.server.keyPassword": "hush-of-the-password",
        "initAuthenticationUser": '{"username":"x","password":"hush-of-users"}',
        "innerClientAuthenticationCredentials": '{"accessKey":"x","secretKey":"hush-of-5"}',
    }
    names = tmp_path / "root" / "pods" / "names-0" / "home" / "conf"
    names.mkdir(parents=True)
    access = ClusterAccess(KeyFile(home / "tools.yml"))
    shared = {"failbackAccessFolder": str(home), **misplaced}
    with NamesrvProcess(names, **shared) as namesrv, broker(home, namesrv.addr, **shared) as runs:
        address = next(line for line in runs.lines() if "boot success" in line)
        address = address.split(", ")[1].split("]")[0]
        async with RemotingClient(settings=RemotingSettings(access=access)) as client:
            for target, code in (
                (address, RequestCode.GET_BROKER_CONFIG),
                (namesrv.addr, RequestCode.GET_NAMESRV_CONFIG),
            ):
                answer = await client.invoke(target, RemotingCommand.request(code))
                text = answer.body.decode()
                assert "aclEnable=true\n" in text
                assert "tls.server.keyPassword=***\n" in text
                assert "hush-" not in text
        (home / "plain_acl.yml").write_text(f"accounts: [{SECRET}\n")
        await until(lambda: "stay in use" in runs.errors(), "the broken file is noticed", 30)
        await until(lambda: "stay in use" in namesrv.log, "the name server notices, too", 30)
        private = certificate.key.read_text().splitlines()[2]
        (root / "logs").mkdir()
        (root / "logs" / "demo-0.log").write_text(runs.errors() + namesrv.log)
        bundle = tmp_path / "q.tar.gz"
        main(["doctor", "--root", str(root), "--runs", str(tmp_path), "--bundle", str(bundle)])
        with tarfile.open(bundle) as archive:
            archive.extractall(tmp_path / "bundle", filter="data")
    files = [Path(at) / name for at, _, names in os.walk(tmp_path / "bundle") for name in names]
    assert {"broker.conf", "namesrv.conf", "demo-0.log"} <= {file.name for file in files}
    for text in (runs.errors(), "\n".join(runs.lines()), namesrv.log, *map(Path.read_text, files)):
        assert "hush-" not in text
        assert private not in text
