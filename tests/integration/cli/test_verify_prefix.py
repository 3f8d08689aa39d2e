"""A slave's log against a real master: who may start and who must not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from failback.broker.store.config import StoreConfig
from failback.broker.store.log.tail import read_tail
from failback.broker.store.message_store import MessageStore
from failback.cli.container.verify_prefix import main
from failback.protocol.message import pack_host
from tests.support.brokers.cluster_processes import ClusterProcesses
from tests.support.net.ports import free_port
from tests.support.processes.child_process import failback_environment

FILE = 4 * 1024 * 1024
HOST = pack_host("127.0.0.1", 10911)


def write_log(root: Path, numbers: range, *, start: int = 0, mark: bytes = b"") -> None:
    """Append one message per number to the store in ``root``, as a broker does."""
    store = MessageStore(
        StoreConfig(root=root, store_host=HOST, mapped_file_bytes=FILE), clock_ms=lambda: 1_000
    )
    store.load()
    if start:
        store._log.move_tail(start)
    for number in numbers:
        store.append(
            topic=b"TopicTest",
            queue_id=0,
            flag=0,
            sys_flag=0,
            born_timestamp=1,
            born_host=HOST,
            reconsume_times=0,
            body=b"%06d" % number + mark,
            properties=b"",
            tags_code=0,
        )
        store.commit_pending()
    store.close()


@dataclass
class Checker:
    folder: Path
    name_server: str

    def write_conf(self, **changes: object) -> Path:
        lines: dict[str, object] = {
            "brokerName": "broker-a",
            "brokerRole": "SLAVE",
            "brokerId": 1,
            "brokerIP1": "127.0.0.1",
            "listenPort": free_port(),
            "namesrvAddr": self.name_server,
            "storePathRootDir": self.folder / "slave",
        } | changes
        conf = self.folder / "slave.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        return conf

    def run(self, seconds: float = 60, **changes: object) -> tuple[int, dict[str, Any]]:
        """Run the command; return its exit code and the termination message."""
        message = self.folder / "termination-log"
        done = subprocess.run(
            [
                *(sys.executable, "-m", "failback.cli", "tools", "verify-prefix"),
                *("--conf", str(self.write_conf(**changes)), "--seconds", str(seconds)),
            ],
            env={**failback_environment(), "FAILBACK_TERMINATION_LOG": str(message)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.stderr == ""
        verdict = json.loads(message.read_text())
        assert json.loads(done.stdout) == verdict
        return done.returncode, verdict


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Checker]:
    """A master that holds messages 0 to 99."""
    folder = tmp_path / "cluster"
    write_log(folder / "store", range(100))
    with ClusterProcesses(folder) as cluster:
        yield Checker(tmp_path, cluster.namesrv_addr)


@pytest.mark.sample
def test_the_beginning_of_the_masters_log_is_verified(master: Checker, tmp_path: Path) -> None:
    write_log(tmp_path / "slave", range(80))
    code, verdict = master.run()
    assert (code, verdict["prefix"], verdict["compared"]) == (0, "Verified", 64)
    assert verdict["ownEnd"] < verdict["masterEnd"]


def test_the_whole_log_is_verified_too(master: Checker, tmp_path: Path) -> None:
    write_log(tmp_path / "slave", range(100))
    code, verdict = master.run()
    assert (code, verdict["prefix"]) == (0, "Verified")
    assert verdict["ownEnd"] == verdict["masterEnd"]


def test_a_slave_with_more_than_its_master_must_not_start(master: Checker, tmp_path: Path) -> None:
    write_log(tmp_path / "slave", range(101))
    code, verdict = master.run()
    assert (code, verdict["prefix"]) == (3, "SlaveAhead")
    expected = f"slave ends at {verdict['ownEnd']}, master at {verdict['masterEnd']}"
    assert verdict["detail"] == expected


def test_another_record_of_the_same_length_is_found(master: Checker, tmp_path: Path) -> None:
    write_log(tmp_path / "slave", range(30))
    write_log(tmp_path / "slave", range(900, 901))
    code, verdict = master.run()
    assert (code, verdict["prefix"]) == (3, "Diverged")
    assert verdict["detail"] == f"the master has another record at {verdict['differsAt']}"
    assert verdict["compared"] == 31


def test_records_at_other_places_are_found(master: Checker, tmp_path: Path) -> None:
    write_log(tmp_path / "slave", range(30))
    write_log(tmp_path / "slave", range(30, 35), mark=b"and more")
    code, verdict = master.run()
    assert (code, verdict["prefix"]) == (3, "Diverged")


@pytest.mark.parametrize(
    ("own", "prefix"), [(range(900, 980), "Diverged"), (range(900, 1100), "SlaveAhead")]
)
def test_the_first_record_that_differs_is_found_beyond_those_compared(
    master: Checker, tmp_path: Path, own: range, prefix: str
) -> None:
    write_log(tmp_path / "slave", range(10))
    write_log(tmp_path / "slave", own)
    code, verdict = master.run()
    assert (code, verdict["prefix"]) == (3, prefix)
    assert len(own) > 64
    assert verdict["differsAt"] * (10 + len(own)) == verdict["ownEnd"] * 10


def test_what_a_slave_has_more_begins_where_its_master_ends(
    master: Checker, tmp_path: Path
) -> None:
    write_log(tmp_path / "slave", range(300))
    code, verdict = master.run()
    assert (code, verdict["prefix"]) == (3, "SlaveAhead")
    assert verdict["differsAt"] == verdict["masterEnd"]


def test_the_first_record_that_differs_is_found_in_an_older_file(
    master: Checker, tmp_path: Path
) -> None:
    padding = bytes(100_000)
    write_log(tmp_path / "slave", range(10))
    write_log(tmp_path / "slave", range(900, 980), mark=padding)
    assert len(list((tmp_path / "slave" / "commitlog").iterdir())) > 1
    code, verdict = master.run()
    assert (code, verdict["prefix"]) == (3, "SlaveAhead")
    assert verdict["differsAt"] * 10 == verdict["masterEnd"]


def test_a_master_that_begins_behind_the_slaves_end(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    write_log(folder / "store", range(10), start=FILE)
    write_log(tmp_path / "slave", range(10))
    with ClusterProcesses(folder) as cluster:
        code, verdict = Checker(tmp_path, cluster.namesrv_addr).run()
    assert (code, verdict["prefix"]) == (3, "TooFarBehind")
    assert verdict["detail"] == f"master starts at {FILE}, slave ends at {verdict['ownEnd']}"


def test_without_a_master_the_slave_starts_unverified(tmp_path: Path) -> None:
    write_log(tmp_path / "slave", range(10))
    code, verdict = Checker(tmp_path, f"127.0.0.1:{free_port()}").run(seconds=0.2)
    assert (code, verdict["prefix"]) == (0, "Unverified")
    assert "the master was not reachable for 0.2 s" in verdict["detail"]


def test_a_registration_of_its_own_is_no_master(master: Checker, tmp_path: Path) -> None:
    """A demoted master finds its old registration at the name server for up to two minutes."""
    write_log(tmp_path / "slave", range(10))
    port = master.name_server.rpartition(":")[2]
    code, verdict = master.run(seconds=0.2, listenPort=int(port) + 4)
    assert (code, verdict["prefix"]) == (0, "Unverified")
    assert "shows no other master of broker-a" in verdict["detail"]


@pytest.mark.parametrize(
    ("changes", "prefix"),
    [({"brokerRole": "ASYNC_MASTER"}, "Master"), ({"storePathRootDir": "/nonexistent"}, "Empty")],
)
def test_masters_and_empty_logs_ask_nobody(
    tmp_path: Path, changes: dict[str, object], prefix: str
) -> None:
    write_log(tmp_path / "slave", range(10))
    nobody = Checker(tmp_path, "127.0.0.1:1")
    assert nobody.run(seconds=600, **changes) == (0, {"prefix": prefix})


def test_a_configuration_that_is_not_there_is_the_callers_mistake(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "failback.cli", "tools", "verify-prefix", "--conf", "nowhere"],
        env={**failback_environment(), "PATH": os.environ["PATH"]},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "nowhere" in done.stderr


def test_only_read_says_where_a_log_ends_and_starts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "store" / "commitlog"
    assert main(["--only-read", str(log)]) == 3
    assert json.loads(capsys.readouterr().out) == {"prefix": "Gated", "ownEnd": 0}
    write_log(tmp_path / "store", range(10))
    end = read_tail(log, 1).end
    file = next(log.iterdir())
    before = file.read_bytes()
    for torn in (b"", before[:60]):
        file.write_bytes(before[:end] + torn + before[end + len(torn) :])
        assert main(["--only-read", str(log)]) == 3
        found = json.loads(capsys.readouterr().out)
        assert (found["ownEnd"], found["prefix"]) == (end, "Gated")
        assert found["storedMs"] > 0
    file.write_bytes(b"spoilt!!" + before[8:])
    assert main(["--only-read", str(log)]) == 2
    assert "has data, and no record is readable" in capsys.readouterr().err
