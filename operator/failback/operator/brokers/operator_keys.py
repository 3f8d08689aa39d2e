"""The operator's own keys: a folder of a mounted Secret, whose files name resources.

``NAMESPACE.NAME.tools.yml`` signs requests to the pods of that BrokerCluster or NameServer, and to
no other address: a resource cannot have the operator sign for a cluster that is not its own.
``NAMESPACE.NAME.ca.crt`` verifies their certificates, and ``NAMESPACE.NAME.tls.crt`` with
``NAMESPACE.NAME.tls.key`` is shown to those that ask for one.
"""

from __future__ import annotations

import logging
from pathlib import Path

from failback.client.remoting.guarded.access import ClusterAccess, KeyFile
from failback.client.remoting.guarded.tls import Tls, TlsFiles
from failback.protocol.errors import ConfigError

logger = logging.getLogger(__name__)


class OperatorKeys:
    """The keys of a folder; files may come, change and go.

    Args:
        folder: ``None``: there are none.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._keys: dict[Path, KeyFile] = {}
        self._tls: dict[Path, Tls] = {}
        self._problems: dict[str, str] = {}

    def has_key(self, namespace: str, name: str) -> bool:
        """Tell whether requests to a resource's pods can be signed."""
        return self._key_file(namespace, name) is not None

    def of(self, namespace: str, name: str, *, tls: bool, signed: bool = True) -> ClusterAccess:
        """Return how the pods of a resource are asked.

        Args:
            tls: They are asked over TLS.
            signed: The pods are known to be the resource's own.
        """
        key = self._key_file(namespace, name) if signed else None
        return ClusterAccess(key, self._tls_of(namespace, name) if tls else None)

    def _key_file(self, namespace: str, name: str) -> KeyFile | None:
        path = self._path(namespace, name, "tools.yml")
        if path is None:
            return None
        try:
            if path not in self._keys:
                self._keys[path] = KeyFile(path, "access.secretName")
        except ConfigError as error:
            self._note(error)
        return self._keys.get(path)

    def _tls_of(self, namespace: str, name: str) -> Tls:
        found = {end: self._path(namespace, name, end) for end in ("ca.crt", "tls.crt", "tls.key")}
        ca, certificate, key = found.values()
        known = ca or Path()
        try:
            if known not in self._tls:
                self._tls[known] = Tls(TlsFiles(ca, certificate, key if certificate else None))
        except ConfigError as error:
            self._note(error)
            return Tls(TlsFiles())  # certificates of the system's authorities alone
        return self._tls[known]

    def _path(self, namespace: str, name: str, end: str) -> Path | None:
        if self._folder is None:
            return None
        path = self._folder / f"{namespace}.{name}.{end}"
        return path if path.is_file() else None

    def _note(self, error: ConfigError) -> None:
        """Log a problem once."""
        if self._problems.get(error.field) != str(error):
            self._problems[error.field] = str(error)
            logger.error("own access: %s", error)
