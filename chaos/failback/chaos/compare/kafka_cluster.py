"""A Kafka cluster of three brokers and a controller (KRaft), as processes of this host."""

from __future__ import annotations

import base64
import secrets
import subprocess
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from failback.chaos.compare.rows import Rows
from failback.chaos.compare.servers import HOST, Server, accepts, await_servers, free_ports
from failback.chaos.compare.settings import FETCH, KAFKA_VERSION, QUEUES, TOPIC, Setting
from failback.chaos.errors import TargetError
from failback.common import java as java_here
from failback.common.files import cache_folder
from failback.protocol.errors import ConfigError

VICTIM: Final = 1
_OFFSETS: Final = "__consumer_offsets"
_OFFSETS_PARTITIONS: Final = 12
_SERVE_SECONDS: Final = 150.0
_QUIET: Final = {"log_level": 0}
"""Clients of the run itself do not write on its terminal."""
_REPLICAS: Final = ((1, 2, 3), (2, 3, 1), (1, 3, 2), (3, 1, 2))
"""Of each partition of the topic; the first one leads it. The victim leads two of four."""
_NODE: Final = """\
node.id={number}
process.roles={role}
listeners={listener}://{host}:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
controller.quorum.voters=0@{host}:{controller}
log.dirs={data}
offsets.topic.num.partitions={partitions}
transaction.state.log.replication.factor=1
share.coordinator.state.topic.replication.factor=1
log.cleaner.dedupe.buffer.size=4194304
leader.imbalance.check.interval.seconds=10
"""
"""What a node needs beyond Kafka's defaults, and two things more: fewer partitions of offsets, and
leadership returns to the preferred broker within 10 s instead of 300, so that a run has it."""


def find() -> tuple[str, Path]:
    """Return a Java and the folder of Kafka's jars, or raise ``ConfigError``: what to type."""
    java = java_here.find_java()
    if java is None or (java_here.version_of(java) or ("", 0))[1] < 17:
        needed = "Kafka needs Java 17 or newer"
        raise ConfigError("java", f"{needed}; install it: apt-get install openjdk-17-jre-headless")
    jars = cache_folder() / f"kafka-{KAFKA_VERSION}"
    if not (jars / f"kafka_2.13-{KAFKA_VERSION}.jar").is_file():
        raise ConfigError("kafka", f"Kafka {KAFKA_VERSION} is not in {jars}; fetch it: {FETCH}")
    return java, jars


class Cluster:
    """One controller, number 0, and three brokers; broker 1 is the victim."""

    def __init__(self, setting: Setting, folder: Path) -> None:
        java, jars = find()
        self.version = KAFKA_VERSION
        self.queues = [f"{TOPIC}-{qid}" for qid in range(QUEUES)]
        self._folder, self._setting = folder, setting
        self._command = [java, "-Xmx256m", "-cp", f"{jars}/*"]
        ports = free_ports(4)
        self.nodes = [self._node(number, ports) for number in range(4)]
        self.victim = self.nodes[VICTIM]
        self.servers = ",".join(each.address for each in self.nodes[1:])

    def _node(self, number: int, ports: list[int]) -> Server:
        name, role, listener = f"broker-{number}", "broker", "PLAINTEXT"
        if number == 0:
            name = role = "controller"
            listener = "CONTROLLER"
        conf = self._folder / f"{name}.properties"
        lines = _NODE.format(
            number=number, role=role, listener=listener, host=HOST, port=ports[number],
            controller=ports[0], data=self._folder / name, partitions=_OFFSETS_PARTITIONS,
        )  # fmt: skip
        changed = [f"{key}={value}\n" for key, value in self._setting.cluster.items()]
        conf.write_text(lines + "".join(changed))
        command = [*self._command, "kafka.Kafka", str(conf)]
        return Server(name, command, self._folder / f"{name}.log", number, ports[number])

    def start(self) -> None:
        """Start all nodes, make the topic and that of the offsets. Raises ``TargetError``."""
        cluster = base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
        with ThreadPoolExecutor() as side:
            list(side.map(lambda node: self._format(node, cluster), self.nodes))
        for node in self.nodes:
            node.start()
        await_servers("Kafka", self.nodes, self.serves, _SERVE_SECONDS)
        topic = NewTopic(TOPIC, QUEUES, replica_assignment=[list(each) for each in _REPLICAS])
        admin = self._admin()  # it lives until the answer is there
        try:
            admin.create_topics([topic])[TOPIC].result()
        except KafkaException as error:
            raise TargetError(f"topic {TOPIC}", str(error)) from error
        await_servers(_OFFSETS, self.nodes, self._has_offsets_topic, _SERVE_SECONDS)

    def group_name(self, label: str, on_victim: bool) -> str:
        """A name whose offsets the victim leads, or another broker: a hash of it decides."""
        leaders = self._offset_leaders()
        names = (f"{label}-{number}" for number in range(1000))
        return next(
            name
            for name in names
            if (leaders[abs(java_hash(name)) % _OFFSETS_PARTITIONS] == VICTIM) == on_victim
        )

    def before_kill(self, tell: Callable[[str], None]) -> None:
        """Nothing has to be prepared."""

    def serves(self) -> bool:
        """Whether all brokers are in the metadata."""
        if not all(accepts(each.port) for each in self.nodes):
            return False
        try:
            return len(self._admin().list_topics(timeout=5).brokers) == len(self.nodes) - 1
        except KafkaException:
            return False

    def ends(self) -> dict[int, int]:
        """Where each queue ends."""
        consumer = self._reader()
        partitions = [TopicPartition(TOPIC, qid) for qid in range(QUEUES)]
        try:
            found = [consumer.get_watermark_offsets(each, timeout=20.0) for each in partitions]
        except KafkaException as error:
            raise TargetError("the ends of the partitions", str(error)) from error
        finally:
            consumer.close()
        return {qid: end for qid, (_, end) in enumerate(found)}

    def is_drained(self, group: str) -> bool:
        """What a group has still to get is known by the offsets that it handled."""
        return True

    def scan(self, rows: Rows, ends: Mapping[int, int]) -> bool:
        """Write a row of each message that is stored; false if some could not be read."""
        consumer = self._reader()
        left = {qid for qid, end in ends.items() if end}
        consumer.assign([TopicPartition(TOPIC, qid, 0) for qid in left])
        deadline = time.monotonic() + 60
        while left and time.monotonic() < deadline:
            for each in consumer.consume(500, 1.0):
                if each.error() is None:
                    qid, offset = each.partition(), each.offset()
                    rows.scan(qid, offset, each.value(), each.timestamp()[1])
                    if offset + 1 >= ends[qid]:
                        left.discard(qid)
        consumer.close()
        return not left

    def _admin(self) -> AdminClient:
        """Asks for metadata and topics alone: librdkafka's admin client ends its process where it
        asks for a group's offsets and their coordinator goes away (its issues 4605 and 5397)."""
        return AdminClient({"bootstrap.servers": self.servers, **_QUIET})

    def _reader(self) -> Consumer:
        """A consumer that commits nothing."""
        group = {"group.id": "compare-reader", "enable.auto.commit": False}
        return Consumer({"bootstrap.servers": self.servers, **group, **_QUIET})

    def _format(self, node: Server, cluster: str) -> None:
        conf = str(self._folder / f"{node.name}.properties")
        command = [*self._command, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", conf]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise TargetError(f"formatting {node.name}", (done.stderr or done.stdout)[-300:])

    def _has_offsets_topic(self) -> bool:
        """The first request for a coordinator makes Kafka create it."""
        consumer = self._reader()
        try:
            consumer.committed([TopicPartition(TOPIC, 0)], timeout=2.0)
        except KafkaException:
            return False
        finally:
            consumer.close()
        return len(self._offset_leaders()) == _OFFSETS_PARTITIONS

    def _offset_leaders(self) -> dict[int, int]:
        """The leader of each partition of the offsets that has one."""
        found = self._admin().list_topics(_OFFSETS, timeout=10).topics[_OFFSETS].partitions
        return {number: each.leader for number, each in found.items() if each.leader >= 0}


def java_hash(text: str) -> int:
    """``String.hashCode`` of Java, by which a group's partition of the offsets is chosen.

    Source: ``Utils.abs(groupId.hashCode) % partitions``, Kafka's GroupCoordinatorService.
    """
    value = 0
    for each in text.encode("ascii"):
        value = (31 * value + each) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value
