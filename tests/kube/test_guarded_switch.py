"""Access control and TLS are switched on and off in a running cluster, under Java's traffic."""

from __future__ import annotations

import asyncio
import shutil
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingSettings
from failback.client.remoting.guarded.access import ClusterAccess, KeyFile
from failback.client.remoting.guarded.tls import Tls, TlsFiles
from failback.protocol.errors import FailbackError
from tests.support.common.polling import wait_until
from tests.support.java.apache import LOG_FILE_BYTES, failed_by, got_by, java_program, sent_by
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.net.certificates import Authority
from tests.support.operator.operator_process import condition_of, operator
from tests.support.operator.real_cluster import GROUP, TOPIC, LivedCluster
from tests.support.processes.child_process import TestProcess

ADMIN, SERVICE = ("operations", "secret-of-operations"), ("shop-service", "secret-of-the-shop")
ACCOUNTS = f"""globalWhiteRemoteAddresses: []
accounts:
- accessKey: {ADMIN[0]}
  secretKey: {ADMIN[1]}
  admin: true
- accessKey: {SERVICE[0]}
  secretKey: {SERVICE[1]}
  topicPerms: [{TOPIC}=PUB|SUB]
  groupPerms: [{GROUP}=SUB]
"""
KEYS, CERTIFICATE = {"secretRef": {"name": "keys"}}, {"secretRef": {"name": "certificate"}}
FRUGAL = "-Xms192m -Xmx192m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
MEMBERS = [f"orders-{pair}-{ordinal}" for pair in (0, 1) for ordinal in (0, 1)]
_BAD = ("failback_access_refused_total", "failback_tls_handshake_failures_total")


@pytest.mark.soak
@pytest.mark.long
@pytest.mark.timeout(1500)
def test_no_send_fails_and_slaves_go_on_copying(
    namespace: Namespace, node: NodeProcess, tmp_path: Path
) -> None:
    access = prepared(namespace, tmp_path)
    with operator(namespace, FAILBACK_ACCESS_FOLDER=str(tmp_path / "own")):
        cluster = LivedCluster(
            namespace, pairs=2, slavesPerPair=1, updateStrategy={"minReadySeconds": 0}
        )
        cluster.wait_settled()
        with traffic(cluster, tmp_path / "plain", {}) as plain, witness(cluster) as refused:
            change_name_server(cluster, tls=CERTIFICATE)
            reached(cluster, "NameServer", "main", TLS="Permissive")
            cluster.change(acl=KEYS, tls=CERTIFICATE)
            reached(cluster, "BrokerCluster", "orders", AccessControl="Enforce", TLS="Permissive")
            copied(cluster, access, plain)
            flags = {"tls.enable": "true", "tls.client.trustCertPath": str(tmp_path / "ca/ca.pem")}
            with traffic(cluster, tmp_path / "tls", flags) as over_tls:
                ended(plain)
                cluster.change(tls={"mode": "Enforcing"})
                change_name_server(cluster, tls={"mode": "Enforcing"})
                reached(cluster, "BrokerCluster", "orders", TLS="Enforcing")
                reached(cluster, "NameServer", "main", TLS="Enforcing")
                copied(cluster, access, over_tls)
                assert not asyncio.run(answers(cluster.name_server, None))
                cluster.change(acl={"mode": "Off"}, tls={"mode": "Permissive"})
                change_name_server(cluster, tls={"mode": "Permissive"})
                reached(cluster, "BrokerCluster", "orders", AccessControl="Off", TLS="Permissive")
                reached(cluster, "NameServer", "main", TLS="Permissive")
                with traffic(cluster, tmp_path / "back", {}) as back:
                    ended(over_tls)
                    cluster.change(tls={"mode": "Disabled"})
                    reached(cluster, "BrokerCluster", "orders", TLS="Disabled")
                    cluster.change(acl=None, tls=None)
                    change_name_server(cluster, tls={"mode": "Disabled"})
                    reached(cluster, "BrokerCluster", "orders", AccessControl="Off", TLS="Off")
                    cluster.wait_settled()
                    copied(cluster, None, back)
                    ended(back)
        assert refused == {}


@pytest.mark.long
def test_a_guarded_cluster_changes_modes_keys_and_certificates_without_a_restart(
    namespace: Namespace, node: NodeProcess, tmp_path: Path
) -> None:
    access = prepared(namespace, tmp_path)
    own = tmp_path / "own" / f"{namespace.name}.orders.tools.yml"
    with operator(namespace, FAILBACK_ACCESS_FOLDER=str(own.parent)):
        guarded = {"acl": KEYS, "tls": {**CERTIFICATE, "mode": "Enforcing"}}
        cluster = LivedCluster(
            namespace, nameServerSpec={"tls": guarded["tls"]}, pairs=1, slavesPerPair=1, **guarded
        )
        cluster.wait_settled()
        reached(cluster, "NameServer", "main", TLS="Enforcing")
        reached(cluster, "BrokerCluster", "orders", AccessControl="Enforce", TLS="Enforcing")
        assert not asyncio.run(answers(cluster.name_server, None))
        lives = cluster.lives()
        second = ("operations-2", "another-secret")
        more = f"{ACCOUNTS}- accessKey: {second[0]}\n  secretKey: {second[1]}\n  admin: true\n"
        files = {"plain_acl.yml": more, "tools.yml": own_key(*second)}
        namespace.api.patch("Secret", "keys", {"stringData": files})
        own.write_text(own_key(*second))
        without = more.replace(ADMIN[1], "no-secret-of-anybody")
        wait_until(lambda: asyncio.run(taken(cluster, access)), "the second key", 90)
        namespace.api.patch("Secret", "keys", {"stringData": {"plain_acl.yml": without}})
        cluster.change(acl={"mode": "Warn"}, tls={"mode": "Permissive"})
        reached(cluster, "BrokerCluster", "orders", AccessControl="Warn", TLS="Permissive")
        cluster.change(acl={"mode": "Enforce"}, tls={"mode": "Enforcing"})
        reached(cluster, "BrokerCluster", "orders", AccessControl="Enforce", TLS="Enforcing")
        cluster.wait_settled()
        assert cluster.lives() == lives


@pytest.mark.soak
@pytest.mark.long
@pytest.mark.timeout(1500)
def test_a_cluster_of_apache_is_switched_by_apaches_own_files(
    namespace: Namespace, node: NodeProcess, tmp_path: Path
) -> None:
    white = ACCOUNTS.replace("[]", "['127.*.*.*']")  # slaves of Apache sign nothing
    access = prepared(namespace, tmp_path, white)
    with operator(namespace, FAILBACK_ACCESS_FOLDER=str(tmp_path / "own")):
        cluster = LivedCluster(
            namespace,
            nameServerConfig={},
            nameServerSpec={"tls": CERTIFICATE},
            engine={"type": "Apache", "version": "4.9.7", "javaOptions": FRUGAL},
            pairs=1,
            slavesPerPair=1,
            config={"mappedFileSizeCommitLog": str(LOG_FILE_BYTES)},
            updateStrategy={"minReadySeconds": 0},
        )
        cluster.wait_settled()
        cluster.change(acl=KEYS, tls={**CERTIFICATE, "mode": "Enforcing"})
        reached(cluster, "BrokerCluster", "orders", AccessControl="Enforce", TLS="Enforcing")
        flags = {"tls.enable": "true", "tls.client.trustCertPath": str(tmp_path / "ca/ca.pem")}
        with traffic(cluster, tmp_path / "tls", flags) as over_tls:
            wait_until(lambda: len(got_by(over_tls[1])) > 50, "traffic", 60)
            ended(over_tls)
        assert not asyncio.run(taken(cluster, ClusterAccess(access.key_file)))
        assert asyncio.run(taken(cluster, access))


# --- what is made -------------------------------------------------------------------------------


def prepared(namespace: Namespace, folder: Path, accounts: str = ACCOUNTS) -> ClusterAccess:
    """Make the Secrets, and the operator's own keys; return the access of an administrator."""
    authority, domain = Authority(folder / "ca"), f"{namespace.name}.svc.cluster.local"
    names = [f"DNS:*.{service}.{domain}" for service in ("main-ns", "orders-brokers")]
    made = authority.issue("server", *names)
    files = {"plain_acl.yml": accounts, "tools.yml": own_key(*ADMIN)}
    secret(namespace, "keys", files)
    found = {"tls.crt": made.chain, "tls.key": made.key, "ca.crt": authority.file}
    secret(namespace, "certificate", {name: file.read_text() for name, file in found.items()})
    own = folder / "own"
    own.mkdir()
    (own / f"{namespace.name}.orders.tools.yml").write_text(own_key(*ADMIN))
    for name in ("orders", "main"):
        shutil.copy(authority.file, own / f"{namespace.name}.{name}.ca.crt")
    tls = Tls(TlsFiles(authority.file))
    return ClusterAccess(KeyFile(own / f"{namespace.name}.orders.tools.yml"), tls)


def secret(namespace: Namespace, name: str, files: dict[str, str]) -> None:
    kind = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}
    namespace.api.create({**kind, "stringData": files})


def own_key(key: str, secret_key: str) -> str:
    return f"accessKey: {key}\nsecretKey: {secret_key}\n"


async def taken(cluster: LivedCluster, access: ClusterAccess) -> bool:
    """Tell whether all members take a key."""
    async with AdminClient(settings=RemotingSettings(access=access)) as admin:
        try:
            for member in ("orders-0-0", "orders-0-1"):
                await admin.runtime_info(cluster.address(member))
        except FailbackError:
            return False
        return True


def change_name_server(cluster: LivedCluster, **spec: Any) -> None:
    cluster.api.patch("NameServer", "main", {"spec": spec})


@contextmanager
def traffic(
    cluster: LivedCluster, folder: Path, properties: dict[str, str]
) -> Iterator[tuple[TestProcess, TestProcess]]:
    """Run a producer and a member of Java that sign, and wait until both work."""
    given: dict[str, Any] = {"namesrv": cluster.name_server, "topic": TOPIC, "interval": 50}
    given |= {"accessKey": SERVICE[0], "secretKey": SERVICE[1]}
    programs = [
        java_program(folder / name, name, properties=properties, group=group, **given)
        for name, group in (("Producer", "shop"), ("PushConsumer", GROUP))
    ]
    try:
        for program in programs:
            program.start()
        wait_until(lambda: len(got_by(programs[1])) > 20, "the first messages", 90)
        yield programs[0], programs[1]
    finally:
        for program in programs:
            program.dispose()


# --- what is seen -------------------------------------------------------------------------------


@contextmanager
def witness(cluster: LivedCluster) -> Iterator[dict[str, str]]:
    """Look at all members' metrics until the end: what was refused, and which handshakes failed."""
    found: dict[str, str] = {}
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(0.5):
            for member in MEMBERS:
                host = cluster.address(member).rpartition(":")[0]
                try:
                    with urllib.request.urlopen(f"http://{host}:8088/metrics", timeout=1) as answer:
                        text = answer.read().decode()
                except OSError:
                    continue
                bad = [line for line in text.splitlines() if line.startswith(_BAD)]
                found.update({f"{member} {e}": "" for e in bad if not e.endswith((" 0", " 0.0"))})

    watching = threading.Thread(target=look)
    watching.start()
    try:
        yield found
    finally:
        stop.set()
        watching.join()


def reached(cluster: LivedCluster, kind: str, name: str, **wanted: str) -> None:
    """Wait until conditions are true for these reasons."""

    def is_reached() -> bool:
        item = cluster.api.get(kind, name)
        found = [condition_of(item, each) for each in wanted]
        said = [(each.get("status"), each.get("reason")) for each in found]
        return said == [("True", reason) for reason in wanted.values()]

    wait_until(is_reached, f"{kind}/{name}: {wanted}", 420)


def copied(
    cluster: LivedCluster, access: ClusterAccess | None, pair: tuple[TestProcess, TestProcess]
) -> None:
    """Wait until slaves have what members committed after this moment."""
    more = len(got_by(pair[1])) + 20
    wait_until(lambda: len(got_by(pair[1])) >= more, "traffic", 60)
    assert failed_by(pair[0]) == []
    wanted = asyncio.run(offsets(cluster, "0", access))
    assert wanted, "the masters have no offsets"
    wait_until(
        lambda: all(
            asyncio.run(offsets(cluster, "1", access)).get(key, -1) >= value
            for key, value in wanted.items()
        ),
        "the offsets of masters at their slaves",
        60,
    )


async def offsets(
    cluster: LivedCluster, ordinal: str, access: ClusterAccess | None
) -> dict[tuple[str, str, int], int]:
    settings, found = RemotingSettings(access=access), dict[tuple[str, str, int], int]()
    async with AdminClient(settings=settings) as admin:
        for pair in ("0", "1"):
            address = cluster.address(f"orders-{pair}-{ordinal}")
            for key, queues in (await admin.all_offsets(address)).items():
                found |= {(pair, key, queue): value for queue, value in queues.items()}
    return found


async def answers(address: str, access: ClusterAccess | None) -> bool:
    async with AdminClient(settings=RemotingSettings(access=access)) as admin:
        try:
            await admin.topics_at(address)
        except FailbackError:
            return False
        return True


def ended(pair: tuple[TestProcess, TestProcess]) -> None:
    """Stop sending, and see that every message was taken and came."""
    producer, member = pair
    producer.end_input()
    assert failed_by(producer) == []
    sent = {(each.broker, each.queue_id, each.queue_offset) for each in sent_by(producer)}
    assert len(sent) > 20
    member.stop()
