"""The mounted copy of broker.conf, from which a running broker takes what 25 may not set."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from failback.broker.config.config import BrokerConfig
from failback.broker.config.config_keys import FIXED_AT_START, needs_admin
from failback.common.text import why
from failback.protocol.errors import ConfigError
from failback.protocol.properties import properties_of

logger = logging.getLogger(__name__)


class MountedFile:
    """A file of a ConfigMap. The broker's own copy of it is changed by requests; this one is not.

    Args:
        path: The mounted file.
        change: Applies settings and says where they are from, as ``AdminProcessor.change``.
    """

    def __init__(
        self,
        path: Path,
        config: BrokerConfig,
        change: Callable[[Mapping[str, str], str], object],
    ) -> None:
        self.path = path
        self._config = config
        self._change = change
        self._read: tuple[int, int] | None = None
        self._wanted: dict[str, str] = {}
        self._problem = ""

    def look(self) -> None:
        """Apply what differs from the running settings; a problem is logged once."""
        try:
            found = self.path.stat()  # a mount replaces a link: another file, or another time
            if self._read != (found.st_ino, found.st_mtime_ns):
                self._wanted = self._settings()
                self._read = found.st_ino, found.st_mtime_ns
            now = self._config.to_properties()
            changes = {key: text for key, text in self._wanted.items() if now.get(key) != text}
            if changes:
                self._change(changes, str(self.path))
            self._problem = ""
        except (ConfigError, OSError) as error:
            problem = why(error) if isinstance(error, OSError) else str(error)
            if problem != self._problem:
                logger.warning("%s: %s; nothing of it was taken", self.path, problem)
            self._problem = problem

    def _settings(self) -> dict[str, str]:
        """Return the keys that 25 may not set and a running broker can change.

        A value with ``${`` is filled in when the container starts.
        """
        guarded = self._config.failback_rules == "guarded"
        read = properties_of(self.path.read_bytes(), self.path).values
        wanted = {
            key: value
            for key, value in read.items()
            if needs_admin(key, guarded=guarded) and key not in FIXED_AT_START and "${" not in value
        }
        planned, _ = self._config.planned(wanted)
        spelled = planned.to_properties()
        return {key: spelled[key] for key in wanted if key in spelled}
