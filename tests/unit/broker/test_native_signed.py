"""Signatures that the kernel takes are those that hashlib makes, of what Python reads."""

from __future__ import annotations

import ctypes
import hashlib
import hmac
import json
import random
import subprocess
import sysconfig
from base64 import b64encode
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.build_native import SOURCES, CannotBuild, find_compiler

from failback.broker.native import kernels
from failback.broker.remoting.access import states_of
from failback.protocol.headers import to_ext
from tests.support.brokers.broker_lab import send_header

pytestmark = [pytest.mark.skipif(kernels is None, reason="no compiled kernels")]

SECRETS = {b"ops": b"hush", b"other": b"hush-of-the-other"}
STATES = {key: states_of(secret) for key, secret in SECRETS.items()} if kernels else {}
FIRST = (0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0)


def verified(
    data: bytes, states: dict[bytes, bytes] = STATES, at: int = 0
) -> list[tuple[int, bytes, bytes]]:
    assert kernels is not None
    found: list[tuple[int, bytes, bytes]] = kernels.verified_sends(data, at, states)
    return found


def frame(fields: dict[str, str], body: bytes, *, is_ascii: bool = True) -> bytes:
    head = {"code": 310, "extFields": fields, "flag": 0, "language": "JAVA", "opaque": 7}
    text = json.dumps(head | {"version": 1}, ensure_ascii=is_ascii, separators=(",", ":"))
    header = text.encode(errors="surrogatepass")
    return (len(header) + 4 + len(body)).to_bytes(4) + len(header).to_bytes(4) + header + body


def signature(secret: bytes, fields: dict[str, str], body: bytes) -> str:
    names = sorted(fields.keys() - {"Signature"})
    content = "".join(fields[name] for name in names).encode(errors="surrogatepass") + body
    return b64encode(hmac.digest(secret, content, "sha1")).decode()


def signed(body: bytes, key: bytes = b"ops", topic: str = "Topic", secret: bytes = b"") -> bytes:
    fields = to_ext(send_header(topic=topic)) | {"AccessKey": key.decode()}
    found = signature(secret or SECRETS[key], fields, body)
    return frame(fields | {"Signature": found}, body)


def test_signatures_of_all_lengths_are_those_of_hashlib() -> None:
    chance = random.Random(3)
    lengths = [*range(200), 1 << 10, 1 << 16, 3_000_001, *chance.choices(range(5_000), k=2_000)]
    for length in lengths:
        body = chance.randbytes(length)
        data = signed(body)
        assert verified(data) == [(len(data), b"ops", b"Topic")], length
        if length:
            at = len(data) - 1 - chance.randrange(length)
            other = data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
            assert verified(other) == [], (length, at)


def test_secrets_of_all_lengths() -> None:
    for length in range(1, 200):
        secret = random.Random(length).randbytes(length)
        data = signed(b"hello", secret=secret)
        assert verified(data, {b"ops": states_of(secret)}), length
        assert not verified(data, {b"ops": states_of(secret + b"\1")}), length


def test_each_letter_of_a_signature_counts() -> None:
    data = signed(b"hello")
    start = data.index(b'"Signature":"') + len(b'"Signature":"')
    for at in range(28):
        for letter in b"A+/=a0":
            other = data[: start + at] + bytes([letter]) + data[start + at + 1 :]
            assert bool(verified(other)) == (other == data)
    fields = to_ext(send_header()) | {"AccessKey": "ops"}
    found = signature(b"hush", fields, b"")
    for wrong in ("", found[:-1], found + "=", found[:27], "=" * 28):
        assert verified(frame(fields | {"Signature": wrong}, b"")) == []


def test_sends_of_one_key_and_topic_are_one_run() -> None:
    kinds = [(b"ops", "A"), (b"ops", "A"), (b"ops", "B"), (b"other", "B"), (b"ops", "A")]
    frames = [signed(b"x", key, topic) for key, topic in kinds]
    ends = [sum(map(len, frames[: at + 1])) for at in range(5)]
    whole = b"".join(frames)
    expected = [(b"ops", b"A"), (b"ops", b"B"), (b"other", b"B"), (b"ops", b"A")]
    assert verified(whole) == [(end, *each) for end, each in zip(ends[1:], expected, strict=True)]
    assert verified(whole, at=ends[0])[0] == (ends[1], b"ops", b"A")
    assert verified(whole[:-1])[-1] == (ends[3], b"other", b"B")
    assert verified(whole, {b"ops": STATES[b"ops"]}) == verified(whole)[:2]
    unsigned = frames[0] + signed(b"y", secret=b"guess") + frames[0]
    assert verified(unsigned) == [(len(frames[0]), b"ops", b"A")]
    for at in (-1, len(whole) + 1):
        with pytest.raises(ValueError, match="outside"):
            verified(whole, at=at)


@given(
    st.dictionaries(
        st.sampled_from(["a", "b", "i", "n", "AccessKey", "Signature", "Zone", "_x", "l"]),
        st.text(max_size=12) | st.sampled_from(["Topic", "%RETRY%CG", "true", "0", 'a"b', "\\"]),
    ),
    st.booleans(),
    st.binary(max_size=20),
    st.booleans(),
)
def test_the_kernel_takes_what_python_reads_and_nothing_else(
    more: dict[str, str], is_ascii: bool, body: bytes, is_right: bool
) -> None:
    fields = to_ext(send_header()) | more
    key = fields.get("AccessKey", "").encode(errors="surrogatepass")
    if is_right and "AccessKey" in fields:
        fields["Signature"] = signature(b"hush", fields, body)
    one = frame(fields, body, is_ascii=is_ascii)
    whole = one + one + one[:-1]
    found = verified(whole, {key: states_of(b"hush")})
    assert [end for end, *_ in found] in ([], [2 * len(one)])
    for _, access_key, topic in found:
        assert (access_key.decode(), topic.decode()) == (fields["AccessKey"], fields["b"])
        assert fields["Signature"] == signature(b"hush", fields, body)
    plain = all(
        each.isascii() and each.isprintable() and not {'"', "\\"} & set(each)
        for each in more.values()
    )
    if (
        (is_right and "AccessKey" in fields)
        and plain
        and not fields["b"].startswith("%")
        and more.keys() <= {"b", "AccessKey", "Signature", "Zone", "_x"}
    ):
        assert len(found) == 1


def test_a_damaged_frame_is_taken_only_if_what_is_signed_is_whole() -> None:
    chance, body = random.Random(5), b"hello" * 9
    data = signed(body)
    start = len(data) - len(body)
    for _ in range(3_000):
        at = chance.randrange(len(data))
        damaged = data[:at] + chance.randbytes(1) + data[at + 1 :]
        if found := verified(damaged):
            fields = json.loads(damaged[8:start])["extFields"]
            assert found == [(len(data), b"ops", b"Topic")]
            assert fields["Signature"] == signature(b"hush", fields, damaged[start:])


def test_the_sum_of_processors_without_instructions_for_it(tmp_path: Path) -> None:
    library = tmp_path / "sha1.so"
    try:
        compiler = find_compiler()
    except CannotBuild:
        pytest.skip("no C compiler")
    words = ["-O2", "-shared", "-fPIC", "-DPLAIN_SHA1", f"-I{sysconfig.get_path('include')}"]
    subprocess.run([compiler, *words, SOURCES / "sha1.c", "-o", library], check=True)
    sum_blocks = ctypes.CDLL(str(library)).sha1_blocks
    for size in range(1_000):
        data = random.Random(size).randbytes(size)
        padded = data + b"\x80" + bytes(-(size + 9) % 64) + (8 * size).to_bytes(8)
        state = (ctypes.c_uint32 * 5)(*FIRST)
        sum_blocks(state, padded, ctypes.c_size_t(len(padded) // 64))
        assert b"".join(each.to_bytes(4) for each in state) == hashlib.sha1(data).digest()
