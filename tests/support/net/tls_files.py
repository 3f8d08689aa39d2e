"""The folder of a server that takes TLS: tls.properties, certificate, key and CA."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.net.certificates import Authority, Certificate


class TlsFolder:
    """``tls.properties`` and what it names; ``settings`` replace or add lines, by name.

    Names are written without dots: ``server_need_client_auth``.
    """

    def __init__(
        self, path: Path, authority: Authority, server: Certificate, **settings: str
    ) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        shutil.copy(authority.file, path / "ca.crt")
        self.serve_with(server)
        self._settings = {
            "server.certPath": "tls.crt",
            "server.keyPath": "tls.key",
            "server.trustCertPath": "ca.crt",
            "client.trustCertPath": "ca.crt",
        }
        self.set(**settings)

    def set(self, **settings: str) -> None:
        """Change lines of the file."""
        self._settings |= {name.replace("_", "."): value for name, value in settings.items()}
        lines = [f"tls.{name}={value}\n" for name, value in self._settings.items()]
        (self.path / "tls.properties").write_text("".join(lines))

    @contextmanager
    def but(self, **settings: str) -> Iterator[None]:
        """Change lines of the file for a while."""
        before = dict(self._settings)
        self.set(**settings)
        yield
        self._settings = before
        self.set()

    def serve_with(self, server: Certificate) -> None:
        """Give it another certificate."""
        shutil.copy(server.chain, self.path / "tls.crt")
        shutil.copy(server.key, self.path / "tls.key")
