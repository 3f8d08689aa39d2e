"""Consumer offsets: what a commit does, what the file looks like, what a slave takes over."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.broker.metadata.json_config import backup_of
from failback.broker.metadata.offsets.consumer_offset_manager import (
    ConsumerOffsetManager,
    IndexedTable,
)
from failback.protocol.errors import CorruptStore, ProtocolError
from failback.protocol.route import ConsumerOffsetTable, parse_offset_table

# Written by a 4.9.8 broker (fastjson 1.2.69, PrettyFormat).
JAVA_FILE = """{
	"offsetTable":{
		"%RETRY%g1@g1":{0:5
		},
		"TopicA@g1":{0:5,1:7
		}
	}
}"""

names = st.text("abcXYZ_-%|09", min_size=1, max_size=12)
tables = st.dictionaries(
    st.builds("{}@{}".format, names, names),
    st.dictionaries(st.integers(0, 2**31 - 1), st.integers(-1, 2**63 - 1), min_size=1, max_size=4),
    max_size=6,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "consumerOffset.json"


@pytest.fixture
def offsets(path: Path) -> ConsumerOffsetManager:
    return ConsumerOffsetManager(path)


def test_an_unknown_queue_has_no_offset(offsets: ConsumerOffsetManager) -> None:
    offsets.commit("g", "T", 0, 5)
    assert offsets.query("g", "T", 1) == -1
    assert offsets.query("g", "U", 0) == -1
    assert offsets.query("h", "T", 0) == -1


@pytest.mark.parametrize("offset", [4, 0, -1, 2**63 - 1])
def test_a_commit_is_stored_whatever_it_says(offsets: ConsumerOffsetManager, offset: int) -> None:
    offsets.commit("g", "T", 3, 5)
    offsets.commit("g", "T", 3, offset)
    assert offsets.query("g", "T", 3) == offset


def test_the_file_is_what_a_java_broker_writes(offsets: ConsumerOffsetManager, path: Path) -> None:
    for topic, queue_id, offset in [("TopicA", 1, 7), ("%RETRY%g1", 0, 5), ("TopicA", 0, 5)]:
        offsets.commit("g1", topic, queue_id, offset)
    offsets.persist()
    assert path.read_text() == JAVA_FILE


def test_an_empty_table_is_still_a_document(offsets: ConsumerOffsetManager, path: Path) -> None:
    offsets.persist()
    assert path.read_text() == '{\n\t"offsetTable":{}\n}'
    assert offsets.to_json() == b'{"offsetTable":{}}'


def test_the_file_of_a_java_broker_is_read(offsets: ConsumerOffsetManager, path: Path) -> None:
    path.parent.mkdir()
    path.write_text(JAVA_FILE)
    offsets.load()
    assert offsets.table == {"%RETRY%g1@g1": {0: 5}, "TopicA@g1": {0: 5, 1: 7}}


def test_standard_json_and_the_members_of_5x_are_read() -> None:
    text = json.dumps(
        {
            "dataVersion": {"counter": 3, "stateVersion": 0, "timestamp": 1},
            "groupTopicMap": {"g": ["T"]},
            "offsetTable": {"T@g": {"0": 5, "12": "9"}},
        }
    )
    assert parse_offset_table(text) == {"T@g": {0: 5, 12: 9}}


@pytest.mark.parametrize("text", ["", "{", '{"offsetTable":{"T@g":{0:5', "[]", '{"offsetTable":5}'])
def test_a_torn_or_foreign_document_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        parse_offset_table(text)


def test_the_answer_to_43_has_unquoted_queue_ids(offsets: ConsumerOffsetManager) -> None:
    offsets.commit("CG", "TopicTest", 0, 5)
    offsets.commit("CG", "TopicTest", 1, 6)
    assert offsets.to_json() == b'{"offsetTable":{"TopicTest@CG":{0:5,1:6}}}'


@given(table=tables)
def test_file_and_answer_bring_every_table_back(
    tmp_path_factory: pytest.TempPathFactory, table: dict[str, dict[int, int]]
) -> None:
    path = tmp_path_factory.mktemp("offsets") / "consumerOffset.json"
    written = ConsumerOffsetManager(path)
    written.table = IndexedTable(table)
    written.persist()
    read = ConsumerOffsetManager(path)
    read.load()
    assert read.table == table
    assert parse_offset_table(written.to_json()) == table


def test_commits_after_the_last_persist_die_with_the_process(
    offsets: ConsumerOffsetManager, path: Path
) -> None:
    offsets.commit("g", "T", 0, 100)
    offsets.persist()
    offsets.commit("g", "T", 0, 250)
    reborn = ConsumerOffsetManager(path)
    reborn.load()
    assert reborn.query("g", "T", 0) == 100


def test_a_missing_file_and_backup_are_an_empty_table(offsets: ConsumerOffsetManager) -> None:
    offsets.commit("g", "T", 0, 1)
    offsets.load()
    assert offsets.table == {}


def test_two_torn_files_are_an_error(offsets: ConsumerOffsetManager, path: Path) -> None:
    path.parent.mkdir()
    path.write_text(JAVA_FILE[:30])
    backup_of(path).write_text(JAVA_FILE[:40])
    with pytest.raises(CorruptStore, match=r"consumerOffset\.json\.bak"):
        offsets.load()


def test_a_slave_takes_smaller_offsets_and_keeps_what_the_master_lacks(
    offsets: ConsumerOffsetManager,
) -> None:
    offsets.commit("g", "T", 0, 2000)  # consumed on the slave while the master was dead
    offsets.commit("g", "T", 1, 10)
    offsets.commit("only-here", "T", 0, 3)
    offsets.merge_from_master({"T@g": {0: 500}})
    assert offsets.table == {"T@g": {0: 500}, "T@only-here": {0: 3}}


def test_what_was_merged_does_not_share_state_with_the_answer(
    offsets: ConsumerOffsetManager,
) -> None:
    answer = {"T@g": {0: 500}}
    offsets.merge_from_master(answer)
    offsets.commit("g", "T", 0, 501)
    assert answer == {"T@g": {0: 500}}


def test_groups_and_topics_are_found_by_each_other(offsets: ConsumerOffsetManager) -> None:
    offsets.commit("g", "T", 0, 1)
    offsets.commit("g", "%RETRY%g", 0, 1)
    offsets.commit("gg", "T", 0, 1)
    assert offsets.topics_of("g") == {"T", "%RETRY%g"}
    assert offsets.groups_of("T") == {"g", "gg"}


def test_removing_a_group_leaves_groups_whose_name_contains_it(
    offsets: ConsumerOffsetManager,
) -> None:
    offsets.commit("g", "T", 0, 1)
    offsets.commit("gg", "T", 0, 2)
    offsets.remove_group("g", 1)
    assert offsets.table == {"T@gg": {0: 2}}


def test_topics_and_groups_are_known_whichever_way_the_table_changes(path: Path) -> None:
    chance = random.Random(7)
    offsets = ConsumerOffsetManager(path)
    for step in range(600):
        topic, group = f"T{chance.randrange(6)}", f"g{chance.randrange(6)}"
        way = chance.randrange(7)
        if way < 3:
            offsets.commit(group, topic, chance.randrange(3), step)
        elif way == 3:
            offsets.merge_from_master({f"{topic}@{group}": {0: step}, "no key": {1: 1}})
        elif way == 4:
            offsets.clone(group, f"g{chance.randrange(6)}", topic)
        elif way == 5:
            offsets.table.setdefault(f"{topic}@{group}", {})[0] = step
        elif chance.random() < 0.5:
            offsets.remove_group(group, step)
        else:
            offsets.remove_topic(topic, step)
        keys = [key.split("@") for key in offsets.table if "@" in key]
        for number in range(6):
            name, of = f"T{number}", f"g{number}"
            assert offsets.groups_of(name) == {group for topic, group in keys if topic == name}
            assert offsets.topics_of(of) == {topic for topic, group in keys if group == of}
        body = ConsumerOffsetTable(offsets.table, offsets.deletions.table or None)
        assert offsets.to_json() == body.to_json(unquoted_int_keys=True)
    assert set(offsets.table.groups_of) <= {f"T{number}" for number in range(6)}


def test_an_answer_encodes_only_what_changed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = ConsumerOffsetManager(path)
    for number in range(100):
        offsets.commit(f"g{number}", "T", 0, 1)
    offsets.to_json()
    encoded: list[str] = []
    to_json = ConsumerOffsetTable.to_json

    def counted(body: ConsumerOffsetTable, **options: bool) -> bytes:
        encoded.extend(body.offset_table)
        return to_json(body, **options)

    monkeypatch.setattr(ConsumerOffsetTable, "to_json", counted)
    offsets.commit("g7", "T", 0, 2)
    assert b'"T@g7":{0:2}' in offsets.to_json()
    assert encoded == ["T@g7"]
