"""Commands: both header encodings, tolerance towards other clients, responses."""

from __future__ import annotations

import contextlib
import json
import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.protocol.codes import FLAG_ONEWAY, FLAG_RESPONSE
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import ProtocolError
from failback.protocol.frames import Frame, FrameReader
from failback.protocol.headers import GetRouteInfoRequestHeader

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
int32 = st.integers(-(2**31), 2**31 - 1)
commands = st.builds(
    RemotingCommand,
    code=st.integers(0, 32767),
    opaque=int32,
    flag=st.integers(0, 3),
    language=st.sampled_from(["JAVA", "PYTHON", "GO"]),
    version=st.integers(0, 612),
    remark=st.none() | texts.filter(bool),
    ext_fields=st.none() | st.dictionaries(texts, texts, min_size=1, max_size=5),
    body=st.binary(max_size=50),
    serialize_type=st.integers(0, 1),
)


def through_the_wire(command: RemotingCommand) -> RemotingCommand:
    reader = FrameReader()
    reader.receive_data(command.encode())
    frame = reader.next_frame()
    assert frame is not None
    return RemotingCommand.from_frame(frame)


def from_json(**fields: object) -> RemotingCommand:
    return RemotingCommand.from_frame(Frame(0, json.dumps(fields).encode(), b""))


@given(command=commands)
def test_commands_round_trip_in_both_encodings(command: RemotingCommand) -> None:
    assert through_the_wire(command) == command


def test_empty_ext_fields_survive_json_only() -> None:
    command = RemotingCommand(0, ext_fields={})
    assert through_the_wire(command).ext_fields == {}
    command.serialize_type = 1
    assert through_the_wire(command).ext_fields is None


def test_raw_numbers_booleans_and_nulls_become_java_s_strings() -> None:
    command = from_json(
        code=310,
        opaque=1,
        extFields={"queueId": 0, "big": 2**53, "unit": False, "x": None, "d": 1.5},
    )
    assert command.ext_fields == {"queueId": "0", "big": str(2**53), "unit": "false", "d": "1.5"}


def test_language_may_be_an_ordinal_unknown_or_null() -> None:
    assert from_json(code=1, language=3).language == "PYTHON"
    assert from_json(code=1, language=99).language == ""
    assert from_json(code=1, language=None).language == ""
    assert from_json(code=1, language="KLINGON").language == "KLINGON"


def test_missing_members_get_java_s_defaults() -> None:
    command = from_json(code=34, opaque=9)
    assert command == RemotingCommand(34, 9, 0, "", 0)


def test_a_response_mirrors_opaque_and_serialize_type() -> None:
    request = RemotingCommand.request(105, GetRouteInfoRequestHeader("T"))
    request.opaque, request.serialize_type = 77, 1
    response = request.response(17, "no route")
    assert (response.opaque, response.serialize_type, response.flag) == (77, 1, FLAG_RESPONSE)
    assert (response.code, response.remark, response.ext_fields) == (17, "no route", None)
    assert response.is_response
    assert not request.is_response


def test_oneway_requests_say_so() -> None:
    request = RemotingCommand.request(15, oneway=True)
    assert request.flag == FLAG_ONEWAY
    assert request.is_oneway


def test_extra_entries_join_the_typed_header() -> None:
    request = RemotingCommand.request(105, GetRouteInfoRequestHeader("T"), ext={"ns": "x"})
    assert request.ext_fields == {"topic": "T", "acceptStandardJsonOnly": "false", "ns": "x"}


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[]",
        b"{",
        b'{"code":"x"}',
        b'{"code":99999999999}',
        b'{"code":1,"extFields":[{}]}',
        b'{"code":1,"extFields":[]}',
        b'{"code":1,"remark":"\xff}',
        b'{"code":1,"x":' + b"[" * 5000,
    ],
)
def test_an_undecodable_json_header_is_a_protocol_error(header: bytes) -> None:
    with pytest.raises(ProtocolError):
        RemotingCommand.from_frame(Frame(0, header, b""))


FIXED = struct.pack(">hbhii", 10, 0, 409, 1, 0)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        FIXED,
        FIXED + struct.pack(">i", -1),
        FIXED + struct.pack(">ii", 0, 5),
        FIXED + struct.pack(">iih", 0, 2, 9),
        FIXED + struct.pack(">iihsi", 0, 7, 1, b"k", 100),
        FIXED + struct.pack(">iihsi1s", 0, 7, 1, b"k", 1, b"v"),  # value beyond extLen
        FIXED + struct.pack(">iihi", 0, 6, -2, 0),
        FIXED + struct.pack(">i2s", 2, b"\xff\xfe"),
    ],
)
def test_an_undecodable_binary_header_is_a_protocol_error(header: bytes) -> None:
    with pytest.raises(ProtocolError):
        RemotingCommand.from_frame(Frame(1, header, b""))


def test_a_code_above_16_bits_has_no_binary_form() -> None:
    with pytest.raises(ProtocolError, match="200050"):
        RemotingCommand(200050, serialize_type=1).encode()


@given(header=st.binary(max_size=80), kind=st.integers(0, 1))
def test_hostile_headers_raise_protocol_errors_only(header: bytes, kind: int) -> None:
    with contextlib.suppress(ProtocolError):
        RemotingCommand.from_frame(Frame(kind, header, b""))


@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=8,
    ),
    key=st.sampled_from(["code", "opaque", "flag", "language", "version", "remark", "extFields"]),
)
def test_hostile_json_headers_raise_protocol_errors_only(value: object, key: str) -> None:
    header = msgspec.json.encode({"code": 1, "extFields": {"a": "b"}, key: value})
    with contextlib.suppress(ProtocolError):
        RemotingCommand.from_frame(Frame(0, header, b"")).encode()
