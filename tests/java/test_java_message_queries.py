"""Messages looked up with the Java client: mqadmin on our broker, and our own tool beside it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.java.apache import Answer, Broker, NameServer, mqadmin
from tests.support.java.java_lab import Lab
from tests.support.processes.child_process import failback_command, failback_environment

TOPIC = "QueryTopic"
COUNT = 30


class Cluster:
    """A master of ours with 30 messages of the Java producer."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.ns: NameServer = lab.namesrv()
        self.broker: Broker = lab.broker("failback", self.ns)
        self.broker.start()
        producer = lab.program("Producer", self.ns, topic=TOPIC, count=COUNT, tags="TagQ")
        producer.wait_for("done")
        self.offset_ids = {
            int(line.split()[1]): line.split()[6]
            for line in producer.lines()
            if line.startswith("sent ")
        }

    def admin(self, command: str, *arguments: str) -> Answer:
        return mqadmin(self.lab.folder / "admin", command, "-n", self.ns.address, *arguments)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    lab = Lab(tmp_path_factory.mktemp("queries"))
    try:
        yield Cluster(lab)
    finally:
        lab.dispose()


def test_by_key_by_id_and_by_place(cluster: Cluster) -> None:
    """One walk through all three, since each needs what the one before it found."""
    rows = cluster.admin("queryMsgByKey", "-t", TOPIC, "-k", "key-7").rows
    ((unique, queue_id, queue_offset),) = rows
    details = cluster.admin("queryMsgByUniqueKey", "-t", TOPIC, "-i", unique).out
    assert shown(details, "Tags") == "[TagQ]"
    assert shown(details, "Keys") == "[key-7]"
    assert shown(details, "Queue ID") == queue_id
    assert shown(details, "Queue Offset") == queue_offset
    body = Path(shown(details, "Message Body Path"))
    assert body.read_text() == "7"
    body.unlink()
    offset_id = cluster.offset_ids[7]
    assert int(offset_id[-16:], 16) == int(shown(details, "CommitLog Offset"))
    details = cluster.admin("queryMsgById", "-i", offset_id).out
    assert shown(details, "OffsetID") == offset_id
    assert shown(details, "Keys") == "[key-7]"
    assert shown(details, "Topic") == TOPIC
    Path(shown(details, "Message Body Path")).unlink()


def test_our_own_tool_says_the_same(cluster: Cluster) -> None:
    by_key = own_admin("queryMsgByKey", "-n", cluster.ns.address, "-t", TOPIC, "-k", "key-9")
    (row,) = [line for line in by_key.splitlines() if "key-9" in line]
    assert f"{cluster.broker.address} (master)" in row
    (unique,) = re.findall(r"\b[0-9A-F]{32,}\b", row)
    by_id = own_admin("queryMsgByUniqueKey", "-n", cluster.ns.address, "-t", TOPIC, "-i", unique)
    assert row in by_id
    words = ("queryMsgByKey", "-n", cluster.ns.address, "-t", TOPIC, "-k", "key-99")
    assert own_admin(*words, code=1) == ""


def own_admin(*arguments: str, code: int = 0) -> str:
    command = failback_command("cli", "admin", *arguments)
    environment = os.environ | failback_environment()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def shown(details: str, name: str) -> str:
    """Return a value of mqadmin's list of a message."""
    found = re.search(rf"^{name}:\s*(.*?)\s*$", details, re.MULTILINE)
    assert found, f"no {name} in {details}"
    return found[1]
