"""Generated input for decoders: deep, wide, long, of many small parts, almost right, lying.

A shape is a beginning, a part that is repeated to the wanted length, and an end, which is missing
at times. Some parts count, so that no two are equal.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Final

_MOST_COUNTED: Final = 1 << 18
"""Of parts that differ."""

# A beginning, the part, and an end. %d is the part's number.
REPEATED: Final[dict[str, tuple[str, str, str]]] = {
    "a long text": ('{"clientID":"', "a", '"}'),
    "a long text for a key": ('{"', "a", '":1}'),
    "a long text behind a key that is an object": ('{{"a":1}:"', "a", '"}'),
    "a text of escapes": ('{"clientID":"', "\\n", '"}'),
    "a text of escapes among letters": ('{"topic":"', "aaaa\\t", '"}'),
    "a text of escapes of Java alone": ('{"topic":"', "a\\x41\\0", '"}'),
    "a text of code points": ('{"clientID":"', "\\u4e2d\\ud83d\\ude00", '"}'),
    "a text in single quotes": ("{'clientID':'", "a\\'", "'}"),
    "a text with one wide letter": ('{"x":"\U0001f600', "a", '"}'),
    "a text of wide letters": ('{"x":"', "中\U0001f600", '"}'),
    "arrays in arrays": ("", "[", ""),
    "objects in objects": ("", '{"a":', "1"),
    "keys that are objects in objects": ("", "{{", "}"),
    "empty arrays": ("[", "[],", "[]]"),
    "empty objects": ("[", "{},", "{}]"),
    "empty objects for values": ("{", '"a%d":{},', '"b":1}'),
    "objects for keys": ("{", '{"queueId":%d}:1,', '"b":1}'),
    "a wide object": ("{", '"k%d":%d,', '"b":1}'),
    "a wide object without quotes": ("{", "k%d:%d,", "b:1}"),
    "equal keys": ("{", '"a":1,', '"b":1}'),
    "short texts": ("[", '"a%d",', '"b"]'),
    "short numbers": ("[", "%d,", "1]"),
    "a long number": ('{"counter":', "7", "}"),
    "a long fraction": ('{"counter":0.', "7", "}"),
    "long exponents": ("[", "1e999,", "1]"),
    "commas": ("[", ",", "]"),
    "blanks": ("{", " ", "}"),
    "comments": ("{", "/**/", "}"),
    "comments by line": ("{", "//a\n", "}"),
    "a comment that does not end": ("/*", "*", ""),
    "comments that do not end": ('{"x":[', "/*", ""),
    "comments that do not end, for values": ("[", "/*1,", ""),
    "numbers for keys in one another": ("", "{1:", "1"),
    "gauges": ("", "rocketmq_slave_a 1\n", ""),
    "gauges with labels that do not end": ("", "rocketmq_slave_a{a=", ""),
    "lines of gauges with labels that do not end": ("", "rocketmq_slave_a{a=\n", ""),
    "groups": ('{"clientID":"c","consumerDataSet":[', '{"groupName":"g%d"},', "]}"),
    "groups in other letters": ('{"ClientID":"c","ConsumerDataSet":[', "{GroupName:g%d},", "]}"),
    "empty groups": ('{"clientID":"c","consumerDataSet":[', "{},", "]}"),
    "subscriptions": (
        '{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[',
        '{"topic":"t%d"},',
        "]}]}",
    ),
    "codes": (
        '{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"codeSet":[',
        "%d,",
        "]}]}]}",
    ),
    "queues": ('{"mqSet":[', '{"topic":"t","brokerName":"b","queueId":%d},', "]}"),
    "topics": ('{"topicConfigTable":{', '"t%d":{"topicName":"t%d"},', "}}"),
    "topics of a registration": (
        '{"topicConfigSerializeWrapper":{"topicConfigTable":{',
        '"t%d":{"topicName":"t%d"},',
        "}}}",
    ),
    "filter servers": ('{"filterServerList":[', '"%d",', "]}"),
    "offsets": ('{"offsetTable":{', '"t@g%d":{0:%d},', "}}"),
    "queues of one topic": ('{"offsetTable":{"t@g":{', "%d:1,", "}}}"),
    "offsets by queue": (
        '{"offsetTable":{',
        '{"topic":"t","brokerName":"b","queueId":%d}:{"minOffset":1},',
        "}}",
    ),
    "queues and offsets": (
        '{"offsetTable":{',
        '{"topic":"t","brokerName":"b","queueId":%d}:1,',
        "}}",
    ),
    "kept offsets": ("{", '"t@g%d":{"0":1},', '"b":{}}'),
    "routes": ('{"brokerDatas":[', '{"brokerName":"b%d","cluster":"c","brokerAddrs":{}},', "]}"),
    "members": ('{"connectionSet":[', '{"clientId":"%d","clientAddr":"a"},', "]}"),
    "header fields": ('{"code":34,"extFields":{', '"k%d":"v",', '"b":"1"}}'),
    "settings": ("", "k%d=v\n", ""),
    "a setting of many lines": ("k=", "\\\n", "v"),
    "properties": ("", "k%d\x01v\x02", ""),
    "trace records": ("", "SubAfter\x01r%d\x01m\x011\x01true\x01\x010\x01", ""),
    "records of nothing": ("", "\x02", ""),
    "conditions": ("a = 1", " OR b = %d", ""),
    "brackets": ("", "(", "a = 1"),
    "negations": ("", "NOT ", "a = 1"),
    "a long list": ("a IN (", "'x%d', ", "'y')"),
    "topics in text": ("", "t%d 1 1 6 SINGLE_TAG", ""),
}


def _repeated(name: str, chance: random.Random, length: int) -> bytes:
    begin, part, end = REPEATED[name]
    room = max(length - len(begin) - len(end), 0)
    if "%d" in part:
        parts, size = [], 0
        for number in range(_MOST_COUNTED):
            piece = part.replace("%d", str(number))
            size += len(piece)
            if size > room:
                break
            parts.append(piece)
        middle = "".join(parts)
    else:
        middle = part * (room // len(part.encode()))
    return f"{begin}{middle}{end if chance.random() < 0.9 else ''}".encode()[:length]


def _lying_sizes(chance: random.Random, length: int) -> bytes:
    """Length words that say too much, or nearly nothing often."""
    words = [-1, 0, 1, 2, 5, 0x7FFFFFFF, -(2**31), 0x10000, length]
    body = b"".join(
        struct.pack(">i", chance.choice(words)) + chance.randbytes(chance.randrange(4))
        for _ in range(min(length // 4, 4000))
    )
    return body[:length]


def _nothing_often(_chance: random.Random, length: int) -> bytes:
    return bytes(length)


def _any_bytes(chance: random.Random, length: int) -> bytes:
    return chance.randbytes(length)


SHAPES: Final[dict[str, Callable[[random.Random, int], bytes]]] = {
    **{name: (lambda c, n, name=name: _repeated(name, c, n)) for name in REPEATED},  # type: ignore[misc]
    "lying sizes": _lying_sizes,
    "zeros": _nothing_often,
    "any bytes": _any_bytes,
}


def spoilt(chance: random.Random, sample: bytes) -> bytes:
    """A sample with bytes changed, lost or doubled."""
    data = bytearray(sample)
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(4):
            case 0:
                data[at : at + 1] = chance.randbytes(1)
            case 1:
                data[at : at + 4] = chance.choice([b"\xff\xff\xff\x7f", b"\x00" * 4, b"\x80" * 4])
            case 2:
                del data[at : at + chance.randrange(1, 9)]
            case _:
                data[at:at] = data[at : at + chance.randrange(1, 40)] * chance.randrange(1, 20)
    return bytes(data)


def length_of(chance: random.Random, longest: int) -> int:
    """A length of a shape: short ones mostly, the longest now and then."""
    if chance.random() < 0.003:
        return longest
    return int(16 * (longest / 16) ** (chance.random() ** 2.2))
