"""tls.properties of a server: which TLS it takes, and whether its own connections speak it.

The names are those of TlsSystemConfig, apache/rocketmq 4.9.8, which takes two of them from the
command line alone: ``tls.server.mode`` and ``tls.enable``. ``tls.test.mode.enable`` counts for
nothing: no certificate is made here.
"""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path
from typing import Final

from failback.client.remoting.guarded.tls import Tls, TlsFiles, renamed
from failback.common.text import why
from failback.protocol.errors import ConfigError
from failback.protocol.properties import properties_of

FILE: Final = "tls.properties"
DISABLED, PERMISSIVE, ENFORCING = MODES = ("disabled", "permissive", "enforcing")
BY_FILE: Final = "file"
"""The value of ``failbackTlsMode`` that leaves the mode to the file."""
_MODE: Final = "tls.server.mode"
_CERTIFICATE: Final = "tls.server.certPath"
_KEY: Final = "tls.server.keyPath"
_TRUSTED: Final = "tls.server.trustCertPath"
_CLIENTS: Final = "tls.server.need.client.auth"
_VERIFY_CLIENTS: Final = "tls.server.authClient"
_VERIFY_SERVERS: Final = "tls.client.authServer"
_FILES: Final = (_CERTIFICATE, _KEY, _TRUSTED)
_CLIENT_KEYS: Final = {
    "--tls-ca": "tls.client.trustCertPath",
    "--tls-cert": "tls.client.certPath",
    "--tls-key": "tls.client.keyPath",
}
_VERIFIED: Final = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "require": ssl.CERT_REQUIRED,
}


class TlsProperties:
    """The file as it is now. Paths in it begin in its folder."""

    def __init__(self, folder: Path) -> None:
        """Read the file, if it is there, and what it names for the server.

        Raises:
            ConfigError: One cannot be read: names it.
        """
        self.file = folder / FILE
        self.is_there = True
        try:
            data = self.file.read_bytes()
        except FileNotFoundError:
            data, self.is_there = b"", False
        except OSError as error:
            raise ConfigError(FILE, f"cannot be read: {why(error)}", file=self.file) from None
        read = properties_of(data, self.file)
        self._values = {key: value.strip() for key, value in read.values.items()}
        self._lines = read.lines
        digest = hashlib.sha256(data)
        for key in _FILES:
            if path := self._path(key):
                try:
                    digest.update(b"\0" + path.read_bytes())
                except OSError as error:
                    raise self._error(key, f"{path}: {why(error)}") from None
        self.content = digest.digest()
        """Of all that was read: it differs when one of the files does."""

    @property
    def mode(self) -> str:
        """Which connections are taken. Without a setting: permissive if there is a certificate.

        Raises:
            ConfigError: There is no such mode.
        """
        default = PERMISSIVE if self._values.get(_CERTIFICATE) else DISABLED
        return self._choice(_MODE, default, MODES)

    @property
    def certificate(self) -> Path | None:
        return self._path(_CERTIFICATE)

    def server_context(self) -> ssl.SSLContext | None:
        """Return what handshakes of peers need; ``None``: no certificate is named.

        Raises:
            ConfigError: A file is not what it should be, or settings do not fit: names the key.
        """
        certificate, key = self.certificate, self._path(_KEY)
        if certificate is None or key is None:
            if certificate or key:
                missing = _KEY if certificate else _CERTIFICATE
                raise self._error(missing, "must be set: a certificate has a key")
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        password = self._values.get("tls.server.keyPassword", "")
        try:
            context.load_cert_chain(certificate, key, password=lambda: password)
        except (OSError, ValueError):
            problem = f"{key} is no key of {certificate}, or its password is another one,"
            raise self._error(_CERTIFICATE, f"{problem} or one of them is not PEM") from None
        wanted = self._choice(_CLIENTS, "none", tuple(_VERIFIED))
        if wanted != "none":
            self._verify_clients(context, wanted)
        return context

    def _verify_clients(self, context: ssl.SSLContext, wanted: str) -> None:
        if not self._is_true(_VERIFY_CLIENTS):
            problem = f"must be true with {_CLIENTS}={wanted}: else every certificate were taken"
            raise self._error(_VERIFY_CLIENTS, problem)
        trusted = self._path(_TRUSTED)
        if trusted is None:
            raise self._error(_TRUSTED, f"must be set with {_CLIENTS}={wanted}")
        try:
            context.load_verify_locations(trusted)
        except OSError:
            raise self._error(_TRUSTED, f"{trusted} has no certificate in PEM") from None
        context.verify_mode = _VERIFIED[wanted]

    def client_tls(self, *, use_tls: bool = False) -> Tls | None:
        """Return the TLS of the server's own connections; ``None``: they are plain.

        Args:
            use_tls: They speak TLS also without ``tls.enable``.

        Raises:
            ConfigError: A file is not what it should be, or servers were not verified.
        """
        if not (use_tls or self._is_true("tls.enable")):
            return None
        if self._values.get(_VERIFY_SERVERS) and not self._is_true(_VERIFY_SERVERS):
            raise self._error(_VERIFY_SERVERS, "must be true: servers are always verified")
        ca, certificate, key = map(self._path, _CLIENT_KEYS.values())
        password = self._values.get("tls.client.keyPassword", "")
        try:
            return Tls(TlsFiles(ca, certificate, key, password=password), names=_CLIENT_KEYS)
        except ConfigError as error:
            field, problem = (renamed(each, _CLIENT_KEYS) for each in (error.field, error.problem))
            raise self._error(field, problem) from None

    def no_certificate(self, key: str, mode: str) -> ConfigError:
        """Return the error of a mode that needs a certificate, where none is named."""
        problem = f"is {mode}, but {self.file} does not name certificate and key"
        return ConfigError(key or _MODE, f"{problem}: {_CERTIFICATE}, {_KEY}")

    def _path(self, key: str) -> Path | None:
        text = self._values.get(key)
        return self.file.parent / text if text else None

    def _is_true(self, key: str) -> bool:
        return self._values.get(key, "").lower() == "true"

    def _choice(self, key: str, default: str, choices: tuple[str, ...]) -> str:
        value = (self._values.get(key) or default).lower()
        if value not in choices:
            raise self._error(key, f"must be one of {', '.join(choices)}, is {value!r}")
        return value

    def _error(self, key: str, problem: str) -> ConfigError:
        error = ConfigError(key, problem, file=self.file)
        error.line = self._lines.get(key)
        return error
