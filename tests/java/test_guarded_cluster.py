"""Every command that asks a cluster, at Apache's brokers with access keys and TLS alone."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from failback.analytics.lake.lake import open_lake
from failback.client.model import Message
from failback.client.producer.producer import Producer
from failback.client.remoting.guarded.cluster import find_cluster
from failback.client.remoting.settings import ClientSettings
from tests.support.analytics.trace_builder import after, before, made_id, pub
from tests.support.common.polling import SCALE, wait_until
from tests.support.dashboard.dashboard_lab import DashboardLab
from tests.support.java.apache import server_home
from tests.support.java.guarded_cluster import SECRETS, GuardedCluster
from tests.support.net.ports import free_port
from tests.support.processes.child_process import (
    TestProcess,
    failback_command,
    failback_environment,
)

COUNT = 40
PRODUCE = "workload produce --count 1 --hot hot-refused --topic"
CONSUME = "workload consume --seconds 4 --hot hot-refused --topic orders --group"
LIST = ("admin", "clusterList", "-n")


class Run:
    """Commands against the cluster; what they print is kept in one folder with what they write."""

    def __init__(self, cluster: GuardedCluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        folder.mkdir()
        self._number = 0

    def __call__(self, *words: str, key: Path | None = None) -> tuple[int, str]:
        """Run a command with the options of the cluster; return its code and all that it said."""
        return self.bare(*words, *self.cluster.options(key))

    def bare(self, *words: str, **environ: str) -> tuple[int, str]:
        """Run a command without them."""
        self._number += 1
        done = subprocess.run(
            failback_command("cli", *words),
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={**os.environ, **failback_environment(), **environ},
            timeout=120 * SCALE,
            check=False,
        )
        said = done.stdout + done.stderr
        (self.folder / f"{self._number}-{words[0]}.out").write_text(said)
        return done.returncode, said


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedCluster]:
    server_home()
    made = GuardedCluster(tmp_path_factory.mktemp("guarded"))
    try:
        made.start()
        yield made
    finally:
        made.dispose()


@pytest.fixture(scope="module")
def run(cluster: GuardedCluster, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs commands, with topics made by the admin's key."""
    run = Run(cluster, tmp_path_factory.mktemp("runs") / "run")
    master, admin = cluster.broker.address, cluster.keys.admin
    wait_until(
        lambda: master in run("admin", "clusterList", key=admin)[1], "the broker is registered", 60
    )
    for topic in ("orders", "hidden"):
        line = f"admin updateTopic -b {master} -t {topic} -r 2 -w 2"
        code, said = run(*line.split(), key=admin)
        assert code == 0, said
    return run


@pytest.fixture(scope="module")
def consumed(run: Run) -> Run:
    """The same, after the workload produced and consumed."""
    shared = "--topic orders --run w"
    code, said = run(*f"workload -v produce {shared} --rate 50 --count {COUNT}".split())
    assert code == 0, said
    assert f"sent {COUNT} of {COUNT}" in said, said
    line = f"workload -v consume {shared} --group billing --seconds {8 * SCALE}"
    code, said = run(*line.split())
    assert code == 0, said
    assert f"consumed {COUNT} messages" in said, said
    return run


def test_admin_and_doctor(run: Run) -> None:
    master = run.cluster.broker.address
    for words in ("topicRoute -t orders", f"getBrokerConfig -b {master} -k aclEnable"):
        code, said = run("admin", *words.split())
        assert code == 0, said
    _, said = run("doctor")
    assert f"Name server {run.cluster.namesrv.address}" in said
    assert "it knows 1 broker" in said, said


def test_explain_offset_after_the_workload(consumed: Run) -> None:
    words = ("explain-offset", "billing", "orders", "0", "--live", "--json")
    # No broker answers a commit: it may take one after the member's end.
    wait_until(lambda: consumed(*words)[0] == 0, "the last commit at the broker", 30)
    code, said = consumed(*words)
    assert code == 0, said
    assert json.loads(said)["safe_offset"] == COUNT // 2
    line = "admin queryMsgByUniqueKey -t orders -i 7F00000100002A9F0000000000000000"
    code, said = consumed(*line.split())
    assert (code, "no broker has a message" in said) == (1, True), said


async def test_trace(consumed: Run) -> None:
    found = find_cluster(consumed.cluster.given(), {})
    settings = ClientSettings(namesrv_addrs=found.name_servers, access=found.access)
    ids = [made_id(1, number) for number in range(3)]
    bodies = [pub(each, topic="orders") for each in ids]
    bodies += [before(each, 10, "R", group="billing") + after(each, 15, "R") for each in ids]
    async with Producer("tracer", settings) as producer:
        for body in bodies:
            await producer.send(Message("RMQ_SYS_TRACE_TOPIC", body))
    _, said = consumed("trace", "--out", "traced")
    assert "9 trace records" in said, said
    assert "3 deliveries to billing" in said, said


def test_exporter(consumed: Run) -> None:
    port = free_port()
    command = failback_command(
        "cli", "exporter", "--port", str(port), "--interval", "0.5", *consumed.cluster.options()
    )
    process = TestProcess("exporter", command, consumed.folder, environment=failback_environment())
    process.start()

    def shown() -> bool:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            return 'topic="orders"' in answer.read().decode()

    try:
        process.wait_for("exporter on")
        wait_until(shown, "the exporter shows the topic", 60)
        line = Path(f"/proc/{process.pid}/cmdline").read_text()
        assert not any(secret in line for secret in SECRETS)
    finally:
        process.dispose()


def test_observe(consumed: Run) -> None:
    code, said = consumed("observe", "--out", "observed", "--for", f"{4 * SCALE:g}s", "--json")
    assert code == 0, said
    looks = (consumed.folder / "observed").rglob("*")
    assert any("billing" in each.read_text(errors="replace") for each in looks if each.is_file())
    line = "observe --out refused --for 4s"
    code, said = consumed.bare(*line.split(), "-n", consumed.cluster.namesrv.address)
    assert (code, "give --tls if it takes TLS alone" in said) == (3, True), said


@pytest.mark.soak
def test_a_canary_needs_an_admins_key(run: Run) -> None:
    words = ("--canary", "--for", f"{4 * SCALE:g}s")
    code, said = run("observe", "--out", "refused", *words)
    assert code == 0, said
    assert "no canary on broker-a" in said
    assert "the access key ops-key is no admin's" in said
    code, said = run("observe", "--out", "flown", *words, key=run.cluster.keys.admin)
    assert code == 0, said
    assert "no canary" not in said
    assert "may be left" not in said
    rows = open_lake(run.folder / "flown" / "lake", "flown").records("produce")
    assert any(row["res"] == "OK" for row in rows)
    folder = run.folder / "flown"
    kept = [each.read_bytes() for each in folder.rglob("*") if each.is_file()]
    assert not any(secret.encode() in each for secret in SECRETS for each in kept)


def test_dashboard(consumed: Run) -> None:
    options = consumed.cluster.options(prefix="cluster-")
    lab = DashboardLab(consumed.folder / "dash", *options)
    lab.process.start()
    try:
        lab.process.wait_for("http://")
        wait_until(lambda: "billing" in lab.ask("GET", "/api/v1/offsets").text, "the group", 60)
    finally:
        lab.process.dispose()


@pytest.mark.parametrize(
    ("key", "words", "told"),
    [
        ("ops", "admin updateTopic -b MASTER -t new", "the access key ops-key is no admin's"),
        ("ops", "admin queryMsgByKey -t hidden -k k", "lacks the right SUB on the topic hidden"),
        ("ops", f"{PRODUCE} hidden", "lacks the right PUB on the topic hidden"),
        ("ops", f"{CONSUME} other", "lacks the right SUB on the group other"),
        ("wrong", "admin queryMsgByKey -t orders -k k", "the access key ops-key is not the one"),
        ("unknown", "admin queryMsgByKey -t orders -k k", "does not know the access key nobody"),
        ("wrong", f"{PRODUCE} orders", "the access key ops-key is not the one it knows"),
        ("wrong", f"{CONSUME} billing", "the access key ops-key is not the one it knows"),
    ],
)
def test_who_may_not_is_told_what_to_ask_for(run: Run, key: str, words: str, told: str) -> None:
    master = run.cluster.broker.address
    code, said = run(*words.replace("MASTER", master).split(), key=getattr(run.cluster.keys, key))
    assert code in (1, 3), said
    assert any(told in line and master in line for line in said.splitlines()[-2:]), said


def test_settings_come_from_the_environment_and_from_the_file(run: Run, tmp_path: Path) -> None:
    words = run.cluster.options()
    names = [each.lstrip("-").replace("-", "_") for each in words[::2]]
    settings = dict(zip(names, words[1::2], strict=True))
    environ = {f"FAILBACK_{name.upper()}": value for name, value in settings.items()}
    code, said = run.bare("admin", "clusterList", **environ)
    assert code == 0, said
    file = tmp_path / "config.toml"
    file.write_text("".join(f"{name} = {json.dumps(text)}\n" for name, text in settings.items()))
    code, said = run.bare("admin", "clusterList", FAILBACK_CONFIG=str(file))
    assert code == 0, said


def test_no_secret_is_in_anything_that_was_written(consumed: Run) -> None:
    """Logs, rows, runs, a bundle, and all that was printed."""
    _, said = consumed("doctor", "--bundle", "q.tar.gz")
    with tarfile.open(consumed.folder / "q.tar.gz") as bundle:
        bundle.extractall(consumed.folder / "bundle", filter="data")
    files = [each for each in consumed.folder.rglob("*") if each.is_file()]
    assert any(each.suffix == ".fblog" for each in files), said
    private = consumed.cluster.client.key.read_text().splitlines()[2]
    for file in files:
        content = file.read_bytes()
        for secret in (*SECRETS, private):
            assert secret.encode() not in content, (file, secret)


@pytest.mark.soak
def test_an_untrusted_cluster_is_not_asked(run: Run) -> None:
    """Each reason has a sentence that names the address and what to do."""
    cluster = run.cluster
    address = cluster.namesrv.address
    ours, theirs = cluster.authority.file, cluster.strangers.file
    own = cluster.options()[-4:]

    def refused(*options: str, said: str) -> None:
        wait_until(lambda: said in run.bare(*LIST, address, *options)[1], said, 60)
        code, found = run.bare(*LIST, address, *options)
        assert (code, len(found.splitlines())) == (3, 1), found
        assert address in found

    refused(said="give --tls if it takes TLS alone")
    refused("--tls", *own, said="signed by no CA that this system trusts: give the file of its CA")
    refused("--tls-ca", str(theirs), *own, said=f"signed by no CA in {theirs}: give the file of")
    refused("--tls-ca", str(ours), said="give --tls-cert and --tls-key if it asks for them")
    cluster.serve_with(cluster.authority.issue("named", "DNS:broker.example"))
    trusted = ("--tls-ca", str(ours), *own)
    refused(*trusted, said="its certificate is not for 127.0.0.1: give the name that it has")
    key = ("--access-key-file", str(cluster.keys.ops))
    for name in ("broker.example", "*"):
        code, said = run.bare(*LIST, address, *key, *trusted, "--tls-server-name", name)
        assert code == 0, said
    cluster.serve_with(cluster.authority.issue("expired", expired=True))
    refused(*trusted, said="its certificate has expired: it must be renewed there")
