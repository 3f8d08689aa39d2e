"""Headers of commands as other clients write them: fastjson's leniency."""

from __future__ import annotations

from typing import Final

import pytest

from failback.protocol.command import RemotingCommand
from failback.protocol.errors import ProtocolError
from failback.protocol.frames import Frame, FrameReader
from failback.protocol.headers import (
    CreateTopicRequestHeader,
    Header,
    PullMessageRequestHeader,
    RegisterBrokerRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    from_ext,
    to_ext,
)

pytestmark = pytest.mark.foreign

JAVA: Final = (
    '{"code":34,"extFields":{"a":"1"},"flag":2,"language":"CPP","opaque":5,"remark":null,'
    '"version":9}'
)
WAYS: Final = {
    "as Java writes it": JAVA,
    "capitals": JAVA.replace('{"c', '{"C').replace(',"', ',"_').replace('"e', '"E'),
    "one capital": JAVA.replace("opaque", "Opaque"),
    "upper case": JAVA.replace("extFields", "EXTFIELDS").replace("flag", "FLAG"),
    "only the table in lower case": JAVA.replace("extFields", "extfields"),
    "underscores": JAVA.replace("extFields", "ext_fields"),
    "numbers as texts": JAVA.replace("34", '"34"').replace(":2", ':"2"').replace(":5", ':"5"'),
    "texts as numbers": JAVA.replace('"1"', "1").replace('"CPP"', "1"),
    "the language in lower case": JAVA.replace("CPP", "cpp").replace("code", "Code"),
    "a field without a value": JAVA.replace('"1"', '"1","b":null'),
    "single quotes": JAVA.replace('"', "'"),
    "no quotes": JAVA.replace('"code"', "code").replace('"opaque"', "opaque"),
    "commas too many": JAVA.replace("}", ",}"),
    "a byte order mark": "\ufeff" + JAVA,
    "the NUL that ends a text in C": JAVA + "\0",
    "several of them": JAVA + "\0\0\r\n\0",
    "a NUL before it": "\0" + JAVA,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_header_is_read_however_a_client_writes_it(way: str) -> None:
    command = RemotingCommand.from_frame(Frame(0, WAYS[way].encode(), b""))
    assert command == RemotingCommand(34, 5, 2, "CPP", 9, None, {"a": "1"})


@pytest.mark.parametrize("serialize_type", [0, 1])
def test_a_header_above_its_limit_is_refused(serialize_type: int) -> None:
    header = JAVA.replace("1", "x" * (300 << 10)).encode()
    with pytest.raises(ProtocolError, match="above the limit of 262144"):
        RemotingCommand.from_frame(Frame(serialize_type, header, b""))


@pytest.mark.parametrize("serialize_type", [0, 1])
@pytest.mark.parametrize(
    "written", [b"\xc4\xe3\xba\xc3", b"caf\xe9", b"\xff\xfe\xff", b"a\xc0\xafb"]
)
def test_text_in_another_encoding_is_read_as_java_reads_it(
    serialize_type: int, written: bytes
) -> None:
    """A client in C++ or PHP puts the bytes of its machine's encoding into properties."""
    fields = {"topic": "orders", "properties": "KEYS\x01@@@@"[: 5 + len(written)]}
    request = RemotingCommand(310, 7, ext_fields=fields, serialize_type=serialize_type)
    reader = FrameReader()
    reader.receive_data(request.encode().replace(b"@" * len(written), written))
    frame = reader.next_frame()
    assert frame is not None
    found = RemotingCommand.from_frame(frame).ext_fields
    assert found == {"topic": "orders", "properties": "KEYS\x01" + written.decode(errors="replace")}


@pytest.mark.parametrize("header", ["{}", '{"opaque":0,"code":null}', '{"language":"GO"}'])
def test_a_header_without_a_code_is_that_of_an_unknown_request(header: str) -> None:
    assert RemotingCommand.from_frame(Frame(0, header.encode(), b"")).code == 0


_SEND = ("G", "T", "TBW102", 4, 1, 0, 2, 0)
DONE_WITHOUT: Final[list[tuple[Header, tuple[str, ...]]]] = [
    (SendMessageRequestHeader(*_SEND), ("producerGroup", "defaultTopic", "defaultTopicQueueNums")),
    (SendMessageRequestHeaderV2(*_SEND), ("a", "c", "d")),
    (
        PullMessageRequestHeader("G", "T", 1, 2, 3, 4, 5, 6, 7),
        ("commitOffset", "suspendTimeoutMillis", "subVersion"),
    ),
    (CreateTopicRequestHeader("T", "TBW102", 4, 4, 6, "SINGLE_TAG"), ("defaultTopic",)),
    (RegisterBrokerRequestHeader("b", "h:1", "c", "h:2", 1), ("haServerAddr",)),
]


@pytest.mark.parametrize(("header", "fields"), DONE_WITHOUT, ids=lambda each: type(each).__name__)
def test_what_apache_does_without_may_be_missing(header: Header, fields: tuple[str, ...]) -> None:
    """Whichever subset of these a client leaves out, Apache 4.9.7 serves it."""
    whole = to_ext(header)
    for left_out in fields:
        ext = {name: value for name, value in whole.items() if name != left_out}
        read = to_ext(from_ext(type(header), ext))
        assert read.pop(left_out) in ("", "0")
        assert read == ext
    none = {name: value for name, value in whole.items() if name not in fields}
    assert to_ext(from_ext(type(header), none)).items() >= none.items()
