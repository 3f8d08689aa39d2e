"""TLS to brokers and name servers: contexts of files, and handshakes that fail, in words."""

from __future__ import annotations

import logging
import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from failback.common.text import why
from failback.protocol.errors import ConfigError

logger = logging.getLogger(__name__)

ANY_NAME: Final = "*"
_NOT_YET_VALID, _EXPIRED, _NAME_DIFFERS, _ADDRESS_DIFFERS = 9, 10, 62, 64
"""Results of OpenSSL's verification (X509_V_ERR_...); most others mean an unknown CA."""
_ABOUT_CERTIFICATE: Final = ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE")
"""In the names of alerts of a peer that wants a certificate, or another one."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files, and the name that certificates must have."""

    ca: Path | None = None
    """Certificates to trust; ``None``: those of the system."""
    certificate: Path | None = None
    """Shown to peers that ask for one."""
    key: Path | None = None
    """Of the certificate; ``None``: in the same file."""
    server_name: str = ""
    """Of every peer; empty: the host of its address; ``*``: any."""
    password: str = field(default="", repr=False)
    """Of the key."""


class Tls:
    """The settings of TLS connections. Files that changed are read again for new connections."""

    def __init__(self, files: TlsFiles, names: Mapping[str, str] | None = None) -> None:
        """Read the files.

        Args:
            names: What options of a command are called where the files are named, for messages.

        Raises:
            ConfigError: One cannot be read, or is no certificate or key.
        """
        self.files = files
        self._names = names or {}
        self._stamps = self._look()
        self._context = _context(files)

    @property
    def context(self) -> ssl.SSLContext:
        """For a new connection; of the files as they were read last without an error."""
        stamps = self._look()
        if stamps != self._stamps:
            self._stamps = stamps
            try:
                self._context = _context(self.files)
            except ConfigError as error:
                logger.warning("the certificates read before stay in use: %s", error)
        return self._context

    def name_of(self, host: str) -> str:
        """Return the name that the certificate of ``host`` must have."""
        return host if self.files.server_name in ("", ANY_NAME) else self.files.server_name

    def why_not(self, error: Exception, host: str) -> str:
        """Return why a connection or its handshake failed, and what to do."""
        return renamed(self._why_not(error, host), self._names)

    def _why_not(self, error: Exception, host: str) -> str:
        if isinstance(error, ssl.SSLCertVerificationError):
            return self._why_not_verified(error, host)
        if isinstance(error, ssl.SSLError) and "ALERT" in str(error.reason):
            return self._why_refused(str(error.reason))
        if isinstance(error, (ssl.SSLError, ConnectionError)) and not isinstance(
            error, ConnectionRefusedError
        ):
            return "it ended the TLS handshake: leave out --tls if it does not speak TLS"
        return why(error)

    @property
    def unread_hint(self) -> str:
        """What a peer may mean that ends a connection unread: TLS 1.3 refuses after handshakes."""
        own = self.files.certificate
        if own is None:
            hint = "it answered nothing at all: give --tls-cert and --tls-key if it asks for them"
            return renamed(hint, self._names)
        return f"it answered nothing at all: does it take the client certificate {own}?"

    def _why_not_verified(self, error: ssl.SSLCertVerificationError, host: str) -> str:
        if error.verify_code == _EXPIRED:
            return "its certificate has expired: it must be renewed there"
        if error.verify_code == _NOT_YET_VALID:
            return "its certificate is not valid yet: compare the clocks of both machines"
        if error.verify_code in (_NAME_DIFFERS, _ADDRESS_DIFFERS):
            return (
                f"its certificate is not for {self.name_of(host)}: give the name that it has by"
                f" --tls-server-name, or {ANY_NAME} for any"
            )
        ca = self.files.ca
        trusted = f"no CA in {ca}" if ca is not None else "no CA that this system trusts"
        return f"its certificate is signed by {trusted}: give the file of its CA by --tls-ca"

    def _why_refused(self, reason: str) -> str:
        own = self.files.certificate
        if not any(word in reason for word in _ABOUT_CERTIFICATE):
            return f"it ended the TLS handshake ({reason.replace('_', ' ').lower()})"
        if own is None:
            return "it asks for a client certificate: give --tls-cert and --tls-key"
        return f"it does not take the client certificate {own}: give one of a CA that it trusts"

    def _look(self) -> list[tuple[int, int] | None]:
        files = self.files
        return [_stamp(each) for each in (files.ca, files.certificate, files.key)]


def renamed(text: str, names: Mapping[str, str]) -> str:
    """Return a message with other names of the options."""
    for option, name in names.items():
        text = re.sub(rf"{option}\b(?!-)", name, text)
    return text


def _stamp(path: Path | None) -> tuple[int, int] | None:
    if path is None:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino


def _context(files: TlsFiles) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=files.ca)
    except OSError as error:
        is_content = isinstance(error, ssl.SSLError)
        problem = "has no certificate in PEM" if is_content else why(error)
        raise ConfigError("--tls-ca", f"{files.ca}: {problem}") from None
    # Python 3.13 asks more of a private CA than Java and OpenSSL do.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = files.server_name != ANY_NAME
    if files.certificate is not None:
        _load_own(context, files.certificate, files.key, files.password)
    elif files.key is not None:
        raise ConfigError("--tls-key", "needs --tls-cert, the certificate that it belongs to")
    return context


def _load_own(context: ssl.SSLContext, certificate: Path, key: Path | None, password: str) -> None:
    """Load a certificate; the password of a key is never asked for on a terminal."""
    for option, path in (("--tls-cert", certificate), ("--tls-key", key)):
        try:
            text = b"" if path is None else path.read_bytes()
        except OSError as error:
            raise ConfigError(option, f"{path}: {why(error)}") from None
        if b"ENCRYPTED" in text and not password:
            raise ConfigError(option, f"{path}: the key has a password: give one without")
    try:
        context.load_cert_chain(certificate, key, password=lambda: password)
    except (OSError, ValueError):
        what = f"{key} is no key of {certificate}" if key else f"{certificate} holds no key"
        raise ConfigError("--tls-cert", f"{what}, or one of them is not PEM") from None
