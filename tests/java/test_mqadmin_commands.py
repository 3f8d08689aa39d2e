"""Every other command of Apache's mqadmin 4.9.7 that asks a broker, against ours.

The everyday ones have a file of their own. Left out: startMonitoring and clusterRT never end, and
queryMsgTraceById asks for traces, which are messages like others.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from failback.client.admin.admin import AdminClient
from failback.protocol.codes import RequestCode
from failback.protocol.headers import GetConsumerStatusRequestHeader
from failback.protocol.route import TopicConfig
from failback.protocol.stats import GetConsumerStatusBody
from tests.support.common.polling import wait_until
from tests.support.java.admin_shell import AdminShell
from tests.support.java.apache import Answer, got_by
from tests.support.java.java_lab import Lab

TOPIC = "AdminTopic"
GROUP = "java-consumer"
QUICK = {"failbackTimeScale": 0.1}


class Cluster:
    """A master of ours with 40 messages in four queues, and a Java consumer that is online."""

    def __init__(self, folder: Path) -> None:
        self.lab = Lab(folder)
        self.folder = folder
        self.ns = self.lab.namesrv()
        self.master = self.lab.broker("failback", self.ns, settings=QUICK)
        self.master.start()
        self.address = self.master.address
        # A producer that makes the topic changes its list of queues meanwhile, and skips one.
        asyncio.run(self._make_topic())
        sends = {"topic": TOPIC, "count": 40, "timeout": 60_000}  # sent again, a queue had eleven
        self.lab.program("Producer", self.ns, **sends).wait_for("done")
        consumer = self.lab.program("PushConsumer", self.ns, topic=TOPIC, group=GROUP)
        wait_until(lambda: len(got_by(consumer)) == 40, "40 deliveries")
        offsets = self.master.store / "config" / "consumerOffset.json"
        # Every queue has to have an offset before one can be reset or cloned.
        wait_until(
            lambda: offsets.exists() and has_all_offsets(offsets.read_text()), "offsets", 120
        )
        self.shell = AdminShell(folder / "admin")

    async def _make_topic(self) -> None:
        async with AdminClient([self.ns.address]) as admin:
            await admin.create_topic(self.address, TopicConfig(TOPIC, 4, 4))

    def admin(self, command: str, *arguments: str) -> Answer:
        return self.shell.run(command, "-n", self.ns.address, *arguments)

    def close(self) -> None:
        if hasattr(self, "shell"):
            self.shell.close()
        self.lab.dispose()

    @property
    def client_id(self) -> str:
        return self.admin("consumerConnection", "-g", GROUP).rows[0][0]


def has_all_offsets(text: str) -> bool:
    found = re.search(rf'"{TOPIC}@{GROUP}":\{{([^}}]*)\}}', text)
    return found is not None and found[1].count(":10") == 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster.__new__(Cluster)
    try:
        cluster.__init__(tmp_path_factory.mktemp("commands"))  # type: ignore[misc]
        yield cluster
    finally:
        cluster.close()


# --- groups and their members ---------------------------------------------------------------------


def test_groups_of_topics(cluster: Cluster) -> None:
    assert ["bench", TOPIC, GROUP] in cluster.admin("topicList", "-c").rows
    assert cluster.admin("topicClusterList", "-t", TOPIC).out.strip() == "bench"


def test_members_are_listed_and_say_how_they_run(cluster: Cluster) -> None:
    answer = cluster.admin("consumerConnection", "-g", GROUP)
    assert answer.rows[0][2:] == ["JAVA", "V4_9_8"]
    assert "MessageModel: CLUSTERING" in answer.out
    assert "Rebalance OK" in cluster.admin("consumerStatus", "-g", GROUP).out
    told = cluster.admin("consumerStatus", "-g", GROUP, "-i", cluster.client_id, "-s").out
    assert "PROP_CONSUME_TYPE                       : CONSUME_PASSIVELY" in told
    assert "ConsumeMessageThread" in told, "the stacks of its threads"


async def test_members_tell_their_offsets(cluster: Cluster) -> None:
    header = GetConsumerStatusRequestHeader(TOPIC, GROUP)
    code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    async with AdminClient([]) as admin:
        answer = await admin.ask(cluster.address, code, header)
    (table,) = GetConsumerStatusBody.from_json(answer.body).consumer_table.values()
    assert {queue.queue_id: offset for queue, offset in table.items()} == dict.fromkeys(
        range(4), 10
    )


def test_a_message_is_found_and_consumed_once_more(cluster: Cluster) -> None:
    where = ("-t", TOPIC, "-b", "broker-a", "-i", "0", "-o", "0")
    found = fields(cluster.admin("queryMsgByOffset", *where))
    assert found["Queue Offset"] == "0"
    by_id = cluster.admin("queryMsgById", "-i", found["OffsetID"])
    assert fields(by_id)["Keys"] == found["Keys"]
    assert f"consumerGroup={GROUP}, trackType=CONSUMED" in by_id.out
    target = ("-g", GROUP, "-d", cluster.client_id)
    again = cluster.admin("queryMsgById", "-i", found["OffsetID"], *target).out
    assert "consumeResult=CR_SUCCESS" in again
    # mqadmin leaves bodies where it likes.
    Path(found["Message Body Path"]).unlink(missing_ok=True)


def fields(answer: Answer) -> dict[str, str]:
    pairs = (line.split(":", 1) for line in answer.out.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def test_producers_are_listed(cluster: Cluster) -> None:
    out = cluster.admin("producer", "-b", cluster.address).out
    assert "producer group (CLIENT_INNER_PRODUCER) instance : clientId=" in out
    producers = ("-g", "CLIENT_INNER_PRODUCER", "-t", TOPIC)
    assert cluster.admin("producerConnection", *producers).out.startswith("0001  ")


def test_what_a_group_may_is_shown(cluster: Cluster) -> None:
    out = cluster.admin("getConsumerConfig", "-g", GROUP).out
    assert "retryMaxTimes                           =  16" in out


# --- offsets --------------------------------------------------------------------------------------


def test_progress_of_all_groups_of_a_broker(cluster: Cluster) -> None:
    answer = cluster.admin("brokerConsumeStats", "-b", cluster.address)
    rows = [row for row in answer.rows if row[:2] == [TOPIC, GROUP]]
    assert sorted(row[3:7] for row in rows) == [[str(it), "10", "10", "0"] for it in range(4)]
    assert "Diff Total: 0" in answer.out


def test_offsets_are_cloned(cluster: Cluster) -> None:
    target = ("-s", GROUP, "-d", "clone", "-t", TOPIC)
    assert "clone group offset success" in cluster.admin("cloneGroupOffset", *target).out
    path = cluster.master.store / "config" / "consumerOffset.json"
    wait_until(lambda: f"{TOPIC}@clone" in path.read_text(), "the clone on disk")


def test_offsets_of_members_are_reset_through_them(cluster: Cluster) -> None:
    for command, more in (("resetOffsetByTime", ("-s", "-1")), ("skipAccumulatedMessage", ())):
        rows = cluster.admin(command, "-g", GROUP, "-t", TOPIC, *more).rows
        told = sorted(row for row in rows if row[0] == "broker-a")
        assert told == [["broker-a", str(queue_id), "10"] for queue_id in range(4)]


# --- messages and queues --------------------------------------------------------------------------


def test_entries_of_a_queue(cluster: Cluster) -> None:
    where = ("-t", TOPIC, "-q", "0", "-i", "0", "-c", "2", "-b", cluster.address)
    out = cluster.admin("queryCq", *where, "-g", GROUP).out
    assert "max: 10, min: 0" in out
    assert out.count("ConsumeQueueData{physicOffset=") == 2
    assert '"subString":"*"' in out
    with pytest.raises(AssertionError, match=f"CODE: 1  DESC: 9@{TOPIC} is not exist!"):
        cluster.admin("queryCq", *where[:2], "-q", "9", *where[4:])


def test_messages_are_sent_and_printed(cluster: Cluster) -> None:
    where = ("-t", "Printed", "-b", "broker-a", "-i", "1")
    cluster.admin("updateTopic", "-c", "bench", "-t", "Printed", "-r", "2", "-w", "2")
    sent = cluster.admin("sendMessage", *where, "-p", "hello", "-k", "key1", "-c", "TagZ")
    assert sent.rows[0][:3] == ["broker-a", "1", "SEND_OK"]
    for command, arguments in (
        ("printMsg", ("-t", "Printed")),
        ("printMsgByQueue", ("-t", "Printed", "-a", "broker-a", "-i", "1", "-p", "true")),
        ("consumeMessage", ("-t", "Printed", "-b", "broker-a", "-i", "1", "-o", "0", "-c", "1")),
    ):
        assert "TAGS=TagZ" in cluster.admin(command, *arguments).out, command
    status = cluster.admin("sendMsgStatus", "-b", "broker-a", "-c", "3").out
    assert status.count("sendStatus=SEND_OK") == 3
    timed = cluster.admin("checkMsgSendRT", "-t", "Printed", "-a", "3").rows
    assert [row[2] for row in timed[:3]] == ["true"] * 3
    shares = cluster.admin("allocateMQ", "-t", "Printed", "-i", "10.0.0.1,10.0.0.2").out
    assert '"queueId":1' in shares


def test_counters_of_topics(cluster: Cluster) -> None:
    def row() -> list[str]:
        rows = cluster.admin("statsAll", "-t", TOPIC).rows
        return next((row for row in rows if row[:2] == [TOPIC, GROUP]), [])

    assert len(row()) == 7
    assert row()[2] == "0", "nothing to consume"


# --- administration -------------------------------------------------------------------------------


def test_permissions_and_orders(cluster: Cluster) -> None:
    for perm, shown in (("4", "R--"), ("6", "RW-")):
        target = ("-b", cluster.address, "-t", TOPIC, "-p", perm)
        assert f"perm={shown}" in cluster.admin("updateTopicPerm", *target).out
    order = ("updateOrderConf", "-t", TOPIC)
    assert "success" in cluster.admin(*order, "-m", "put", "-v", "broker-a:4").out
    assert "orderConf=[broker-a:4]" in cluster.admin(*order, "-m", "get").out
    assert "success" in cluster.admin(*order, "-m", "delete").out
    for command in ("wipeWritePerm", "addWritePerm"):
        assert " OK, " in cluster.admin(command, "-b", "broker-a").out


def test_topics_and_groups_come_and_go_in_the_whole_cluster(cluster: Cluster) -> None:
    whole = ("-c", "bench")
    made = cluster.admin("updateTopic", *whole, "-t", "Made", "-r", "3", "-w", "3")
    assert f"create topic to {cluster.address} success" in made.out
    cluster.admin("updateSubGroup", *whole, "-g", "made-group")
    gone = cluster.admin("deleteSubGroup", *whole, "-g", "made-group", "-r", "true").out
    assert "delete topic [%RETRY%made-group] from cluster [bench] success" in gone
    assert "from NameServer success" in cluster.admin("deleteTopic", *whole, "-t", "Made").out
    names = cluster.admin("topicList").out.split()
    assert "Made" not in names
    assert TOPIC in names


@pytest.mark.parametrize(
    "command", ["cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"]
)
def test_cleaning(cluster: Cluster, command: str) -> None:
    for whom in (("-b", cluster.address), ("-c", "bench")):
        assert cluster.admin(command, *whom).out.strip() == "success"


def test_exports(cluster: Cluster) -> None:
    folder = cluster.folder / "export"
    for command in ("exportMetadata", "exportConfigs", "exportMetrics"):
        assert "success" in cluster.admin(command, "-c", "bench", "-f", str(folder)).out
    metadata = json.loads((folder / "metadata.json").read_text())
    assert TOPIC in metadata["topicConfigTable"]
    configs = json.loads((folder / "configs.json").read_text())
    assert configs["brokerConfigs"]["broker-a"]["brokerRole"] == "ASYNC_MASTER"
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["evaluateReport"]["broker-a"]["runtimeQuota"]["tps"]


@pytest.mark.parametrize(
    ("command", "arguments", "code"),
    [
        ("updateAclConfig", ("-a", "someone1", "-s", "secret12"), 209),
        ("deleteAclConfig", ("-a", "someone1"), 210),
        ("updateGlobalWhiteAddr", ("-g", "10.0.0.1"), 211),
        ("clusterAclConfigVersion", (), 1),
    ],
)
def test_access_control_is_refused_with_a_reason(
    cluster: Cluster, command: str, arguments: tuple[str, ...], code: int
) -> None:
    with pytest.raises(AssertionError, match=f"CODE: {code}  DESC: this broker does not authen"):
        cluster.admin(command, "-b", cluster.address, *arguments)
