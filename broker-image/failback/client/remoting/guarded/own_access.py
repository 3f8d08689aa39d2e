"""How a broker and the tools in its pod ask others: by the files of one folder, as they are now.

``tools.yml`` has the key that signs. Connections speak TLS by ``useTLS`` of broker.conf, or by
``tls.enable`` in ``tls.properties``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from failback.client.remoting.guarded.access import LOOK_SECONDS, ClusterAccess, KeyFile, stamp_of
from failback.client.remoting.guarded.tls import Tls, TlsFiles
from failback.client.remoting.guarded.tls_properties import FILE, TlsProperties
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import ConfigError

logger = logging.getLogger(__name__)

KEY_FILE: Final = "tools.yml"


class OwnSettings(NamedTuple):
    """What broker.conf says of own requests."""

    folder: Path | None
    """Of the files; ``None``: there is none."""
    use_tls: bool

    @classmethod
    def of(cls, properties: Mapping[str, str], conf: Path | None) -> OwnSettings:
        """Take them from the properties of a file ``conf``, also of one of Apache's brokers."""
        use_tls = properties.get("useTLS", "").strip().lower() == "true"
        return cls(access_folder(properties.get("failbackAccessFolder", ""), conf), use_tls)


def access_folder(named: str, conf: Path | None) -> Path | None:
    """Return the folder of the files of access control: as named, or that of broker.conf."""
    if named.strip():
        return Path(named.strip())
    return None if conf is None else conf.parent


class OwnAccess(ClusterAccess):
    """Files count for the next request or connection; those that cannot be used change nothing."""

    def __init__(self, settings: Callable[[], OwnSettings]) -> None:
        """Read nothing yet; ``settings`` are asked for each connection."""
        super().__init__()
        self._settings = settings
        self._seen: object = None
        self._had_file = False
        self._look_at = 0.0
        self._problems: dict[str, str] = {}

    def load(self) -> None:
        """Read the files.

        Raises:
            ConfigError: One cannot be used.
        """
        self._take_key()
        self._take_tls()

    def check(self, settings: OwnSettings) -> None:
        """Check what the settings are to become.

        Raises:
            ConfigError: With them connections could not be made.
        """
        if settings == self._settings():
            return
        if settings.use_tls and not (settings.folder and stamp_of(settings.folder / FILE)):
            where = settings.folder or "a folder: set failbackAccessFolder"
            raise ConfigError("useTLS", f"is true, but there is no {FILE} in {where}")
        _tls_of(settings)

    @property
    def tls(self) -> Tls | None:
        self._try(self._take_tls)
        return self._tls

    def sign(self, request: RemotingCommand) -> None:
        if self.key_file is None and time.monotonic() >= self._look_at:
            self._try(self._take_key)
        super().sign(request)

    def _try(self, take: Callable[[], None]) -> None:
        problem, name = "", take.__name__
        try:
            take()
        except ConfigError as error:
            problem = str(error)
        if problem and problem != self._problems.get(name):
            logger.error("own requests stay as they are: %s", problem)
        self._problems[name] = problem

    def _take_key(self) -> None:
        self._look_at = time.monotonic() + LOOK_SECONDS
        folder = self._settings().folder
        if folder is not None and stamp_of(folder / KEY_FILE):
            self.key_file = KeyFile(folder / KEY_FILE, KEY_FILE)
            logger.info("own requests are signed by %s", self.key_file.path)

    def _take_tls(self) -> None:
        settings = self._settings()
        file = settings.folder / FILE if settings.folder else None
        stamp = stamp_of(file) if file is not None else None
        if (settings, stamp) == self._seen:
            return
        if self._had_file and stamp is None:
            raise ConfigError(FILE, "is gone", file=file)
        tls = _tls_of(settings)
        if (tls is None) != (self._tls is None):
            logger.info("own connections speak %s from now on", "TLS" if tls else "no TLS")
        self._tls, self._seen, self._had_file = tls, (settings, stamp), stamp is not None


def _tls_of(settings: OwnSettings) -> Tls | None:
    if settings.folder is None:
        return Tls(TlsFiles()) if settings.use_tls else None
    return TlsProperties(settings.folder).client_tls(use_tls=settings.use_tls)
