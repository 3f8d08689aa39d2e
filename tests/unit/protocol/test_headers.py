"""Typed headers: Java's reading rules, and the fast way that decodes them in one step."""

from __future__ import annotations

import typing

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failback.protocol import headers
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import ProtocolError
from failback.protocol.frames import FrameReader
from failback.protocol.headers import (
    ConsumerSendMsgBackRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    GetBrokerConsumeStatsRequestHeader,
    Header,
    PullMessageRequestHeader,
    RegisterBrokerRequestHeader,
    SendMessageRequestHeaderV2,
    UnregisterClientRequestHeader,
    UpdateConsumerOffsetRequestHeader,
    envelope_decoder,
    from_ext,
    to_ext,
)

ALL = [
    cls
    for cls in vars(headers).values()
    if isinstance(cls, type) and issubclass(cls, Header) and cls is not Header
]


@settings(max_examples=20)
@given(data=st.data())
@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_headers_round_trip(cls: type[Header], data: st.DataObject) -> None:
    header = data.draw(_strategy(cls))
    ext = to_ext(header)
    assert all(isinstance(value, str) for value in ext.values())
    assert from_ext(cls, ext) == header


def _strategy(cls: type[Header]) -> st.SearchStrategy[Header]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return st.builds(cls, **{name: _values(hint) for name, hint in hints.items()})


def _values(hint: typing.Any) -> st.SearchStrategy[typing.Any]:
    arms = [arm for arm in typing.get_args(hint) if arm is not type(None)]
    if hint is bool:
        return st.booleans()
    if hint is str:
        return st.text(max_size=10)
    if hint == headers.Int32:
        return st.integers(-(2**31), 2**31 - 1)
    if hint == headers.Int64:
        return st.integers(-(2**63), 2**63 - 1)
    return st.none() | _values(arms[0])


def test_wire_names() -> None:
    assert to_ext(UnregisterClientRequestHeader("c", consumer_group="G")) == {
        "clientID": "c",
        "consumerGroup": "G",
    }
    assert to_ext(GetBrokerConsumeStatsRequestHeader(is_order=True)) == {"isOrder": "true"}
    register = RegisterBrokerRequestHeader("b", "a", "c", "h", 0, body_crc32=7)
    assert to_ext(register)["bodyCrc32"] == "7"
    assert set(to_ext(_pull())) == {
        "consumerGroup",
        "topic",
        "queueId",
        "queueOffset",
        "maxMsgNums",
        "sysFlag",
        "commitOffset",
        "suspendTimeoutMillis",
        "subVersion",
    }


def _pull() -> PullMessageRequestHeader:
    return PullMessageRequestHeader("G", "T", 3, 42, 32, 3, 40, 15_000, 1_700_000_000_000)


def test_a_missing_required_field_is_named() -> None:
    ext = {"consumerGroup": "G", "topic": "T", "queueId": "0"}
    with pytest.raises(ProtocolError, match="commitOffset"):
        from_ext(UpdateConsumerOffsetRequestHeader, ext)
    with pytest.raises(ProtocolError, match="consumerGroup"):
        from_ext(UpdateConsumerOffsetRequestHeader, None)


@pytest.mark.parametrize("text", ["", "x", "1.0", " 1", "1 ", "1_000", "0x1", "٣", str(2**31)])
def test_what_java_cannot_parse_is_refused_by_name(text: str) -> None:
    ext = {"consumerGroup": "G", "topic": "T", "queueId": text, "commitOffset": "1"}
    with pytest.raises(ProtocolError, match="queueId"):
        from_ext(UpdateConsumerOffsetRequestHeader, ext)


def test_a_plus_sign_and_long_values_are_numbers() -> None:
    ext = {"consumerGroup": "G", "topic": "T", "queueId": "+5", "commitOffset": str(-(2**63))}
    header = from_ext(UpdateConsumerOffsetRequestHeader, ext)
    assert (header.queue_id, header.commit_offset) == (5, -(2**63))


@pytest.mark.parametrize(("text", "expected"), [("TRUE", True), ("true", True), ("1", False)])
def test_booleans_are_read_as_java_does(text: str, expected: bool) -> None:
    ext = {"offset": "1", "group": "G", "delayLevel": "0", "unitMode": text}
    assert from_ext(ConsumerSendMsgBackRequestHeader, ext).unit_mode is expected


def test_unknown_entries_are_ignored() -> None:
    assert from_ext(DeleteSubscriptionGroupRequestHeader, {"groupName": "G", "ReqT": "0"})


def test_either_name_asks_for_the_removal_of_offsets() -> None:
    cls = DeleteSubscriptionGroupRequestHeader
    assert from_ext(cls, {"groupName": "G", "removeOffset": "true"}).wants_offsets_removed()
    assert from_ext(cls, {"groupName": "G", "cleanOffset": "true"}).wants_offsets_removed()
    assert not from_ext(cls, {"groupName": "G"}).wants_offsets_removed()


def json_header(command: RemotingCommand) -> bytes:
    reader = FrameReader()
    reader.receive_data(command.encode())
    frame = reader.next_frame()
    assert frame is not None
    return frame.header


def test_a_whole_json_header_decodes_in_one_step() -> None:
    command = RemotingCommand.request(11, _pull())
    command.opaque = 5
    envelope = envelope_decoder(PullMessageRequestHeader).decode(json_header(command))
    assert (envelope.code, envelope.opaque, envelope.version) == (11, 5, 409)
    assert envelope.extFields == _pull()


def test_the_fast_way_takes_raw_numbers_but_not_for_strings() -> None:
    decoder = envelope_decoder(SendMessageRequestHeaderV2)

    def decode(ext: str) -> SendMessageRequestHeaderV2:
        text = '{"code":310,"opaque":1,"extFields":{' + ext + "}}"
        header: SendMessageRequestHeaderV2 = decoder.decode(text).extFields
        return header

    ext = '"a":"PG","b":"T","c":"TBW102","d":4,"e":"0","f":0,"g":1700000000000,"h":0'
    assert decode(ext).queue_id == 0
    with pytest.raises(msgspec.ValidationError):
        decode(ext.replace('"T"', "7"))
    with pytest.raises(msgspec.ValidationError):
        decode(ext.replace('"0"', str(2**31)))
