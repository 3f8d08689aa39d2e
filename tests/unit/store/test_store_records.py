"""What the store reads out of a record's bytes agrees with the protocol's codec."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.broker.store.log.record import (
    Problem,
    Record,
    delay_level_of,
    read_record,
    tags_code_of,
)
from failback.broker.store.writing.dispatch import delay_table, delivery_time
from failback.protocol.errors import ConfigError
from failback.protocol.message import decode_properties, encode_record, pack_host, tags_code

HOSTS = st.sampled_from([pack_host("10.0.0.1", 5), pack_host("fe80::1", 6)])
PIECES = st.sampled_from(
    ["TAGS\x01a", "TAGS\x01b", "TAGS\x01", "XTAGS\x01c", "KEYS\x01TAGS\x01d", "K\x01v", "TAGS", ""]
)


@given(st.lists(PIECES, max_size=6))
def test_the_tag_is_the_one_that_decoding_all_properties_gives(pieces: list[str]) -> None:
    properties = "\x02".join(pieces).encode()
    assert tags_code_of(properties) == tags_code(decode_properties(properties).get("TAGS"))


@given(
    body=st.binary(max_size=50),
    topic=st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=20),
    properties=st.binary(max_size=30),
    born=HOSTS,
    own=HOSTS,
    before=st.integers(0, 20),
)
def test_a_record_of_the_codec_is_read_and_cut_off_anywhere_it_is_not(
    body: bytes, topic: str, properties: bytes, born: bytes, own: bytes, before: int
) -> None:
    data = encode_record(
        topic=topic,
        queue_id=3,
        body=body,
        properties=properties,
        queue_offset=9,
        physical_offset=1000,
        store_timestamp=77,
        born_host=born,
        store_host=own,
        sys_flag=0x301,
    )
    view = memoryview(bytes(before) + data + b"rest")
    found = read_record(view, before, 1000, check_crc=True)
    assert isinstance(found, Record)
    assert found[:3] == (len(data), 3, 9)
    assert (found.store_timestamp, found.topic, found.properties) == (
        77,
        topic.encode(),
        properties,
    )
    for length in range(len(data)):
        cut = view[before : before + length]
        assert read_record(cut, 0, 1000, check_crc=True) is Problem.CUT_OFF
    assert read_record(view, before, 999, check_crc=True) is Problem.BAD_POSITION


@given(st.binary(max_size=200))
def test_any_bytes_are_judged_without_an_error(data: bytes) -> None:
    assert isinstance(read_record(memoryview(data), 0, 0, check_crc=True), Problem)


def test_delay_levels() -> None:
    delays = delay_table("1s 5m 2h 1d")
    assert delays == (1000, 300_000, 7_200_000, 86_400_000)
    assert delivery_time(b"DELAY\x012", 50, delays) == 300_050
    assert delivery_time(b"DELAY\x019", 50, delays) == 86_400_050
    assert delivery_time(b"DELAY\x010\x02TAGS\x01t", 50, delays) == tags_code("t")
    assert delay_level_of(b"DELAY\x01-4") == -4
    assert delay_level_of(b"XDELAY\x013") == 0
    assert delay_table("") == ()
    assert delay_table("1s 5m", 0.1) == (100, 30_000)
    with pytest.raises(ConfigError, match="messageDelayLevel: '5x'"):
        delay_table("1s 5x")
