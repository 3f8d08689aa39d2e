"""Topics: what exists from the start, what a send creates, what a slave takes over."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from failback.broker.config.config import BrokerConfig
from failback.broker.metadata.topics import TopicConfigManager, system_topic_names, system_topics
from failback.protocol.route import DataVersion, TopicConfig, TopicConfigSerializeWrapper

CLIENT = "127.0.0.1:5555"


def config(**settings: object) -> BrokerConfig:
    made = BrokerConfig(broker_cluster_name="bench", broker_name="broker-a")
    for name, value in settings.items():
        setattr(made, name, value)
    return made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "topics.json"


def manager(path: Path, **settings: object) -> TopicConfigManager:
    clock = itertools.count(1_700_000_000_000)
    return TopicConfigManager(path, config(**settings), clock_ms=lambda: next(clock))


def shape(topic: TopicConfig) -> tuple[int, int, int]:
    return topic.read_queue_nums, topic.write_queue_nums, topic.perm


def test_the_system_topics_are_those_that_tools_expect() -> None:
    assert {topic.topic_name: shape(topic) for topic in system_topics(config())} == {
        "TBW102": (8, 8, 7),
        "SELF_TEST_TOPIC": (1, 1, 6),
        "BenchmarkTest": (1024, 1024, 6),
        "bench": (16, 16, 7),
        "broker-a": (1, 1, 7),
        "OFFSET_MOVED_EVENT": (1, 1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 18, 6),
        "bench_REPLY_TOPIC": (1, 1, 6),
    }


def test_settings_change_the_system_topics() -> None:
    made = config(
        default_topic_queue_nums=4,
        trace_topic_enable=True,
        cluster_topic_enable=False,
        broker_topic_enable=False,
    )
    topics = {topic.topic_name: shape(topic) for topic in system_topics(made)}
    assert topics["TBW102"] == (4, 4, 7)
    assert topics["RMQ_SYS_TRACE_TOPIC"] == (1, 1, 6)
    assert topics["bench"] == (16, 16, 1)
    assert topics["broker-a"] == (1, 1, 1)


def test_without_auto_creation_there_is_no_template_topic() -> None:
    made = config(auto_create_topic_enable=False)
    assert "TBW102" not in {topic.topic_name for topic in system_topics(made)}
    assert "TBW102" in system_topic_names(made)


@pytest.mark.parametrize(("wanted", "created"), [(4, 4), (8, 8), (20, 8), (0, 0), (-1, 0)])
def test_a_send_creates_a_topic_with_at_most_the_queues_of_its_template(
    path: Path, wanted: int, created: int
) -> None:
    topics = manager(path)
    topic = topics.create_in_send("T", "TBW102", CLIENT, wanted, topic_sys_flag=2)
    assert topic is not None
    assert shape(topic) == (created, created, 6)
    assert topic.topic_sys_flag == 2
    assert topics.get("T") == topic


def test_a_created_topic_takes_the_filter_type_of_its_template(path: Path) -> None:
    topics = manager(path)
    topics.update(TopicConfig("Template", 2, 2, perm=7, topic_filter_type="MULTI_TAG"))
    topic = topics.create_in_send("T", "Template", CLIENT, 4)
    assert topic is not None
    assert topic.topic_filter_type == "MULTI_TAG"
    assert shape(topic) == (2, 2, 6)


@pytest.mark.parametrize("template", ["SELF_TEST_TOPIC", "NoSuchTopic"])
def test_nothing_is_created_without_a_template_that_may_be_inherited(
    path: Path, template: str
) -> None:
    topics = manager(path)
    version = topics.data_version
    assert topics.create_in_send("T", template, CLIENT, 4) is None
    assert topics.get("T") is None
    assert topics.data_version == version
    assert not path.exists()


def test_creation_bumps_the_version_persists_and_registers_once(path: Path) -> None:
    topics = manager(path)
    registered: list[set[str]] = []
    topics.on_change = lambda: registered.append(set(topics.table))
    topics.create_in_send("T", "TBW102", CLIENT, 4)
    topics.create_in_send("T", "TBW102", CLIENT, 4)
    assert topics.data_version.counter == 1
    assert len(registered) == 1
    assert "T" in registered[0]
    reborn = manager(path)
    reborn.load()
    assert reborn.get("T") == topics.get("T")
    assert reborn.data_version == topics.data_version


def test_auto_creation_once_refused_stays_broken_when_switched_on_again(path: Path) -> None:
    settings = config()
    topics = TopicConfigManager(path, settings)
    settings.auto_create_topic_enable = False
    assert topics.create_in_send("T", "TBW102", CLIENT, 4) is None
    settings.auto_create_topic_enable = True
    assert topics.create_in_send("T", "TBW102", CLIENT, 4) is None
    topics.update(TopicConfig("Other"))  # any change persists the template without its bit
    reborn = TopicConfigManager(path, settings)
    reborn.load()
    assert reborn.create_in_send("T", "TBW102", CLIENT, 4) is None


def test_guarded_auto_creation_comes_back_when_switched_on_again(path: Path) -> None:
    settings = config(failback_guard_auto_create=True)
    topics = TopicConfigManager(path, settings)
    settings.auto_create_topic_enable = False
    assert topics.create_in_send("T", "TBW102", CLIENT, 4) is None
    settings.auto_create_topic_enable = True
    assert topics.create_in_send("T", "TBW102", CLIENT, 4) is not None


def test_switching_auto_creation_off_and_on_harms_nothing_without_a_send(path: Path) -> None:
    settings = config()
    topics = TopicConfigManager(path, settings)
    settings.auto_create_topic_enable = False
    settings.auto_create_topic_enable = True
    assert topics.create_in_send("T", "TBW102", CLIENT, 4) is not None


def test_retry_and_dead_letter_topics_are_created_as_asked(path: Path) -> None:
    topics = manager(path)
    assert shape(topics.create_in_send_back("%RETRY%g", 1)) == (1, 1, 6)
    assert shape(topics.create_in_send_back("%DLQ%g", 1, perm=2)) == (1, 1, 2)
    assert shape(topics.create_in_send_back("%RETRY%g", 5)) == (1, 1, 6)
    assert topics.data_version.counter == 2


def test_taking_a_topic_back_bumps_the_version(path: Path) -> None:
    topics = manager(path)
    topics.update(TopicConfig("T"))
    topics.take_back("T", None)
    assert "T" not in topics.table
    assert topics.data_version.counter == 2


def test_order_marks_follow_the_name_server(path: Path) -> None:
    topics = manager(path)
    topics.update(TopicConfig("A"))
    topics.update(TopicConfig("B", order=True))
    topics.update_order({"A", "unknown"})
    assert (topics.table["A"].order, topics.table["B"].order) == (True, False)
    counter = topics.data_version.counter
    topics.update_order({"A"})
    assert topics.data_version.counter == counter


def test_the_file_is_what_a_java_broker_writes(path: Path) -> None:
    topics = TopicConfigManager(path, config(), clock_ms=lambda: 1_700_000_000_000)
    topics.table.clear()
    topics.update(TopicConfig("TopicA", 4, 4))
    lines = [
        "{",
        '\t"dataVersion":{',
        '\t\t"counter":1,',
        '\t\t"timestamp":1700000000000',
        "\t},",
        '\t"topicConfigTable":{',
        '\t\t"TopicA":{',
        '\t\t\t"order":false,',
        '\t\t\t"perm":6,',
        '\t\t\t"readQueueNums":4,',
        '\t\t\t"topicFilterType":"SINGLE_TAG",',
        '\t\t\t"topicName":"TopicA",',
        '\t\t\t"topicSysFlag":0,',
        '\t\t\t"writeQueueNums":4',
        "\t\t}",
        "\t}",
        "}",
    ]
    assert path.read_text() == "\n".join(lines)


def test_loading_puts_the_file_over_the_system_topics(path: Path) -> None:
    path.parent.mkdir()
    path.write_text(
        '{"dataVersion":{"counter":7,"timestamp":5},"topicConfigTable":{'
        '"TBW102":{"topicName":"TBW102","perm":6,"readQueueNums":8,"writeQueueNums":8},'
        '"T":{"topicName":"T"}},"mappingDataVersion":{}}'
    )
    topics = manager(path)
    topics.load()
    assert topics.data_version == DataVersion(timestamp=5, counter=7)
    assert topics.table["TBW102"].perm == 6
    assert shape(topics.table["T"]) == (16, 16, 6)
    assert "SCHEDULE_TOPIC_XXXX" in topics.table


def test_a_slave_takes_a_different_version_even_an_older_one(path: Path) -> None:
    topics = manager(path)
    topics.update(TopicConfig("created-on-the-slave"))
    wrapper = TopicConfigSerializeWrapper({"T": TopicConfig("T")}, DataVersion(1, 0))
    assert topics.replace_all(wrapper)
    assert set(topics.table) == {"T"}
    assert topics.data_version == DataVersion(1, 0)
    reborn = manager(path)
    reborn.load()
    assert "created-on-the-slave" not in reborn.table


def test_a_slave_ignores_an_equal_version(path: Path) -> None:
    topics = manager(path)
    wrapper = TopicConfigSerializeWrapper({}, topics.data_version)
    assert not topics.replace_all(wrapper)
    assert "TBW102" in topics.table
