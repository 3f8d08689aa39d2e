"""Headers of commands as other clients write them: fastjson's leniency."""

from __future__ import annotations

from typing import Final

import pytest

from failback.protocol.command import RemotingCommand
from failback.protocol.errors import ProtocolError
from failback.protocol.frames import Frame

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
