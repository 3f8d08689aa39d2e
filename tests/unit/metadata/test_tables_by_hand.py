"""Tables that people mended: read as fastjson reads them, else refused with file and place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from failback.broker.config.config import BrokerConfig
from failback.broker.filters.consumer_filters import ConsumerFilterManager
from failback.broker.metadata.delay_offsets import DelayOffsets
from failback.broker.metadata.groups import SubscriptionGroupManager
from failback.broker.metadata.json_config import backup_of
from failback.broker.metadata.offsets.consumer_offset_manager import ConsumerOffsetManager
from failback.broker.metadata.topics import TopicConfigManager
from failback.protocol.errors import CorruptStore

pytestmark = pytest.mark.foreign

CONFIG = BrokerConfig.from_properties({})
TABLES: dict[str, tuple[Any, str, str]] = {
    "consumerOffset": (
        ConsumerOffsetManager,
        '{"offsetTable":{"orders@billing":{0:10,1:20}}}',
        "offsetTable",
    ),
    "delayOffset": (DelayOffsets, '{"offsetTable":{1:10,12:20}}', "offsetTable"),
    "topics": (
        lambda path: TopicConfigManager(path, CONFIG),
        '{"dataVersion":{"counter":2,"timestamp":9},"topicConfigTable":{"Orders":{'
        '"order":false,"perm":6,"readQueueNums":7,"topicName":"Orders","writeQueueNums":7}}}',
        "topicConfigTable",
    ),
    "subscriptionGroup": (
        lambda path: SubscriptionGroupManager(path, CONFIG),
        '{"dataVersion":{"counter":2,"timestamp":9},"subscriptionGroupTable":{"billing":{'
        '"groupName":"billing","retryQueueNums":3}}}',
        "subscriptionGroupTable",
    ),
    "consumerFilter": (
        lambda path: ConsumerFilterManager(path, lambda: 10),
        '{"filterDataByTopic":{"Orders":{"groupFilterData":{"billing":{"bloomFilterData":{"bitNum":112,"bitPos":[1,2,3]},"clientVersion":5,'
        '"consumerGroup":"billing","expression":"a > 1","expressionType":"SQL92","topic":"Orders"'
        '}},"topic":"Orders"}}}',
        "filterDataByTopic",
    ),
}
AS_FASTJSON: dict[str, Callable[[str], str]] = {
    "commas before brackets": lambda text: text.replace("}", ",}"),
    "single quotes": lambda text: text.replace('"', "'"),
    "keys without quotes": lambda text: text.replace('"offsetTable"', "offsetTable").replace(
        '"topicName"', "topicName"
    ),
    "quoted numbers for keys": lambda text: text.replace("0:", '"0":').replace("12:", '"12":'),
    "texts for numbers": lambda text: text.replace(":10", ':"10"').replace(":7", ':"7"'),
    "comments": lambda text: f"// mended\n{text.replace(',', ', /* here */ ')}",
    "a byte order mark": lambda text: f"\ufeff{text}",
    "line ends of Windows": lambda text: text.replace(",", ",\r\n"),
    "another letter case": lambda text: text.replace("Table", "table").replace("Nums", "NUMS"),
    "unknown members": lambda text: '{"@type":"x.Y","remark":[1,{}],' + text[1:],
}
DAMAGED: dict[str, Callable[[str], str]] = {
    "cut": lambda text: text[:-1],
    "cut in a text": lambda text: text[: text.rindex('"')],
    "a bracket too many": lambda text: f"{text}}}",
    "two documents": lambda text: text + text,
    "no comma": lambda text: text.replace(",", "\n", 1),
    "no colon": lambda text: text.replace(":", "\n ", 1),
    "a list": lambda text: f"[{text}]",
    "null": lambda _: "null",
    "a word": lambda _: "offsets",
    "a word for a table": lambda text: text.replace(":{", ":lost,\n{", 1),
    "Latin letters": lambda text: text.replace("Table", "T\xe4ble").replace("Topic", "T\xf6pic"),
}
CASES = [(name, how) for name in TABLES for how in AS_FASTJSON]
DAMAGES = [(name, how) for name in TABLES for how in DAMAGED]


def load(path: Path, name: str) -> Any:
    manager = TABLES[name][0](path)
    manager.load()
    return manager.table


def write(folder: Path, name: str, content: bytes) -> Path:
    path = folder / f"{name}.json"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(("name", "how"), CASES)
def test_a_table_is_read_as_fastjson_reads_it(tmp_path: Path, name: str, how: str) -> None:
    text = TABLES[name][1]
    plain = load(write(tmp_path, name, text.encode()), name)
    assert plain
    mended = AS_FASTJSON[how](text)
    assert load(write(tmp_path, name, mended.encode()), name) == plain


@pytest.mark.parametrize(("name", "how"), DAMAGES)
def test_what_is_no_table_is_refused_with_its_place(tmp_path: Path, name: str, how: str) -> None:
    encoding = "latin-1" if how == "Latin letters" else "utf-8"
    content = DAMAGED[how](TABLES[name][1]).encode(encoding)
    path = write(tmp_path, name, content)
    with pytest.raises(CorruptStore, match=r"line \d+, column \d+") as caught:
        load(path, name)
    assert str(caught.value).startswith(f"{path}: {path.name} is no table: ")
    assert path.read_bytes() == content


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("member", ["offsets", "topics", "Tables", "table"])
def test_a_table_of_something_else_is_not_taken_for_an_empty_one(
    tmp_path: Path, name: str, member: str
) -> None:
    _, text, known = TABLES[name]
    other = text.replace(f'"{known}"', f'"{member}"').replace('"dataVersion"', '"version"')
    with pytest.raises(CorruptStore, match=f"{member}, and no \\w+"):
        load(write(tmp_path, name, other.encode()), name)


@pytest.mark.parametrize("name", TABLES)
def test_an_empty_table_that_says_so_is_one(tmp_path: Path, name: str) -> None:
    table = TABLES[name][0](tmp_path / "none.json")
    known = TABLES[name][2]
    for text in (f'{{"{known}":{{}}}}', f"{{ {known.upper()} : {{ , }} }}"):
        path = write(tmp_path, name, text.encode())
        backup_of(path).write_text(TABLES[name][1])
        assert load(path, name) == table.table


@pytest.mark.parametrize("name", TABLES)
def test_a_damaged_table_with_a_copy_is_read_from_it_and_told(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    text = TABLES[name][1]
    plain = load(write(tmp_path, name, text.encode()), name)
    path = write(tmp_path, name, text[:-1].encode())
    path.with_name(f"{path.name}.bak").write_text(text)
    assert load(path, name) == plain
    assert f"{path.name} is no table: " in caplog.text
    assert "column" in caplog.text
