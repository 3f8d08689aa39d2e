"""The first bytes of a connection under the guarded rules: what continues a log, what does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.broker.ha import join as join_module
from failback.broker.ha.join import JoinCheck, Refusal
from failback.broker.store.log.record import pack_blank
from failback.protocol.message import encode_record, pack_host

FILE = 4096
HOST = pack_host("127.0.0.1", 10911)


def record(offset: int, body: bytes = b"hello", host: bytes = HOST) -> bytes:
    return encode_record(
        topic="TopicTest",
        queue_id=0,
        body=body,
        physical_offset=offset,
        store_timestamp=1_700_000_000_000,
        born_host=host,
        store_host=host,
    )


def log(start: int, bodies: list[bytes]) -> bytes:
    data = b""
    for body in bodies:
        data += record(start + len(data), body)
    return data


def fed(check: JoinCheck, offset: int, data: bytes, size: int) -> bytes | Refusal:
    """Bring ``data`` in pieces of ``size``; return what was let through, or the refusal."""
    passed = b""
    for at in range(0, len(data), size):
        taken = check.take(offset + at, data[at : at + size])
        if isinstance(taken, Refusal):
            assert passed == b"", "something of another log was let through"
            return taken
        if taken is not None:
            assert taken[0] == offset + len(passed)
            passed += taken[1]
    return passed


@pytest.mark.parametrize("size", [1, 7, 90, 5000])
@pytest.mark.parametrize("host", [HOST, pack_host("::1", 10911)])
@pytest.mark.parametrize("own", [0, 1, 8, 30, 100])
def test_a_record_that_goes_on_is_let_through_once_it_is_whole(
    size: int, host: bytes, own: int
) -> None:
    whole = record(700, host=host)
    data = whole + record(700 + len(whole))
    check = JoinCheck(700, data[:own], FILE)
    assert fed(check, 700 + own, data[own:], size) == data[own:]
    assert check.is_proved


def test_until_the_record_is_whole_nothing_is_let_through() -> None:
    data = record(0)
    check = JoinCheck(None, b"", FILE)
    for at in range(len(data) - 1):
        assert check.take(at, data[at : at + 1]) is None
    assert check.take(len(data) - 1, data[-1:]) == (0, data)


@given(
    before=st.lists(st.binary(max_size=80), max_size=4),
    ours=st.lists(st.binary(max_size=80), min_size=1, max_size=3),
    theirs=st.lists(st.binary(max_size=80), min_size=8, max_size=12),
    own_rest=st.integers(0, 60),
    size=st.integers(1, 300),
)
def test_another_log_is_never_let_through(
    before: list[bytes], ours: list[bytes], theirs: list[bytes], own_rest: int, size: int
) -> None:
    """Both begin alike; then each has records of its own, and the slave is asked to go on."""
    common = log(0, before)
    slave = common + log(len(common), ours)
    master = common + log(len(common), theirs)
    start = len(slave)
    slave += record(start, b"cut off in its middle")[:own_rest]
    sent = master[len(slave) :]
    boundaries = {len(common) + len(log(len(common), theirs[:n])) for n in range(len(theirs))}
    refused = fed(JoinCheck(start, slave[start:], FILE), len(slave), sent, size)
    if start not in boundaries:  # else they meet at a record, and only their records can tell
        assert isinstance(refused, Refusal)
        assert refused.offset == start


def test_a_record_of_another_place_is_refused_before_it_is_whole() -> None:
    check = JoinCheck(700, b"", FILE)
    refused = check.take(700, record(900)[:36])
    assert isinstance(refused, Refusal)
    assert "another place" in str(refused)
    assert "700" in str(refused)


@pytest.mark.parametrize(
    "damaged",
    [
        bytes(200),
        record(700)[:88] + b"HELLO" + record(700)[93:],
        (50).to_bytes(4, "big") + record(700)[4:],
        (FILE).to_bytes(4, "big") + record(700)[4:],
    ],
    ids=["zeros", "crc", "too short", "beyond the file"],
)
def test_what_is_no_record_is_refused(damaged: bytes) -> None:
    refused = fed(JoinCheck(700, b"", FILE), 700, damaged, 5000)
    assert isinstance(refused, Refusal)
    assert refused.offset == 700


@pytest.mark.parametrize("own", [0, 3])
def test_a_blank_record_closes_a_file(own: int) -> None:
    data = pack_blank(FILE - 700) + bytes(FILE - 700 - 8)
    assert fed(JoinCheck(700, data[:own], FILE), 700 + own, data[own:], 100) == data[own:]
    refused = fed(JoinCheck(700, b"", FILE), 700, pack_blank(FILE - 701), 100)
    assert isinstance(refused, Refusal)


def test_behind_an_own_blank_record_the_next_file_must_begin_with_a_record() -> None:
    def ending_in_zeros() -> JoinCheck:
        return JoinCheck(700, pack_blank(FILE - 700) + bytes(100), FILE)

    zeros = bytes(FILE - 808)
    check = ending_in_zeros()
    assert check.take(808, zeros) == (808, zeros)
    assert check.take(FILE, record(FILE)) == (FILE, record(FILE))
    check = ending_in_zeros()
    check.take(808, zeros)
    assert isinstance(check.take(FILE, record(FILE + 1)), Refusal)


def test_a_record_too_long_to_be_held_back_is_believed_by_its_head(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(join_module, "MOST_HELD_BYTES", 1000)
    data = record(0, bytes(2000))
    check = JoinCheck(None, b"", FILE)
    assert check.take(0, data[:35]) is None
    assert check.take(35, data[35:50]) == (0, data[:50])
