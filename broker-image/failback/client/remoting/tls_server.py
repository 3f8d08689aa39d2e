"""TLS on the ports of a server: plain and TLS connections on one port, and its certificate.

The first byte of a connection tells what it speaks. The server's own protocols stay as they are:
they read plain bytes, and write them to a :class:`TlsTransport`. ``asyncio.start_tls`` would need
that first byte back.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from _ssl import _test_decode_cert  # type: ignore[attr-defined]  # the one that reads dates
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol, cast

from failback.client.remoting.guarded.tls_properties import (
    BY_FILE,
    DISABLED,
    ENFORCING,
    FILE,
    TlsProperties,
)
from failback.client.remoting.peer_limits import ConnectionCounts, Refusals
from failback.protocol.errors import ConfigError

logger = logging.getLogger(__name__)

LOOK_MS: Final = 500
HANDSHAKE_SECONDS: Final = 10.0
MOST_HANDSHAKES: Final = 1_000
MOST_HANDSHAKES_PER_ADDRESS: Final = 250
_HELLO: Final = 0x16
"""The first byte of a TLS connection: a record of the handshake. No frame of ours is so long."""
_RECORD_BYTES: Final = 16_384
"""What one record holds at most. OpenSSL keeps the memory of the most bytes that it was given at a
time, for each connection: it is given this many."""
_READ_BYTES: Final = 256 * 1024
_TELL_SECONDS: Final = 1.0
BOUND, CERTIFICATE, CLOSED, PLAIN, PROTOCOL, TIMEOUT = REASONS = (
    "bound",
    "certificate",
    "closed",
    "plain",
    "protocol",
    "timeout",
)
"""Why a connection did not come to TLS. The values of a label."""


class ServedProtocol(Protocol):
    """A server's end of a connection."""

    def connection_made(self, transport: asyncio.BaseTransport, /) -> None: ...

    def take_transport(self, transport: asyncio.Transport, /) -> None:
        """Write to this transport from now on: the connection speaks TLS."""
        ...

    def data_received(self, data: bytes, /) -> None: ...

    def eof_received(self) -> bool | None: ...

    def connection_lost(self, error: Exception | None, /) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


class ServerTls:
    """The certificate of a server, and its connections that speak TLS."""

    def __init__(self, folder: Path | None, mode: Callable[[], str] = lambda: BY_FILE) -> None:
        """Read ``tls.properties`` and what it names.

        Args:
            folder: Where the file is.
            mode: What ``failbackTlsMode`` says now.

        Raises:
            ConfigError: Something of it cannot be used, and TLS is not disabled.
        """
        self._folder = folder
        self._wanted = mode
        self._mode = DISABLED
        self._tried = b""
        self._had_file = False
        self.context: ssl.SSLContext | None = None
        """For the next connection; ``None``: no certificate is named."""
        self.not_after: float | None = None
        """When the certificate expires, seconds since the epoch."""
        self.problem = ""
        """Why the newest files are not in use; empty: they are."""
        self.connections = 0
        self.handshake_seconds = HANDSHAKE_SECONDS
        self.handshakes = ConnectionCounts(
            lambda: MOST_HANDSHAKES, lambda: MOST_HANDSHAKES_PER_ADDRESS
        )
        self.failures = Refusals(REASONS)
        self.buffer = memoryview(bytearray(_READ_BYTES + 2 * _RECORD_BYTES))
        """What one read holds, decrypted."""
        if mode() == DISABLED:
            self.look()
        else:
            self._read()
            self.check(mode())

    @property
    def mode(self) -> str:
        return self._mode_by(self._wanted())

    def _mode_by(self, wanted: str) -> str:
        return self._mode if wanted == BY_FILE else wanted

    def check(self, mode: str) -> None:
        """Check a value of ``failbackTlsMode``.

        Raises:
            ConfigError: It needs a certificate, and there is none.
        """
        needed = self._mode_by(mode)
        if self.context is not None or needed == DISABLED:
            return
        if self._folder is None:
            problem = f"is {mode}, but there is no folder of {FILE}: set failbackAccessFolder"
            raise ConfigError("failbackTlsMode", problem)
        raise TlsProperties(self._folder).no_certificate("failbackTlsMode", needed)

    def protect(self, connection: ServedProtocol) -> asyncio.Protocol:
        """Return what an accepted socket talks to: ``connection``, or what finds out about TLS."""
        if self.mode == DISABLED:
            return cast(asyncio.Protocol, connection)
        return _FirstByte(self, connection)

    def look(self) -> None:
        """Take over files that have changed; a problem is logged once."""
        try:
            if self._read():
                logger.info("tls: %s with the files in %s", self.mode, self._folder)
            self.problem = ""
        except ConfigError as error:
            if str(error) != self.problem:
                logger.error("tls: the certificate read before stays in use: %s", error)
            self.problem = str(error)

    def _read(self) -> bool:
        """Read the files; tell whether others than before are in use now."""
        if self._folder is None:
            return False
        tried, self._tried = self._tried, b""
        found = TlsProperties(self._folder)
        if self._had_file and not found.is_there:
            raise ConfigError(FILE, "is gone", file=found.file)
        if found.content == tried and not self.problem:
            self._tried = tried
            return False
        mode, context, wanted = found.mode, found.server_context(), self._wanted()
        needed = mode if wanted == BY_FILE else wanted
        if needed != DISABLED and context is None:
            raise found.no_certificate("" if wanted == BY_FILE else "failbackTlsMode", needed)
        self.not_after = None if found.certificate is None else _not_after(found.certificate)
        self._mode, self.context, self._had_file = mode, context, found.is_there
        self._tried = found.content
        return bool(tried) or found.is_there


def _not_after(certificate: Path) -> float:
    try:
        end = _test_decode_cert(str(certificate))["notAfter"]
    except OSError as error:
        raise ConfigError(FILE, f"{certificate} changes while it is read: {error}") from None
    return float(ssl.cert_time_to_seconds(end))


class _FirstByte(asyncio.Protocol):
    """Finds out what a connection speaks, and hands it to the server's protocol."""

    def __init__(self, server: ServerTls, connection: ServedProtocol) -> None:
        self._server = server
        self._connection = connection
        self._tls: TlsTransport | None = None
        self._timer: asyncio.TimerHandle | None = None
        """Of a handshake that is counted and not finished."""
        self._host = self._peer = "?"
        self._has_failed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        if name := transport.get_extra_info("peername"):
            self._host, self._peer = str(name[0]), f"{name[0]}:{name[1]}"
        self._connection.connection_made(transport)
        if self._server.mode == ENFORCING:
            self._begin()

    def data_received(self, data: bytes) -> None:
        if self._tls is None:
            mode, context = self._server.mode, self._server.context
            is_plain = data[0] != _HELLO
            if is_plain and mode == ENFORCING:
                self._fail(PLAIN, "it does not speak TLS, which this port takes alone")
                return
            if is_plain or context is None or mode == DISABLED:
                self._end()
                self._raw.set_protocol(cast(asyncio.Protocol, self._connection))
                self._connection.data_received(data)
                return
            self._begin()
            if self._has_failed:
                return
            self._tls = TlsTransport(self._raw, self._connection, context, self._server.buffer)
            self._connection.take_transport(self._tls)
        try:
            self._tls.receive(data)
        except ssl.SSLError as error:
            if not self._tls.is_open:
                self._fail(*_why_failed(error))
                return
            logger.warning("connection %s closed: %s", self._peer, error.reason)
            self._raw.abort()
        if self._timer is not None and self._tls.is_open:
            self._end()
            self._server.connections += 1

    def _begin(self) -> None:
        """Count an unfinished handshake, and give it its time."""
        if self._timer is not None or self._raw.is_closing():
            return
        refusal = self._server.handshakes.enter(self._host)
        if refusal is not None:
            self._fail(BOUND, f"unfinished handshakes: {refusal}")
            return
        loop, seconds = asyncio.get_running_loop(), self._server.handshake_seconds
        late = f"its handshake has not ended within {seconds:g} s"
        self._timer = loop.call_later(seconds, self._fail, TIMEOUT, late)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._server.handshakes.leave(self._host)

    def _fail(self, reason: str, what: str) -> None:
        self._has_failed = True
        self._server.failures.note(reason, self._peer, what)
        self._end()
        self._raw.close()
        # A peer that reads nothing would keep it open for what it is told.
        asyncio.get_running_loop().call_later(_TELL_SECONDS, self._raw.abort)

    def eof_received(self) -> bool | None:
        return self._connection.eof_received()

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._tls is not None and not self._has_failed:
            if not self._tls.is_open:
                self._server.failures.note(CLOSED, self._peer, "it left in the handshake")
            elif self._timer is None:
                self._server.connections -= 1
        self._end()
        self._connection.connection_lost(exc)


def _why_failed(error: ssl.SSLError) -> tuple[str, str]:
    what = str(error.reason or error).replace("_", " ").lower()
    is_about = "certificate" in what or "unknown ca" in what
    return CERTIFICATE if is_about else PROTOCOL, f"its handshake failed: {what}"


class TlsTransport(asyncio.Transport):
    """Encrypts what a protocol writes to ``raw``, and decrypts what comes from it."""

    def __init__(
        self,
        raw: asyncio.Transport,
        protocol: ServedProtocol,
        context: ssl.SSLContext,
        buffer: memoryview,
    ) -> None:
        super().__init__()
        self._raw = raw
        self._protocol = protocol
        self._buffer = buffer
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._in, self._out, server_side=True)
        self.is_open = False
        """Whether the handshake has ended."""

    def receive(self, data: bytes) -> None:
        """Take what the peer sent.

        Raises:
            ssl.SSLError: It broke TLS. What it is told of that is written.
        """
        whole = memoryview(data)
        for at in range(0, len(data), _READ_BYTES):
            try:
                plain, is_at_end = self._decrypted(whole[at : at + _READ_BYTES])
            finally:
                self._send_out()
            if plain:
                self._protocol.data_received(plain)
            if is_at_end and not self._raw.is_closing() and not self._protocol.eof_received():
                self.close()
            if self._raw.is_closing():
                return

    def _decrypted(self, data: memoryview) -> tuple[bytes, bool]:
        """Return what has come in whole records, and whether the peer sends no more."""
        size, buffer = 0, self._buffer
        for at in range(0, len(data), _RECORD_BYTES):
            self._in.write(data[at : at + _RECORD_BYTES])
            try:
                if not self.is_open:
                    self._ssl.do_handshake()
                    self.is_open = True
                while self._in.pending:
                    got = self._ssl.read(_RECORD_BYTES, buffer[size:])
                    if not got:
                        return bytes(buffer[:size]), True
                    size += int(got)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLZeroReturnError:
                return bytes(buffer[:size]), True
        return bytes(buffer[:size]), False

    def _send_out(self) -> None:
        if self._out.pending:
            self._raw.write(self._out.read())

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send; after the handshake only."""
        if self._raw.is_closing():
            return
        rest = memoryview(data)
        while rest:
            self._ssl.write(rest[:_RECORD_BYTES])
            self._send_out()
            rest = rest[_RECORD_BYTES:]

    def close(self) -> None:
        """Close once everything written has been sent, and the peer told that it was all."""
        if self._raw.is_closing():
            return
        if self.is_open:
            with suppress(ssl.SSLError):  # it wants the peer's word, which is not waited for
                self._ssl.unwrap()
            self._send_out()
        self._raw.close()

    def abort(self) -> None:
        self._raw.abort()

    def is_closing(self) -> bool:
        return self._raw.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._raw.get_extra_info(name, default)

    def pause_reading(self) -> None:
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._raw.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size()
