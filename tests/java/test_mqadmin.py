"""Apache's mqadmin 4.9.7 against our name server and brokers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.common.polling import wait_until
from tests.support.java.admin_shell import AdminShell
from tests.support.java.apache import Answer, Broker, NameServer, got_by
from tests.support.java.java_lab import Lab

TOPIC = "AdminTopic"
GROUP = "java-consumer"


class Cluster:
    """A pair of ours with 40 consumed messages in four queues."""

    def __init__(self, folder: Path) -> None:
        self.lab = Lab(folder)
        self.ns: NameServer = self.lab.namesrv()
        quick = {"failbackTimeScale": 0.1}
        self.master: Broker = self.lab.broker("failback", self.ns, settings=quick)
        self.slave: Broker = self.lab.broker(
            "failback", self.ns, broker_id=1, role="SLAVE", settings=quick
        )
        self.master.start()
        self.slave.start()
        self.lab.program("Producer", self.ns, topic=TOPIC, count=40).wait_for("done")
        consumer = self.lab.program("PushConsumer", self.ns, topic=TOPIC, group=GROUP)
        wait_until(lambda: len(got_by(consumer)) == 40, "40 deliveries")
        consumer.end_input()
        self._shell = AdminShell(self.lab.folder / "admin")

    def admin(self, command: str, *arguments: str) -> Answer:
        return self._shell.run(command, "-n", self.ns.address, *arguments)

    def close(self) -> None:
        if hasattr(self, "_shell"):
            self._shell.close()
        self.lab.dispose()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster.__new__(Cluster)
    try:
        cluster.__init__(tmp_path_factory.mktemp("mqadmin"))  # type: ignore[misc]
        yield cluster
    finally:
        cluster.close()


@pytest.mark.sample
def test_cluster_list_shows_both_brokers(cluster: Cluster) -> None:
    rows = cluster.admin("clusterList").rows
    assert [row[:5] for row in rows] == [
        ["bench", "broker-a", "0", cluster.master.address, "V4_9_8"],
        ["bench", "broker-a", "1", cluster.slave.address, "V4_9_8"],
    ]
    totals = cluster.admin("clusterList", "-m").rows
    assert totals[0][:2] == ["bench", "broker-a"]
    assert totals[0][-2:] == ["40", "40"]


def test_topic_list_has_the_system_topics(cluster: Cluster) -> None:
    names = set(cluster.admin("topicList").out.split())
    assert names >= {
        TOPIC,
        f"%RETRY%{GROUP}",
        "TBW102",
        "SELF_TEST_TOPIC",
        "BenchmarkTest",
        "OFFSET_MOVED_EVENT",
        "SCHEDULE_TOPIC_XXXX",
        "bench",
        "bench_REPLY_TOPIC",
        "broker-a",
    }


def test_topic_status_has_a_line_per_queue(cluster: Cluster) -> None:
    rows = cluster.admin("topicStatus", "-t", TOPIC).rows
    assert [row[1] for row in rows] == ["0", "1", "2", "3"]
    assert {row[2] for row in rows} == {"0"}
    assert sum(int(row[3]) for row in rows) == 40


def test_topic_route_names_queues_and_addresses(cluster: Cluster) -> None:
    out = cluster.admin("topicRoute", "-t", TOPIC).out
    assert f'0:"{cluster.master.address}"' in out
    assert f'1:"{cluster.slave.address}"' in out
    assert '"writeQueueNums":4' in out


def test_consumer_progress_says_that_all_is_consumed(cluster: Cluster) -> None:
    answer = cluster.admin("consumerProgress", "-g", GROUP)
    rows = [row for row in answer.rows if row[0] == TOPIC]
    assert sum(int(row[3]) for row in rows) == 40
    assert [row[3] for row in rows] == [row[4] for row in rows]
    assert "Diff Total: 0" in answer.out


def test_consumer_progress_of_all_groups(cluster: Cluster) -> None:
    rows = cluster.admin("consumerProgress").rows
    assert [GROUP, "0"] in [row[:2] for row in rows]


@pytest.mark.parametrize("node", ["master", "slave"])
def test_broker_status_shows_where_the_log_ends(cluster: Cluster, node: str) -> None:
    broker: Broker = getattr(cluster, node)
    out = cluster.admin("brokerStatus", "-b", broker.address).out
    status = {
        key.strip(): value.strip()
        for key, value in (line.split(":", 1) for line in out.splitlines() if ":" in line)
    }
    assert status["brokerVersionDesc"] == "V4_9_8"
    assert int(status["commitLogMaxOffset"]) > 40 * 91
    assert status["dispatchBehindBytes"] == "0"
    assert status["putMessageDistributeTime"].startswith("[<=0ms]:")


def test_settings_can_be_read_and_changed(cluster: Cluster) -> None:
    def settings() -> dict[str, str]:
        out = cluster.admin("getBrokerConfig", "-b", cluster.master.address).out
        pairs = (line.split("=", 1) for line in out.splitlines() if "=  " in line)
        return {key.strip(): value.strip() for key, value in pairs}

    before = settings()
    assert before["brokerName"] == "broker-a"
    assert before["flushConsumerOffsetInterval"] == "5000"
    assert before["slaveTimeout"] == "3000"
    where = ("-b", cluster.master.address)
    answer = cluster.admin("updateBrokerConfig", *where, "-k", "slaveTimeout", "-v", "4000")
    assert "update broker config success" in answer.out
    assert settings() == before | {"slaveTimeout": "4000"}
    conf = (cluster.master.folder / "broker.conf").read_text()
    assert "slaveTimeout=4000" in conf


def test_a_black_listed_setting_is_refused(cluster: Cluster) -> None:
    where = ("-b", cluster.master.address)
    with pytest.raises(AssertionError, match="CODE: 16"):
        cluster.admin("updateBrokerConfig", *where, "-k", "configBlackList", "-v", "x")


def test_topics_and_groups_can_be_made(cluster: Cluster) -> None:
    where = ("-b", cluster.master.address)
    answer = cluster.admin("updateTopic", *where, "-t", "Made", "-r", "3", "-w", "3")
    assert f"create topic to {cluster.master.address} success" in answer.out
    assert '"readQueueNums":3' in cluster.admin("topicRoute", "-t", "Made").out
    cluster.admin("updateSubGroup", *where, "-g", "made-group", "-r", "3", "-s", "true")
    groups = (cluster.master.store / "config" / "subscriptionGroup.json").read_text()
    assert '"made-group"' in groups


def test_offsets_of_a_group_that_is_offline_can_be_reset(cluster: Cluster) -> None:
    cluster.admin("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "2020-01-01#00:00:00:000")
    answer = cluster.admin("consumerProgress", "-g", GROUP)
    assert "Diff Total: 40" in answer.out


def test_a_dead_broker_is_absent_from_the_list(cluster: Cluster) -> None:
    cluster.slave.kill()
    rows = cluster.admin("clusterList").rows
    assert [row[2] for row in rows] == ["0"]
    cluster.slave.start()
    rows = cluster.admin("clusterList").rows
    assert [row[2] for row in rows] == ["0", "1"]
