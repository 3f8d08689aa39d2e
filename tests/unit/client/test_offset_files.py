"""The local offset file of broadcasting consumers: its shape, its .bak, and torn files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failback.client.consumer.offset_store import read_offset_file, write_offset_file
from failback.protocol.body import MessageQueue
from failback.protocol.errors import ProtocolError

QUEUE = MessageQueue("T", "b", 0)
JAVA_TEXT = (
    b'{\n\t"offsetTable":{{\n\t\t\t"brokerName":"b",\n\t\t\t"queueId":0,'
    b'\n\t\t\t"topic":"T"\n\t\t}:42\n\t}\n}'
)


def test_a_file_that_java_wrote_is_read(tmp_path: Path) -> None:
    """Object keys, as LocalFileOffsetStore of 4.9.8 writes them."""
    path = tmp_path / "offsets.json"
    path.write_bytes(JAVA_TEXT)
    assert read_offset_file(path) == {QUEUE: 42}


def test_written_files_have_object_keys(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    write_offset_file(path, {QUEUE: 42})
    text = "".join(path.read_text().split())
    assert text == '{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:42}}'


@settings(deadline=None)
@given(
    offsets=st.dictionaries(
        st.builds(
            MessageQueue,
            st.text("abcT%_-", min_size=1, max_size=8),
            st.text("broke-1", min_size=1, max_size=8),
            st.integers(0, 16),
        ),
        st.integers(0, 2**62),
        max_size=8,
    )
)
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, offsets: dict[MessageQueue, int]
) -> None:
    path = tmp_path_factory.mktemp("offsets") / "offsets.json"
    write_offset_file(path, offsets)
    assert read_offset_file(path) == offsets


def test_the_previous_text_is_kept_as_bak_and_used_when_the_file_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "offsets.json"
    write_offset_file(path, {QUEUE: 1})
    write_offset_file(path, {QUEUE: 2})
    assert read_offset_file(path) == {QUEUE: 2}
    path.unlink()  # killed between delete and rename
    assert read_offset_file(path) == {QUEUE: 1}


@pytest.mark.parametrize("damage", [b"", b"   ", b'{"offsetTable":{{"brok'])
def test_a_torn_file_falls_back_to_bak(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "offsets.json"
    write_offset_file(path, {QUEUE: 1})
    write_offset_file(path, {QUEUE: 2})
    path.write_bytes(damage)
    assert read_offset_file(path) == {QUEUE: 1}


def test_nothing_there_is_no_offsets(tmp_path: Path) -> None:
    assert read_offset_file(tmp_path / "offsets.json") == {}


def test_a_bak_that_cannot_be_parsed_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "offsets.json.bak").write_bytes(b"nonsense {")
    with pytest.raises(ProtocolError):
        read_offset_file(tmp_path / "offsets.json")
