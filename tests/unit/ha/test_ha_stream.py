"""The HA stream without sockets: golden exchange, any cut, every refusal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.broker.ha.stream import (
    ReportReader,
    SlaveStream,
    encode_frame_header,
    encode_report,
    start_position,
)

GIB = 1 << 30


def frame(offset: int, body: bytes) -> bytes:
    return encode_frame_header(offset, len(body)) + body


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    """Cut ``data`` into pieces of ``sizes``, used round and round."""
    pieces, at, turn = [], 0, 0
    while at < len(data):
        pieces.append(data[at : at + sizes[turn % len(sizes)]])
        at += len(pieces[-1])
        turn += 1
    return pieces


def test_the_exchange_of_an_empty_slave_has_these_bytes() -> None:
    assert encode_report(0).hex() == "0000000000000000"
    assert start_position(0, 1_073_742_025, GIB) == GIB
    assert encode_frame_header(GIB, 201).hex() == "0000000040000000000000c9"
    assert encode_report(1_073_742_025).hex() == "00000000400000c9"
    assert encode_frame_header(1_073_742_025, 0).hex() == "00000000400000c900000000"


@pytest.mark.parametrize(
    ("report", "end", "start"),
    [(0, 0, 0), (0, 999, 0), (0, 1000, 1000), (0, 2500, 2000), (1, 2500, 1), (9999, 2500, 9999)],
)
def test_only_an_empty_slave_is_sent_to_the_last_file(report: int, end: int, start: int) -> None:
    assert start_position(report, end, 1000) == start


@given(
    reports=st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=20),
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=5),
)
def test_the_last_whole_report_counts_wherever_the_stream_is_cut(
    reports: list[int], sizes: list[int]
) -> None:
    reader, read, seen = ReportReader(), 0, None
    for piece in cut(b"".join(map(encode_report, reports)), sizes):
        read += len(piece)
        report = reader.receive_data(piece)
        if report is not None:
            seen = report
        assert seen == (reports[read // 8 - 1] if read >= 8 else None)


@given(
    bodies=st.lists(st.binary(max_size=60), max_size=12),
    start=st.integers(0, 5),
    sizes=st.lists(st.integers(1, 200), min_size=1, max_size=5),
)
def test_frames_become_the_same_log_wherever_the_stream_is_cut(
    bodies: list[bytes], start: int, sizes: list[int]
) -> None:
    file_bytes = 60
    position = first = start * file_bytes
    stream_bytes, log = b"", b""
    for body in bodies:
        body = body[: file_bytes - position % file_bytes]
        stream_bytes += frame(position, body)
        log += body
        position += len(body)
    stream, got, expected = SlaveStream(first, file_bytes), b"", first
    for piece in cut(stream_bytes, sizes):
        runs, failure = stream.receive_data(piece)
        assert failure is None
        for run in runs:
            data = b"".join(run.pieces)
            assert run.physical_offset == expected
            assert run.physical_offset % file_bytes + len(data) <= file_bytes
            expected += len(data)
            got += data
    assert got == log


def test_what_one_read_brought_is_one_run_per_file() -> None:
    stream = SlaveStream(0, 100)
    received = stream.receive_data(
        frame(0, b"a" * 40) + frame(40, b"b" * 60) + frame(100, b"c" * 10) + frame(110, b"")
    )
    assert [(run.physical_offset, len(run.pieces)) for run in received.runs] == [(0, 2), (100, 1)]
    assert received.failure is None


def test_a_body_is_handed_on_before_its_frame_is_complete() -> None:
    stream = SlaveStream(0, 100)
    (run,), failure = stream.receive_data(frame(0, b"abcdef")[:15])
    assert (run.physical_offset, bytes(run.pieces[0]), failure) == (0, b"abc", None)


@pytest.mark.parametrize("offset", [0, 200, 700])
def test_a_slave_without_data_takes_any_offset(offset: int) -> None:
    stream = SlaveStream(0, 100)
    heartbeat = stream.receive_data(frame(offset + 17, b""))
    assert heartbeat == ([], None)
    (run,), failure = stream.receive_data(frame(offset, b"x"))
    assert (run.physical_offset, failure) == (offset, None)


@pytest.mark.parametrize("body", [b"", b"x"])
@pytest.mark.parametrize("offset", [0, 49, 51, 2**40])
def test_a_frame_for_another_offset_is_refused_as_soon_as_its_header_is_there(
    offset: int, body: bytes
) -> None:
    stream = SlaveStream(50, 100)
    runs, failure = stream.receive_data(frame(offset, body)[:12])
    assert runs == []
    assert failure == f"the master sent offset {offset}, this slave is at 50"


def test_what_came_before_a_bad_frame_is_kept() -> None:
    stream = SlaveStream(50, 100)
    (run,), failure = stream.receive_data(frame(50, b"good") + frame(55, b"bad"))
    assert (run.physical_offset, bytes(run.pieces[0])) == (50, b"good")
    assert failure is not None


def test_an_offset_gap_is_seen_after_data_too() -> None:
    stream = SlaveStream(0, 100)
    stream.receive_data(frame(0, b"abc"))
    assert stream.receive_data(frame(4, b"")).failure is not None


@pytest.mark.parametrize(("offset", "size"), [(0, -1), (-5, 3), (0, 101), (90, 11), (0, 2**31 - 1)])
def test_a_frame_that_no_log_of_this_file_size_can_hold_is_refused(offset: int, size: int) -> None:
    received = SlaveStream(0, 100).receive_data(encode_frame_header(offset, size))
    assert received.failure is not None
