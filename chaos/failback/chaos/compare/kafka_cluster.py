"""A Kafka cluster of three brokers and a controller (KRaft), as processes of this host."""

from __future__ import annotations

import base64
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from failback.chaos.compare.rows import Rows
from failback.chaos.compare.servers import HOST, Server, accepts, free_ports
from failback.chaos.compare.settings import QUEUES, TOPIC, Setting
from failback.chaos.errors import TargetError
from failback.common import java as java_here
from failback.common.maven import NoMaven, cache_folder, fetch_jars, locked
from failback.protocol.errors import ConfigError

VERSION: Final = "4.1.0"
VICTIM: Final = 1
_MINIMUM_JAVA: Final = 17
_OFFSETS: Final = "__consumer_offsets"
_OFFSETS_PARTITIONS: Final = 12
_SERVE_SECONDS: Final = 150.0
_QUIET: Final = {"log_level": 0}
"""Clients of the run itself do not write on its terminal."""
_REPLICAS: Final = ((1, 2, 3), (2, 3, 1), (1, 3, 2), (3, 1, 2))
"""Of each partition of the topic; the first one leads it. The victim leads two of four."""
_ROLE: Final = """\
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


def ensure_kafka(log: Callable[[str], None] = lambda line: None) -> tuple[str, Path]:
    """Return a Java and the folder of Kafka's jars, fetched from Maven Central where it is empty.

    Raises:
        ConfigError: Says the one thing to install.
    """
    java = java_here.find_java()
    found = java_here.version_of(java) if java else None
    if java is None or found is None or found[1] < _MINIMUM_JAVA:
        needed = f"Kafka needs Java {_MINIMUM_JAVA} or newer"
        raise ConfigError("java", f"{needed}; install it: apt-get install openjdk-17-jre-headless")
    jars = cache_folder() / f"kafka-{VERSION}"
    with locked(cache_folder() / f"kafka-{VERSION}.lock"):
        if not (jars / f"kafka_2.13-{VERSION}.jar").is_file():
            log(f"fetching Kafka {VERSION} from Maven Central into {jars}")
            try:
                problem = fetch_jars(
                    "failback.chaos.compare", "kafka_pom.xml", jars, kafka_version=VERSION
                )
            except NoMaven:
                needed = "fetching Kafka needs Maven; install it: apt-get install maven"
                raise ConfigError("kafka", needed) from None
            if problem is not None:
                raise ConfigError("kafka", problem)
    return java, jars


class KafkaCluster:
    """One controller, three brokers; broker 1 is the victim."""

    version = VERSION

    def __init__(self, setting: Setting, folder: Path, tell: Callable[[str], None]) -> None:
        java, jars = ensure_kafka(tell)
        self._folder, self._setting = folder, setting
        self._command = [java, "-Xmx256m", "-cp", f"{jars}/*"]
        ports = free_ports(4)
        self.nodes = [self._node(number, ports) for number in range(4)]
        self.brokers = self.nodes[1:]
        self.servers = ",".join(each.address for each in self.brokers)
        self._id = base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")

    def _node(self, number: int, ports: list[int]) -> Server:
        name = "controller" if number == 0 else f"broker-{number}"
        conf = self._folder / f"{name}.properties"
        lines = _ROLE.format(
            number=number,
            role="controller" if number == 0 else "broker",
            listener="CONTROLLER" if number == 0 else "PLAINTEXT",
            host=HOST,
            port=ports[number],
            controller=ports[0],
            data=self._folder / f"{name}-data",
            partitions=_OFFSETS_PARTITIONS,
        )
        lines += "".join(f"{key}={value}\n" for key, value in self._setting.cluster.items())
        conf.write_text(lines)
        command = [*self._command, "kafka.Kafka", str(conf)]
        return Server(name, number, ports[number], command, self._folder / f"{name}.log", {})

    @property
    def victim(self) -> Server:
        return self.nodes[VICTIM]

    def queues(self) -> Mapping[int, str]:
        """What each queue is called: its topic and partition."""
        return {qid: f"{TOPIC}-{qid}" for qid in range(QUEUES)}

    def start(self) -> None:
        """Start all nodes and make the topic and that of the offsets.

        Raises:
            TargetError: Some node does not serve.
        """
        with ThreadPoolExecutor() as side:
            list(side.map(self._format, self.nodes))
        for node in self.nodes:
            node.start()
        self._await_brokers(3)
        admin = self._admin()
        topic = NewTopic(TOPIC, QUEUES, replica_assignment=[list(each) for each in _REPLICAS])
        for future in admin.create_topics([topic]).values():
            future.result()
        self._make_offsets_topic()

    def group_name(self, label: str, on_victim: bool) -> str:
        """A name whose offsets the victim leads, or another broker: a hash of it decides."""
        leaders = self._offset_leaders()
        for number in range(1000):
            name = f"{label}-{number}"
            partition = abs(java_hash(name)) % _OFFSETS_PARTITIONS
            if (leaders[partition] == VICTIM) == on_victim:
                return name
        raise TargetError(f"a name for group {label}", f"no broker but {leaders} leads its offsets")

    def before_kill(self, tell: Callable[[str], None]) -> None:
        """Nothing has to be prepared."""

    def serves(self) -> bool:
        """Whether all brokers are in the metadata."""
        return len(self._brokers()) == 3

    def ends(self) -> dict[int, int]:
        """Where each queue ends."""
        consumer = self._reader()
        try:
            return {
                qid: consumer.get_watermark_offsets(TopicPartition(TOPIC, qid), timeout=20.0)[1]
                for qid in range(QUEUES)
            }
        except KafkaException as error:
            raise TargetError("the ends of the partitions", str(error)) from error
        finally:
            consumer.close()

    def is_drained(self, group: str) -> bool:
        """What a group has still to get is known by its offsets alone."""
        return True

    def scan(self, rows: Rows, ends: Mapping[int, int]) -> bool:
        """Write a row of each message that is stored; false if some could not be read."""
        consumer = self._reader()
        left = {qid for qid, end in ends.items() if end}
        consumer.assign([TopicPartition(TOPIC, qid, 0) for qid in left])
        deadline = time.monotonic() + 60
        while left and time.monotonic() < deadline:
            for message in consumer.consume(500, 1.0):
                qid, offset, body = message.partition(), message.offset(), message.value()
                if message.error() is None and isinstance(body, bytes) and offset is not None:
                    assert qid is not None
                    rows.scan(qid, offset, body, message.timestamp()[1])
                    if offset + 1 >= ends[qid]:
                        left.discard(qid)
        consumer.close()
        return not left

    def end(self) -> None:
        for node in reversed(self.nodes):
            node.ask_to_end()
        for node in reversed(self.nodes):
            node.end()

    def _admin(self) -> AdminClient:
        """Asks for metadata and topics alone: librdkafka's admin client ends its process where it
        asks for a group's offsets and their coordinator goes away (its issues 4605 and 5397)."""
        return AdminClient({"bootstrap.servers": self.servers, **_QUIET})

    def _reader(self) -> Consumer:
        """A consumer without a group's offsets."""
        return Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "compare-reader",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **_QUIET,
            }
        )

    def _format(self, node: Server) -> None:
        conf = self._folder / f"{node.name}.properties"
        command = [*self._command, "kafka.tools.StorageTool", "format", "-t", self._id]
        done = subprocess.run(
            [*command, "-c", str(conf)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise TargetError(f"formatting {node.name}", (done.stderr or done.stdout)[-300:])

    def _brokers(self) -> set[int]:
        if not all(accepts(each.port) for each in self.brokers):
            return set()
        try:
            found = self._admin().list_topics(timeout=5)
        except KafkaException:
            return set()
        return set(found.brokers)

    def _await_brokers(self, count: int) -> None:
        deadline = time.monotonic() + _SERVE_SECONDS
        while len(self._brokers()) < count:
            dead = next((each for each in self.nodes if not each.is_alive()), None)
            if dead is not None:
                raise TargetError(f"{dead.name} ended with status {dead.status}", dead.last_words())
            if time.monotonic() > deadline:
                raise TargetError("Kafka", f"does not serve after {_SERVE_SECONDS:g} s")
            time.sleep(0.5)

    def _make_offsets_topic(self) -> None:
        """The first request for a coordinator makes Kafka create it."""
        consumer = self._reader()
        deadline = time.monotonic() + _SERVE_SECONDS
        while len(self._offset_leaders()) < _OFFSETS_PARTITIONS:
            try:
                consumer.committed([TopicPartition(TOPIC, 0)], timeout=2.0)
            except KafkaException:
                time.sleep(0.2)
            if time.monotonic() > deadline:
                raise TargetError(_OFFSETS, "was not made")
        consumer.close()

    def _offset_leaders(self) -> dict[int, int]:
        """The leader of each partition of the offsets that has one."""
        found = self._admin().list_topics(_OFFSETS, timeout=10)
        return dict(_led(found.topics[_OFFSETS].partitions))


def _led(partitions: Mapping[int, object]) -> Iterator[tuple[int, int]]:
    for number, each in partitions.items():
        leader = getattr(each, "leader", -1)
        if leader >= 0:
            yield number, leader


def java_hash(text: str) -> int:
    """``String.hashCode`` of Java, by which a group's partition of the offsets is chosen.

    Source: ``Utils.abs(groupId.hashCode) % partitions``, Kafka's GroupCoordinatorService.
    """
    value = 0
    for each in text.encode("utf-16-be")[1::2]:  # names are ASCII: a unit is a byte
        value = (31 * value + each) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value
