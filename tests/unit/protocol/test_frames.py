"""Frames come out as they went in, however the stream is cut."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.protocol.errors import FrameTooLarge, ProtocolError
from failback.protocol.frames import MAX_FRAME_BYTES, Frame, FrameReader, encode_frame

frames = st.builds(Frame, st.integers(0, 1), st.binary(max_size=60), st.binary(max_size=300))


def cut(stream: bytes, sizes: list[int]) -> Iterator[bytes]:
    position = 0
    for size in sizes:
        yield stream[position : position + size]
        position += size
    yield stream[position:]


@given(sent=st.lists(frames), sizes=st.lists(st.integers(0, 50)))
def test_frames_survive_any_cut_of_the_stream(sent: list[Frame], sizes: list[int]) -> None:
    stream = b"".join(encode_frame(f.serialize_type, f.header, f.body) for f in sent)
    reader, received = FrameReader(), list[Frame]()
    for chunk in cut(stream, sizes):
        reader.receive_data(chunk)
        received += iter(reader.next_frame, None)
    assert received == sent
    assert reader.buffered_bytes == 0


def test_a_large_frame_in_small_chunks_is_joined_once() -> None:
    body = bytes(4 << 20)
    stream = encode_frame(0, b"{}", body)
    reader = FrameReader()
    for start in range(0, len(stream) - 1, 1000):
        assert reader.next_frame() is None
        reader.receive_data(stream[start : start + 1000])
    frame = reader.next_frame()
    assert frame is not None
    assert frame.body == body


def test_a_frame_of_exactly_the_limit_passes_and_one_more_byte_does_not() -> None:
    largest = struct.pack(">iI", MAX_FRAME_BYTES - 4, 0)
    reader = FrameReader()
    reader.receive_data(largest)
    assert reader.next_frame() is None
    reader = FrameReader()
    reader.receive_data(struct.pack(">iI", MAX_FRAME_BYTES - 3, 0))
    with pytest.raises(FrameTooLarge, match="16777217 bytes is above the limit of 16777216"):
        reader.next_frame()


@pytest.mark.parametrize(
    "prefix",
    [
        struct.pack(">iI", -1, 0),
        struct.pack(">iI", 3, 0),
        struct.pack(">iI", 10, 7),  # header longer than the frame
        struct.pack(">iI", 10, 2 << 24),  # unknown serialize type
        b"\x16\x03\x01\x02\x00\x01\x00\x01",  # TLS
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_a_contradicting_prefix_ends_the_stream_for_good(prefix: bytes) -> None:
    reader = FrameReader()
    reader.receive_data(prefix)
    for _ in range(2):
        with pytest.raises(ProtocolError):
            reader.next_frame()


def test_a_frame_above_the_limit_is_not_encoded() -> None:
    with pytest.raises(FrameTooLarge):
        encode_frame(0, b"{}", bytes(MAX_FRAME_BYTES))


@given(stream=st.binary(max_size=200))
def test_hostile_bytes_raise_protocol_errors_only(stream: bytes) -> None:
    reader = FrameReader()
    reader.receive_data(stream)
    try:
        while reader.next_frame() is not None:
            pass
    except ProtocolError:
        pass
