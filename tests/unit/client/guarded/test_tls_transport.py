"""The transport of a TLS connection: the protocol behind it sees what the peer wrote, in order."""

from __future__ import annotations

import ssl
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failback.client.remoting.tls_server import TlsTransport
from tests.support.brokers.broker_lab import FakeTransport
from tests.support.common.counts import examples
from tests.support.net.certificates import Authority

VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


class Sink:
    """A protocol that keeps what it reads."""

    def __init__(self) -> None:
        self.read = bytearray()
        self.ends = 0

    def connection_made(self, transport: object) -> None: ...

    def take_transport(self, transport: object) -> None: ...

    def connection_lost(self, error: Exception | None) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def data_received(self, data: bytes) -> None:
        self.read += data

    def eof_received(self) -> bool:
        self.ends += 1
        return False


class Contexts:
    """Of both sides, of one version of TLS each."""

    def __init__(self, folder: Path) -> None:
        authority = Authority(folder)
        served = authority.issue("server")
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.load_cert_chain(served.chain, served.key)
        self.clients = {version: self._client(authority.file, version) for version in VERSIONS}

    @staticmethod
    def _client(ca: Path, version: ssl.TLSVersion) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=ca)
        context.minimum_version = context.maximum_version = version
        return context


class Pair:
    """A client of the standard library, and the transport; bytes go where a test moves them."""

    def __init__(self, contexts: Contexts, version: ssl.TLSVersion = VERSIONS[1]) -> None:
        self.raw, self.sink = FakeTransport(("10.0.0.1", 1)), Sink()
        buffer = memoryview(bytearray(512 * 1024))
        self.transport = TlsTransport(self.raw, self.sink, contexts.server, buffer)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = contexts.clients[version]
        self.client = client.wrap_bio(self._in, self._out, server_hostname="127.0.0.1")

    def shake_hands(self, cuts: tuple[int, ...] = ()) -> None:
        for _ in range(3):
            with suppress(ssl.SSLWantReadError):
                self.client.do_handshake()
            self.deliver(cuts)
            self.take()
        assert self.transport.is_open

    def deliver(self, cuts: tuple[int, ...] = ()) -> None:
        """Let the transport read what the client has written, in pieces cut at these places."""
        data = self._out.read()
        places = sorted({0, len(data), *(each % (len(data) + 1) for each in cuts)})
        for begin, end in pairwise(places):
            self.transport.receive(data[begin:end])

    def take(self) -> None:
        """Let the client read what the transport has written."""
        for data in self.raw.writes:
            self._in.write(data)
        self.raw.writes.clear()

    def read(self) -> bytes:
        """Return what the client can decrypt now."""
        self.take()
        found = bytearray()
        with suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            while piece := self.client.read(65536):
                found += piece
        return bytes(found)


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Contexts:
    return Contexts(tmp_path_factory.mktemp("tls"))


@settings(max_examples=examples(60), deadline=None)
@given(
    version=st.sampled_from(VERSIONS),
    sizes=st.lists(st.integers(1, 40_000), max_size=5),
    cuts=st.lists(st.integers(0, 2**20), max_size=8),
    with_handshake=st.booleans(),
)
def test_any_cut_of_the_stream_gives_the_same_text(
    contexts: Contexts,
    version: ssl.TLSVersion,
    sizes: list[int],
    cuts: list[int],
    with_handshake: bool,
) -> None:
    pair = Pair(contexts, version)
    pair.shake_hands(tuple(cuts) if with_handshake else ())
    sent = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    for text in sent:
        pair.client.write(text)
    pair.deliver(tuple(cuts))
    assert pair.sink.read == b"".join(sent)


def test_one_read_that_is_larger_than_its_buffer(contexts: Contexts) -> None:
    pair = Pair(contexts)
    pair.shake_hands()
    text = bytes(range(256)) * 8_000
    for begin in range(0, len(text), 16_000):
        pair.client.write(text[begin : begin + 16_000])
    pair.deliver()
    assert pair.sink.read == text


def test_a_large_write_arrives_whole_and_in_order(contexts: Contexts) -> None:
    for kind in [bytes, bytearray, memoryview]:
        pair = Pair(contexts)
        pair.shake_hands()
        text = bytes(range(256)) * 8_000
        pair.transport.write(kind(text))
        pair.transport.write(b"")
        pair.transport.writelines([b"a", memoryview(b"b")])
        assert text[:1000] not in b"".join(pair.raw.writes)
        assert pair.read() == text + b"ab"


def test_the_end_of_the_peer_comes_behind_its_text_and_is_answered(contexts: Contexts) -> None:
    pair = Pair(contexts)
    pair.shake_hands()
    pair.transport.write(b"answer")
    pair.client.write(b"last")
    with pytest.raises(ssl.SSLWantReadError):
        pair.client.unwrap()
    pair.deliver()
    assert pair.sink.read == b"last"
    assert (pair.sink.ends, pair.raw.closing) == (1, True)
    assert pair.read() == b"answer"
    pair.client.unwrap()  # the transport has said its end, too


def test_a_close_tells_the_peer_behind_what_was_written(contexts: Contexts) -> None:
    pair = Pair(contexts)
    pair.shake_hands()
    pair.transport.write(b"answer")
    pair.transport.close()
    pair.transport.write(b"too late")
    assert pair.raw.closing
    assert not pair.raw.aborted
    pair.take()
    assert pair.client.read(100) == b"answer"
    assert pair.client.read(100) == b""


def test_an_abort_says_nothing_more(contexts: Contexts) -> None:
    pair = Pair(contexts)
    pair.shake_hands()
    pair.transport.abort()
    pair.transport.write(b"answer")
    pair.transport.close()
    assert pair.raw.aborted
    assert pair.raw.writes == []


def test_a_broken_record_is_an_error(contexts: Contexts) -> None:
    pair = Pair(contexts)
    pair.shake_hands()
    pair.client.write(b"good")
    pair.deliver()
    with pytest.raises(ssl.SSLError):
        pair.transport.receive(b"\x17\x03\x03\x00\x20" + bytes(32))
    assert pair.sink.read == b"good"


def test_bounds_of_reading_and_writing_are_those_of_the_socket(contexts: Contexts) -> None:
    pair = Pair(contexts)
    pair.shake_hands()
    pair.raw.unread_bytes = 77
    assert pair.transport.get_write_buffer_size() == 77
    pair.transport.pause_reading()
    assert not pair.raw.reading
    pair.transport.resume_reading()
    assert pair.raw.reading
