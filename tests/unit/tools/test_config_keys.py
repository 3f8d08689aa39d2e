"""The tool that writes which keys each version of Apache's brokers reads."""

from __future__ import annotations

import json
import random

from tools.config_keys import setters, specifiers, text_of

from failback.operator.engines.quirks import PUBLISHED, applies


def test_a_range_of_versions_holds_those_that_have_the_key_and_no_other() -> None:
    dice = random.Random(47)
    for share in (0.1, 0.5, 0.9):
        for _ in range(100):
            known = [(version, dice.random() < share) for version in PUBLISHED]
            if any(has for _, has in known):
                text = specifiers(known)
                assert [(each, applies(text, each)) for each in PUBLISHED] == known
    assert specifiers([(version, True) for version in PUBLISHED]) == ""


def test_a_key_is_one_line_with_the_widest_type_of_all_versions() -> None:
    old = {"b": ("int", 32), "A": ("bool", 32)}
    new = {"b": ("int", 64), "c": ("string", 32)}
    text = text_of({"4.9.0": old, "5.0.0": new})
    assert json.loads(text) == {
        "A": {"type": "bool", "versions": "<5.0.0"},
        "b": {"type": "int", "bits": 64},
        "c": {"type": "string", "versions": ">=5.0.0"},
    }
    assert [line[:3] for line in text.splitlines()] == ["{", '"A"', '"b"', '"c"', "}"]


def class_file(*methods: tuple[int, str, str]) -> bytes:
    """Return a class with constants of several sizes, a field ``setX`` and these methods."""
    texts = ["X", "setX", "I", *(text for _, *both in methods for text in both)]
    pool = b"".join(b"\1" + len(text).to_bytes(2, "big") + text.encode() for text in texts)
    pool += b"\5" + bytes(8) + b"\7\0\1" + b"\x0c" + bytes(4) + b"\x0f" + bytes(3)
    of_methods = [(row[0], 4 + 2 * at, 5 + 2 * at) for at, row in enumerate(methods)]
    rows = [
        b"".join(part.to_bytes(2, "big") for part in (*row, 1)) + b"\0\1\0\0\0\3abc"
        for row in [(1, 2, 3), *of_methods]  # each with one attribute of three bytes
    ]
    head = b"\xca\xfe\xba\xbe\0\0\0\x34" + (len(texts) + 6).to_bytes(2, "big") + pool
    head += b"\0\x21\0\1\0\1\0\1\0\1"  # flags, this, super, one interface
    return head + b"\0\1" + rows[0] + len(methods).to_bytes(2, "big") + b"".join(rows[1:])


def test_public_setters_of_one_simple_value_are_keys() -> None:
    code = class_file(
        (0x01, "setTimerWheelEnable", "(Z)V"),
        (0x11, "setRegionId", "(Ljava/lang/String;)V"),
        (0x01, "setMaxDelayTime", "(J)V"),
        (0x01, "setRatio", "(D)V"),
        (0x02, "setPrivate", "(I)V"),
        (0x09, "setStatic", "(I)V"),
        (0x01, "setRole", "(Lorg/apache/rocketmq/store/config/BrokerRole;)V"),
        (0x01, "setTwo", "(II)V"),
        (0x01, "getRegionId", "()Ljava/lang/String;"),
        (0x01, "set", "(I)V"),
    )
    assert list(setters(code)) == [
        ("timerWheelEnable", ("bool", 32)),
        ("regionId", ("string", 32)),
        ("maxDelayTime", ("int", 64)),
        ("ratio", ("float", 32)),
    ]
