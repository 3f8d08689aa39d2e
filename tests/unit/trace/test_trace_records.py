"""Bodies of the trace topic: what is read, and what is named because it can't be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.analytics.trace.records import Body, TraceRecord, decode_body
from tests.support.analytics.trace_builder import (
    START_MS,
    after,
    before,
    golden_traces,
    made_id,
    pub,
    record,
)

GOLDEN = golden_traces()
REQUEST, MESSAGE = made_id(1, 1), made_id(2, 2)


def only(body: bytes) -> TraceRecord:
    decoded = decode_body(body)
    assert decoded.damaged == ()
    (found,) = decoded.records
    return found


def problem(body: bytes) -> str:
    decoded = decode_body(body)
    assert decoded.records == ()
    (found,) = decoded.damaged
    return found.problem


def test_a_send_of_4_9() -> None:
    assert only(pub(MESSAGE, 7, topic="orders", cost=3)) == TraceRecord(
        "Pub",
        0,
        0,
        MESSAGE,
        time_ms=START_MS + 7,
        group="pg",
        traced_topic="orders",
        keys="key",
        cost_ms=3,
        success=True,
        store_host="127.0.0.1:10911",
        offset_message_id="7F00000100002A9F0000000000000010",
    )


def test_a_handling_of_4_9() -> None:
    decoded = decode_body(before(MESSAGE, 5, REQUEST, rt=2) + after(MESSAGE, 9, REQUEST, cost=4))
    assert decoded == Body(
        (
            TraceRecord(
                "SubBefore", 0, 0, MESSAGE, time_ms=START_MS + 5, group="g", request_id=REQUEST,
                retry_times=2, keys="key",
            ),
            TraceRecord(
                "SubAfter", 1, 0, MESSAGE, time_ms=START_MS + 9, group="g", request_id=REQUEST,
                keys="key", cost_ms=4, success=True, code=0,
            ),
        ),
        (),
    )  # fmt: skip


def test_an_end_of_an_older_client_has_no_code_no_time_no_group() -> None:
    for fields in (5, 6, 7, 8):
        whole = after(MESSAGE, 9, REQUEST)[:-1].split(b"\x01")[:fields]
        found = only(b"\x01".join(whole) + b"\x02")
        assert (found.code, found.time_ms, found.group) == (
            0 if fields > 6 else None,
            START_MS + 9 if fields > 7 else None,
            None,
        )


def test_a_send_of_an_older_client_has_no_offset_id() -> None:
    fields = pub(MESSAGE)[:-1].split(b"\x01")
    del fields[12]
    found = only(b"\x01".join(fields) + b"\x02")
    assert (found.offset_message_id, found.success) == (None, True)


@pytest.mark.parametrize(
    ("whole", "known"),
    [(pub(MESSAGE), 15), (before(MESSAGE, 1, REQUEST), 8), (after(MESSAGE, 1, REQUEST), 9)],
)
def test_fields_of_newer_clients_are_counted(whole: bytes, known: int) -> None:
    fields = whole[:-1].split(b"\x01")
    fields += [b"new"] * (known + 2 - len(fields))
    assert only(b"\x01".join(fields) + b"\x02").unread_fields == 2


def test_two_copies_handled_in_one_batch_are_two_records() -> None:
    body = before(MESSAGE, 1, REQUEST) * 2 + before(made_id(2, 3), 1, REQUEST)
    assert [found.copy for found in decode_body(body).records] == [0, 1, 0]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"\x02", "has type '', not one of Pub"),
        (record("Recall", 1), "has type 'Recall'"),
        (record("SubBefore", 1, "r", "g"), "is a SubBefore of 4 fields, not of 7 or more"),
        (record("SubBefore", "1e3", "r", "g", "q", "m", 0), "has time '1e3', which is no number"),
        (record("SubBefore", 1, "r", "g", "q", "m", "٣"), "has retry times"),
        (record("SubBefore", 1, "r", None, "q", "m", 0), "is a SubBefore without group"),
        (record("SubAfter", "q", "m", 9**30, True), "which is too large"),
        (record("SubAfter", "q", "m", 1, "yes"), "has success 'yes', which is neither true nor"),
        (b"\xff\x02", "is no UTF-8"),
        (b"SubAfter", "is cut off after 8 bytes"),
    ],
)
def test_what_cannot_be_read_is_named(body: bytes, words: str) -> None:
    assert words in problem(body)


def test_the_records_around_a_damaged_one_are_read() -> None:
    good = before(MESSAGE, 1, REQUEST)
    decoded = decode_body(good + record("SubBefore", "x") + good)
    assert [found.number for found in decoded.records] == [0, 2]
    assert [found.number for found in decoded.damaged] == [1]


@given(st.lists(st.one_of(st.sampled_from([b"\x01", b"\x02", b"SubAfter", b"Pub"]), st.binary())))
def test_any_bytes_are_records_or_damage(pieces: list[bytes]) -> None:
    body = b"".join(pieces)
    decoded = decode_body(body)
    found = len(decoded.records) + len(decoded.damaged)
    ended = body.count(b"\x02") + (not body.endswith(b"\x02") and body != b"")
    assert ended <= found <= ended + body.count(b"SubAfter")  # of clients with CLOUD


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_a_real_body_cut_at_every_byte(name: str) -> None:
    body = GOLDEN[name]
    whole = decode_body(body)
    assert whole.damaged == ()
    assert whole.records
    for cut in range(len(body)):
        last = body[:cut].rpartition(b"\x02")[2]
        if last.startswith(b"SubAfter") and last.endswith(b"\x01") and last.count(b"\x01") == 7:
            continue  # that is how a client with CLOUD ends it
        decoded = decode_body(body[:cut])
        assert decoded.records == whole.records[: len(decoded.records)]
        assert len(decoded.records) == body[:cut].count(b"\x02")
        assert len(decoded.damaged) == (cut > 0 and body[cut - 1 : cut] != b"\x02")


def test_what_a_real_client_traced() -> None:
    found = [each for body in GOLDEN.values() for each in decode_body(body).records]
    assert {each.kind for each in found} == {"Pub", "SubBefore", "SubAfter", "EndTransaction"}
    assert {each.unread_fields for each in found} == {0}
    begins = {(e.request_id, e.message_id): e for e in found if e.kind == "SubBefore"}
    ends = [each for each in found if each.kind == "SubAfter"]
    assert ends
    assert {(each.request_id, each.message_id) for each in ends} == set(begins)
    assert {each.retry_times for each in begins.values()} == {0, 1}
    assert {(each.success, each.code) for each in ends} >= {(True, 0), (False, 4)}
    for each in ends:
        begin = begins[each.request_id, each.message_id]
        assert each.group == begin.group == "traced-group"
        assert begin.time_ms is not None
        assert each.time_ms is not None
        assert each.time_ms >= begin.time_ms
    sends = [each for each in found if each.kind == "Pub"]
    sent = {each.message_id for each in sends if each.traced_topic == "JavaTopic"}
    assert {each.message_id for each in begins.values()} & sent
